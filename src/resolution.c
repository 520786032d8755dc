/*
 * resolution.c
 *		What a holder says of its claim: ack, release, extend.
 *
 * How the rows of a claim are guarded is described in lease.c.  Each function
 * reads with a snapshot of its own, so that isolation levels make no
 * difference, and begins with a new command, so that a claim can be resolved
 * in the statement that made it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "duration.h"
#include "errors.h"
#include "lease.h"
#include "resolution.h"

/* Raise SS004. */
static void
raise_lost(const ConsumerGroup *group, int64 claim_id)
{
	ereport(ERROR,
			(errcode(ERRCODE_LEASE_LOST),
			 errmsg("claim %lld of consumer group \"%s\" is not held any more", (long long) claim_id, group->name),
			 errdetail("It is unknown, resolved, taken over, or of another group."),
			 errhint("Roll back: another consumer may process its messages.")));
}

static void
raise_message_lost(const ConsumerGroup *group, int64 claim_id, int64 message_id)
{
	ereport(ERROR,
			(errcode(ERRCODE_LEASE_LOST),
			 errmsg("message %lld is not open in claim %lld of consumer group \"%s\"",
					(long long) message_id, (long long) claim_id, group->name),
			 errdetail("It was never part of the claim, or is resolved already."),
			 errhint("Roll back the work on it.")));
}

static int64
count_members(List *segments)
{
	int64		count = 0;
	ListCell   *cell;

	foreach(cell, segments)
		count += id_set_count(&((LeaseSegment *) lfirst(cell))->members);
	return count;
}

/*
 * The segments of a claim that the snapshot shows, less what was purged from
 * the stream; NIL when nothing is left.
 */
static List *
load_claim(const Stream *stream, LeaseTables *tables, const ConsumerGroup *group, int64 claim_id,
		   Snapshot snapshot)
{
	List	   *segments = lease_load_claim(tables, group->group_id, claim_id, snapshot);
	ListCell   *cell;

	foreach(cell, segments)
		id_set_remove_through(&((LeaseSegment *) lfirst(cell))->members, stream->purged_through);
	return count_members(segments) > 0 ? segments : NIL;
}

/* As load_claim, as things are now. */
static List *
load_claim_now(const Stream *stream, LeaseTables *tables, const ConsumerGroup *group, int64 claim_id)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	List	   *segments = load_claim(stream, tables, group, claim_id, snapshot);

	UnregisterSnapshot(snapshot);
	return segments;
}

/*
 * Remove all rows of a claim, waiting for those who are resolving messages of
 * it, and return its segments with what was open.
 */
static List *
remove_claim(const Stream *stream, LeaseTables *tables, const ConsumerGroup *group, int64 claim_id)
{
	List	   *segments = lease_remove_claim(tables, group->group_id, claim_id);
	ListCell   *cell;

	foreach(cell, segments)
		id_set_remove_through(&((LeaseSegment *) lfirst(cell))->members, stream->purged_through);
	return segments;
}

/*
 * Resolve all messages that are open in a claim; returns how many.  Raises
 * SS004 when there is none.
 */
int64
resolution_ack(const Stream *stream, const ConsumerGroup *group, int64 claim_id)
{
	LeaseTables tables;
	int64		count;

	CommandCounterIncrement();
	lease_open(stream, &tables);
	count = count_members(remove_claim(stream, &tables, group, claim_id));
	if (count == 0)
		raise_lost(group, claim_id);
	lease_close(&tables);
	return count;
}

/* Lock the claim against removal by others and return its segments, or NIL. */
static List *
share_claim(const Stream *stream, LeaseTables *tables, const ConsumerGroup *group, int64 claim_id)
{
	for (;;)
	{
		Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
		List	   *segments = load_claim(stream, tables, group, claim_id, snapshot);
		TM_Result	result = TM_Ok;

		if (segments != NIL)
			result = state_table_lock(&tables->leases, &((LeaseSegment *) linitial(segments))->tid,
									  snapshot, LockTupleKeyShare);
		UnregisterSnapshot(snapshot);
		if (result == TM_Ok)
			return segments;
	}
}

