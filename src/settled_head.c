/*
 * settled_head.c
 *		How far a stream is settled, by what its groups have found out.
 *
 * The fence alone tells it at once only while nobody produces; otherwise it
 * walks the log and stops at the first hole (fence.c).  But a group that began
 * at some id has seen every id from there up to its cursor settle, holes
 * included.  So the walk begins where the groups' cursors end.
 */
#include "postgres.h"

#include "nodes/pg_list.h"
#include "utils/snapmgr.h"

#include "config.h"
#include "cursor.h"
#include "fence.h"
#include "settled_head.h"

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
 * The highest id up to which every one is known to be committed or gone for
 * good.  It may be lower than what is settled in truth, and is never higher.
 * Raises SS001 when the stream is dropped meanwhile.
 */
int64
settled_head_find(const Stream *stream)
{
	Snapshot	snapshot;
	List	   *ranges = NIL;
	int64		known;

	if (OidIsValid(stream->cursor_oid))
	{
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		ranges = read_ranges(stream, snapshot);
		UnregisterSnapshot(snapshot);
	}

	/* where no group has been, the walk may lead to where one has */
	known = follow_ranges(ranges, stream->purged_through);
	known = fence_settled_head(stream, known);
	return follow_ranges(ranges, known);
}
