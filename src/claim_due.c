/*
 * claim_due.c
 *		The exceptions of a group that are due.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "claim.h"
#include "duration.h"
#include "partition.h"

/*
 * When to look again at an exception whose message is not in the log, and may
 * still come.
 */
#define MISSING_MESSAGE_RETRY_US (60 * USECS_PER_SEC)

/* When to look again at a key that an open transaction is about to free. */
#define UNWATCHED_KEY_RETRY_US (100 * 1000)

/* How many to read at once of which some may be of another version. */
#define DUE_STEP 1000

/* Order messages by id, and wake-ups, which have negative ids, behind them. */
static int
compare_found(const void *a, const void *b)
{
	bool		is_wakeup_a = *(const int64 *) a < 0;
	bool		is_wakeup_b = *(const int64 *) b < 0;

	if (is_wakeup_a != is_wakeup_b)
		return is_wakeup_a ? 1 : -1;
	return id_compare(a, b);
}

/* The returning of exceptions by one claim. */
typedef struct DueReturn
{
	Claim	   *claim;
	Snapshot	snapshot;
	LogScan    *scan;			/* NULL until the first message is read */
	int64		messages_left;	/* how many may be returned */
	int64	   *returned;		/* what was returned, in the order in which it was */
	int64		returned_count;
	int32		takeovers;		/* the most of them */
	bool		has_keys;
	bool		has_suspect;	/* which is then all that was returned */
	bool		is_lost;		/* the last message is gone, nobody knows its key */
	bool		has_lost;		/* ... nor that of some message before */
} DueReturn;

/* Put the scan on a message; false when it is not in the log. */
static bool
find_message(DueReturn *due, int64 message_id)
{
	if (due->scan == NULL)
		due->scan = message_log_scan_begin(&due->claim->stream, due->snapshot, message_id, message_id);
	else
		message_log_scan_seek(due->scan, message_id, message_id);
	return message_log_scan_next(due->scan);
}

/*
 * Is a message that was not found gone for good?  While a dump is being restored
 * it may still come; then its partition is there, and empty.
 */
static bool
is_gone(DueReturn *due, int64 message_id)
{
	const Stream *stream = &due->claim->stream;
	int64		number = partition_number(stream, message_id);

	if (message_log_scan_has_skipped(due->scan))
		return true;
	message_log_scan_seek(due->scan, partition_first_id(stream, number), partition_last_id(stream, number));
	return message_log_scan_next(due->scan);
}

/* Does the group get messages of the version that the scan is on? */
static bool
wants_version(DueReturn *due)
{
	int32		version = due->claim->group.schema_version;
	Datum	   *row;
	bool	   *isnull;

	if (version == 0)
		return true;
	message_log_scan_row(due->scan, &row, &isnull);
	return DatumGetInt32(row[Anum_log_schema_version - 1]) == version;
}

/* May another message be returned?  Not beside a suspect. */
static bool
has_room(const DueReturn *due)
{
	return due->messages_left > 0 && !due->has_suspect && claim_has_room(due->claim);
}

/* Insert the exception again, whose row is gone, with another status. */
static void
put_back(DueReturn *due, Exception *exception, ExceptionStatus status, TimestampTz due_at)
{
	exception->status = status;
	exception->due_at = due_at;
	exception->updated_at = due->claim->now;
	exception_insert(&due->claim->exceptions, due->claim->group.group_id, exception);
}

/* Return the message where the scan is to the holder of the claim. */
static void
deliver(DueReturn *due, Exception *exception)
{
	DeliveryCounts counts = {exception->attempts, exception->delays, exception->takeovers};

	claim_return_message(due->claim, due->scan, &counts);
	exception->claim_id = due->claim->claim_id;
	put_back(due, exception, EXCEPTION_INFLIGHT, exception->due_at);
	due->returned[due->returned_count++] = exception->message_id;
	due->messages_left--;
	due->takeovers = Max(due->takeovers, exception->takeovers);
	due->has_keys |= due->claim->has_key;
	due->has_suspect |= exception->is_suspect;
}

/* Forget an exception, whose row is gone, if its message is not to be had any more. */
static void
miss(DueReturn *due, Exception *exception)
{
	due->is_lost = is_gone(due, exception->message_id);
	if (!due->is_lost)
		put_back(due, exception, EXCEPTION_READY, duration_add(due->claim->now, MISSING_MESSAGE_RETRY_US));
}

/*
 * Put the scan on the message of an exception, whose row is gone.  False when it
 * is not for the group now: then the exception is put back, or is no more.
 */
