/*
 * inspect.c
 *		The function behind the view "streams", and what all functions behind
 *		views have in common.
 *
 * A view shows what is there now, whatever the isolation level is: everything
 * is read with one snapshot that is taken when the function starts.  It shows
 * the streams that the current role may use, writes nothing and so works on a
 * standby.
 *
 * While a stream is looked at, its sequence is locked, which is what a drop of
 * the stream locks first.  A stream that somebody is about to drop is left out
 * instead of waited for.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "access.h"
#include "id_sequence.h"
#include "inspect.h"
#include "message_log.h"
#include "partition.h"
#include "settled_head.h"

PG_FUNCTION_INFO_V1(sqlstreams_list_streams);

/* Columns of the query behind list_streams. */
enum
{
	CONFIG_NAME = 1,
	CONFIG_RETENTION,
	CONFIG_PARTITION_INTERVAL,
	CONFIG_IDEMPOTENCY_KEY_TTL,
	CONFIG_DELIVERY_LOG,
	CONFIG_MESSAGE_DEFAULTS,
	CONFIG_MAINTENANCE_SUSPENDED
};

/* Columns of list_streams, from 0. */
enum
{
	STREAM_NAME,
	STREAM_ID,
	STREAM_OWNER,
	STREAM_MESSAGES_HEAD,
	STREAM_SETTLED_HEAD,
	STREAM_PARTITIONS,
	STREAM_OLDEST_MESSAGE_AT,
	STREAM_NEWEST_MESSAGE_AT,
	STREAM_BYTES,
	STREAM_RETENTION,
	STREAM_PARTITION_SIZE,
	STREAM_PARTITION_INTERVAL,
	STREAM_IDEMPOTENCY_KEY_TTL,
	STREAM_DELIVERY_LOG,
	STREAM_MESSAGE_DEFAULTS,
	STREAM_MAINTENANCE_SUSPENDED,
	STREAM_COLUMNS
};

/*
 * Start a function that returns a set: its tuplestore, SPI, and an active
 * snapshot of now that all its reading uses.
 */
ReturnSetInfo *
inspect_begin(FunctionCallInfo fcinfo)
{
	InitMaterializedSRF(fcinfo, 0);
	PushActiveSnapshot(GetLatestSnapshot());
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	return (ReturnSetInfo *) fcinfo->resultinfo;
}

/* End what inspect_begin started. */
void
inspect_end(void)
{
	SPI_finish();
	PopActiveSnapshot();
}

/*
 * Run a query on tables that no user can change, as the extension.  The rows
 * live until inspect_end.
 */
SPITupleTable *
inspect_query(const char *sql, int argument_count, Oid *types, Datum *values, uint64 *count)
{
	MemoryContext context = CurrentMemoryContext;
	AccessState saved;
	int			result;

	access_become_extension(&saved);
	result = SPI_execute_with_args(sql, argument_count, types, values, NULL, true, 0);
	if (result != SPI_OK_SELECT)
		elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(result));
	access_restore(&saved);
	MemoryContextSwitchTo(context);
	*count = SPI_processed;
	return SPI_tuptable;
}

/*
 * Find a stream that the view shows and keep it from being dropped until
 * inspect_leave_stream; false when there is none.
 */
bool
inspect_enter_stream(const char *name, Stream *stream)
{
	if (!stream_lookup_complete(name, stream) || !access_is_visible(stream) ||
		!ConditionalLockRelationOid(stream->sequence_oid, AccessShareLock))
		return false;
	if (SearchSysCacheExists1(RELOID, ObjectIdGetDatum(stream->sequence_oid)))
		return true;
	inspect_leave_stream(stream);
	return false;
}

/* Let go of a stream. */
void
inspect_leave_stream(const Stream *stream)
{
	UnlockRelationOid(stream->sequence_oid, AccessShareLock);
}

/*
 * Set *last to the highest id that was drawn and *settled to the id up to which
 * everything is committed or gone.  Returns false when the stream was dropped.
 */
bool
inspect_read_heads(const Stream *stream, int64 *last, int64 *settled)
{
	if (!id_sequence_last(stream->sequence_oid, last) || !settled_head_find(stream, settled))
		return false;

	/* ids may have been drawn in between */
	*last = Max(*last, *settled);
	return true;
}

/*
 * Set *created_at to the age of the last message up to "last"; false when there
 * is none.  Looks at ranges that double in size, from the end, so that it reads
 * about as many rows as there are ids at the end without a message.
 */
static bool
find_newest_created_at(const Stream *stream, int64 last, TimestampTz *created_at)
{
	int64		lowest = stream->purged_through + 1;
	int64		size = 1;
	int64		to_id = last;
	LogScan    *scan;
	Datum	   *values;
	bool	   *isnull;
	bool		found = false;

	if (lowest > last)
		return false;
	scan = message_log_scan_begin(stream, GetActiveSnapshot(), last, last);
	while (!found && to_id >= lowest)
	{
		int64		from_id = Max(to_id - size + 1, lowest);

		CHECK_FOR_INTERRUPTS();
		message_log_scan_seek(scan, from_id, to_id);
		while (message_log_scan_next(scan))
		{
			message_log_scan_row(scan, &values, &isnull);
			*created_at = DatumGetTimestampTz(values[Anum_log_created_at - 1]);
			found = true;
		}
		to_id = from_id - 1;
		size *= 2;
	}
	message_log_scan_end(scan);
	return found;
}

