/*
 * transaction.c
 *		Remembering transactions by their full ids.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/xid8.h"

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

/* The ids as a value of type xid8[]. */
Datum
transaction_ids_to_array(const FullTransactionId *ids, int count)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(count, 1));

	for (int i = 0; i < count; i++)
		elements[i] = FullTransactionIdGetDatum(ids[i]);
	return PointerGetDatum(construct_array(elements, count, XID8OID, sizeof(FullTransactionId),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* The ids in a value of type xid8[] without nulls. */
int
transaction_ids_from_array(Datum array, FullTransactionId **ids)
{
	Datum	   *elements;
	int			count;

	deconstruct_array(DatumGetArrayTypeP(array), XID8OID, sizeof(FullTransactionId),
					  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &elements, NULL, &count);
	*ids = palloc(sizeof(FullTransactionId) * Max(count, 1));
	for (int i = 0; i < count; i++)
		(*ids)[i] = DatumGetFullTransactionId(elements[i]);
	return count;
}