static bool
find_deliverable(DueReturn *due, Exception *exception)
{
	Claim	   *claim = due->claim;

	due->is_lost = false;
	if (exception->message_id <= claim->stream.purged_through)
		return false;
	if (!find_message(due, exception->message_id))
		miss(due, exception);
	else if (!wants_version(due))
		put_back(due, exception, EXCEPTION_PARKED, exception->due_at);
	else if (claim_is_superseded(claim, due->scan))
		claim_supersede(claim, exception->message_id, exception->attempts);
	else
		return true;
	claim->scan_left--;
	return false;
}

/* Free what an exception points to: it may be large, and the claim of many. */
static void
forget(Exception *exception)
{
	if (exception->last_error != NULL)
		pfree(exception->last_error);
}

/*
 * Is a message that has waited for its key to be delivered later?  Sets the
 * exception's due time to when.
 */
static bool
is_due_later(DueReturn *due, Exception *exception)
{
	TimestampTz deliver_at;

	if (claim_is_for_later(due->claim, due->scan, &deliver_at))
		exception->due_at = Max(exception->due_at, deliver_at);
	return exception->due_at > due->claim->now;
}

/*
 * Keep a message, whose row is gone, for its due time.  An ordered one has its key
 * meanwhile, or goes on waiting for it where this claim carries an earlier one:
 * then those behind it wait, too, and this is false.
 */
static bool
keep_for_later(DueReturn *due, Exception *exception, const text *key)
{
	Claim	   *claim = due->claim;

	if (claim_concurrency(claim, due->scan) != CONCURRENCY_ORDERED ||
		claim_keys_reserve(claim, key, exception->message_id))
	{
		put_back(due, exception, EXCEPTION_READY, exception->due_at);
		return true;
	}
	put_back(due, exception, EXCEPTION_DEFERRED, exception->due_at);
	claim_keys_defer(claim, key, exception->message_id);
	return false;
}

/*
 * Deliver a message that has waited for its key, or find out why it is not to be
 * delivered; false when it goes on waiting, and with it those behind.
 */
static bool
return_deferred(DueReturn *due, const text *key, int64 message_id)
{
	Claim	   *claim = due->claim;
	Exception	exception;
	bool		goes_on = true;

	/* this claim may have deferred it itself */
	if (!exception_find(&claim->exceptions, claim->group.group_id, message_id, SnapshotSelf, &exception) ||
		exception.status != EXCEPTION_DEFERRED)
		return true;
	if ((exception.is_suspect && claim->returned_count > 0) ||
		!exception_delete(&claim->exceptions, &exception, false))
	{
		claim_keys_defer(claim, key, message_id);
		return false;
	}
	if (!find_deliverable(due, &exception))
		;
	else if (is_due_later(due, &exception))
		goes_on = keep_for_later(due, &exception, key);
	else if (claim_take_key(claim, due->scan, false))
		deliver(due, &exception);
	else
		claim_defer(claim, due->scan, &exception);
	forget(&exception);
	return goes_on;
}

/*
 * Deliver messages that wait for a key; says whether the next claim has to go on.
 * Where this one may, it does so once it knows what room is left.
 */
static bool
return_waiting(DueReturn *due, KeyState *state)
{
	int64		message_id;

	while (has_room(due) && due->claim->scan_left > 0 &&
		   claim_keys_next_deferred(due->claim, state, &message_id) &&
		   return_deferred(due, claim_keys_key(state), message_id))
		CHECK_FOR_INTERRUPTS();
	if (claim_keys_may_follow(due->claim, state))
		due->claim->unfinished_keys = lappend(due->claim->unfinished_keys, state);
	return claim_keys_has_more(state);
}

/* Go on with the keys of which this claim carries messages and may carry more. */
static void
finish_keys(DueReturn *due)
{
	List	   *keys = due->claim->unfinished_keys;
	ListCell   *cell;

	due->claim->unfinished_keys = NIL;
	foreach(cell, keys)
		(void) return_waiting(due, lfirst(cell));
}

/* A message is not delivered: those that wait for its key come next. */
static void
give_key_away(DueReturn *due, int64 message_id)
{
	text	   *key = NULL;
	KeyState   *state = NULL;

	due->has_lost |= due->is_lost;
	if (find_message(due, message_id))
		key = claim_message_key(due->scan);
	if (key != NULL)
		state = claim_keys_drop(due->claim, key, message_id);
	if (state != NULL)
		(void) return_waiting(due, state);
}

