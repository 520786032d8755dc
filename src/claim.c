/*
 * claim.c
 *		The SQL functions that hand out messages: claim and pop.
 *
 * Under the group's lock:
 *
 *		expired leases (claim_expired.c) -> exceptions that are due, up to half
 *		(claim_due.c) -> fresh messages from the cursor on (claim_fresh.c) -> more
 *		that are due -> the new claim's lease (claim_result.c) -> the cursor
 *
 * Nothing waits between taking the lock and the end of the transaction.
 */
#include "postgres.h"

#include "access/xact.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "access.h"
#include "arguments.h"
#include "claim.h"
#include "compat.h"
#include "duration.h"
#include "fence.h"
#include "id_sequence.h"
#include "relaxed_commit.h"
#include "resolution.h"
#include "settings.h"
#include "worker_start.h"

PG_FUNCTION_INFO_V1(sqlstreams_claim);
PG_FUNCTION_INFO_V1(sqlstreams_pop);

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

/*
 * Return exceptions that are due, while there may be fresh messages: half of
 * what the claim has room for.  One that fills the claim, a suspect or one in a
 * claim of 1, gives the next claim to others.
 */
static void
return_due_half(Claim *claim)
{
	int64		half = claim->max_messages / 2;
	int64		returned = claim->returned_count;

	if (!claim_has_room(claim))
		return;
	if (!claim->cursor.filled_by_due)
		claim_return_due(claim, Min(Max(half, 1), claim->messages_left), returned == 0);
	else if (!claim->has_byte_limit)
		claim_return_due(claim, Min(half, claim->messages_left), false);
	claim->cursor.filled_by_due = claim->returned_count > returned && !claim_has_room(claim);
}

/* Make the claim. */
static void
make_claim(Claim *claim, const char *stream_name, const char *group_name)
{
	worker_start_if_needed();
	lock_group(claim, stream_name, group_name);
	message_log_check_access(&claim->stream);

	/* see what the running statement did before */
	CommandCounterIncrement();

	claim->messages_left = claim->max_messages;
	claim->scan_left = sqlstreams_max_scan;
	claim->now = GetCurrentTimestamp();
	claim->longest_timeout_us = claim->group.policy.is_fixed ? claim->group.policy.own.timeout_us : 0;
	claim->claim_id = lease_draw_claim_id();
	if (!id_sequence_last(claim->stream.sequence_oid, &claim->last_id))
		stream_raise_table_missing(&claim->stream);
	lease_open(&claim->stream, &claim->leases);
	exception_open(&claim->stream, &claim->exceptions);
	delivery_log_begin(&claim->log, &claim->stream);
	read_cursor(claim);
	claim_return_expired(claim);
	return_due_half(claim);
	claim_return_fresh(claim);
	claim_return_due(claim, claim->messages_left, claim->returned_count == 0);
	claim_keys_write(claim);
	claim_result_end(claim);
	delivery_log_end(&claim->log);
	state_table_close(&claim->exceptions);
	lease_close(&claim->leases);
	if (claim->cursor_changed)
	{
		claim->cursor.last_claim_at = claim->now;
		cursor_write(&claim->stream, claim->group.group_id, &claim->cursor);
	}
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
	claim.max_messages = argument_get_integer(fcinfo, 2, "max_messages", 1, BATCH_MAX_MESSAGES);
	claim.lease_us = argument_get_duration_or(fcinfo, 3, "lease", 0);
	claim.consumer = PG_ARGISNULL(4) ? pstrdup(application_name) : text_to_cstring(PG_GETARG_TEXT_PP(4));
	claim.max_per_key = argument_get_integer_or(fcinfo, 5, "max_per_key", 1, BATCH_MAX_MESSAGES, 1);
	claim.has_byte_limit = !PG_ARGISNULL(6);
	claim.bytes_left = argument_get_integer_or(fcinfo, 6, "max_bytes", 1, PG_INT64_MAX, PG_INT64_MAX);

	claim_result_begin(fcinfo, &claim);
	if (!PG_ARGISNULL(7))
		ack_claim_before(stream_name, group_name, PG_GETARG_INT64(7));
	make_claim(&claim, stream_name, group_name);
	if (is_clean && sqlstreams_relaxed_claim && PG_ARGISNULL(7) && !claim.has_charged && !claim.has_keys)
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
	claim.max_messages = argument_get_integer(fcinfo, 2, "max_messages", 1, BATCH_MAX_MESSAGES);
	claim.bytes_left = PG_INT64_MAX;

	/* they are done as they are returned */
	claim.max_per_key = PG_INT64_MAX;

	claim_result_begin(fcinfo, &claim);
	make_claim(&claim, stream_name, group_name);
	return (Datum) 0;
}
