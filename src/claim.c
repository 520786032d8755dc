/*
 * claim.c
 *		The SQL functions that hand out messages: claim and pop.
 *
 * Under the group's lock, from the group's cursor:
 *
 *		expired leases (lease.c) -> fresh messages up to the first hole that
 *		cannot be passed (fence.c) -> the new claim's lease -> the cursor
 *
 * Nothing waits between taking the lock and the end of the transaction.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/xact.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "access.h"
#include "arguments.h"
#include "compat.h"
#include "cursor.h"
#include "duration.h"
#include "fence.h"
#include "id_sequence.h"
#include "lease.h"
#include "message_log.h"
#include "relaxed_commit.h"
#include "resolution.h"
#include "settings.h"

PG_FUNCTION_INFO_V1(sqlstreams_claim);
PG_FUNCTION_INFO_V1(sqlstreams_pop);

/* What a lease is longer than the time that its messages may run. */
#define LEASE_MARGIN_US (15 * USECS_PER_SEC)

/* Columns of type claimed_message, less one. */
enum
{
	CLAIMED_CLAIM_ID,
	CLAIMED_MESSAGE_ID,
	CLAIMED_PAYLOAD,
	CLAIMED_MESSAGE_KEY,
	CLAIMED_ROUTING_KEY,
	CLAIMED_HEADERS,
	CLAIMED_SCHEMA_VERSION,
	CLAIMED_COMPACTION_RANK,
	CLAIMED_CREATED_AT,
	CLAIMED_DELIVER_AT,
	CLAIMED_ATTEMPTS,
	CLAIMED_DELAYS,
	CLAIMED_TAKEOVERS,
	CLAIMED_CONCURRENCY,
	CLAIMED_OPTIONS,
	CLAIMED_LEASE_EXPIRES_AT,
	CLAIMED_BODY,
	CLAIMED_COLUMNS
};

/* A claim as it is being made. */
typedef struct Claim
{
	Stream		stream;
	ConsumerGroup group;
	bool		is_pop;			/* no lease: the messages are done */
	int64		messages_left;	/* how many more may be returned */
	int64		bytes_left;
	int64		scan_left;		/* log rows that may still be stepped over */
	char	   *consumer;
	int64		lease_us;
	ReturnSetInfo *result;

	GroupCursor cursor;
	bool		cursor_changed;
	LeaseTables leases;
	TimestampTz now;
	TimestampTz expires_at;
	int64		claim_id;
	int32		segment_count;
	int64		last_id;		/* the highest that was drawn when the claim began */
	int64		passable_to;	/* what is missing up to here is gone for good */
} Claim;

/* Can another message be returned? */
static bool
has_room(const Claim *claim)
{
	return claim->messages_left > 0 && claim->bytes_left > 0;
}

/* Return the row where the scan is. */
static void
return_message(Claim *claim, LogScan *scan, int32 takeovers)
{
	Datum	   *row;
	bool	   *row_isnull;
	Datum		values[CLAIMED_COLUMNS];
	bool		isnull[CLAIMED_COLUMNS] = {false};

	message_log_scan_row(scan, &row, &row_isnull);

#define COPY_COLUMN(to, from) \
	(values[to] = row[(from) - 1], isnull[to] = row_isnull[(from) - 1])

	values[CLAIMED_CLAIM_ID] = Int64GetDatum(claim->claim_id);
	isnull[CLAIMED_CLAIM_ID] = claim->is_pop;
	COPY_COLUMN(CLAIMED_MESSAGE_ID, Anum_log_id);
	COPY_COLUMN(CLAIMED_PAYLOAD, Anum_log_payload);
	COPY_COLUMN(CLAIMED_MESSAGE_KEY, Anum_log_message_key);
	COPY_COLUMN(CLAIMED_ROUTING_KEY, Anum_log_routing_key);
	COPY_COLUMN(CLAIMED_HEADERS, Anum_log_headers);
	COPY_COLUMN(CLAIMED_SCHEMA_VERSION, Anum_log_schema_version);
	COPY_COLUMN(CLAIMED_COMPACTION_RANK, Anum_log_compaction_rank);
	COPY_COLUMN(CLAIMED_CREATED_AT, Anum_log_created_at);
	COPY_COLUMN(CLAIMED_DELIVER_AT, Anum_log_deliver_at);
	values[CLAIMED_ATTEMPTS] = Int32GetDatum(0);
	values[CLAIMED_DELAYS] = Int32GetDatum(0);
	values[CLAIMED_TAKEOVERS] = Int32GetDatum(takeovers);
	values[CLAIMED_CONCURRENCY] = CStringGetTextDatum("parallel");
	values[CLAIMED_OPTIONS] = claim->group.options;
	values[CLAIMED_LEASE_EXPIRES_AT] = TimestampTzGetDatum(claim->expires_at);
	isnull[CLAIMED_LEASE_EXPIRES_AT] = claim->is_pop;
	COPY_COLUMN(CLAIMED_BODY, Anum_log_body);

#undef COPY_COLUMN

	tuplestore_putvalues(claim->result->setResult, claim->result->setDesc, values, isnull);
	pfree(DatumGetPointer(values[CLAIMED_CONCURRENCY]));

	claim->messages_left--;
	if (!isnull[CLAIMED_PAYLOAD])
		claim->bytes_left -= toast_raw_datum_size(values[CLAIMED_PAYLOAD]) - VARHDRSZ;
	if (!isnull[CLAIMED_BODY])
		claim->bytes_left -= toast_raw_datum_size(values[CLAIMED_BODY]) - VARHDRSZ;
}

