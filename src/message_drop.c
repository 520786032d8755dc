/*
 * message_drop.c
 *		Letting go of the oldest messages of a stream.
 *
 * The messages are gone with the number that is written to the stream's row:
 * readers pass over the ids up to it, and over whatever hangs on them.  Claims
 * lose what they held of them, exceptions and the delivery log's rows go then or
 * later.  None of this waits for anybody: a claim that an open transaction is
 * resolving ends with that transaction, and an exception that it is changing is
 * not seen any more.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/pg_list.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "config.h"
#include "delivery_log.h"
#include "exception_group.h"
#include "key_purge.h"
#include "lease.h"
#include "log_partition.h"
#include "message_drop.h"
#include "partition.h"

/* Write down that the ids up to "last" are gone. */
static void
set_purged_through(const Stream *stream, int64 last)
{
	Oid			types[] = {INT8OID, INT8OID};
	Datum		values[] = {Int64GetDatum(last), Int64GetDatum(stream->stream_id)};

	(void) config_execute("UPDATE sqlstreams.stream SET purged_through = $1,"
						  " purged_at = pg_catalog.clock_timestamp()"
						  " WHERE stream_id OPERATOR(pg_catalog.=) $2",
						  lengthof(types), types, values, NULL, NULL);
	stream_invalidate_all();
}

/* Does the segment hold an id up to "last"? */
static bool
is_affected(const LeaseSegment *segment, int64 last)
{
	return id_set_nth(&segment->members, 0) <= last;
}

/*
 * Take the ids up to "last" out of a claim, whose segments are given, the
 * anchor first.  Who has deleted the anchor has the claim for itself (lease.c);
 * when that cannot be had at once, the claim is left alone.
 */
static void
purge_claim(LeaseTables *tables, int64 group_id, List *segments, int64 last)
{
	LeaseSegment *anchor = linitial(segments);
	ListCell   *cell;
	bool		has_purged = false;
	bool		has_open = false;

	foreach(cell, segments)
		has_purged |= is_affected(lfirst(cell), last);
	if (!has_purged || lease_delete(tables, anchor, false) != TM_Ok)
		return;

	foreach(cell, segments)
	{
		LeaseSegment *segment = lfirst(cell);
		bool		is_changed = is_affected(segment, last);

		if (is_changed && segment != anchor)
			(void) lease_delete(tables, segment, true);
		id_set_remove_through(&segment->members, last);
		if (id_set_count(&segment->members) == 0)
			continue;
		has_open = true;
		if (is_changed || segment == anchor)
			lease_insert(tables, group_id, segment);
	}
	if (!has_open)
		lease_delete_resolved(tables, anchor->claim_id);
}

/* Take the ids up to "last" out of a group's claims. */
static void
purge_claims_of_group(LeaseTables *tables, int64 group_id, int64 last)
{
	List	   *claim = NIL;
	ListCell   *cell;

	/* the segments of a claim stand together */
	foreach(cell, lease_load_group(tables, group_id, GetActiveSnapshot()))
	{
		LeaseSegment *segment = lfirst(cell);

		if (claim != NIL && ((LeaseSegment *) linitial(claim))->claim_id != segment->claim_id)
		{
			purge_claim(tables, group_id, claim, last);
			claim = NIL;
		}
		claim = lappend(claim, segment);
	}
	if (claim != NIL)
		purge_claim(tables, group_id, claim, last);
}

/* Take the ids up to "last" out of the claims of all groups. */
static void
purge_claims(const Stream *stream, int64 last)
{
	LeaseTables tables;
	ListCell   *cell;

	if (!OidIsValid(stream->lease_oid))
		return;
	PushActiveSnapshot(GetLatestSnapshot());
	lease_open(stream, &tables);
	foreach(cell, config_list_groups(stream, GetActiveSnapshot()))
	{
		const ConfigGroup *config = lfirst(cell);
		ConsumerGroup group;

		purge_claims_of_group(&tables, config->group_id, last);
		if (group_lookup_if_exists(stream, config->name, &group))
			key_purge_group(stream, &group, last, GetActiveSnapshot());
	}
	lease_close(&tables);
	PopActiveSnapshot();
}

/* Write down for each partition without an id above "last" that it is empty now. */
static void
set_dropped_at(const Stream *stream, int64 last)
{
	TimestampTz now = GetCurrentTimestamp();
	StreamPartition *partitions;
	LogPartition *rows;
	int			count = partition_list(stream, &partitions);
	int			row_count;

	/* one that has come with a dump may have no row */
	row_count = log_partition_list(stream->stream_id, NULL, &rows);
	for (int i = 0; i < count; i++)
	{
		if (partition_last_id(stream, partitions[i].number) <= last &&
			log_partition_find(rows, row_count, partitions[i].number) == NULL)
			log_partition_add(stream->stream_id, partitions[i].number);
	}
	row_count = log_partition_list(stream->stream_id, NULL, &rows);
	for (int i = 0; i < row_count; i++)
	{
		if (partition_last_id(stream, rows[i].number) > last || rows[i].dropped_at != 0)
			continue;
		rows[i].dropped_at = now;
		log_partition_replace(stream->stream_id, &rows[i]);
	}
}

/*
 * Let go of the messages up to "last", which no producer can add to any more.
 * The caller has the stream's name locked.
 */
void
message_drop_through(const Stream *stream, int64 last)
{
	set_purged_through(stream, last);
	set_dropped_at(stream, last);
	purge_claims(stream, last);
}

/*
 * Forget exceptions of messages up to "last", all or only the dead ones, as long
 * as rows are left.  One that is not dead counts as busy where only dead ones are
 * meant.
 */
void
message_drop_exceptions(const Stream *stream, int64 last, bool dead_only, MessageSweep *sweep)
{
	Snapshot	snapshot;
	ListCell   *cell;

	if (!OidIsValid(stream->exception_oid))
		return;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	foreach(cell, config_list_groups(stream, snapshot))
	{
		int64		group_id = ((ConfigGroup *) lfirst(cell))->group_id;

		if (!exception_group_delete_free(stream, group_id, 0, last, dead_only, &sweep->rows_left))
			sweep->is_busy = true;
	}
	UnregisterSnapshot(snapshot);
}

/* Forget what the delivery log has of messages up to "last", as long as rows are left. */
void
message_drop_deliveries(const Stream *stream, int64 last, MessageSweep *sweep)
{
	if (OidIsValid(stream->delivery_log_oid))
		delivery_log_delete_through(stream, last, &sweep->rows_left);
}
