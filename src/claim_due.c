/*
 * claim_due.c
 *		The exceptions of a group that are due.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "claim.h"
#include "duration.h"

/*
 * When to look again at an exception whose message is not in the log: while a
 * dump is being restored it may still come.
 */
#define MISSING_MESSAGE_RETRY_US (60 * USECS_PER_SEC)

/* How many to read at once of which some may be of another version. */
#define DUE_STEP 1000

static int
compare_ids(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return (x > y) - (x < y);
}

/* The returning of exceptions by one claim. */
typedef struct DueReturn
{
	Claim	   *claim;
	Snapshot	snapshot;
	LogScan    *scan;			/* NULL until the first message is read */
	int64		messages_left;	/* how many may be returned */
	int64	   *returned;		/* what was returned, the first due first */
	int64		returned_count;
	int32		takeovers;		/* the most of them */
	bool		has_suspect;
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
	due->has_suspect |= exception->is_suspect;
}

/* Deliver an exception that is due, or leave it for another time. */
static void
return_exception(DueReturn *due, const DueException *found)
{
	Claim	   *claim = due->claim;
	Exception	exception = {0};

	if (!claim_has_room(claim) || due->messages_left == 0 ||
		!exception_find(&claim->exceptions, claim->group.group_id, found->message_id, due->snapshot, &exception) ||
		!exception_delete(&claim->exceptions, &exception, false))
		exception_leave_due(&claim->cursor, found);
	else if (found->message_id <= claim->stream.purged_through)
		return;
	else if (!find_message(due, found->message_id))
		put_back(due, &exception, EXCEPTION_READY, duration_add(claim->now, MISSING_MESSAGE_RETRY_US));
	else if (!wants_version(due))
	{
		put_back(due, &exception, EXCEPTION_PARKED, exception.due_at);
		claim->scan_left--;
	}
	else
		deliver(due, &exception);

	/* it may be large, and the claim of many */
	if (exception.last_error != NULL)
		pfree(exception.last_error);
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
	for (int64 i = 0; i < count; i++)
	{
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
	qsort(due->returned, due->returned_count, sizeof(int64), compare_ids);
	for (int64 i = 0; i < due->returned_count; i++)
		id_set_append(&members, due->returned[i]);
	claim_lease_messages(due->claim, &members, due->takeovers, true);
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
	due.snapshot = RegisterSnapshot(GetLatestSnapshot());

	/* look again where some were stepped over */
	do
	{
		scan_left = claim->scan_left;
		if (!claim_has_room(claim) || due.messages_left == 0 || due.has_suspect)
			break;
		return_found(&due, take_suspect && due.returned_count == 0);
	} while (claim->scan_left < scan_left && claim->scan_left > 0);

	if (due.scan != NULL)
		message_log_scan_end(due.scan);
	UnregisterSnapshot(due.snapshot);
	lease_returned(&due);
	if (due.has_suspect)
		claim->messages_left = 0;
}
