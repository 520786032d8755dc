/*
 * produce.c
 *		The SQL functions that append messages to a stream.
 *
 * All four have the same arguments but for the kind of body and for arrays in
 * place of values:
 *
 *		check the arguments -> take the idempotency keys, then the compaction
 *		keys -> enter the fence -> draw the ids -> append to the log
 *		-> write the compaction heads
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"

#include "access.h"
#include "arguments.h"
#include "compaction.h"
#include "compat.h"
#include "fence.h"
#include "id_sequence.h"
#include "idempotency.h"
#include "message_log.h"
#include "options.h"
#include "partition.h"
#include "partition_maker.h"
#include "stream.h"
#include "worker_registry.h"
#include "worker_start.h"

PG_FUNCTION_INFO_V1(sqlstreams_produce);
PG_FUNCTION_INFO_V1(sqlstreams_produce_batch);
PG_FUNCTION_INFO_V1(sqlstreams_produce_bytes);
PG_FUNCTION_INFO_V1(sqlstreams_produce_bytes_batch);

/* Positions of the arguments of all four functions. */
enum
{
	ARG_STREAM,
	ARG_BODY,
	ARG_MESSAGE_KEY,
	ARG_ROUTING_KEY,
	ARG_COMPACTION,
	ARG_COMPACTION_RANK,
	ARG_CONCURRENCY,
	ARG_IDEMPOTENCY_KEY,
	ARG_SCHEMA_VERSION,
	ARG_DELIVER_AT,
	ARG_HEADERS,
	ARG_OPTIONS
};

/* What is the same for all messages of a call. */
typedef struct ProduceCall
{
	const char *message_key_argument;	/* names, for errors */
	const char *routing_key_argument;
	const char *idempotency_key_argument;
	const char *compaction_rank_argument;
	bool		compaction;
	bool		has_key_policy; /* concurrency is exclusive or ordered */
	LogMessage	common;			/* the columns that do not differ */
	LogMessage *messages;
	int			count;
	IdempotencyKey *keys;
	int			key_count;
	LogMessage **pending;		/* messages that are no duplicates */
	int			pending_count;
} ProduceCall;

/* Set a column of a message. */
static void
set_column(LogMessage *message, AttrNumber column, Datum value)
{
	message->values[column - 1] = value;
	message->isnull[column - 1] = false;
}

/* Check the argument concurrency. */
static void
read_concurrency(FunctionCallInfo fcinfo, ProduceCall *call)
{
	text	   *name;
	Concurrency concurrency;

	if (PG_ARGISNULL(ARG_CONCURRENCY))
		return;
	name = PG_GETARG_TEXT_PP(ARG_CONCURRENCY);
	if (!concurrency_parse(VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name), &concurrency))
		argument_raise_invalid("concurrency", _("It must be \"parallel\", \"exclusive\" or \"ordered\"."));
	if (call->compaction && concurrency == CONCURRENCY_ORDERED)
		argument_raise_invalid("concurrency", _("It must not be \"ordered\" with compaction."));
	call->has_key_policy = concurrency != CONCURRENCY_PARALLEL;
	set_column(&call->common, Anum_log_concurrency, CharGetDatum((char) concurrency));
}

/* Check the argument deliver_at; one that is past changes nothing. */
static void
read_deliver_at(FunctionCallInfo fcinfo, ProduceCall *call)
{
	TimestampTz deliver_at;

	if (PG_ARGISNULL(ARG_DELIVER_AT))
		return;
	deliver_at = PG_GETARG_TIMESTAMPTZ(ARG_DELIVER_AT);
	if (TIMESTAMP_NOT_FINITE(deliver_at))
		argument_raise_invalid("deliver_at", _("It must be finite."));
	if (call->compaction && deliver_at > GetCurrentTimestamp())
		argument_raise_invalid("deliver_at", _("It must not be in the future with compaction."));
	set_column(&call->common, Anum_log_deliver_at, TimestampTzGetDatum(deliver_at));
}

/* Check the arguments that are the same for all messages of the call. */
static void
read_common(FunctionCallInfo fcinfo, ProduceCall *call)
{
	int64		schema_version = argument_get_integer_or(fcinfo, ARG_SCHEMA_VERSION, "schema_version",
														 1, PG_INT32_MAX, 1);

	memset(call->common.isnull, true, sizeof(call->common.isnull));
	set_column(&call->common, Anum_log_schema_version, Int32GetDatum((int32) schema_version));
	call->compaction = !PG_ARGISNULL(ARG_COMPACTION) && PG_GETARG_BOOL(ARG_COMPACTION);
	read_concurrency(fcinfo, call);
	read_deliver_at(fcinfo, call);
	if (!PG_ARGISNULL(ARG_OPTIONS))
	{
		options_check("options", PG_GETARG_JSONB_P(ARG_OPTIONS));
		set_column(&call->common, Anum_log_options, PG_GETARG_DATUM(ARG_OPTIONS));
	}
}

