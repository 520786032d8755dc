/*
 * lock_holders.c
 *		Who holds a lock on a relation to the end of its transaction.
 *
 * Whoever joins has a transaction id and holds ROW EXCLUSIVE on the relation
 * until its top transaction ends, in that order.  So all transactions that have
 * joined and may still commit can be listed at any time, without waiting.
 *
 * The list is remembered by full transaction ids: a prepared transaction has
 * another virtual id after a restart.
 */
#include "postgres.h"

#include "access/twophase.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/resowner.h"

#include "compat.h"
#include "lock_holders.h"
#include "transaction.h"

/*
 * Hold the lock until the top transaction ends.  It belongs to that whatever
 * runs now: a cursor's portal or a savepoint would give it up while what was
 * written under it lives on.
 */
void
lock_holders_join(Oid relation)
{
	ResourceOwner old = CurrentResourceOwner;

	(void) GetTopTransactionId();
	CurrentResourceOwner = TopTransactionResourceOwner;
	LockRelationOid(relation, RowExclusiveLock);
	CurrentResourceOwner = old;
}

/* Has the current transaction joined? */
bool
lock_holders_include_me(Oid relation)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relation);
	return compat_lock_held_by_me(&tag, RowExclusiveLock);
}

static void
add_holder(FullTransactionId *holders, int *count, TransactionId xid)
{
	if (TransactionIdIsValid(xid))
		holders[(*count)++] = transaction_full_id(xid);
}

/*
 * Add the transaction ids that a virtual id stands for.  A session's comes
 * first: when it has gone from there because the transaction was prepared,
 * the dummy process of the prepared one is there already.
 */
static void
add_holders_of_vxid(FullTransactionId *holders, int *count, const VirtualTransactionId *vxid)
{
	PGPROC	   *proc = compat_vxid_proc(vxid);
	VirtualTransactionId other;

	if (proc != NULL)
	{
		GET_VXID_FROM_PGPROC(other, *proc);
		if (VirtualTransactionIdEquals(other, *vxid))
			add_holder(holders, count, proc->xid);
	}

	pg_read_barrier();

	for (int i = 0; i < max_prepared_xacts; i++)
	{
		proc = &PreparedXactProcs[i];
		GET_VXID_FROM_PGPROC(other, *proc);
		if (VirtualTransactionIdEquals(other, *vxid))
			add_holder(holders, count, proc->xid);
	}
}

/*
 * List the transactions that have joined, the current one included.  One that
 * has a lock that conflicts with SHARE otherwise, as ANALYZE, is listed as well.
 * Allocates in the current memory context.
 */
int
lock_holders_list(Oid relation, FullTransactionId **holders)
{
	LOCKTAG		tag;
	VirtualTransactionId *vxids;
	int			vxid_count;
	int			count = 0;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relation);
	vxids = GetLockConflicts(&tag, ShareLock, &vxid_count);

	/* several prepared transactions may share a virtual id after a restart */
	*holders = palloc(sizeof(FullTransactionId) * (vxid_count + 1) * (max_prepared_xacts + 2));
	for (int i = 0; i < vxid_count; i++)
		add_holders_of_vxid(*holders, &count, &vxids[i]);
	if (lock_holders_include_me(relation))
		add_holder(*holders, &count, GetTopTransactionIdIfAny());
	pfree(vxids);
	return count;
}

/*
 * Have all the transactions that were listed ended?  A snapshot that is taken
 * after this returned true shows what they committed.
 */
bool
lock_holders_have_ended(const FullTransactionId *holders, int count)
{
	for (int i = 0; i < count; i++)
	{
		if (transaction_is_in_progress(holders[i]))
			return false;
	}
	return true;
}
