/*
 * lease_take.c
 *		Taking over claims whose leases have ended.
 *
 * Expired leases are found by an index on their end.  Leases that were resolved
 * leave dead entries in it, so a scan begins where the cursor says that no live
 * lease ends earlier, and looks a little ahead to move that point.  Leases that
 * an open transaction holds would stop it from moving; the cursor lists them.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "lease_take.h"

/*
 * How far ahead of now the scan for expired leases passes dead entries: little
 * in the middle of work; more by a claim that has nothing else to do, so that
 * polling seldom writes.
 */
#define EXPIRY_LOOK_AHEAD_US		(250 * 1000)
#define EXPIRY_LOOK_AHEAD_IDLE_US	(10 * 1000 * 1000)

/*
 * How many messages one claim takes out of lost leases that it cannot deliver
 * by way of these.
 */
#define MAX_UNRETURNABLE 10000

/* How often leases that were stepped over are looked at again. */
#define RECHECK_INTERVAL_US (1000 * 1000)

/* What came of the attempt to take over a claim. */
typedef enum TakeResult
{
	TAKE_DONE,					/* its rows are gone */
	TAKE_BUSY,					/* an open transaction has it */
	TAKE_CHANGED				/* its holder changed it a moment ago */
} TakeResult;

/* The taking over of expired leases by one claim. */
typedef struct LeaseTake
{
	LeaseTables *tables;
	int64		group_id;
	GroupCursor *cursor;
	TimestampTz now;
	int32		max_reclaims;
	int64		max_messages;
	List	   *segments;		/* what was taken, less what is resolved */
	int64		message_count;	/* of these */
	int64		returnable_count;	/* of these, what can be delivered again as
									 * it is */
} LeaseTake;

static bool
is_enough(const LeaseTake *take)
{
	return take->returnable_count >= take->max_messages ||
		take->message_count >= take->max_messages + MAX_UNRETURNABLE;
}

/*
 * Was the lease of a segment's messages lost so often that they go on one by
 * one?
 */
bool
lease_is_spent(const LeaseSegment *segment, int32 max_reclaims)
{
	return !segment->is_released && segment->takeovers >= max_reclaims;
}

/* Add segments, which are gone from the table, without what is resolved. */
static void
add_segments(LeaseTake *take, List *segments, int64 claim_id)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ListCell   *cell;
	int64		claim_size = 0;
	int64		resolved_count;
	int64	   *resolved = lease_load_resolved(take->tables, claim_id, snapshot, &resolved_count);

	UnregisterSnapshot(snapshot);
	foreach(cell, segments)
		claim_size += id_set_count(&((LeaseSegment *) lfirst(cell))->members);
	foreach(cell, segments)
	{
		LeaseSegment *segment = lfirst(cell);

		if (resolved_count > 0)
			id_set_subtract(&segment->members, resolved, resolved_count);
		if (segment->members.run_count == 0)
			continue;
		segment->was_alone = claim_size == 1;
		take->segments = lappend(take->segments, segment);
		take->message_count += id_set_count(&segment->members);
		if (!segment->has_exceptions && !lease_is_spent(segment, take->max_reclaims))
			take->returnable_count += id_set_count(&segment->members);
	}
	if (resolved_count > 0)
		lease_delete_resolved(take->tables, claim_id);
	pfree(resolved);
}

/*
 * Take over an expired claim, unless somebody is at it.  Otherwise *ends_at is
 * when its lease ends.
 */
static TakeResult
take_claim(LeaseTake *take, int64 claim_id, TimestampTz *ends_at)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	List	   *segments = lease_load_claim(take->tables, take->group_id, claim_id, snapshot);
	LeaseSegment *anchor;
	ListCell   *cell;
	TM_Result	result;

	UnregisterSnapshot(snapshot);
	if (segments == NIL)
		return TAKE_DONE;
	anchor = linitial(segments);
	*ends_at = anchor->expires_at;
	if (anchor->expires_at > take->now)
		return TAKE_CHANGED;

	result = lease_delete(take->tables, anchor, false);
	if (result != TM_Ok)
		return result == TM_BeingModified ? TAKE_BUSY : TAKE_CHANGED;
	for_each_from(cell, segments, 1)
		(void) lease_delete(take->tables, lfirst(cell), true);

	/* only now can nobody resolve a message of it any more */
	add_segments(take, segments, claim_id);
	return TAKE_DONE;
}