/* Set the message's key, and check what depends on whether it has one. */
static void
set_message_key(const ProduceCall *call, LogMessage *message, text *key, int64 compaction_rank)
{
	if (key != NULL)
		key = argument_check_key(key, call->message_key_argument);
	if (key != NULL)
		set_column(message, Anum_log_message_key, PointerGetDatum(key));
	else if (call->compaction)
		argument_raise_invalid(call->message_key_argument, _("Compaction needs a message key."));
	else if (call->has_key_policy)
		argument_raise_invalid(call->message_key_argument,
							   _("Concurrency \"exclusive\" and \"ordered\" need a message key."));
	if (call->compaction)
		set_column(message, Anum_log_compaction_rank, Int64GetDatum(compaction_rank));
	else if (compaction_rank != 0)
		argument_raise_invalid(call->compaction_rank_argument, _("It must be 0 without compaction."));
}

static void
set_routing_key(const ProduceCall *call, LogMessage *message, text *key)
{
	key = argument_check_key(key, call->routing_key_argument);
	if (key != NULL)
		set_column(message, Anum_log_routing_key, PointerGetDatum(key));
}

static void
set_headers(LogMessage *message, Datum headers)
{
	if (!JB_ROOT_IS_OBJECT(DatumGetJsonbP(headers)))
		argument_raise_invalid("headers", _("It must be a JSON object."));
	set_column(message, Anum_log_headers, headers);
}

static void
add_idempotency_key(ProduceCall *call, text *key, int message)
{
	key = argument_check_key(key, call->idempotency_key_argument);
	if (key != NULL)
	{
		call->keys[call->key_count].key = key;
		call->keys[call->key_count++].message = message;
	}
}

/*
 * Find a stream that the current role may produce to, by name, and hold the call
 * against its defaults.
 */
static void
find_stream(const char *name, const ProduceCall *call, Stream *stream)
{
	stream_lookup(name, stream);
	access_check_produce(stream);
	if (call->compaction && stream->concurrency == CONCURRENCY_ORDERED &&
		call->common.isnull[Anum_log_concurrency - 1])
		argument_raise_invalid("compaction",
							   _("It needs a \"concurrency\" where the stream's default is \"ordered\"."));
}

/*
 * Take the idempotency keys, making the table for them before the first one,
 * and find out which messages are to be stored.
 */
static void
take_idempotency_keys(const char *name, Stream *stream, ProduceCall *call)
{
	bool	   *is_duplicate = palloc0(sizeof(bool) * Max(call->count, 1));
	IdempotencyResult result;

	while (call->key_count > 0 &&
		   (result = idempotency_claim_keys(stream, call->keys, call->key_count)) != IDEMPOTENCY_DONE)
	{
		if (result == IDEMPOTENCY_NO_TABLE)
			partition_maker_make_feature(stream, STORAGE_IDEMPOTENCY);
		find_stream(name, call, stream);
	}

	for (int i = 0; i < call->key_count; i++)
		is_duplicate[call->keys[i].message] = call->keys[i].is_duplicate;
	call->pending_count = 0;
	for (int i = 0; i < call->count; i++)
	{
		if (!is_duplicate[i])
			call->pending[call->pending_count++] = &call->messages[i];
	}
	pfree(is_duplicate);
}

/*
 * Take the keys of the messages that are to be stored, if they are compacted,
 * making the tables for that before the first one.
 */
static void
take_compaction_keys(const char *name, Stream *stream, const ProduceCall *call)
{
	text	  **keys;

	if (!call->compaction || call->pending_count == 0)
		return;
	keys = palloc(sizeof(text *) * call->pending_count);
	for (int i = 0; i < call->pending_count; i++)
		keys[i] = DatumGetTextPP(call->pending[i]->values[Anum_log_message_key - 1]);
	while (!compaction_lock_keys(stream, keys, call->pending_count))
	{
		partition_maker_make_feature(stream, STORAGE_COMPACTION);
		find_stream(name, call, stream);
	}
	pfree(keys);
}

/* Take all keys of the call in one stream, whichever has the name by then. */
static void
take_keys(const char *name, Stream *stream, ProduceCall *call)
{
	int64		stream_id;

	do
	{
		take_idempotency_keys(name, stream, call);
		stream_id = stream->stream_id;
		take_compaction_keys(name, stream, call);
	} while (stream->stream_id != stream_id);
}

/*
 * Become a producer of the stream that has this name, with the keys in hand;
 * not if all messages are duplicates, for these hold nobody back.  The stream
 * may be altered, renamed or dropped until the fence's lock is had; then the
 * name is looked up again.
 */
