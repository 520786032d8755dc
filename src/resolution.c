/*
 * resolution.c
 *		What a holder says of its claim.
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
#include "key_followers.h"
#include "key_wakeup.h"
#include "resolution.h"

/* Raise SS004. */
void
resolution_raise_lost(const ConsumerGroup *group, int64 claim_id)
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
			 errdetail("It was never part of the claim, is resolved already, or waits behind a message of its key that failed."),
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

/* A call that resolves messages of one claim. */
typedef struct ResolutionCall
{
	const Stream *stream;
	const ConsumerGroup *group;
	int64		claim_id;
	const Resolution *named;	/* by id */
	int64		named_count;
	const Resolution *others;	/* NULL: they stay */
	LeaseTables tables;
	OutcomeWriter writer;
	bool		has_keys;		/* a message of the claim may have had a key */
	int64		resolved_count;
	int64		released_id;	/* the claim of what is handed back; 0: nothing yet */
	TimestampTz released_at;
} ResolutionCall;

/* What the call says of a message: its own resolution, or that of the others. */
static const Resolution *
find_resolution(const ResolutionCall *call, int64 message_id)
{
	const Resolution *named = NULL;

	if (call->named_count > 0)
		named = bsearch(&message_id, call->named, call->named_count, sizeof(Resolution), id_compare);
	return named != NULL ? named : call->others;
}

/*
 * Do what a resolution says to a message of the segment.  A fresh one that is
 * released is added to a set.
 */
static void
resolve_message(ResolutionCall *call, const LeaseSegment *segment, int64 message_id,
				const Resolution *resolution, IdSet *released)
{
	call->resolved_count++;
	outcome_write(&call->writer, segment, message_id, resolution->outcome,
				  resolution->error, resolution->delay_us);
	if (resolution->outcome == OUTCOME_DEFERRED)
		key_followers_defer(&call->writer, resolution->key, message_id);
	if (resolution->outcome == OUTCOME_RELEASE && !segment->has_exceptions &&
		segment->keys == LEASE_KEYS_NONE)
		id_set_append(released, message_id);
}

/* Store messages of a segment as a claim that nobody holds and that has expired. */
static void
insert_released(ResolutionCall *call, const LeaseSegment *segment, const IdSet *members)
{
	LeaseSegment released = *segment;

	if (members->run_count == 0)
		return;
	if (call->released_id == 0)
	{
		call->released_id = lease_draw_claim_id();
		call->released_at = GetCurrentTimestamp();
	}
	released.claim_id = call->released_id;
	released.members = *members;
	released.expires_at = call->released_at;
	released.is_released = true;
	lease_insert(&call->tables, call->group->group_id, &released);
}

/* Resolve all open messages of a segment. */
static void
resolve_segment(ResolutionCall *call, const LeaseSegment *segment)
{
	const IdSet *members = &segment->members;
	IdSet		released;

	if (call->named_count == 0 && call->others->outcome == OUTCOME_ACK &&
		!outcome_leaves_trace(&call->writer, segment, OUTCOME_ACK))
	{
		call->resolved_count += id_set_count(members);
		return;
	}
	id_set_init(&released);
	for (int i = 0; i < members->run_count; i++)
	{
		for (int64 n = 0; n < members->runs[i].count; n++)
		{
			int64		message_id = members->runs[i].first + n;

			resolve_message(call, segment, message_id, find_resolution(call, message_id), &released);
		}
	}
	insert_released(call, segment, &released);
}

/* Has a message of the claim's segments an exclusive or ordered key? */
static bool
has_keys(List *segments, LeaseKeys at_least)
{
	ListCell   *cell;

	foreach(cell, segments)
	{
		LeaseKeys	keys = ((LeaseSegment *) lfirst(cell))->keys;

		if (keys == LEASE_KEYS_SEVERAL || (keys == LEASE_KEYS_ONE && at_least == LEASE_KEYS_ONE))
			return true;
	}
	return false;
}

/*
 * Where one of several messages of a key is nacked or delayed, let the later ones
 * of the claim wait for their key, whatever else the call says of them.
 */
static void
defer_followers(ResolutionCall *call, List *segments)
{
	if (has_keys(segments, LEASE_KEYS_SEVERAL))
		call->named = key_followers_add(&call->writer, call->claim_id, segments, call->others,
										call->named, &call->named_count);
}