/* Lease messages that were returned to the holder of the claim. */
static void
lease_messages(Claim *claim, const IdSet *members, int32 takeovers)
{
	LeaseSegment segment = {0};

	if (members->run_count == 0 || claim->is_pop)
		return;
	segment.claim_id = claim->claim_id;
	segment.segment = claim->segment_count++;
	segment.claimed_at = claim->now;
	segment.expires_at = claim->expires_at;
	segment.lease_us = claim->lease_us;
	segment.takeovers = takeovers;
	segment.members = *members;
	segment.consumer = claim->consumer;
	lease_insert(&claim->leases, claim->group.group_id, &segment);
	lease_hint_not_after(&claim->cursor, claim->expires_at);
}

/* A segment that is being taken over. */
typedef struct TakenSegment
{
	LeaseSegment *segment;
	int32		takeovers;		/* this one included */
	int64		merged_to;		/* its members after this are not looked at */
} TakenSegment;

/* What was returned of messages that were taken over as often. */
typedef struct Returned
{
	int32		takeovers;
	IdSet		members;
} Returned;

/* A message of one. */
typedef struct TakenMessage
{
	int64		id;
	TakenSegment *owner;
} TakenMessage;

static int
compare_taken(const void *a, const void *b)
{
	int64		x = ((const TakenMessage *) a)->id;
	int64		y = ((const TakenMessage *) b)->id;

	return (x > y) - (x < y);
}

/* Prepare to take over segments, less what was purged. */
static TakenSegment *
prepare_taken(Claim *claim, List *segments)
{
	TakenSegment *taken = palloc(sizeof(TakenSegment) * list_length(segments));

	for (int i = 0; i < list_length(segments); i++)
	{
		LeaseSegment *segment = list_nth(segments, i);

		id_set_remove_through(&segment->members, claim->stream.purged_through);
		taken[i].segment = segment;
		taken[i].takeovers = segment->takeovers + (segment->is_released ? 0 : 1);
		taken[i].merged_to = PG_INT64_MAX;
	}
	return taken;
}

/*
 * The messages of the segments that may be returned, by id: of each segment no
 * more than there is room for.
 */
static TakenMessage *
merge_taken(Claim *claim, TakenSegment *taken, int taken_count, int64 *count)
{
	int64		capacity = 0;
	TakenMessage *messages;

	for (int i = 0; i < taken_count; i++)
		capacity += Min(id_set_count(&taken[i].segment->members), claim->messages_left);
	messages = palloc_extended(sizeof(TakenMessage) * Max(capacity, 1), MCXT_ALLOC_HUGE);

	*count = 0;
	for (int i = 0; i < taken_count; i++)
	{
		const IdSet *members = &taken[i].segment->members;
		int64		left = Min(id_set_count(members), claim->messages_left);

		if (left < id_set_count(members))
			taken[i].merged_to = id_set_nth(members, left - 1);
		for (int run = 0; run < members->run_count; run++)
		{
			for (int64 n = 0; n < members->runs[run].count && left > 0; n++, left--)
			{
				messages[*count].id = members->runs[run].first + n;
				messages[(*count)++].owner = &taken[i];
			}
		}
	}
	qsort(messages, *count, sizeof(TakenMessage), compare_taken);
	return messages;
}

/* The messages returned that were taken over so often, in a list of these. */
static Returned *
find_returned(List **list, int32 takeovers)
{
	Returned   *returned;
	ListCell   *cell;

	foreach(cell, *list)
	{
		returned = lfirst(cell);
		if (returned->takeovers == takeovers)
			return returned;
	}
	returned = palloc(sizeof(Returned));
	returned->takeovers = takeovers;
	id_set_init(&returned->members);
	*list = lappend(*list, returned);
	return returned;
}

