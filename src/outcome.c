/*
 * outcome.c
 *		What an outcome does to a message.
 *
 *		ack			it is done
 *		nack		a failure: ready after the backoff, or dead when its retries
 *					are spent
 *		reject		dead
 *		delay		ready after the delay, or dead when its delays are spent
 *		release		as it was before the claim; a fresh message with an exclusive
 *					or ordered key is ready at once
 *		expired		the lease was lost: fresh messages stay in a lease, for the
 *					next claim; an exception that was alone in its claim is
 *					charged a failure, others are ready at once, and suspect
 *		deferred	it waits for its key
 *		split		fresh messages whose lease was lost once too often become
 *					exceptions: ready at once, and suspect
 *
 * The caller has seen to it that nobody else says something of the message: it
 * has the claim, or a row of claim_resolved.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "outcome.h"

/* The error of a message whose consumer was not heard of again. */
#define LEASE_LOST_ERROR "the lease ended before the message was resolved"

/* Get ready to write; opens nothing yet. */
void
outcome_begin(OutcomeWriter *writer, const Stream *stream, const ConsumerGroup *group,
			  const GroupCursor *cursor)
{
	memset(writer, 0, sizeof(OutcomeWriter));
	writer->stream = stream;
	writer->group = group;
	writer->cursor = cursor;
	delivery_log_begin(&writer->log, stream);
}

/* Does this outcome make an exception of a fresh message of the segment? */
static bool
makes_exception(const LeaseSegment *segment, Outcome outcome)
{
	switch (outcome)
	{
		case OUTCOME_ACK:
		case OUTCOME_EXPIRED:
			return false;
		case OUTCOME_RELEASE:
			/* while it waits, an ordered key must stay its */
			return segment->keys != LEASE_KEYS_NONE;
		default:
			return true;
	}
}

/* Does this outcome of the segment's messages write anything? */
bool
outcome_leaves_trace(const OutcomeWriter *writer, const LeaseSegment *segment, Outcome outcome)
{
	if (segment->has_exceptions || delivery_log_has(writer->stream, outcome))
		return true;
	return makes_exception(segment, outcome);
}

/* Open what is needed to read and write exceptions. */
static void
open_exceptions(OutcomeWriter *writer)
{
	if (writer->is_open)
		return;
	exception_open(writer->stream, &writer->exceptions);
	writer->snapshot = RegisterSnapshot(GetLatestSnapshot());
	writer->context = CurrentMemoryContext;
	writer->scratch = AllocSetContextCreate(CurrentMemoryContext, "sqlstreams outcome",
											ALLOCSET_DEFAULT_SIZES);
	writer->not_before = writer->cursor != NULL ? writer->cursor->due_from :
		cursor_read_due_from(writer->stream, writer->group->group_id, writer->snapshot);
	writer->is_open = true;
}

/* Put the scan of the log on a message; false when it is not there. */
static bool
find_message(OutcomeWriter *writer, int64 message_id)
{
	MemoryContext old = MemoryContextSwitchTo(writer->context);
	bool		is_found;

	if (writer->log_scan == NULL)
		writer->log_scan = message_log_scan_begin(writer->stream, writer->snapshot, message_id, message_id);
	else
		message_log_scan_seek(writer->log_scan, message_id, message_id);
	is_found = message_log_scan_next(writer->log_scan);
	MemoryContextSwitchTo(old);
	return is_found;
}

/* The options that the message asked for, from its row in the log. */
static bool
read_asked_options(OutcomeWriter *writer, int64 message_id, AskedOptions *asked)
{
	Datum	   *row;
	bool	   *isnull;

	if (!find_message(writer, message_id))
		return false;
	message_log_scan_row(writer->log_scan, &row, &isnull);
	if (isnull[Anum_log_options - 1])
		return false;
	message_options_read(DatumGetJsonbP(row[Anum_log_options - 1]), asked);
	return true;
}

