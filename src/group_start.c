/*
 * group_start.c
 *		Where a new consumer group begins to read.
 *
 * "Head" is not an id: a message that commits after the group was created can
 * have a lower id than one that was there before.  So the group begins where
 * the stream is settled, and remembers which ids were missing from there to the
 * last one drawn: of these it gets whatever still commits, and of the others
 * nothing.
 */
#include "postgres.h"

#include "access/transam.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "group_start.h"
#include "id_sequence.h"
#include "message_log.h"
#include "settled_head.h"

/*
 * The clock is read after the id is drawn, so a message can be a little older
 * than the one before it.  A search by time looks so much earlier.
 */
#define CREATED_AT_DISORDER_US (10 * USECS_PER_SEC)

/* Begin with what commits from now on. */
static void
start_at_head(const Stream *stream, GroupStart *start)
{
	int64		settled;
	int64		next_id;
	Snapshot	snapshot;
	LogScan    *scan;

	if (!settled_head_find(stream, &settled) ||
		!id_sequence_last(stream->sequence_oid, &start->head_id))
		stream_raise_table_missing(stream);
	next_id = settled + 1;
	start->start_id = next_id;
	id_set_init(&start->missing);

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = message_log_scan_begin(stream, snapshot, next_id, start->head_id);
	while (message_log_scan_next(scan))
	{
		id_set_append_run(&start->missing, next_id, message_log_scan_id(scan) - next_id);
		next_id = message_log_scan_id(scan) + 1;
		CHECK_FOR_INTERRUPTS();
	}
	message_log_scan_end(scan);
	UnregisterSnapshot(snapshot);
	id_set_append_run(&start->missing, next_id, start->head_id + 1 - next_id);
}

/* When the current row was produced. */
static TimestampTz
created_at(LogScan *scan)
{
	Datum	   *row;
	bool	   *isnull;

	message_log_scan_row(scan, &row, &isnull);
	return DatumGetTimestampTz(row[Anum_log_created_at - 1]);
}

/*
 * An id before which all messages are older than a time, found by halving the
 * range of ids, as if the messages' times rose with their ids.
 */
static int64
find_id_by_time(LogScan *scan, int64 first, int64 last, TimestampTz when)
{
	int64		low = first;
	int64		high = last + 1;

	while (low < high)
	{
		int64		middle = low + (high - low) / 2;

		message_log_scan_seek(scan, middle, last);
		if (message_log_scan_next(scan) && created_at(scan) < when)
			low = message_log_scan_id(scan) + 1;
		else
			high = middle;
	}
	return low;
}

/*
 * Begin with the first message produced at a time or later.  Ids that are
 * missing just before it are read too: they may be messages of that time that
 * are still to commit.
 */
static void
start_at_time(const Stream *stream, TimestampTz when, GroupStart *start)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	int64		first = stream->purged_through + 1;
	int64		last;
	LogScan    *scan;

	if (!id_sequence_last(stream->sequence_oid, &last))
		stream_raise_table_missing(stream);
	start->head_id = 0;
	scan = message_log_scan_begin(stream, snapshot, first, last);
	start->start_id = find_id_by_time(scan, first, last, when - CREATED_AT_DISORDER_US);

	message_log_scan_seek(scan, start->start_id, last);
	while (message_log_scan_next(scan) && created_at(scan) < when)
	{
		start->start_id = message_log_scan_id(scan) + 1;
		CHECK_FOR_INTERRUPTS();
	}
	message_log_scan_end(scan);
	UnregisterSnapshot(snapshot);
}

/*
 * Read the arguments start_position, start_id and start_time, of which this is
 * the first.  Raises 22023 for a bad one, and when more than one is given.
 */
GroupStartArguments
group_start_read(FunctionCallInfo fcinfo, int first)
{
	GroupStartArguments start = {0};
	bool		has_position = !PG_ARGISNULL(first);
	bool		has_time = !PG_ARGISNULL(first + 2);

	start.has_id = !PG_ARGISNULL(first + 1);
	start.count = has_position + start.has_id + has_time;
	if (start.count > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("only one of \"start_position\", \"start_id\" and \"start_time\" may be given")));

	start.is_beginning = start.count == 0;
	if (has_position)
	{
		char	   *position = text_to_cstring(PG_GETARG_TEXT_PP(first));

		start.is_head = strcmp(position, "head") == 0;
		start.is_beginning = strcmp(position, "beginning") == 0;
		if (!start.is_head && !start.is_beginning)
			argument_raise_invalid("start_position", _("It must be \"beginning\" or \"head\"."));
	}
	if (start.has_id)
		start.id = argument_get_integer(fcinfo, first + 1, "start_id", 1, PG_INT64_MAX - 1);
	if (has_time)
	{
		start.time = PG_GETARG_TIMESTAMPTZ(first + 2);
		if (TIMESTAMP_NOT_FINITE(start.time))
			argument_raise_invalid("start_time", _("It must be finite."));
	}
	return start;
}

/* Where that is in the stream. */
void
group_start_find(const Stream *stream, const GroupStartArguments *arguments, GroupStart *start)
{
	memset(start, 0, sizeof(GroupStart));
	if (arguments->is_beginning)
		start->start_id = 1;
	else if (arguments->is_head)
		start_at_head(stream, start);
	else if (arguments->has_id)
		start->start_id = arguments->id;
	else
		start_at_time(stream, arguments->time, start);
}
