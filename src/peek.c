/*
 * peek.c
 *		The SQL functions that read messages without claiming them.
 *
 * Plain queries on the log with the caller's rights and snapshot.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "utils/builtins.h"

#include "access.h"
#include "arguments.h"
#include "stream.h"

PG_FUNCTION_INFO_V1(sqlstreams_peek);
PG_FUNCTION_INFO_V1(sqlstreams_key_messages);

/* The columns of type stored_message. */
#define STORED_COLUMNS \
	"id, payload, message_key, routing_key, headers, schema_version, compaction_rank," \
	" created_at, deliver_at, options, body"

/* Return the rows of a query on a stream's log. */
static void
return_rows(FunctionCallInfo fcinfo, const char *sql, int argument_count, Oid *types, Datum *values)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	int			status;

	SPI_connect();
	status = SPI_execute_with_args(sql, argument_count, types, values, NULL, true, 0);
	if (status != SPI_OK_SELECT)
		elog(ERROR, "could not read the log: %s", SPI_result_code_string(status));
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(result->setResult, SPI_tuptable->vals[i]);
	SPI_finish();
}

/* peek(stream, from_id, max_messages): messages in the order of their ids. */
Datum
sqlstreams_peek(PG_FUNCTION_ARGS)
{
	Stream		stream;
	char	   *name = argument_get_name(fcinfo, 0, "stream");
	int64		from_id = argument_get_integer_or(fcinfo, 1, "from_id", PG_INT64_MIN, PG_INT64_MAX, 0);
	int64		limit = argument_get_integer(fcinfo, 2, "max_messages", 1, BATCH_MAX_MESSAGES);
	Oid			types[2] = {INT8OID, INT8OID};
	Datum		values[2];

	access_open_to_read(name, &stream);
	values[0] = Int64GetDatum(Max(from_id, stream.purged_through + 1));
	values[1] = Int64GetDatum(limit);

	InitMaterializedSRF(fcinfo, 0);
	return_rows(fcinfo,
				psprintf("SELECT " STORED_COLUMNS " FROM sqlstreams.message_log_" INT64_FORMAT
						 " WHERE id OPERATOR(pg_catalog.>=) $1 ORDER BY id LIMIT $2", stream.stream_id),
				2, types, values);
	return (Datum) 0;
}

/* key_messages(stream, message_key, max_messages): a key's, newest first. */
Datum
sqlstreams_key_messages(PG_FUNCTION_ARGS)
{
	Stream		stream;
	char	   *name = argument_get_name(fcinfo, 0, "stream");
	int64		limit = argument_get_integer(fcinfo, 2, "max_messages", 1, BATCH_MAX_MESSAGES);
	Oid			types[3] = {TEXTOID, INT8OID, INT8OID};
	Datum		values[3];
	text	   *key;

	if (PG_ARGISNULL(1))
		argument_raise_null("message_key");
	access_open_to_read(name, &stream);
	InitMaterializedSRF(fcinfo, 0);
	key = argument_check_key(PG_GETARG_TEXT_PP(1), "message_key");
	if (key == NULL)
		return (Datum) 0;

	values[0] = PointerGetDatum(key);
	values[1] = Int64GetDatum(stream.purged_through);
	values[2] = Int64GetDatum(limit);
	return_rows(fcinfo,
				psprintf("SELECT " STORED_COLUMNS " FROM sqlstreams.message_log_" INT64_FORMAT
						 " WHERE message_key OPERATOR(pg_catalog.=) $1 AND id OPERATOR(pg_catalog.>) $2"
						 " ORDER BY id DESC LIMIT $3", stream.stream_id),
				3, types, values);
	return (Datum) 0;
}