/*
 * Return messages that were taken over, as long as there is room; says up to
 * which id this is done.  Messages that have left the log are passed over.
 */
static int64
return_taken(Claim *claim, const TakenMessage *messages, int64 count, Snapshot snapshot, List **returned)
{
	LogScan    *scan = NULL;
	int64		done_to = 0;

	for (int64 first = 0, last; first < count && has_room(claim); first = last + 1)
	{
		for (last = first; last + 1 < count && messages[last + 1].id == messages[last].id + 1;)
			last++;
		done_to = messages[last].id;
		if (scan == NULL)
			scan = message_log_scan_begin(&claim->stream, snapshot, messages[first].id, done_to);
		else
			message_log_scan_seek(scan, messages[first].id, done_to);
		while (has_room(claim) && message_log_scan_next(scan))
		{
			int64		id = message_log_scan_id(scan);
			int32		takeovers = messages[first + (id - messages[first].id)].owner->takeovers;

			return_message(claim, scan, takeovers);
			id_set_append(&find_returned(returned, takeovers)->members, id);
			if (!has_room(claim))
				done_to = id;
		}
	}
	if (scan != NULL)
		message_log_scan_end(scan);
	return done_to;
}

/*
 * Take over expired leases: return as many of their messages as there is room
 * for, in id order, and put the rest back.
 */
static void
return_expired(Claim *claim)
{
	List	   *segments = lease_take_expired(&claim->leases, claim->group.group_id, &claim->cursor,
											  &claim->cursor_changed, claim->now,
											  claim->cursor.claimed >= claim->last_id,
											  claim->messages_left);
	TakenSegment *taken;
	TakenMessage *messages;
	Snapshot	snapshot;
	int64		count;
	int64		done_to;
	List	   *returned = NIL;
	ListCell   *cell;

	if (segments == NIL)
		return;
	claim->cursor_changed = true;
	taken = prepare_taken(claim, segments);
	messages = merge_taken(claim, taken, list_length(segments), &count);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	done_to = return_taken(claim, messages, count, snapshot, &returned);
	UnregisterSnapshot(snapshot);

	foreach(cell, returned)
		lease_messages(claim, &((Returned *) lfirst(cell))->members, ((Returned *) lfirst(cell))->takeovers);
	for (int i = 0; i < list_length(segments); i++)
	{
		LeaseSegment *segment = taken[i].segment;

		id_set_remove_through(&segment->members, Min(done_to, taken[i].merged_to));
		if (segment->members.run_count > 0)
			lease_put_back(&claim->leases, claim->group.group_id, &claim->cursor, segment);
	}
}

/*
 * The hole after the cursor cannot be passed by what was known.  Find out who
 * may still fill it: if nobody can, move passable_to and say that it is worth
 * looking again, with a new snapshot.  If somebody can, remember who, unless an
 * earlier claim has done so: a hole waits only for those who were producing
 * when it was first seen.
 */
static bool
can_pass_hole_now(Claim *claim)
{
	FenceMemory *memory = &claim->cursor.fence;
	FenceMemory found = {.last = claim->last_id};

	if (fence_memory_is_valid(memory) && claim->cursor.claimed < memory->last)
	{
		if (fence_is_inside(&claim->stream) || !fence_memory_has_ended(memory))
			return false;
		claim->passable_to = memory->last;
		return true;
	}

	fence_list_holders(&claim->stream, &found);
	if (found.holder_count == 0)
	{
		claim->passable_to = claim->last_id;
		return true;
	}
	*memory = found;
	claim->cursor_changed = true;
	return false;
}

/*
 * Up to where to look for fresh messages at first: as far as there is room for,
 * if the ids have no holes.  An index scan without a near end reads whole pages
 * of the index.
 */
static int64
fresh_window_end(const Claim *claim)
{
	bool		wants_all = group_wants_all(&claim->group) && claim->cursor.claimed >= claim->group.head_id;
	int64		width = wants_all ? claim->messages_left : claim->scan_left;

	return Min(claim->last_id, claim->cursor.claimed + width);
}

