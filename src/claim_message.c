/*
 * claim_message.c
 *		What a claim asks about a message that it has met, fresh or not, and the
 *		ways in which it does not deliver one.
 */
#include "postgres.h"

#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "claim.h"
#include "compaction.h"

/*
 * How many log rows a claim could step over in the time in which it lets one
 * message wait for its key.
 */
#define DEFER_COST 10

/* A column of the row where the scan is; false when it is NULL. */
static bool
get_column(LogScan *scan, AttrNumber column, Datum *value)
{
	Datum	   *row;
	bool	   *isnull;

	message_log_scan_row(scan, &row, &isnull);
	*value = row[column - 1];
	return !isnull[column - 1];
}

/* The key of the message where the scan is, or NULL. */
text *
claim_message_key(LogScan *scan)
{
	Datum		key;

	return get_column(scan, Anum_log_message_key, &key) ? DatumGetTextPP(key) : NULL;
}

/*
 * Has a newer version of its key replaced the message where the scan is?  Heads
 * are read with a snapshot that is not older than the scan's: the head of a
 * message that the scan shows is there.
 */
bool
claim_is_superseded(Claim *claim, LogScan *scan)
{
	Datum		rank;

	if (!get_column(scan, Anum_log_compaction_rank, &rank))
		return false;
	if (claim->heads == NULL)
	{
		claim->heads_snapshot = RegisterSnapshot(GetLatestSnapshot());
		claim->heads = compaction_reader_open(&claim->stream, claim->heads_snapshot);
	}
	return !compaction_is_head(claim->heads, claim_message_key(scan), message_log_scan_id(scan));
}

/* End a scan that was asked for superseded messages. */
void
claim_close_heads(Claim *claim)
{
	if (claim->heads == NULL)
		return;
	compaction_reader_close(claim->heads);
	UnregisterSnapshot(claim->heads_snapshot);
	claim->heads = NULL;
}

/* Is the message where the scan is to be delivered later? */
bool
claim_is_for_later(const Claim *claim, LogScan *scan, TimestampTz *deliver_at)
{
	Datum		value;

	if (!get_column(scan, Anum_log_deliver_at, &value))
		return false;
	*deliver_at = DatumGetTimestampTz(value);
	return *deliver_at > claim->now;
}

/* The policy for the message where the scan is, as the group sees it. */
Concurrency
claim_concurrency(const Claim *claim, LogScan *scan)
{
	Datum		value;
	Concurrency asked = CONCURRENCY_UNSET;

	if (!get_column(scan, Anum_log_message_key, &value))
		return CONCURRENCY_PARALLEL;
	if (get_column(scan, Anum_log_concurrency, &value))
		asked = (Concurrency) DatumGetChar(value);
	return group_concurrency(&claim->group, concurrency_first(asked, claim->stream.concurrency));
}

/*
 * Give the message where the scan is its key, if it needs it; false when that is
 * not to be had.  was_held: it may have the key from before the group's policy
 * changed, and others wait for it.
 */
bool
claim_take_key(Claim *claim, LogScan *scan, bool was_held)
{
	Concurrency concurrency = claim_concurrency(claim, scan);
	int64		message_id = message_log_scan_id(scan);
	text	   *key;

	claim->has_key = false;
	if (concurrency == CONCURRENCY_PARALLEL && !was_held)
		return true;
	key = claim_message_key(scan);
	claim->has_key = concurrency != CONCURRENCY_PARALLEL ||
		(key != NULL && claim_keys_has(claim, key, message_id));
	if (!claim->has_key)
		return true;
	if (!claim_keys_take(claim, key, message_id, concurrency))
		return false;
	claim->has_keys = true;
	return true;
}

/* Write down that a message was not delivered. */
static void
log_undelivered(Claim *claim, int64 message_id, int32 attempts, Outcome outcome)
{
	Delivery	delivery = {
		.group_id = claim->group.group_id,
		.message_id = message_id,
		.claim_id = claim->claim_id,
		.attempt = attempts,
		.outcome = outcome,
		.consumer = claim->consumer,
		.started_at = claim->now,
		.ended_at = GetCurrentTimestamp()
	};

	delivery_log_add(&claim->log, &delivery);
}

/* The message is not delivered: a newer version has replaced it. */
void
claim_supersede(Claim *claim, int64 message_id, int32 attempts)
{
	claim->cursor.superseded++;
	claim->cursor_changed = true;
	log_undelivered(claim, message_id, attempts, OUTCOME_SUPERSEDED);
}

/* The message where the scan is waits for its key. */
void
claim_defer(Claim *claim, LogScan *scan, Exception *exception)
{
	exception->status = EXCEPTION_DEFERRED;
	exception->claim_id = 0;
	exception->due_at = exception->updated_at = claim->now;
	if (exception->version == 0)
		exception_insert_first(&claim->exceptions, claim->group.group_id, exception);
	else
		exception_insert(&claim->exceptions, claim->group.group_id, exception);
	claim_keys_defer(claim, claim_message_key(scan), exception->message_id);
	claim->scan_left -= DEFER_COST;
	log_undelivered(claim, exception->message_id, exception->attempts, OUTCOME_DEFERRED);
}
