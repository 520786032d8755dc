/*
 * settled_head.c
 *		How far a stream is settled, by what its groups have found out.
 *
 * The fence alone tells it at once only while nobody produces; otherwise it
 * walks the log and stops at the first hole (fence.c).  But a group that began
 * at some id has seen every id from there up to its cursor settle, holes
 * included.  So the walk begins where the groups' cursors end.  And once those
 * who were producing at the start have ended, everything that was drawn by then
 * is settled.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/snapmgr.h"

#include "config.h"
#include "cursor.h"
#include "fence.h"
#include "id_sequence.h"
#include "settled_head.h"

/* How long producers that are open are given to end. */
#define MAX_WAITS	5
#define WAIT_US		1000L

/* Ids that a group has seen settle. */
typedef struct SettledRange
{
	int64		before;			/* the id before the first of them */
	int64		last;
} SettledRange;

/* What the stream's groups have seen settle, as a list of ranges. */
static List *
read_ranges(const Stream *stream, Snapshot snapshot)
{
	ListCell   *cell;
	List	   *ranges = NIL;

	foreach(cell, config_list_groups(stream, snapshot))
	{
		ConfigGroup *group = lfirst(cell);
		GroupCursor cursor;
		SettledRange *range;

		if (!cursor_read(stream, group->group_id, snapshot, &cursor))
			continue;
		range = palloc(sizeof(SettledRange));
		range->before = group->start_id - 1;
		range->last = cursor.claimed;
		ranges = lappend(ranges, range);
	}
	return ranges;
}

/* The last id of those that follow "known" without a gap in the ranges. */
static int64
follow_ranges(List *ranges, int64 known)
{
	ListCell   *cell;
	bool		has_moved;

	do
	{
		has_moved = false;
		foreach(cell, ranges)
		{
			SettledRange *range = lfirst(cell);

			if (range->before <= known && known < range->last)
			{
				known = range->last;
				has_moved = true;
			}
		}
	} while (has_moved);
	return known;
}

/*
 * Have the producers that were remembered ended by now?  Most are short, and
 * are given a few milliseconds; who is open for longer is not waited for.
 */
static bool
has_ended_soon(const Stream *stream, const FenceMemory *memory)
{
	for (int i = 0; i < MAX_WAITS && !fence_is_inside(stream); i++)
	{
		if (fence_memory_has_ended(memory))
			return true;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(WAIT_US);
	}
	return false;
}

/*
 * Set *settled to the highest id up to which every one is known to be committed
 * or gone for good.  It may be lower than what is settled in truth, and is
 * never higher.  Returns false when the stream was dropped.
 */
bool
settled_head_find(const Stream *stream, int64 *settled)
{
	FenceMemory memory = {0};
	Snapshot	snapshot;
	List	   *ranges = NIL;

	if (!id_sequence_last(stream->sequence_oid, &memory.last))
		return false;
	fence_list_holders(stream, &memory);

	if (OidIsValid(stream->cursor_oid))
	{
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		ranges = read_ranges(stream, snapshot);
		UnregisterSnapshot(snapshot);
	}

	/* where no group has been, the walk may lead to where one has */
	*settled = follow_ranges(ranges, stream->purged_through);
	*settled = fence_settled_head(stream, *settled);
	*settled = follow_ranges(ranges, *settled);

	/* a standby does not know who produces on the primary */
	if (*settled < memory.last && !RecoveryInProgress() && has_ended_soon(stream, &memory))
		*settled = memory.last;
	return true;
}