/* Does the group get the row where the scan is? */
static bool
wants_row(const Claim *claim, LogScan *scan)
{
	Datum	   *row;
	bool	   *isnull;
	text	   *routing_key = NULL;
	bool		is_wanted;

	if (group_wants_all(&claim->group) && message_log_scan_id(scan) > claim->group.head_id)
		return true;
	message_log_scan_row(scan, &row, &isnull);
	if (!isnull[Anum_log_routing_key - 1])
		routing_key = DatumGetTextPP(row[Anum_log_routing_key - 1]);
	is_wanted = group_wants(&claim->group, message_log_scan_id(scan),
							DatumGetInt32(row[Anum_log_schema_version - 1]), routing_key);

	/* a claim can step over many messages with compressed keys */
	if (routing_key != NULL && routing_key != (text *) DatumGetPointer(row[Anum_log_routing_key - 1]))
		pfree(routing_key);
	return is_wanted;
}

/*
 * Return fresh messages as one snapshot shows them, moving the cursor, until
 * there is no more room, nothing is left, or a hole cannot be passed.  Says
 * whether it ended at such a hole.
 */
static bool
return_fresh_in_snapshot(Claim *claim, IdSet *returned)
{
	GroupCursor *cursor = &claim->cursor;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	int64		window_end = fresh_window_end(claim);
	LogScan    *scan = message_log_scan_begin(&claim->stream, snapshot, cursor->claimed + 1, window_end);
	bool		ended_at_hole = false;

	while (has_room(claim) && claim->scan_left > 0)
	{
		bool		has_row = message_log_scan_next(scan);
		int64		next_id;	/* where the hole ends that may lie before it */

		next_id = has_row ? message_log_scan_id(scan) : message_log_scan_searched_to(scan) + 1;
		if (next_id - 1 > cursor->claimed)
			cursor->claimed = Max(cursor->claimed, Min(next_id - 1, claim->passable_to));
		ended_at_hole = next_id - 1 > cursor->claimed;
		if (ended_at_hole)
			break;
		if (has_row)
		{
			if (wants_row(claim, scan))
			{
				return_message(claim, scan, 0);
				id_set_append(returned, next_id);
			}
			else
			{
				claim->scan_left--;
				CHECK_FOR_INTERRUPTS();
			}
			cursor->claimed = next_id;
		}
		else if (cursor->claimed < window_end || window_end == claim->last_id)
			break;
		else
		{
			window_end = fresh_window_end(claim);
			message_log_scan_seek(scan, cursor->claimed + 1, window_end);
		}
	}

	message_log_scan_end(scan);
	UnregisterSnapshot(snapshot);
	return ended_at_hole;
}

/* Return fresh messages and move the cursor. */
static void
return_fresh(Claim *claim)
{
	GroupCursor *cursor = &claim->cursor;
	int64		claimed = cursor->claimed;
	IdSet		returned;

	if (cursor->claimed >= claim->last_id || !has_room(claim))
		return;

	id_set_init(&returned);
	while (return_fresh_in_snapshot(claim, &returned) && can_pass_hole_now(claim))
		;
	if (cursor->claimed != claimed)
	{
		claim->cursor_changed = true;
		if (cursor->fence.last <= cursor->claimed)
		{
			cursor->fence.last = 0;
			cursor->fence.holder_count = 0;
		}
	}
	lease_messages(claim, &returned, 0);
}

/*
 * Read the group's cursor, and what it says of holes.  A claim whose own
 * transaction has produced passes none.
 */
static void
read_cursor(Claim *claim)
{
	GroupCursor *cursor = &claim->cursor;

	cursor_load(&claim->stream, &claim->group, cursor);
	if (cursor->claimed < claim->stream.purged_through)
	{
		cursor->claimed = claim->stream.purged_through;
		claim->cursor_changed = true;
	}
	if (!fence_is_inside(&claim->stream) && fence_memory_is_valid(&cursor->fence) &&
		fence_memory_has_ended(&cursor->fence))
		claim->passable_to = cursor->fence.last;
}

/*
 * Find the stream and the group, and lock the group.  Either may be changed
 * until the lock is had; then they are looked up again.
 */
static void
lock_group(Claim *claim, const char *stream_name, const char *group_name)
{
	int64		locked_group = 0;

	for (;;)
	{
		stream_lookup(stream_name, &claim->stream);
		access_check_consume(&claim->stream);
		group_lookup(&claim->stream, group_name, &claim->group);
		if (claim->group.group_id == locked_group)
			return;
		group_lock(&claim->group);
		if (stream_is_current(&claim->stream))
			return;
		locked_group = claim->group.group_id;
	}
}