/* Resolve all messages of the claim; false when it is gone. */
static bool
resolve_claim(ResolutionCall *call)
{
	List	   *segments = remove_claim(call->stream, &call->tables, call->group, call->claim_id);
	ListCell   *cell;

	if (count_members(segments) == 0)
		return false;
	call->has_keys = has_keys(segments, LEASE_KEYS_ONE);
	for (int64 i = 0; i < call->named_count; i++)
	{
		if (lease_find_segment(segments, call->named[i].message_id) < 0)
			raise_message_lost(call->group, call->claim_id, call->named[i].message_id);
	}
	defer_followers(call, segments);
	foreach(cell, segments)
		resolve_segment(call, lfirst(cell));
	return true;
}

/* Resolve the messages that are named; false when the claim is gone. */
static bool
resolve_named(ResolutionCall *call)
{
	List	   *segments = share_claim(call->stream, &call->tables, call->group, call->claim_id);
	IdSet	   *released = palloc(sizeof(IdSet) * Max(list_length(segments), 1));

	if (segments == NIL)
		return false;
	call->has_keys = has_keys(segments, LEASE_KEYS_ONE);
	for (int i = 0; i < list_length(segments); i++)
		id_set_init(&released[i]);
	defer_followers(call, segments);
	for (int64 i = 0; i < call->named_count; i++)
	{
		int64		message_id = call->named[i].message_id;
		int			place = lease_find_segment(segments, message_id);

		if (place < 0 ||
			!lease_insert_resolved(&call->tables, call->claim_id, message_id))
		{
			/* what was acked before does not follow; if it is named, it is lost */
			if (call->named[i].is_added)
				continue;
			raise_message_lost(call->group, call->claim_id, message_id);
		}
		resolve_message(call, list_nth(segments, place), message_id, &call->named[i], &released[place]);
	}
	if (call->named_count > 0)
		remove_if_complete(&call->tables, segments, call->claim_id);
	for (int i = 0; i < list_length(segments); i++)
		insert_released(call, list_nth(segments, i), &released[i]);
	return true;
}

/*
 * Resolve messages of a claim: those named, given by rising ids, each as it
 * says, and the others as "others" says, which stay in the claim if that is
 * NULL.  Returns how many left the claim; *dead_count becomes how many of them
 * are dead now.  Returns -1 when the claim is gone.  Raises SS004 unless all that
 * are named are open in the claim.
 */
int64
resolution_resolve(const Stream *stream, const ConsumerGroup *group, int64 claim_id,
				   const Resolution *named, int64 named_count, const Resolution *others,
				   int64 *dead_count)
{
	ResolutionCall call = {
		.stream = stream,
		.group = group,
		.claim_id = claim_id,
		.named = named,
		.named_count = named_count,
		.others = others
	};
	bool		is_held;

	CommandCounterIncrement();
	lease_open(stream, &call.tables);
	outcome_begin(&call.writer, stream, group, NULL);
	is_held = others != NULL ? resolve_claim(&call) : resolve_named(&call);
	if (call.has_keys && others != NULL)
		key_wakeup_if_awaited(&call.writer, claim_id);
	for (int64 i = 0; call.has_keys && others == NULL && i < call.named_count; i++)
	{
		if (call.named[i].outcome != OUTCOME_DEFERRED)
			key_wakeup_of_message(&call.writer, claim_id, call.named[i].message_id);
	}
	*dead_count = call.writer.dead_count;
	outcome_end(&call.writer);
	if (call.released_id != 0)
		lower_hint(stream, group, call.released_at);
	lease_close(&call.tables);
	return is_held ? call.resolved_count : -1;
}

/* Ack all messages that are open in a claim; returns how many.  Raises SS004. */
int64
resolution_ack(const Stream *stream, const ConsumerGroup *group, int64 claim_id)
{
	static const Resolution ack = {.outcome = OUTCOME_ACK};
	int64		dead_count;
	int64		count = resolution_resolve(stream, group, claim_id, NULL, 0, &ack, &dead_count);

	if (count < 0)
		resolution_raise_lost(group, claim_id);
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
			resolution_raise_lost(group, claim_id);
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