/* Deliver an exception that is due, or leave it for another time. */
static void
return_exception(DueReturn *due, const DueException *found)
{
	Claim	   *claim = due->claim;
	Exception	exception = {0};

	if (!has_room(due) ||
		!exception_find(&claim->exceptions, claim->group.group_id, found->message_id, due->snapshot, &exception) ||
		!exception_delete(&claim->exceptions, &exception, false))
		exception_leave_due(&claim->cursor, found);
	else if (!find_deliverable(due, &exception))
		give_key_away(due, found->message_id);
	else if (claim_take_key(claim, due->scan, true))
		deliver(due, &exception);
	else
	{
		claim_defer(claim, due->scan, &exception);
		claim->scan_left--;
	}
	forget(&exception);
}

/* Leave a wake-up for a key, due at a time. */
static void
wake_later(DueReturn *due, const KeyState *state, TimestampTz due_at)
{
	Exception	wakeup = {
		.message_id = -lease_draw_claim_id(),
		.last_error = (text *) claim_keys_key(state)
	};

	put_back(due, &wakeup, EXCEPTION_READY, due_at);
}

/*
 * Follow a wake-up: deliver messages that wait for the keys that it is about.
 * A key for which it is not done gets a wake-up of its own, and so does one that is
 * just being freed by an open transaction which may not have seen that messages
 * wait for it.
 */
static void
follow_wakeup(DueReturn *due, const DueException *found)
{
	Claim	   *claim = due->claim;
	Exception	wakeup;
	ListCell   *cell;

	if (!has_room(due) ||
		!exception_find(&claim->exceptions, claim->group.group_id, found->message_id, due->snapshot, &wakeup) ||
		!exception_delete(&claim->exceptions, &wakeup, false))
	{
		exception_leave_due(&claim->cursor, found);
		return;
	}
	claim->scan_left--;
	foreach(cell, claim_keys_woken(claim, &wakeup))
	{
		KeyState   *state = lfirst(cell);

		if (return_waiting(due, state))
		{
			wake_later(due, state, found->due_at);
			exception_leave_due(&claim->cursor, found);
		}
		else if (claim_keys_is_unwatched(claim, state))
			wake_later(due, state, claim->now + UNWATCHED_KEY_RETRY_US);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Find exceptions that are due, and return what the claim takes of them. */
static void
return_found(DueReturn *due, bool take_suspect)
{
	Claim	   *claim = due->claim;
	int64		wanted = due->messages_left;
	int64		count;
	DueException *found;

	if (claim->group.schema_version != 0)
		wanted = Max(wanted, DUE_STEP);
	found = exception_collect_due(&claim->exceptions, claim->group.group_id, &claim->cursor,
								  &claim->cursor_changed, claim->now, wanted, take_suspect, &count);
	if (count > 0)
		claim->cursor_changed = true;

	/* where all are taken, messages come by id, as those of a key are to, and then wake-ups */
	if (count <= due->messages_left && !claim->has_byte_limit)
		qsort(found, count, sizeof(DueException), compare_found);
	for (int64 i = 0; i < count; i++)
	{
		if (found[i].message_id < 0)
			follow_wakeup(due, &found[i]);
		else
			return_exception(due, &found[i]);
		CHECK_FOR_INTERRUPTS();
	}
	pfree(found);
}

/* Lease what was returned. */
static void
lease_returned(DueReturn *due)
{
	IdSet		members;

	id_set_init(&members);
	qsort(due->returned, due->returned_count, sizeof(int64), id_compare);
	for (int64 i = 0; i < due->returned_count; i++)
		id_set_append(&members, due->returned[i]);
	claim_lease_messages(due->claim, &members, due->takeovers, true, due->has_keys);
}

/*
 * Return exceptions that are due, at most so many, and lease them.  A suspect
 * comes alone, and only if take_suspect.
 */
void
claim_return_due(Claim *claim, int64 max_messages, bool take_suspect)
{
	DueReturn	due = {.claim = claim, .messages_left = max_messages};
	int64		scan_left;

	if (!claim_has_room(claim) || max_messages == 0)
		return;
	due.returned = palloc_extended(sizeof(int64) * max_messages, MCXT_ALLOC_HUGE);

	/* see what this claim has written before */
	CommandCounterIncrement();
	due.snapshot = RegisterSnapshot(GetLatestSnapshot());
	finish_keys(&due);

	/* look again where some were stepped over */
	do
	{
		scan_left = claim->scan_left;
		if (!has_room(&due))
			break;
		return_found(&due, take_suspect && due.returned_count == 0);
	} while (claim->scan_left < scan_left && claim->scan_left > 0);

	if (due.has_lost)
		claim_keys_wake_all(claim);
	claim_close_heads(claim);
	if (due.scan != NULL)
		message_log_scan_end(due.scan);
	UnregisterSnapshot(due.snapshot);
	lease_returned(&due);
	if (due.has_suspect)
		claim->messages_left = 0;
}
