/*
 * fence.c
 *		How far a stream's log is settled.
 *
 * A sequence hands out ids in one order and transactions commit in another, so
 * a hole in the visible ids may be a message that is still to commit.  Whoever
 * draws ids is inside of the fence: it has a transaction id and holds the
 * fence's lock until its top transaction ends, in that order.  A reader
 * therefore
 *
 *	1. reads the last id drawn,
 *	2. lists the transactions inside of the fence,
 *	3. takes a snapshot,
 *
 * and knows: an id up to the last drawn that the snapshot does not show
 * belongs to one of those listed, or is gone for good.  A transaction becomes
 * visible before it gives up its locks, so one that left before step 2 is
 * visible in step 3.
 *
 * The lock is ROW EXCLUSIVE on a relation that does not exist: its oid is that
 * of the row type of the log.  So it takes the fast path, no command of anybody
 * can take it (nextval and currval lock a sequence for whoever names it, with
 * rights or without), and nothing that locks the log or the sequence is taken
 * for a producer.  The list is remembered by full transaction ids: a prepared
 * transaction has another virtual id after a restart.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "fence.h"
#include "id_sequence.h"
#include "message_log.h"
#include "transaction.h"

/* Log rows that one look for the settled head may read. */
#define SETTLED_HEAD_MAX_ROWS 10000

/*
 * Become a producer of the stream until the top transaction ends.  The lock
 * belongs to the top transaction whatever runs now: a cursor's portal or a
 * savepoint would give it up while the messages live on.
 */
void
fence_enter(const Stream *stream)
{
	ResourceOwner old = CurrentResourceOwner;

	(void) GetTopTransactionId();
	CurrentResourceOwner = TopTransactionResourceOwner;
	LockRelationOid(stream->fence_oid, RowExclusiveLock);
	CurrentResourceOwner = old;
}

/*
 * Wait until no producer of the stream is open, and let none in until the
 * transaction ends.
 */
void
fence_close(const Stream *stream)
{
	LockRelationOid(stream->fence_oid, ExclusiveLock);
}

/* Has the current transaction produced to the stream? */
bool
fence_is_inside(const Stream *stream)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, stream->fence_oid);
	return compat_lock_held_by_me(&tag, RowExclusiveLock);
}

static void
add_holder(FenceMemory *memory, TransactionId xid)
{
	if (TransactionIdIsValid(xid))
		memory->holders[memory->holder_count++] = transaction_full_id(xid);
}

/*
 * Add the transaction ids that a virtual id stands for.  A session's comes
 * first: when it has gone from there because the transaction was prepared,
 * the dummy process of the prepared one is there already.
 */
static void
add_holders_of_vxid(FenceMemory *memory, const VirtualTransactionId *vxid)
{
	PGPROC	   *proc = compat_vxid_proc(vxid);
	VirtualTransactionId other;

	if (proc != NULL)
	{
		GET_VXID_FROM_PGPROC(other, *proc);
		if (VirtualTransactionIdEquals(other, *vxid))
			add_holder(memory, proc->xid);
	}

	pg_read_barrier();

	for (int i = 0; i < max_prepared_xacts; i++)
	{
		proc = &PreparedXactProcs[i];
		GET_VXID_FROM_PGPROC(other, *proc);
		if (VirtualTransactionIdEquals(other, *vxid))
			add_holder(memory, proc->xid);
	}
}

/*
 * Fill the memory with the transactions that are inside of the stream's fence,
 * the current one included.  The caller has read memory->last before.
 * Allocates in the current memory context.
 */
void
fence_list_holders(const Stream *stream, FenceMemory *memory)
{
	LOCKTAG		tag;
	VirtualTransactionId *vxids;
	int			count;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, stream->fence_oid);
	vxids = GetLockConflicts(&tag, ShareLock, &count);

	/* several prepared transactions may share a virtual id after a restart */
	memory->holders = palloc(sizeof(FullTransactionId) * (count + 1) * (max_prepared_xacts + 2));
	memory->holder_count = 0;
	memory->system_identifier = GetSystemIdentifier();
	memory->database = MyDatabaseId;

	for (int i = 0; i < count; i++)
		add_holders_of_vxid(memory, &vxids[i]);
	if (fence_is_inside(stream))
		add_holder(memory, GetTopTransactionIdIfAny());
	pfree(vxids);
}

/* Is there something remembered that has a meaning in this database? */
bool
fence_memory_is_valid(const FenceMemory *memory)
{
	return memory->last > 0 &&
		memory->system_identifier == GetSystemIdentifier() &&
		memory->database == MyDatabaseId;
}

/*
 * Have all the transactions that were remembered ended?  A snapshot that is
 * taken after this returned true shows what they committed.
 */
bool
fence_memory_has_ended(const FenceMemory *memory)
{
	for (int i = 0; i < memory->holder_count; i++)
	{
		if (transaction_is_in_progress(memory->holders[i]))
			return false;
	}
	return true;
}

/*
 * The highest id up to which every one is known to be committed or gone for
 * good, looking from an id on that the caller knows to be settled.  While
 * producers are open this ends at the first hole, or after so many rows, and
 * can be lower than what is settled in truth; it is never higher.
 */
int64
fence_settled_head(const Stream *stream, int64 known_settled)
{
	FenceMemory memory = {0};
	int64		settled = known_settled;
	Snapshot	snapshot;
	LogScan    *scan;

	if (!id_sequence_last(stream->sequence_oid, &memory.last) || memory.last <= known_settled)
		return known_settled;

	/* a standby does not know who produces on the primary */
	if (!RecoveryInProgress())
	{
		fence_list_holders(stream, &memory);
		if (memory.holder_count == 0)
			return memory.last;
	}

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = message_log_scan_begin(stream, snapshot, known_settled + 1, memory.last);
	for (int i = 0; i < SETTLED_HEAD_MAX_ROWS && message_log_scan_next(scan); i++)
	{
		if (message_log_scan_id(scan) != settled + 1)
			break;
		settled++;
	}
	message_log_scan_end(scan);
	UnregisterSnapshot(snapshot);
	return settled;
}