/* The message's effective options. */
static void
find_options(OutcomeWriter *writer, int64 message_id, MessageOptions *options)
{
	const OptionsPolicy *policy = &writer->group->policy;
	AskedOptions asked;
	bool		has_asked = !policy->is_fixed && read_asked_options(writer, message_id, &asked);

	message_options_resolve(policy, has_asked ? &asked : NULL, &writer->stream->asked_options, options);
}

/* Insert the exception as ready after a delay. */
static void
make_ready(OutcomeWriter *writer, Exception *exception, int64 delay_us)
{
	exception_insert_ready(&writer->exceptions, writer->group->group_id, exception, delay_us, writer->not_before);
}

/* Insert the exception as one that waits for its key. */
static void
make_deferred(OutcomeWriter *writer, Exception *exception)
{
	exception->status = EXCEPTION_DEFERRED;
	exception->claim_id = 0;
	exception->due_at = exception->updated_at = GetCurrentTimestamp();
	exception_insert(&writer->exceptions, writer->group->group_id, exception);
}

/* Insert the exception as dead. */
static void
make_dead(OutcomeWriter *writer, Exception *exception)
{
	exception->status = EXCEPTION_DEAD;
	exception->claim_id = 0;
	exception->due_at = exception->updated_at = GetCurrentTimestamp();
	exception_insert(&writer->exceptions, writer->group->group_id, exception);
	writer->dead_count++;
}

/* Add one to a counter, unless it has counted as far as it can. */
static void
count_up(int32 *counter)
{
	if (*counter < PG_INT32_MAX)
		(*counter)++;
}

/* The message has failed: it is tried again, or dead. */
static void
fail(OutcomeWriter *writer, Exception *exception, int64 delay_us)
{
	MessageOptions options;

	find_options(writer, exception->message_id, &options);
	count_up(&exception->attempts);
	if (message_options_is_spent(&options, exception->attempts))
		make_dead(writer, exception);
	else
		make_ready(writer, exception, delay_us != OUTCOME_BACKOFF ? delay_us :
				   message_options_backoff_us(&writer->group->policy, &options, exception->attempts));
}

static void
delay(OutcomeWriter *writer, Exception *exception, int64 delay_us)
{
	MessageOptions options;

	find_options(writer, exception->message_id, &options);
	count_up(&exception->delays);
	if (message_options_is_delayed_out(&options, exception->delays))
		make_dead(writer, exception);
	else
		make_ready(writer, exception, delay_us);
}

/* The lease of an exception was lost. */
static void
lose(OutcomeWriter *writer, const LeaseSegment *segment, Exception *exception)
{
	count_up(&exception->takeovers);
	if (segment->was_alone)
	{
		writer->has_charged = true;
		exception->last_error = cstring_to_text(LEASE_LOST_ERROR);
		fail(writer, exception, OUTCOME_BACKOFF);
		return;
	}
	exception->is_suspect = true;
	make_ready(writer, exception, 0);
}

/* Replace the message's exception, which is gone from the table. */
static void
replace_exception(OutcomeWriter *writer, const LeaseSegment *segment, Exception *exception,
				  Outcome outcome, int64 delay_us)
{
	switch (outcome)
	{
		case OUTCOME_ACK:
			break;
		case OUTCOME_NACK:
			exception->is_suspect = false;
			fail(writer, exception, delay_us);
			break;
		case OUTCOME_REJECT:
			exception->is_suspect = false;
			count_up(&exception->attempts);
			make_dead(writer, exception);
			break;
		case OUTCOME_DELAY:
			exception->is_suspect = false;
			delay(writer, exception, delay_us);
			break;
		case OUTCOME_RELEASE:
			make_ready(writer, exception, 0);
			break;
		case OUTCOME_EXPIRED:
			lose(writer, segment, exception);
			break;
		case OUTCOME_DEFERRED:
			make_deferred(writer, exception);
			break;
		case OUTCOME_SUPERSEDED:
			break;
		case OUTCOME_SPLIT:
			count_up(&exception->takeovers);
			exception->is_suspect = true;
			make_ready(writer, exception, 0);
			break;
	}
}

