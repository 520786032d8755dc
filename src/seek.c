/*
 * seek.c
 *		The SQL function that moves a consumer group to another place.
 *
 * Claims on messages between the old place and the new one are dropped, and so
 * are exceptions of such messages; when the group moves forward, dead ones stay.
 * A transaction that is resolving such a claim, or is changing such an
 * exception, is waited for before the group is locked: its messages may become
 * claimable again when it rolls back, and a claim of the group must not wait
 * for it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "access.h"
#include "arguments.h"
#include "config.h"
#include "cursor.h"
#include "exception_group.h"
#include "group.h"
#include "group_start.h"
#include "key_wakeup.h"
#include "lease.h"
#include "partition.h"

PG_FUNCTION_INFO_V1(sqlstreams_seek);

/* How often to try to find nobody at what is between the places. */
#define MAX_LOCK_ATTEMPTS 100

/* A seek as it is being done. */
typedef struct Seek
{
	Stream		stream;
	ConsumerGroup group;
	GroupStart	start;
	int64		before;			/* the cursor's place */
	int64		after;
} Seek;

/* The oldest id that the log may still have. */
static int64
oldest_id(const Stream *stream)
{
	StreamPartition *partitions;
	int			count = partition_list(stream, &partitions);
	int64		first = count > 0 ? partition_first_id(stream, partitions[0].number) : 1;

	return Max(first, stream->purged_through + 1);
}

/* Raise 22023 for a place that has left the log. */
static void
check_start(const Seek *seek, const GroupStartArguments *arguments)
{
	int64		oldest = oldest_id(&seek->stream);

	if (arguments->has_id && arguments->id < oldest)
		argument_raise_invalid("start_id",
							   psprintf(_("The oldest message id that the stream keeps is %lld."),
										(long long) oldest));
}

/* Read the group's cursor, and say where it is and where it goes. */
static void
read_cursor(Seek *seek, GroupCursor *cursor)
{
	cursor_load(&seek->stream, &seek->group, cursor);
	seek->before = Max(cursor->claimed, seek->stream.purged_through);
	seek->after = seek->start.start_id - 1;
}

/* The messages between the places are those after this id ... */
static int64
window_low(const Seek *seek)
{
	return Min(seek->before, seek->after);
}

/* ... up to this one. */
static int64
window_high(const Seek *seek)
{
	return Max(seek->before, seek->after);
}

/* Does a claim hold messages between the places? */
static bool
is_in_window(const Seek *seek, const LeaseSegment *segment)
{
	int64		low = window_low(seek);
	int64		high = window_high(seek);
	const IdSet *members = &segment->members;

	for (int i = 0; i < members->run_count; i++)
	{
		if (members->runs[i].first <= high && members->runs[i].first + members->runs[i].count - 1 > low)
			return true;
	}
	return false;
}

/* The claims that hold messages between the places, as a list of their ids. */
static List *
find_claims(const Seek *seek, LeaseTables *tables)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	List	   *segments = lease_load_group(tables, seek->group.group_id, snapshot);
	List	   *claims = NIL;
	ListCell   *cell;

	foreach(cell, segments)
	{
		LeaseSegment *segment = lfirst(cell);
		int64	   *claim_id;

		if (!is_in_window(seek, segment) ||
			(claims != NIL && *(int64 *) llast(claims) == segment->claim_id))
			continue;
		claim_id = palloc(sizeof(int64));
		*claim_id = segment->claim_id;
		claims = lappend(claims, claim_id);
	}
	UnregisterSnapshot(snapshot);
	return claims;
}

/* Hand back a dropped claim's messages outside of the window. */
static void
release_segment(Seek *seek, LeaseTables *tables, LeaseSegment *segment, GroupCursor *cursor,
				OutcomeWriter *writer)
{
	id_set_remove_range(&segment->members, window_low(seek) + 1, window_high(seek));
	id_set_remove_through(&segment->members, seek->stream.purged_through);
	if (segment->members.run_count == 0)
		return;
	if (!segment->is_released)
		outcome_write_all(writer, segment, OUTCOME_RELEASE);
	if (segment->has_exceptions || segment->keys != LEASE_KEYS_NONE)
		return;
	segment->expires_at = GetCurrentTimestamp();
	lease_put_back(tables, seek->group.group_id, cursor, segment);
}

/*
 * Drop claims.  Their messages outside of the window wait for a claim, as if
 * they had been released.
 */
static void
drop_claims(Seek *seek, LeaseTables *tables, List *claims, GroupCursor *cursor)
{
	OutcomeWriter writer;
	ListCell   *cell;

	outcome_begin(&writer, &seek->stream, &seek->group, cursor);
	foreach(cell, claims)
	{
		List	   *segments = lease_remove_claim(tables, seek->group.group_id, *(int64 *) lfirst(cell));
		ListCell   *segment_cell;

		foreach(segment_cell, segments)
			release_segment(seek, tables, lfirst(segment_cell), cursor, &writer);
	}
	key_wakeup_of_group(&writer);
	outcome_end(&writer);
}

