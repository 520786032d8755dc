/*
 * purge.c
 *		The SQL function that lets go of every message of a stream that is
 *		settled.
 *
 * The messages are gone with the number that is written to the stream's row:
 * readers pass over the ids up to it.  Claims lose what they held of them,
 * exceptions go, and partitions that hold nothing else are dropped.  None of this
 * waits for anybody: a claim that an open transaction is resolving ends with
 * that transaction, an exception that it is changing is not seen any more, and
 * a partition that somebody reads is dropped by a later call.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/snapmgr.h"

#include "access.h"
#include "arguments.h"
#include "config.h"
#include "exception_group.h"
#include "lease.h"
#include "partition.h"
#include "settled_head.h"

PG_FUNCTION_INFO_V1(sqlstreams_purge_stream);

/* Write down that the ids up to "last" are gone. */
static void
set_purged_through(const Stream *stream, int64 last)
{
	Oid			types[] = {INT8OID, INT8OID};
	Datum		values[] = {Int64GetDatum(last), Int64GetDatum(stream->stream_id)};

	(void) config_execute("UPDATE sqlstreams.stream SET purged_through = $1"
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

/* Take the ids up to "last" out of the claims and the exceptions of all groups. */
static void
purge_groups(const Stream *stream, int64 last)
{
	LeaseTables tables;
	ListCell   *cell;

	if (!OidIsValid(stream->lease_oid))
		return;
	PushActiveSnapshot(GetLatestSnapshot());
	lease_open(stream, &tables);
	foreach(cell, config_list_groups(stream, GetActiveSnapshot()))
	{
		int64		group_id = ((ConfigGroup *) lfirst(cell))->group_id;

		purge_claims_of_group(&tables, group_id, last);
		exception_group_delete_free(stream, group_id, 0, last);
	}
	lease_close(&tables);
	PopActiveSnapshot();
}

/* Drop the partitions that hold no id above "last" and that nobody uses now. */
static void
drop_partitions_through(const Stream *stream, int64 last)
{
	StreamPartition *partitions;
	int			count = partition_list(stream, &partitions);

	for (int i = 0; i < count; i++)
	{
		if (partition_last_id(stream, partitions[i].number) <= last)
			(void) partition_drop_if_free(stream, partitions[i].number);
	}
}

/*
 * Find a stream that the current role owns, lock its name, and set *settled to
 * how far it may be purged.  That is found out before the name is locked: it
 * may wait for a drop of the stream, which has the sequence and wants the name.
 * Raises SS001 and 42501.
 */
static void
lock_stream_to_purge(const char *name, Stream *stream, int64 *settled)
{
	int64		looked_at;

	do
	{
		stream_lookup(name, stream);
		access_check_owner(stream);
		looked_at = stream->stream_id;
		if (settled_head_find(stream, settled))
			config_lock_stream(name, stream);
		else
			looked_at = 0;
	} while (stream->stream_id != looked_at);
}

/* Purge a stream; returns how many ids went.  Raises SS001 and 42501. */
static int64
purge_stream(const char *name)
{
	Stream		stream;
	int64		settled;
	int64		purged;

	/* what the running command produced goes, too */
	CommandCounterIncrement();
	lock_stream_to_purge(name, &stream, &settled);
	purged = Max(settled - stream.purged_through, 0);
	if (purged > 0)
	{
		set_purged_through(&stream, settled);
		purge_groups(&stream, settled);
	}
	drop_partitions_through(&stream, Max(settled, stream.purged_through));
	return purged;
}

/*
 * purge_stream(stream) returns bigint
 */
Datum
sqlstreams_purge_stream(PG_FUNCTION_ARGS)
{
	char	   *name;

	PreventCommandIfReadOnly("sqlstreams.purge_stream()");
	name = argument_get_name(fcinfo, 0, "stream");
	PG_RETURN_INT64(purge_stream(name));
}
