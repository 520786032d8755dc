/*
 * compaction_heads.c
 *		The SQL functions that read and lock compaction heads.
 *
 * A head whose message is gone, by a purge or with its partition, is empty and
 * not shown.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

#include "access.h"
#include "arguments.h"
#include "compaction.h"
#include "message_log.h"
#include "partition_maker.h"
#include "stream.h"

PG_FUNCTION_INFO_V1(sqlstreams_compaction_head);
PG_FUNCTION_INFO_V1(sqlstreams_compaction_heads);
PG_FUNCTION_INFO_V1(sqlstreams_lock_compaction_head);

/* The columns of type stored_message, as columns of the log. */
static const AttrNumber stored_columns[] = {
	Anum_log_id, Anum_log_payload, Anum_log_message_key, Anum_log_routing_key, Anum_log_headers,
	Anum_log_schema_version, Anum_log_compaction_rank, Anum_log_created_at, Anum_log_deliver_at,
	Anum_log_options, Anum_log_body
};

/* Reading heads and their messages. */
typedef struct HeadReader
{
	const Stream *stream;
	ReturnSetInfo *result;
	CompactionReader *heads;
	LogScan    *log;
} HeadReader;

/*
 * Begin to read: heads as one snapshot shows them, messages as another.  Raises
 * 0A000 for a log with policies, which would be bypassed.
 */
static void
begin_reading(HeadReader *reader, FunctionCallInfo fcinfo, const Stream *stream,
			  Snapshot head_snapshot, Snapshot log_snapshot)
{
	message_log_check_access(stream);
	InitMaterializedSRF(fcinfo, 0);
	reader->stream = stream;
	reader->result = (ReturnSetInfo *) fcinfo->resultinfo;
	reader->heads = compaction_reader_open(stream, head_snapshot);
	reader->log = message_log_scan_begin(stream, log_snapshot, 1, 0);
}

static void
end_reading(HeadReader *reader)
{
	message_log_scan_end(reader->log);
	compaction_reader_close(reader->heads);
}

/* Return the row of the log where the scan is. */
static void
return_row(HeadReader *reader)
{
	Datum	   *row;
	bool	   *row_isnull;
	Datum		values[lengthof(stored_columns)];
	bool		isnull[lengthof(stored_columns)];

	message_log_scan_row(reader->log, &row, &row_isnull);
	for (int i = 0; i < lengthof(stored_columns); i++)
	{
		values[i] = row[stored_columns[i] - 1];
		isnull[i] = row_isnull[stored_columns[i] - 1];
	}
	tuplestore_putvalues(reader->result->setResult, reader->result->setDesc, values, isnull);
}

/* Return the message that is a key's head; false when there is none. */
static bool
return_head(HeadReader *reader, text *key)
{
	int64		id;

	if (!compaction_find_head(reader->heads, key, &id) || id <= reader->stream->purged_through)
		return false;
	message_log_scan_seek(reader->log, id, id);
	if (!message_log_scan_next(reader->log))
		return false;
	return_row(reader);
	return true;
}

/* The argument message_key: NULL if it is empty.  Raises 22004 and 54000. */
static text *
get_message_key(FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(1))
		argument_raise_null("message_key");
	return argument_check_key(PG_GETARG_TEXT_PP(1), "message_key");
}

/* compaction_head(stream, message_key): the newest version of a key. */
Datum
sqlstreams_compaction_head(PG_FUNCTION_ARGS)
{
	Stream		stream;
	HeadReader	reader;
	char	   *name = argument_get_name(fcinfo, 0, "stream");
	text	   *key = get_message_key(fcinfo);

	access_open_to_read(name, &stream);
	begin_reading(&reader, fcinfo, &stream, GetActiveSnapshot(), GetActiveSnapshot());
	if (key != NULL)
		(void) return_head(&reader, key);
	end_reading(&reader);
	return (Datum) 0;
}

/* compaction_heads(stream, after_key, max_keys): those of many keys. */
Datum
sqlstreams_compaction_heads(PG_FUNCTION_ARGS)
{
	Stream		stream;
	HeadReader	reader;
	CompactionKeyScan keys;
	char	   *name = argument_get_name(fcinfo, 0, "stream");
	text	   *after_key = PG_ARGISNULL(1) ? NULL : argument_check_key(PG_GETARG_TEXT_PP(1), "after_key");
	int64		keys_left = argument_get_integer_or(fcinfo, 2, "max_keys", 1, BATCH_MAX_MESSAGES, 1000);
	text	   *key;

	access_open_to_read(name, &stream);
	begin_reading(&reader, fcinfo, &stream, GetActiveSnapshot(), GetActiveSnapshot());
	compaction_keys_begin(&keys, &stream, after_key, GetActiveSnapshot());
	while (keys_left > 0 && (key = compaction_keys_next(&keys)) != NULL)
	{
		if (return_head(&reader, key))
			keys_left--;
	}
	compaction_keys_end(&keys);
	end_reading(&reader);
	return (Datum) 0;
}

/*
 * Take a key of the stream that has this name, until the transaction ends.  The
 * lock on the table of keys keeps the stream from being dropped.
 */
static void
lock_key(const char *name, text *key, Stream *stream)
{
	int64		locked_stream = 0;

	for (;;)
	{
		stream_lookup(name, stream);
		access_check_produce(stream);
		access_check_read(stream);
		if (stream->stream_id == locked_stream)
			return;
		if (!compaction_lock_keys(stream, &key, 1))
			partition_maker_make_feature(stream, STORAGE_COMPACTION);
		else if (stream_is_current(stream))
			return;
		else
			locked_stream = stream->stream_id;
	}
}

/*
 * lock_compaction_head(stream, message_key): take a key, then read its newest
 * version, as it is now at any isolation level.
 */
Datum
sqlstreams_lock_compaction_head(PG_FUNCTION_ARGS)
{
	Stream		stream;
	HeadReader	reader;
	Snapshot	snapshot;
	char	   *name;
	text	   *key;

	PreventCommandIfReadOnly("sqlstreams.lock_compaction_head()");
	name = argument_get_name(fcinfo, 0, "stream");
	key = get_message_key(fcinfo);
	if (key == NULL)
		argument_raise_invalid("message_key", _("It must not be empty."));

	lock_key(name, key, &stream);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	begin_reading(&reader, fcinfo, &stream, SnapshotSelf, snapshot);
	(void) return_head(&reader, key);
	end_reading(&reader);
	UnregisterSnapshot(snapshot);
	return (Datum) 0;
}
