/*
 * transaction.c
 *		Remembering transactions by their full ids.
 */
#include "postgres.h"

#include "access/transam.h"
#include "storage/procarray.h"

#include "transaction.h"

/* Transaction ids are reused after this many. */
#define MAX_TRANSACTION_AGE ((uint64) 1 << 31)

/* The full id of a transaction that was in progress a moment ago. */
FullTransactionId
transaction_full_id(TransactionId xid)
{
	FullTransactionId next = ReadNextFullTransactionId();
	uint32		epoch = EpochFromFullTransactionId(next);

	if (xid > XidFromFullTransactionId(next))
		epoch--;
	return FullTransactionIdFromEpochAndXid(epoch, xid);
}

/*
 * Is a remembered transaction still in progress?  One that this server has not
 * begun was lost in a crash; one that is too old to be a transaction id any
 * more has ended.
 */
bool
transaction_is_in_progress(FullTransactionId id)
{
	FullTransactionId next = ReadNextFullTransactionId();

	if (!FullTransactionIdPrecedes(id, next) ||
		U64FromFullTransactionId(next) - U64FromFullTransactionId(id) > MAX_TRANSACTION_AGE)
		return false;
	return TransactionIdIsInProgress(XidFromFullTransactionId(id));
}
