/*
 * inspect_partitions.c
 *		The function behind the view "partitions".
 *
 * As inspect.c says: what is there now, of the streams that the current role
 * may use, without writing anything.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "id_sequence.h"
#include "inspect.h"
#include "log_partition.h"
#include "partition.h"
#include "partition_hold.h"

PG_FUNCTION_INFO_V1(sqlstreams_list_partitions);

/* Columns of list_partitions, from 0. */
enum
{
	PARTITION_STREAM,
	PARTITION_NAME,
	PARTITION_FROM_ID,
	PARTITION_TO_ID,
	PARTITION_BYTES,
	PARTITION_CREATED_AT,
	PARTITION_SEALED_AT,
	PARTITION_STATE,
	PARTITION_HELD_BY,
	PARTITION_COLUMNS
};

/* What the rows of a stream's partitions have in common. */
typedef struct PartitionView
{
	ReturnSetInfo *result;
	Stream		stream;
	int64		last;			/* the highest id that was drawn */
	TimestampTz now;
	LogPartition *rows;
	int			row_count;
	bool		has_hold;		/* what groups need has been looked up: */
	GroupHold	hold;
} PartitionView;

/*
 * Who has a partition or its log locked, in words, or NULL for nobody.  That is
 * why one whose messages are gone is still there.
 */
static char *
describe_lockers(const Stream *stream, Oid partition_oid)
{
	Oid			types[] = {OIDOID, OIDOID, OIDOID, INT4OID};
	Datum		values[] = {ObjectIdGetDatum(partition_oid), ObjectIdGetDatum(stream->log_oid),
	ObjectIdGetDatum(MyDatabaseId), Int32GetDatum(MyProcPid)};
	uint64		count;
	StringInfoData lockers;
	SPITupleTable *rows = inspect_query("SELECT DISTINCT l.pid, p.gid FROM pg_catalog.pg_locks l"
										" LEFT JOIN pg_catalog.pg_locks x"
										" ON l.pid IS NULL AND x.pid IS NULL"
										" AND x.virtualtransaction OPERATOR(pg_catalog.=) l.virtualtransaction"
										" AND x.locktype OPERATOR(pg_catalog.=) 'transactionid'"
										" LEFT JOIN pg_catalog.pg_prepared_xacts p"
										" ON p.transaction OPERATOR(pg_catalog.=) x.transactionid"
										" WHERE (l.relation OPERATOR(pg_catalog.=) $1"
										" OR l.relation OPERATOR(pg_catalog.=) $2)"
										" AND l.database OPERATOR(pg_catalog.=) $3"
										" AND l.granted"
										" AND (l.pid IS NULL OR l.pid OPERATOR(pg_catalog.<>) $4)"
										" ORDER BY l.pid, p.gid",
										lengthof(types), types, values, &count);

	if (count == 0)
		return NULL;
	initStringInfo(&lockers);
	appendStringInfoString(&lockers, "locked by ");
	for (uint64 i = 0; i < count; i++)
	{
		char	   *pid = SPI_getvalue(rows->vals[i], rows->tupdesc, 1);
		char	   *gid = SPI_getvalue(rows->vals[i], rows->tupdesc, 2);

		if (i > 0)
			appendStringInfoString(&lockers, ", ");
		if (pid != NULL)
			appendStringInfo(&lockers, "process %s", pid);
		else
			appendStringInfo(&lockers, "prepared transaction \"%s\"", gid == NULL ? "" : gid);
	}
	return lockers.data;
}

/* Which group needs something of a partition, in words, or NULL for none. */
static char *
describe_group(PartitionView *view, int64 last_id)
{
	if (view->stream.allow_drop_past_committed)
		return NULL;
	if (!view->has_hold)
	{
		int64		to_id = 0;

		for (int i = 0; i < view->row_count; i++)
		{
			if (partition_hold_is_expired(&view->stream, &view->rows[i], view->now))
				to_id = partition_last_id(&view->stream, view->rows[i].number);
		}
		partition_hold_by_groups(&view->stream, to_id, GetActiveSnapshot(), &view->hold);
		view->has_hold = true;
	}
	return view->hold.from_id <= last_id ? view->hold.reason : NULL;
}

/*
 * What state a partition is in; sets *held_by to what keeps it from the next
 * one, NULL when that is nothing or time.
 */