/*
 * Take the message's row out of the table, and begin from it if it is one of a
 * claim of exceptions.  Where there is none, it was removed by hand, the message
 * is as one that never failed; where there should be none, it is nothing to go by.
 */
static void
remove_exception(OutcomeWriter *writer, const LeaseSegment *segment, Exception *exception)
{
	Exception	found;

	if (exception_find(&writer->exceptions, writer->group->group_id, exception->message_id,
					   writer->snapshot, &found) &&
		exception_delete(&writer->exceptions, &found, true) && segment->has_exceptions)
		*exception = found;
}

static void
log_delivery(OutcomeWriter *writer, const LeaseSegment *segment, int64 message_id,
			 int32 attempt, Outcome outcome, text *error)
{
	Delivery	delivery = {
		.group_id = writer->group->group_id,
		.message_id = message_id,
		.claim_id = segment->claim_id,
		.attempt = attempt,
		.outcome = outcome,
		.error = error,
		.consumer = segment->consumer,
		.started_at = segment->claimed_at,
		.ended_at = GetCurrentTimestamp()
	};

	delivery_log_add(&writer->log, &delivery);
}

/*
 * Write what became of a message of the segment.  error: NULL keeps the one
 * before.  delay_us: for nack and delay.
 */
void
outcome_write(OutcomeWriter *writer, const LeaseSegment *segment, int64 message_id,
			  Outcome outcome, text *error, int64 delay_us)
{
	Exception	exception = {.message_id = message_id, .takeovers = segment->takeovers};
	MemoryContext old;
	int32		attempt;

	CHECK_FOR_INTERRUPTS();
	if (!outcome_leaves_trace(writer, segment, outcome))
		return;
	open_exceptions(writer);
	old = MemoryContextSwitchTo(writer->scratch);
	if (segment->has_exceptions || makes_exception(segment, outcome))
		remove_exception(writer, segment, &exception);
	attempt = exception.attempts;
	count_up(&attempt);
	if (error != NULL)
		exception.last_error = error;
	if (segment->has_exceptions || makes_exception(segment, outcome))
		replace_exception(writer, segment, &exception, outcome, delay_us);
	log_delivery(writer, segment, message_id, attempt, outcome, error);
	MemoryContextSwitchTo(old);
	MemoryContextReset(writer->scratch);
}

/* Write that all messages of the segment had an outcome. */
void
outcome_write_all(OutcomeWriter *writer, const LeaseSegment *segment, Outcome outcome)
{
	const IdSet *members = &segment->members;

	if (!outcome_leaves_trace(writer, segment, outcome))
		return;
	for (int i = 0; i < members->run_count; i++)
	{
		for (int64 n = 0; n < members->runs[i].count; n++)
			outcome_write(writer, segment, members->runs[i].first + n, outcome, NULL, OUTCOME_BACKOFF);
	}
}

/* Leave a wake-up (exception_insert_wakeup). */
void
outcome_wake(OutcomeWriter *writer, int64 claim_id, text *key, bool is_rescan)
{
	open_exceptions(writer);
	exception_insert_wakeup(&writer->exceptions, writer->group->group_id, claim_id, key, is_rescan,
							writer->not_before);
}

/*
 * Set *key to a copy of a message's key, NULL when it has none; false when the
 * message has left the log.
 */
bool
outcome_copy_key(OutcomeWriter *writer, int64 message_id, text **key)
{
	Datum	   *row;
	bool	   *isnull;

	open_exceptions(writer);
	if (!find_message(writer, message_id))
		return false;
	message_log_scan_row(writer->log_scan, &row, &isnull);
	*key = isnull[Anum_log_message_key - 1] ? NULL : DatumGetTextPCopy(row[Anum_log_message_key - 1]);
	return true;
}

/* End writing. */
void
outcome_end(OutcomeWriter *writer)
{
	delivery_log_end(&writer->log);
	if (!writer->is_open)
		return;
	if (writer->log_scan != NULL)
		message_log_scan_end(writer->log_scan);
	UnregisterSnapshot(writer->snapshot);
	state_table_close(&writer->exceptions);
	MemoryContextDelete(writer->scratch);
}
