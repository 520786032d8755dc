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
 * for a producer.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/snapmgr.h"

#include "fence.h"
#include "id_sequence.h"
#include "lock_holders.h"
#include "message_log.h"

/* Log rows that one look for the settled head may read. */
#define SETTLED_HEAD_MAX_ROWS 10000

/* Become a producer of the stream until the top transaction ends. */
void
fence_enter(const Stream *stream)
{
	lock_holders_join(stream->fence_oid);
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
	return lock_holders_include_me(stream->fence_oid);
}

/*
 * Fill the memory with the transactions that are inside of the stream's fence,
 * the current one included.  The caller has read memory->last before.
 * Allocates in the current memory context.
 */
void
fence_list_holders(const Stream *stream, FenceMemory *memory)
{
	memory->holder_count = lock_holders_list(stream->fence_oid, &memory->holders);
	memory->system_identifier = GetSystemIdentifier();
	memory->database = MyDatabaseId;
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
	return lock_holders_have_ended(memory->holders, memory->holder_count);
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