/* Write where the group begins now. */
static void
write_start(const Seek *seek)
{
	const GroupStart *start = &seek->start;
	bool		has_missing = start->missing.run_count > 0;
	Oid			types[] = {INT8OID, INT8OID, INT8OID, INT8OID, BYTEAOID};
	char		nulls[] = {' ', ' ', ' ', has_missing ? ' ' : 'n', has_missing ? ' ' : 'n', '\0'};
	Datum		values[5] = {Int64GetDatum(seek->group.group_id), Int64GetDatum(start->start_id),
	Int64GetDatum(start->head_id)};

	if (has_missing)
	{
		values[3] = Int64GetDatum(start->missing.runs[0].first);
		values[4] = PointerGetDatum(id_set_encode(&start->missing));
	}
	(void) config_execute("UPDATE sqlstreams.consumer_group"
						  " SET start_id = $2, head_id = $3, head_missing_from = $4, head_missing = $5"
						  " WHERE group_id OPERATOR(pg_catalog.=) $1",
						  lengthof(types), types, values, nulls, NULL);
	stream_invalidate_all();
}

/* Find where the group is to go. */
static void
find_start(Seek *seek, const GroupStartArguments *arguments)
{
	group_start_find(&seek->stream, arguments, &seek->start);
	if (arguments->is_beginning)
		seek->start.start_id = oldest_id(&seek->stream);
}

/* Wait for those who change what is between the places, while claims go on. */
static void
wait_for_others(Seek *seek, LeaseTables *tables)
{
	ListCell   *cell;

	exception_group_wait(&seek->stream, seek->group.group_id, window_low(seek), window_high(seek));
	foreach(cell, find_claims(seek, tables))
		lease_wait_for_claim(tables, seek->group.group_id, *(int64 *) lfirst(cell));
}

/* Is nobody changing what is between the places?  Keeps others out of the claims. */
static bool
is_free(Seek *seek, LeaseTables *tables, List *claims)
{
	ListCell   *cell;

	foreach(cell, claims)
	{
		if (!lease_lock_claim_if_free(tables, seek->group.group_id, *(int64 *) lfirst(cell)))
			return false;
	}
	return !exception_group_is_busy(&seek->stream, seek->group.group_id, window_low(seek), window_high(seek));
}

/*
 * Lock the group, and return the claims between the places.  Where the head is
 * has to be found again when no claim can move the cursor any more: the group
 * must not get twice what it claimed meanwhile.  Somebody who has come since
 * others were waited for may want the group's lock, too, to release messages:
 * then it is given back.
 */
static List *
lock_group(Seek *seek, const GroupStartArguments *arguments, LeaseTables *tables, GroupCursor *cursor)
{
	for (int attempt = 1;; attempt++)
	{
		List	   *claims;

		wait_for_others(seek, tables);
		group_lock(&seek->group);
		find_start(seek, arguments);
		read_cursor(seek, cursor);
		claims = find_claims(seek, tables);
		if (attempt == MAX_LOCK_ATTEMPTS || is_free(seek, tables, claims))
			return claims;
		group_unlock(&seek->group);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Move the group. */
static void
move(Seek *seek, const GroupStartArguments *arguments)
{
	GroupCursor cursor;
	LeaseTables tables;
	List	   *claims;

	read_cursor(seek, &cursor);
	lease_open(&seek->stream, &tables);
	claims = lock_group(seek, arguments, &tables, &cursor);
	drop_claims(seek, &tables, claims, &cursor);
	lease_close(&tables);
	exception_group_delete(&seek->stream, seek->group.group_id, window_low(seek), window_high(seek),
						   seek->after < seek->before);

	cursor.claimed = seek->after;
	cursor.fence.last = 0;
	cursor.fence.holder_count = 0;
	cursor_write(&seek->stream, seek->group.group_id, &cursor);
	write_start(seek);
}

/*
 * seek(stream, consumer_group, start_position, start_id, start_time, dry_run):
 * move a group; returns where it was, where it is, and how many ids come again.
 */
Datum
sqlstreams_seek(PG_FUNCTION_ARGS)
{
	Seek		seek = {0};
	char	   *stream_name = argument_get_name(fcinfo, 0, "stream");
	char	   *group_name = argument_get_name(fcinfo, 1, "consumer_group");
	GroupStartArguments arguments = group_start_read(fcinfo, 2);
	bool		is_dry_run = !PG_ARGISNULL(5) && PG_GETARG_BOOL(5);
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	GroupCursor cursor;
	Datum		values[3];
	bool		isnull[3] = {false};

	PreventCommandIfReadOnly("sqlstreams.seek()");
	if (arguments.count == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("one of \"start_position\", \"start_id\" and \"start_time\" must be given")));
	InitMaterializedSRF(fcinfo, 0);

	config_lock_stream(stream_name, &seek.stream);
	group_lookup(&seek.stream, group_name, &seek.group);
	CommandCounterIncrement();
	check_start(&seek, &arguments);
	find_start(&seek, &arguments);
	if (is_dry_run)
		read_cursor(&seek, &cursor);
	else
		move(&seek, &arguments);

	values[0] = Int64GetDatum(seek.before);
	values[1] = Int64GetDatum(seek.after);
	values[2] = Int64GetDatum(seek.before - seek.after);
	tuplestore_putvalues(result->setResult, result->setDesc, values, isnull);
	return (Datum) 0;
}