static void
enter_stream(const char *name, ProduceCall *call, Stream *stream)
{
	int64		keys_of_stream = 0;
	int64		entered_stream = 0;

	find_stream(name, call, stream);
	while (stream->stream_id != entered_stream)
	{
		if (keys_of_stream != stream->stream_id)
		{
			take_keys(name, stream, call);
			keys_of_stream = stream->stream_id;
		}
		if (call->pending_count == 0)
			return;
		fence_enter(stream);
		if (stream_is_current(stream))
			return;
		entered_stream = stream->stream_id;
		find_stream(name, call, stream);
	}
}

/*
 * Have maintenance look at the stream when ids were drawn with which a
 * partition begins: there should be more partitions ahead.
 */
static void
ask_for_maintenance(const Stream *stream, int64 first_id, int64 last_id)
{
	if (first_id == 1 || partition_number(stream, first_id - 1) != partition_number(stream, last_id))
		worker_registry_request(stream->stream_id);
}

/* Append the messages of the call that are no duplicates, and give them ids. */
static void
append_messages(const char *name, ProduceCall *call)
{
	Stream		stream;
	int64		first_id;
	TimestampTz now;

	call->pending = palloc(sizeof(LogMessage *) * Max(call->count, 1));
	for (int i = 0; i < call->count; i++)
		call->messages[i].id = 0;
	enter_stream(name, call, &stream);
	worker_start_if_needed();
	if (call->pending_count == 0)
		return;

	if (!id_sequence_draw(&stream, call->pending_count, &first_id))
		stream_raise_table_missing(&stream);
	ask_for_maintenance(&stream, first_id, first_id + call->pending_count - 1);
	now = GetCurrentTimestamp();
	for (int i = 0; i < call->pending_count; i++)
	{
		call->pending[i]->id = first_id + i;
		set_column(call->pending[i], Anum_log_created_at, TimestampTzGetDatum(now));
	}
	message_log_append(&stream, call->pending, call->pending_count);
	if (call->compaction)
		compaction_write_heads(&stream, call->pending, call->pending_count);
}

/* The body of produce and produce_bytes. */
static int64
produce_one(FunctionCallInfo fcinfo, AttrNumber body_column, const char *body_argument)
{
	ProduceCall call = {
		.message_key_argument = "message_key",
		.routing_key_argument = "routing_key",
		.idempotency_key_argument = "idempotency_key",
		.compaction_rank_argument = "compaction_rank"
	};
	IdempotencyKey key;
	LogMessage	message;
	char	   *name = argument_get_name(fcinfo, ARG_STREAM, "stream");

	call.messages = &message;
	call.count = 1;
	call.keys = &key;
	if (PG_ARGISNULL(ARG_BODY))
		argument_raise_null(body_argument);
	read_common(fcinfo, &call);
	message = call.common;
	set_column(&message, body_column, PG_GETARG_DATUM(ARG_BODY));
	set_message_key(&call, &message,
					PG_ARGISNULL(ARG_MESSAGE_KEY) ? NULL : PG_GETARG_TEXT_PP(ARG_MESSAGE_KEY),
					PG_ARGISNULL(ARG_COMPACTION_RANK) ? 0 : PG_GETARG_INT64(ARG_COMPACTION_RANK));
	if (!PG_ARGISNULL(ARG_ROUTING_KEY))
		set_routing_key(&call, &message, PG_GETARG_TEXT_PP(ARG_ROUTING_KEY));
	if (!PG_ARGISNULL(ARG_HEADERS))
		set_headers(&message, PG_GETARG_DATUM(ARG_HEADERS));
	if (!PG_ARGISNULL(ARG_IDEMPOTENCY_KEY))
		add_idempotency_key(&call, PG_GETARG_TEXT_PP(ARG_IDEMPOTENCY_KEY), 0);

	append_messages(name, &call);
	return message.id;
}

/* The elements of an array argument. */
typedef struct ArrayArgument
{
	int			count;			/* -1: the argument is NULL */
	Datum	   *values;
	bool	   *isnull;
} ArrayArgument;

/*
 * Take an array argument apart.  It has expected_count elements, or any number
 * if that is -1.
 */
static ArrayArgument
read_array(FunctionCallInfo fcinfo, int number, const char *argument, Oid type, int expected_count)
{
	ArrayArgument result = {.count = -1};

	if (PG_ARGISNULL(number))
		return result;
	result.values = argument_get_array(fcinfo, number, argument, type, &result.isnull, &result.count);
	if (expected_count >= 0 && result.count != expected_count)
		argument_raise_invalid(argument,
							   psprintf(_("Its number of elements is %d, and that of the messages is %d."),
										result.count, expected_count));
	return result;
}