static const char *
find_state(PartitionView *view, const StreamPartition *partition, const LogPartition *row, char **held_by)
{
	int64		last_id = partition_last_id(&view->stream, partition->number);

	*held_by = NULL;
	if (last_id <= view->stream.purged_through)
	{
		*held_by = partition_hold_by_dependent(partition->oid);
		if (*held_by == NULL)
			*held_by = describe_lockers(&view->stream, partition->oid);
		return "purged";
	}
	if (row != NULL && partition_hold_is_expired(&view->stream, row, view->now))
	{
		*held_by = describe_group(view, last_id);
		return "expired";
	}
	if (row != NULL && row->sealed_at != 0)
		return "sealed";
	if (last_id > view->last)
		return "open";
	if (row != NULL)
		*held_by = partition_hold_by_writers(row);
	return "full";
}

/* As find_state; also says when nobody takes it on. */
static const char *
find_state_and_hold(PartitionView *view, const StreamPartition *partition, const LogPartition *row, char **held_by)
{
	const char *state = find_state(view, partition, row, held_by);

	if (*held_by == NULL && view->stream.maintenance_suspended &&
		strcmp(state, "open") != 0 && strcmp(state, "sealed") != 0)
		*held_by = pstrdup("maintenance is suspended");
	return state;
}

/* Add a partition's row to the result. */
static void
put_partition(PartitionView *view, const StreamPartition *partition)
{
	const Stream *stream = &view->stream;
	const LogPartition *row = log_partition_find(view->rows, view->row_count, partition->number);
	Datum		values[PARTITION_COLUMNS] = {0};
	bool		nulls[PARTITION_COLUMNS] = {0};
	char	   *name = get_rel_name(partition->oid);
	NameData	name_data;
	char	   *held_by;

	if (name == NULL)
		return;
	namestrcpy(&name_data, name);
	values[PARTITION_STREAM] = CStringGetTextDatum(stream->name);
	values[PARTITION_NAME] = NameGetDatum(&name_data);
	values[PARTITION_FROM_ID] = Int64GetDatum(partition_first_id(stream, partition->number));
	values[PARTITION_TO_ID] = Int64GetDatum(partition_last_id(stream, partition->number));
	values[PARTITION_BYTES] = Int64GetDatum(inspect_table_bytes(partition->oid));
	values[PARTITION_STATE] = CStringGetTextDatum(find_state_and_hold(view, partition, row, &held_by));
	if (held_by != NULL)
		values[PARTITION_HELD_BY] = CStringGetTextDatum(held_by);
	nulls[PARTITION_HELD_BY] = held_by == NULL;

	/* one that has come with a dump has no row at first */
	nulls[PARTITION_CREATED_AT] = row == NULL;
	nulls[PARTITION_SEALED_AT] = row == NULL || row->sealed_at == 0;
	if (row != NULL)
	{
		values[PARTITION_CREATED_AT] = TimestampTzGetDatum(row->created_at);
		values[PARTITION_SEALED_AT] = TimestampTzGetDatum(row->sealed_at);
	}
	tuplestore_putvalues(view->result->setResult, view->result->setDesc, values, nulls);
}

/* Add the rows of a stream's partitions. */
static void
put_stream(PartitionView *view)
{
	StreamPartition *partitions;
	int			count = partition_list(&view->stream, &partitions);

	if (!id_sequence_last(view->stream.sequence_oid, &view->last))
		return;
	view->row_count = log_partition_list(view->stream.stream_id, GetActiveSnapshot(), &view->rows);
	view->has_hold = false;
	for (int i = 0; i < count; i++)
		put_partition(view, &partitions[i]);
}

/*
 * list_partitions() returns setof record: what view "partitions" shows
 */
Datum
sqlstreams_list_partitions(PG_FUNCTION_ARGS)
{
	PartitionView view = {.result = inspect_begin(fcinfo),.now = GetCurrentTimestamp()};
	uint64		count;
	SPITupleTable *rows = inspect_query("SELECT stream_name FROM sqlstreams.stream ORDER BY stream_name",
										0, NULL, NULL, &count);

	for (uint64 i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (!inspect_enter_stream(SPI_getvalue(rows->vals[i], rows->tupdesc, 1), &view.stream))
			continue;
		put_stream(&view);
		inspect_leave_stream(&view.stream);
	}
	inspect_end();
	return (Datum) 0;
}
