/*
 * purge.c
 *		The SQL function that lets go of every message of a stream that is
 *		settled.
 *
 * Partitions that hold nothing else are dropped.  None of this waits for
 * anybody: a partition that somebody reads is dropped by a later call, or by
 * maintenance.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"

#include "access.h"
#include "arguments.h"
#include "config.h"
#include "message_drop.h"
#include "partition.h"
#include "partition_hold.h"
#include "settled_head.h"

PG_FUNCTION_INFO_V1(sqlstreams_purge_stream);

/*
 * Drop the partitions that hold no id above "last" and that nobody uses now; the
 * others are for maintenance.
 */
static void
drop_partitions_through(const Stream *stream, int64 last)
{
	StreamPartition *partitions;
	int			count = partition_list(stream, &partitions);

	for (int i = 0; i < count; i++)
	{
		if (partition_last_id(stream, partitions[i].number) <= last &&
			partition_hold_by_dependent(partitions[i].oid) == NULL)
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
		MessageSweep sweep = {.rows_left = PG_INT64_MAX};

		message_drop_through(&stream, settled);
		message_drop_exceptions(&stream, settled, false, &sweep);
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