/* Make the claim. */
static void
make_claim(Claim *claim, const char *stream_name, const char *group_name)
{
	lock_group(claim, stream_name, group_name);
	message_log_check_access(&claim->stream);

	/* see what the running statement did before */
	CommandCounterIncrement();

	if (claim->lease_us == 0)
		claim->lease_us = claim->group.timeout_us + LEASE_MARGIN_US;
	claim->scan_left = sqlstreams_max_scan;
	claim->now = GetCurrentTimestamp();
	claim->expires_at = duration_add(claim->now, claim->lease_us);
	claim->claim_id = lease_draw_claim_id();
	if (!id_sequence_last(claim->stream.sequence_oid, &claim->last_id))
		stream_raise_table_missing(&claim->stream);
	lease_open(&claim->stream, &claim->leases);
	read_cursor(claim);
	return_expired(claim);
	return_fresh(claim);
	lease_close(&claim->leases);
	if (claim->cursor_changed)
	{
		claim->cursor.last_claim_at = claim->now;
		cursor_write(&claim->stream, claim->group.group_id, &claim->cursor);
	}
}

/*
 * Get ready to return messages.  They are kept in a context that does not round
 * their sizes up: one of 1 kB would take 2 kB in an ordinary one, and filling
 * fresh memory is much of what a large claim costs.
 */
static void
begin_result(FunctionCallInfo fcinfo, Claim *claim)
{
	MemoryContext old;

	claim->result = (ReturnSetInfo *) fcinfo->resultinfo;
	InitMaterializedSRF(fcinfo, 0);
	tuplestore_end(claim->result->setResult);
	old = MemoryContextSwitchTo(GenerationContextCreate(claim->result->econtext->ecxt_per_query_memory,
														"sqlstreams claimed messages",
														ALLOCSET_DEFAULT_SIZES));
	claim->result->setResult = tuplestore_begin_heap((claim->result->allowedModes & SFRM_Materialize_Random) != 0,
													 false, work_mem);
	MemoryContextSwitchTo(old);
}

/* Ack a claim of the group before making the next. */
static void
ack_claim_before(const char *stream_name, const char *group_name, int64 claim_id)
{
	Stream		stream;
	ConsumerGroup group;

	stream_lookup(stream_name, &stream);
	access_check_consume(&stream);
	group_lookup(&stream, group_name, &group);
	(void) resolution_ack(&stream, &group, claim_id);
}

/*
 * claim(stream, consumer_group, max_messages, lease, consumer, max_per_key,
 * max_bytes, ack): lease messages to the caller.
 */
Datum
sqlstreams_claim(PG_FUNCTION_ARGS)
{
	Claim		claim = {0};
	bool		is_clean = relaxed_commit_is_clean();
	char	   *stream_name = argument_get_name(fcinfo, 0, "stream");
	char	   *group_name = argument_get_name(fcinfo, 1, "consumer_group");

	PreventCommandIfReadOnly("sqlstreams.claim()");
	claim.messages_left = argument_get_integer(fcinfo, 2, "max_messages", 1, BATCH_MAX_MESSAGES);
	claim.lease_us = argument_get_duration_or(fcinfo, 3, "lease", false, 0);
	claim.consumer = PG_ARGISNULL(4) ? pstrdup(application_name) : text_to_cstring(PG_GETARG_TEXT_PP(4));
	(void) argument_get_integer_or(fcinfo, 5, "max_per_key", 1, BATCH_MAX_MESSAGES, 1);
	claim.bytes_left = argument_get_integer_or(fcinfo, 6, "max_bytes", 1, PG_INT64_MAX, PG_INT64_MAX);

	begin_result(fcinfo, &claim);
	if (!PG_ARGISNULL(7))
		ack_claim_before(stream_name, group_name, PG_GETARG_INT64(7));
	make_claim(&claim, stream_name, group_name);
	if (is_clean && PG_ARGISNULL(7))
		relaxed_commit_allow();
	return (Datum) 0;
}

/* pop(stream, consumer_group, max_messages): claim and ack in one. */
Datum
sqlstreams_pop(PG_FUNCTION_ARGS)
{
	Claim		claim = {0};
	char	   *stream_name = argument_get_name(fcinfo, 0, "stream");
	char	   *group_name = argument_get_name(fcinfo, 1, "consumer_group");

	PreventCommandIfReadOnly("sqlstreams.pop()");
	claim.is_pop = true;
	claim.messages_left = argument_get_integer(fcinfo, 2, "max_messages", 1, BATCH_MAX_MESSAGES);
	claim.bytes_left = PG_INT64_MAX;

	begin_result(fcinfo, &claim);
	make_claim(&claim, stream_name, group_name);
	return (Datum) 0;
}