static bool
has_element(const ArrayArgument *array, int i)
{
	return array->count >= 0 && !array->isnull[i];
}

/* Take the batch's bodies apart. */
static ArrayArgument
read_bodies(FunctionCallInfo fcinfo, const char *argument, Oid type)
{
	ArrayArgument bodies = read_array(fcinfo, ARG_BODY, argument, type, -1);

	if (bodies.count < 0)
		argument_raise_null(argument);
	if (bodies.count > BATCH_MAX_MESSAGES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a batch of %d messages is too large", bodies.count),
				 errdetail("A batch has at most %d messages.", BATCH_MAX_MESSAGES)));
	for (int i = 0; i < bodies.count; i++)
		argument_check_element(argument, bodies.isnull, i);
	return bodies;
}

/* Make the messages of a batch, with their idempotency keys. */
static void
make_batch(FunctionCallInfo fcinfo, ProduceCall *call, AttrNumber body_column, const ArrayArgument *bodies)
{
	int			count = bodies->count;
	ArrayArgument message_keys = read_array(fcinfo, ARG_MESSAGE_KEY, "message_keys", TEXTOID, count);
	ArrayArgument routing_keys = read_array(fcinfo, ARG_ROUTING_KEY, "routing_keys", TEXTOID, count);
	ArrayArgument ranks = read_array(fcinfo, ARG_COMPACTION_RANK, "compaction_ranks", INT8OID, count);
	ArrayArgument idempotency_keys = read_array(fcinfo, ARG_IDEMPOTENCY_KEY, "idempotency_keys", TEXTOID, count);
	ArrayArgument headers = read_array(fcinfo, ARG_HEADERS, "headers", JSONBOID, count);
	LogMessage *messages = palloc_extended(sizeof(LogMessage) * Max(count, 1), MCXT_ALLOC_HUGE);

	call->messages = messages;
	call->count = count;
	call->keys = palloc(sizeof(IdempotencyKey) * Max(count, 1));
	for (int i = 0; i < count; i++)
	{
		messages[i] = call->common;
		set_column(&messages[i], body_column, bodies->values[i]);
		set_message_key(call, &messages[i],
						has_element(&message_keys, i) ? DatumGetTextPP(message_keys.values[i]) : NULL,
						has_element(&ranks, i) ? DatumGetInt64(ranks.values[i]) : 0);
		if (has_element(&routing_keys, i))
			set_routing_key(call, &messages[i], DatumGetTextPP(routing_keys.values[i]));
		if (has_element(&headers, i))
			set_headers(&messages[i], headers.values[i]);
		if (has_element(&idempotency_keys, i))
			add_idempotency_key(call, DatumGetTextPP(idempotency_keys.values[i]), i);
	}
}

/* The body of produce_batch and produce_bytes_batch. */
static Datum
produce_many(FunctionCallInfo fcinfo, AttrNumber body_column, const char *body_argument, Oid body_type)
{
	ProduceCall call = {
		.message_key_argument = "message_keys",
		.routing_key_argument = "routing_keys",
		.idempotency_key_argument = "idempotency_keys",
		.compaction_rank_argument = "compaction_ranks"
	};
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *name = argument_get_name(fcinfo, ARG_STREAM, "stream");
	ArrayArgument bodies = read_bodies(fcinfo, body_argument, body_type);

	read_common(fcinfo, &call);
	make_batch(fcinfo, &call, body_column, &bodies);

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	append_messages(name, &call);
	for (int i = 0; i < bodies.count; i++)
	{
		Datum		id = Int64GetDatum(call.messages[i].id);
		bool		isnull = false;

		tuplestore_putvalues(result->setResult, result->setDesc, &id, &isnull);
	}
	return (Datum) 0;
}

/* produce(stream, payload, ...): append one message with a JSON payload. */
Datum
sqlstreams_produce(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("sqlstreams.produce()");
	PG_RETURN_INT64(produce_one(fcinfo, Anum_log_payload, "payload"));
}

/* produce_bytes(stream, body, ...): append one message in any format. */
Datum
sqlstreams_produce_bytes(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("sqlstreams.produce_bytes()");
	PG_RETURN_INT64(produce_one(fcinfo, Anum_log_body, "body"));
}

/* produce_batch(stream, payloads, ...): append messages with JSON payloads. */
Datum
sqlstreams_produce_batch(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("sqlstreams.produce_batch()");
	return produce_many(fcinfo, Anum_log_payload, "payloads", JSONBOID);
}

/* produce_bytes_batch(stream, bodies, ...): append messages in any format. */
Datum
sqlstreams_produce_bytes_batch(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("sqlstreams.produce_bytes_batch()");
	return produce_many(fcinfo, Anum_log_body, "bodies", BYTEAOID);
}