/* The bytes of a table with its indexes and TOAST; 0 when it does not exist. */
int64
inspect_table_bytes(Oid oid)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		result;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = ObjectIdGetDatum(oid);
	fcinfo->args[0].isnull = false;
	result = pg_total_relation_size(fcinfo);
	return fcinfo->isnull ? 0 : DatumGetInt64(result);
}

/* Set the columns that tell of the log: its partitions, bytes and ages. */
static void
fill_log_columns(const Stream *stream, int64 last, Datum *values, bool *nulls)
{
	StreamPartition *partitions;
	int			count = partition_list(stream, &partitions);
	int64		bytes = 0;
	TimestampTz created_at;

	for (int i = 0; i < count; i++)
		bytes += inspect_table_bytes(partitions[i].oid);
	values[STREAM_PARTITIONS] = Int64GetDatum(count);
	values[STREAM_BYTES] = Int64GetDatum(bytes);

	if (message_log_find_created_at(stream, GetActiveSnapshot(), 1, last, &created_at))
		values[STREAM_OLDEST_MESSAGE_AT] = TimestampTzGetDatum(created_at);
	else
		nulls[STREAM_OLDEST_MESSAGE_AT] = true;
	if (find_newest_created_at(stream, last, &created_at))
		values[STREAM_NEWEST_MESSAGE_AT] = TimestampTzGetDatum(created_at);
	else
		nulls[STREAM_NEWEST_MESSAGE_AT] = true;
}

/* Add a stream's row to the result; "config" is its row of the query. */
static void
put_stream(ReturnSetInfo *result, const Stream *stream, HeapTuple config, TupleDesc desc)
{
	Datum		values[STREAM_COLUMNS] = {0};
	bool		nulls[STREAM_COLUMNS] = {0};
	int64		last;
	int64		settled;
	Oid			owner;
	NameData	owner_name;

	if (!inspect_read_heads(stream, &last, &settled))
		return;
	owner = access_relation_owner(stream->log_oid);
	if (!OidIsValid(owner))
		return;
	namestrcpy(&owner_name, GetUserNameFromId(owner, false));

	values[STREAM_NAME] = CStringGetTextDatum(stream->name);
	values[STREAM_ID] = Int64GetDatum(stream->stream_id);
	values[STREAM_OWNER] = NameGetDatum(&owner_name);
	values[STREAM_MESSAGES_HEAD] = Int64GetDatum(last);
	values[STREAM_SETTLED_HEAD] = Int64GetDatum(settled);
	values[STREAM_PARTITION_SIZE] = Int64GetDatum(stream->partition_size);
	fill_log_columns(stream, last, values, nulls);

	values[STREAM_RETENTION] = SPI_getbinval(config, desc, CONFIG_RETENTION, &nulls[STREAM_RETENTION]);
	values[STREAM_PARTITION_INTERVAL] = SPI_getbinval(config, desc, CONFIG_PARTITION_INTERVAL,
													  &nulls[STREAM_PARTITION_INTERVAL]);
	values[STREAM_IDEMPOTENCY_KEY_TTL] = SPI_getbinval(config, desc, CONFIG_IDEMPOTENCY_KEY_TTL,
													   &nulls[STREAM_IDEMPOTENCY_KEY_TTL]);
	values[STREAM_DELIVERY_LOG] = SPI_getbinval(config, desc, CONFIG_DELIVERY_LOG, &nulls[STREAM_DELIVERY_LOG]);
	values[STREAM_MESSAGE_DEFAULTS] = SPI_getbinval(config, desc, CONFIG_MESSAGE_DEFAULTS,
													&nulls[STREAM_MESSAGE_DEFAULTS]);
	values[STREAM_MAINTENANCE_SUSPENDED] = SPI_getbinval(config, desc, CONFIG_MAINTENANCE_SUSPENDED,
														 &nulls[STREAM_MAINTENANCE_SUSPENDED]);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * list_streams() returns setof record: what view "streams" shows
 */
Datum
sqlstreams_list_streams(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = inspect_begin(fcinfo);
	uint64		count;
	SPITupleTable *rows = inspect_query("SELECT stream_name, retention, partition_interval,"
										" idempotency_key_ttl, delivery_log, message_defaults,"
										" maintenance_suspended"
										" FROM sqlstreams.stream ORDER BY stream_name",
										0, NULL, NULL, &count);

	for (uint64 i = 0; i < count; i++)
	{
		Stream		stream;

		CHECK_FOR_INTERRUPTS();
		if (!inspect_enter_stream(SPI_getvalue(rows->vals[i], rows->tupdesc, CONFIG_NAME), &stream))
			continue;
		put_stream(result, &stream, rows->vals[i], rows->tupdesc);
		inspect_leave_stream(&stream);
	}
	inspect_end();
	return (Datum) 0;
}