static bool
is_stepped_over(const GroupCursor *cursor, int64 claim_id)
{
	for (int i = 0; i < cursor->stepped_over_count; i++)
	{
		if (cursor->stepped_over[i] == claim_id)
			return true;
	}
	return false;
}

/* Look again at the leases that were stepped over, and keep those still busy. */
static void
recheck_stepped_over(LeaseTake *take)
{
	GroupCursor *cursor = take->cursor;
	int			kept = 0;

	for (int i = 0; i < cursor->stepped_over_count; i++)
	{
		int64		claim_id = cursor->stepped_over[i];
		TimestampTz ends_at;
		TakeResult	result = is_enough(take) ? TAKE_BUSY : take_claim(take, claim_id, &ends_at);

		/* one that was extended is found by its new end, if the scan will get there */
		if (result == TAKE_BUSY ||
			(result == TAKE_CHANGED && ends_at < cursor->lease_scan_from))
			cursor->stepped_over[kept++] = claim_id;
	}
	cursor->stepped_over_count = kept;
	cursor->recheck_at = take->now + RECHECK_INTERVAL_US;
}

/*
 * Take over the claim of an expired lease that the scan met; says whether the
 * scan's point may move past it.
 */
static bool
take_met_claim(LeaseTake *take, int64 claim_id)
{
	GroupCursor *cursor = take->cursor;
	TimestampTz ends_at;

	if (is_stepped_over(cursor, claim_id))
		return true;
	switch (take_claim(take, claim_id, &ends_at))
	{
		case TAKE_DONE:
			return true;
		case TAKE_BUSY:
			if (cursor->stepped_over_count == CURSOR_MAX_STEPPED_OVER)
				return false;
			if (cursor->stepped_over_count == 0)
				cursor->recheck_at = take->now + RECHECK_INTERVAL_US;
			cursor->stepped_over[cursor->stepped_over_count++] = claim_id;
			return true;
		case TAKE_CHANGED:
			break;
	}
	return false;
}

/*
 * Take over expired leases in the order of their ends, and move the point;
 * "ahead" is how far it may move.
 */
static void
scan_expired(LeaseTake *take, TimestampTz ahead)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TimestampTz point = ahead;
	TimestampTz expires_at;
	int64		claim_id;
	int64		met_claim_id = 0;
	StateScan	scan;

	lease_begin_ends(&scan, take->tables, take->group_id, take->cursor->lease_scan_from, ahead, snapshot);
	while (lease_next_end(&scan, take->tables, &expires_at, &claim_id))
	{
		if (claim_id == met_claim_id)
			continue;
		if (expires_at > take->now || is_enough(take))
		{
			point = Min(point, expires_at);
			break;
		}
		if (!take_met_claim(take, claim_id))
			point = Min(point, expires_at);
		met_claim_id = claim_id;
		CHECK_FOR_INTERRUPTS();
	}
	state_scan_end(&scan);
	UnregisterSnapshot(snapshot);
	take->cursor->lease_scan_from = point;
}

/*
 * Take over expired leases of the group, as a list of segments with at least
 * max_messages messages that can be delivered again if there are so many; the
 * caller puts back what is too much.  Sets *cursor_changed when the cursor has to
 * be written.  is_idle: there are no fresh messages.  The caller holds the group's
 * lock.
 */
List *
lease_take_expired(LeaseTables *tables, int64 group_id, GroupCursor *cursor, bool *cursor_changed,
				   TimestampTz now, bool is_idle, int32 max_reclaims, int64 max_messages)
{
	LeaseTake	take = {
		.tables = tables,
		.group_id = group_id,
		.cursor = cursor,
		.now = now,
		.max_reclaims = max_reclaims,
		.max_messages = max_messages
	};

	/* a time further ahead is from before the clock was set back */
	if (cursor->stepped_over_count > 0 &&
		(now >= cursor->recheck_at || cursor->recheck_at > now + RECHECK_INTERVAL_US))
	{
		recheck_stepped_over(&take);
		*cursor_changed = true;
	}
	if (now >= cursor->lease_scan_from && !is_enough(&take))
	{
		scan_expired(&take, now + (is_idle ? EXPIRY_LOOK_AHEAD_IDLE_US : EXPIRY_LOOK_AHEAD_US));
		*cursor_changed = true;
	}
	return take.segments;
}