/* The claim's message with this many lower ones, segment by segment. */
static int64
nth_member(List *segments, int64 n)
{
	ListCell   *cell;

	foreach(cell, segments)
	{
		const IdSet *members = &((LeaseSegment *) lfirst(cell))->members;
		int64		count = id_set_count(members);

		if (n < count)
			return id_set_nth(members, n);
		n -= count;
	}
	elog(ERROR, "claim has no message number " INT64_FORMAT, n);
	return 0;
}

static bool
is_member(List *segments, int64 message_id)
{
	ListCell   *cell;

	foreach(cell, segments)
	{
		if (id_set_contains(&((LeaseSegment *) lfirst(cell))->members, message_id))
			return true;
	}
	return false;
}

static int64
greatest_common_divisor(int64 a, int64 b)
{
	while (b != 0)
	{
		int64		rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/*
 * Are all messages of the claim resolved?  Looks at them in a random order
 * until it meets one that is not: whatever the order in which a holder acks,
 * all of its n acks together look at no more than n log n messages.
 */
static bool
is_complete(LeaseTables *tables, List *segments, int64 claim_id)
{
	int64		count = count_members(segments);
	int64		place = (int64) pg_prng_uint64_range(&pg_global_prng_state, 0, count - 1);
	int64		stride;
	Snapshot	snapshot;
	bool		complete = true;

	do
		stride = (int64) pg_prng_uint64_range(&pg_global_prng_state, 1, count);
	while (greatest_common_divisor(stride, count) != 1);

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	for (int64 i = 0; complete && i < count; i++)
	{
		complete = lease_is_resolved(tables, claim_id, nth_member(segments, place), snapshot);
		place = (place + stride) % count;
	}
	UnregisterSnapshot(snapshot);
	return complete;
}

/*
 * Remove a claim of which nothing is open any more.  If another transaction has
 * locked it just now it stays, and goes when its lease has ended.
 */
static void
remove_if_complete(LeaseTables *tables, List *segments, int64 claim_id)
{
	ListCell   *cell;

	CommandCounterIncrement();
	if (!is_complete(tables, segments, claim_id) ||
		lease_delete(tables, linitial(segments), false) != TM_Ok)
		return;
	for_each_from(cell, segments, 1)
		(void) lease_delete(tables, lfirst(cell), false);
	lease_delete_resolved(tables, claim_id);
}

/* Take messages out of a claim that is shared.  Raises SS004. */
static void
resolve_messages(LeaseTables *tables, const ConsumerGroup *group, List *segments, int64 claim_id,
				 const int64 *sorted_ids, int64 count)
{
	for (int64 i = 0; i < count; i++)
	{
		if (!is_member(segments, sorted_ids[i]) ||
			!lease_insert_resolved(tables, claim_id, sorted_ids[i]))
			raise_message_lost(group, claim_id, sorted_ids[i]);
		CHECK_FOR_INTERRUPTS();
	}
	remove_if_complete(tables, segments, claim_id);
}

/*
 * Resolve some messages of a claim, given as rising ids; returns how many.
 * Raises SS004 unless all are open in the claim.
 */
int64
resolution_ack_messages(const Stream *stream, const ConsumerGroup *group, int64 claim_id,
						const int64 *sorted_ids, int64 count)
{
	LeaseTables tables;
	List	   *segments;

	CommandCounterIncrement();
	lease_open(stream, &tables);
	segments = share_claim(stream, &tables, group, claim_id);
	if (segments == NIL)
		raise_lost(group, claim_id);
	if (count > 0)
		resolve_messages(&tables, group, segments, claim_id, sorted_ids, count);
	lease_close(&tables);
	return count;
}

/*
 * Let the group's next claim find what was handed back.  Takes the group's
 * lock, after the rows of the claim: a claim never waits for those.
 */
static void
lower_hint(const Stream *stream, const ConsumerGroup *group, TimestampTz now)
{
	GroupCursor cursor;

	group_lock(group);
	cursor_load(stream, group, &cursor);
	lease_hint_not_after(&cursor, now);
	cursor_write(stream, group->group_id, &cursor);
}

/* Store messages as a claim that nobody holds and that has expired. */
static void
insert_released(LeaseTables *tables, const ConsumerGroup *group, LeaseSegment *segment,
				int64 claim_id, TimestampTz now)
{
	segment->claim_id = claim_id;
	segment->expires_at = now;
	segment->is_released = true;
	lease_insert(tables, group->group_id, segment);
}

/* Hand back all messages that are open in a claim; returns how many. */
int64
resolution_release(const Stream *stream, const ConsumerGroup *group, int64 claim_id)
{
	LeaseTables tables;
	List	   *segments;
	ListCell   *cell;
	int64		released_id = lease_draw_claim_id();
	TimestampTz now;
	int64		count;

	CommandCounterIncrement();
	lease_open(stream, &tables);
	segments = remove_claim(stream, &tables, group, claim_id);
	count = count_members(segments);
	now = GetCurrentTimestamp();
	foreach(cell, segments)
	{
		LeaseSegment *segment = lfirst(cell);

		if (segment->members.run_count > 0)
			insert_released(&tables, group, segment, released_id, now);
	}
	if (count > 0)
		lower_hint(stream, group, now);
	lease_close(&tables);
	return count;
}

/*
 * Hand back some messages of a claim, given as rising ids; returns how many, 0
 * when the claim is gone.  Raises SS004 unless all are open in the claim.
 */
int64
resolution_release_messages(const Stream *stream, const ConsumerGroup *group, int64 claim_id,
							const int64 *sorted_ids, int64 count)
{
	LeaseTables tables;
	List	   *segments;
	ListCell   *cell;
	int64		released_id = lease_draw_claim_id();
	TimestampTz now;

	CommandCounterIncrement();
	lease_open(stream, &tables);
	segments = share_claim(stream, &tables, group, claim_id);
	if (segments == NIL || count == 0)
	{
		lease_close(&tables);
		return 0;
	}
	resolve_messages(&tables, group, segments, claim_id, sorted_ids, count);

	now = GetCurrentTimestamp();
	foreach(cell, segments)
	{
		LeaseSegment released = *(LeaseSegment *) lfirst(cell);

		id_set_init(&released.members);
		for (int64 i = 0; i < count; i++)
		{
			if (id_set_contains(&((LeaseSegment *) lfirst(cell))->members, sorted_ids[i]))
				id_set_append(&released.members, sorted_ids[i]);
		}
		if (released.members.run_count > 0)
			insert_released(&tables, group, &released, released_id, now);
	}
	lower_hint(stream, group, now);
	lease_close(&tables);
	return count;
}

/*
 * Make a claim's lease end lease_us from now (0: as long as it was made for)
 * unless it ends later already; returns its end.  While another transaction has
 * the claim it is left as it is.  Raises SS004 when the claim is gone.
 */
TimestampTz
resolution_extend(const Stream *stream, const ConsumerGroup *group, int64 claim_id, int64 lease_us)
{
	LeaseTables tables;
	List	   *segments;
	LeaseSegment *anchor;
	ListCell   *cell;
	TM_Result	result;
	TimestampTz end;

	CommandCounterIncrement();
	lease_open(stream, &tables);
	do
	{
		segments = load_claim_now(stream, &tables, group, claim_id);
		if (segments == NIL)
			raise_lost(group, claim_id);
		anchor = linitial(segments);
		end = duration_add(GetCurrentTimestamp(), lease_us > 0 ? lease_us : anchor->lease_us);
		if (end <= anchor->expires_at)
		{
			lease_close(&tables);
			return anchor->expires_at;
		}
		result = lease_delete(&tables, anchor, false);
	} while (result != TM_Ok && result != TM_BeingModified);

	if (result == TM_BeingModified)
		end = anchor->expires_at;
	else
	{
		for_each_from(cell, segments, 1)
			(void) lease_delete(&tables, lfirst(cell), true);
		foreach(cell, segments)
		{
			LeaseSegment *segment = lfirst(cell);

			segment->expires_at = end;
			if (segment->members.run_count > 0)
				lease_insert(&tables, group->group_id, segment);
		}
	}
	lease_close(&tables);
	return end;
}
