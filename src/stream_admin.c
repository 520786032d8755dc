/*
 * stream_admin.c
 *		The SQL functions that make, change, rename and drop streams.
 *
 * Order of locks: what producers lock (only to drop), the name or names in byte
 * order (config.c), then the tables.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"

#include "access.h"
#include "arguments.h"
#include "config.h"
#include "errors.h"
#include "fence.h"
#include "log_partition.h"
#include "options.h"
#include "partition.h"
#include "storage.h"
#include "worker_start.h"

#define DEFAULT_PARTITION_SIZE	INT64CONST(1000000)
#define MIN_PARTITION_SIZE		INT64CONST(2)

/* The first and the last id of a partition must be numbers that clients can hold. */
#define MAX_PARTITION_SIZE		((INT64CONST(1) << 53) - 1)

/* The settings, in the order of the arguments of create_stream and alter_stream. */
enum
{
	SETTING_PARTITION_INTERVAL,
	SETTING_RETENTION,
	SETTING_ALLOW_DROP_PAST_COMMITTED,
	SETTING_IDEMPOTENCY_KEY_TTL,
	SETTING_EMPTY_COMPACTION_HEAD_TTL,
	SETTING_DELIVERY_LOG,
	SETTING_MESSAGE_DEFAULTS,
	SETTING_COUNT
};

static const ConfigSetting settings[SETTING_COUNT] = {
	{"partition_interval", INTERVALOID, NULL, 1, 0},
	{"retention", INTERVALOID, NULL, 1, 0},
	{"allow_drop_past_committed", BOOLOID, "false", 0, 0},
	{"idempotency_key_ttl", INTERVALOID, "24 hours", 1, 0},
	{"empty_compaction_head_ttl", INTERVALOID, "1 hour", 1, 0},
	{"delivery_log", TEXTOID, "failures", 0, 0},
	{"message_defaults", JSONBOID, NULL, 0, 0}
};

PG_FUNCTION_INFO_V1(sqlstreams_create_stream);
PG_FUNCTION_INFO_V1(sqlstreams_alter_stream);
PG_FUNCTION_INFO_V1(sqlstreams_rename_stream);
PG_FUNCTION_INFO_V1(sqlstreams_drop_stream);
PG_FUNCTION_INFO_V1(sqlstreams_suspend_maintenance);
PG_FUNCTION_INFO_V1(sqlstreams_resume_maintenance);

/* Raise 22023 unless it is one of the delivery logs. */
static void
check_delivery_log(const char *value)
{
	if (strcmp(value, "off") != 0 && strcmp(value, "failures") != 0 && strcmp(value, "all") != 0)
		argument_raise_invalid("delivery_log", _("It must be \"off\", \"failures\" or \"all\"."));
}

/* Raise 22023 for a given setting that is no good. */
static void
check_settings(const ConfigValue *values)
{
	config_check_values(settings, SETTING_COUNT, values);
	if (values[SETTING_DELIVERY_LOG].is_given)
		check_delivery_log(TextDatumGetCString(values[SETTING_DELIVERY_LOG].value));
	if (values[SETTING_MESSAGE_DEFAULTS].is_given)
		options_check_message_defaults(DatumGetJsonbP(values[SETTING_MESSAGE_DEFAULTS].value));
}

/* The id of the stream of this name, or 0.  The caller has locked the name. */
static int64
find_stream(const char *name)
{
	Oid			types[] = {TEXTOID};
	Datum		values[] = {CStringGetTextDatum(name)};
	int64		stream_id = 0;

	(void) config_execute("SELECT stream_id FROM sqlstreams.stream"
						  " WHERE stream_name OPERATOR(pg_catalog.=) $1",
						  lengthof(types), types, values, NULL, &stream_id);
	return stream_id;
}

/* Raise SS003. */
static void
raise_stream_exists(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_STREAM_OR_GROUP_EXISTS),
			 errmsg("stream \"%s\" already exists", name)));
}

/*
 * An id for a new stream.  A restore without data leaves tables behind that
 * have the names of ids which come again; these are passed over.
 */
static int64
draw_stream_id(void)
{
	int64		stream_id = 0;

	do
		(void) config_execute("SELECT pg_catalog.nextval('sqlstreams.stream_id_seq')", 0, NULL, NULL, NULL, &stream_id);
	while (OidIsValid(get_relname_relid(psprintf("message_log_" INT64_FORMAT, stream_id), stream_schema_oid())) ||
		   OidIsValid(get_relname_relid(psprintf("message_id_" INT64_FORMAT, stream_id), stream_schema_oid())));
	return stream_id;
}

/* Add the row of a new stream; every setting has a value.  Returns its id. */
static int64
insert_stream(const char *name, int64 partition_size, const ConfigValue *values)
{
	int64		stream_id = draw_stream_id();
	Oid			types[SETTING_COUNT + 3] = {INT8OID, TEXTOID, INT8OID};
	Datum		datums[SETTING_COUNT + 3] = {
		Int64GetDatum(stream_id), CStringGetTextDatum(name), Int64GetDatum(partition_size)
	};
	char		nulls[SETTING_COUNT + 4] = "   ";

	for (int i = 0; i < SETTING_COUNT; i++)
	{
		types[i + 3] = settings[i].type;
		datums[i + 3] = values[i].value;
		nulls[i + 3] = values[i].is_null ? 'n' : ' ';
	}
	(void) config_execute("INSERT INTO sqlstreams.stream"
						  " (stream_id, stream_name, partition_size, partition_interval, retention,"
						  " allow_drop_past_committed, idempotency_key_ttl, empty_compaction_head_ttl,"
						  " delivery_log, message_defaults)"
						  " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
						  lengthof(types), types, datums, nulls, NULL);
	return stream_id;
}

/*
 * Make a stream that the current role owns; its arguments have been checked.
 * Returns its id, or that of the one that exists.  Raises SS003.
 */
static int64
create_stream(const char *name, int64 partition_size, ConfigValue *values, bool if_not_exists)
{
	int64		stream_id;
	Oid			log_oid;

	config_lock_name(name);
	stream_id = find_stream(name);
	if (stream_id != 0)
	{
		if (!if_not_exists)
			raise_stream_exists(name);
		ereport(NOTICE,
				(errcode(ERRCODE_STREAM_OR_GROUP_EXISTS),
				 errmsg("stream \"%s\" already exists, skipping", name)));
		return stream_id;
	}

	config_set_defaults(settings, SETTING_COUNT, values);
	stream_id = insert_stream(name, partition_size, values);
	log_oid = storage_create_stream(stream_id, GetUserId());
	partition_create(stream_id, log_oid, partition_size, 0);
	stream_invalidate_all();
	return stream_id;
}

/*
 * create_stream(stream, partition_size, ..., if_not_exists) returns bigint
 */
Datum
sqlstreams_create_stream(PG_FUNCTION_ARGS)
{
	char	   *name;
	int64		partition_size;
	bool		if_not_exists = PG_ARGISNULL(9) ? false : PG_GETARG_BOOL(9);
	ConfigValue values[SETTING_COUNT];

	PreventCommandIfReadOnly("sqlstreams.create_stream()");
	name = argument_get_name(fcinfo, 0, "stream");
	config_get_values(fcinfo, 2, settings, SETTING_COUNT, values);

	stream_check_name("stream", name, true);
	partition_size = argument_get_integer_or(fcinfo, 1, "partition_size", MIN_PARTITION_SIZE,
											 MAX_PARTITION_SIZE, DEFAULT_PARTITION_SIZE);
	check_settings(values);
	worker_start_if_needed();

	PG_RETURN_INT64(create_stream(name, partition_size, values, if_not_exists));
}

/*
 * Give the stream's tables to the owner of its log, where they belong to a
 * former one.
 */
static void
hand_over(const Stream *stream)
{
	Oid			owner = access_stream_owner(stream);
	StreamPartition *partitions;
	int			partition_count = partition_list(stream, &partitions);

	storage_give_tables_to(stream, owner);
	for (int i = 0; i < partition_count; i++)
		storage_give_to(partitions[i].oid, owner);
}

/*
 * alter_stream(stream, ..., reset) returns void
 */
Datum
sqlstreams_alter_stream(PG_FUNCTION_ARGS)
{
	Stream		stream;
	char	   *name;
	ConfigValue values[SETTING_COUNT];

	PreventCommandIfReadOnly("sqlstreams.alter_stream()");
	name = argument_get_name(fcinfo, 0, "stream");
	config_get_values(fcinfo, 1, settings, SETTING_COUNT, values);

	check_settings(values);
	if (!PG_ARGISNULL(SETTING_COUNT + 1))
		config_reset_values(PG_GETARG_ARRAYTYPE_P(SETTING_COUNT + 1), settings, SETTING_COUNT, values);

	config_lock_stream(name, &stream);
	hand_over(&stream);
	config_update("stream", "stream_id", stream.stream_id, settings, SETTING_COUNT, values);
	stream_invalidate_all();
	PG_RETURN_VOID();
}

/*
 * Give a stream another name, which has been checked.  Both names stay locked
 * until the transaction ends: who wants to make a stream of the old name waits
 * to learn whether it is free.  Raises SS001, SS003 and 42501.
 */
static void
rename_stream(const char *name, const char *new_name)
{
	Stream		stream;
	Oid			types[] = {TEXTOID, INT8OID};
	Datum		values[2];
	bool		is_old_first = strcmp(name, new_name) < 0;

	stream_lookup(name, &stream);
	access_check_owner(&stream);
	config_lock_name(is_old_first ? name : new_name);
	config_lock_name(is_old_first ? new_name : name);
	stream_lookup(name, &stream);
	access_check_owner(&stream);
	if (find_stream(new_name) != 0)
		raise_stream_exists(new_name);

	values[0] = CStringGetTextDatum(new_name);
	values[1] = Int64GetDatum(stream.stream_id);
	(void) config_execute("UPDATE sqlstreams.stream SET stream_name = $1"
						  " WHERE stream_id OPERATOR(pg_catalog.=) $2",
						  lengthof(types), types, values, NULL, NULL);
	stream_invalidate_all();
}

/*
 * rename_stream(stream, new_name) returns void
 */
Datum
sqlstreams_rename_stream(PG_FUNCTION_ARGS)
{
	char	   *name;
	char	   *new_name;

	PreventCommandIfReadOnly("sqlstreams.rename_stream()");
	name = argument_get_name(fcinfo, 0, "stream");
	new_name = argument_get_name(fcinfo, 1, "new_name");
	stream_check_name("new_name", new_name, true);
	rename_stream(name, new_name);
	PG_RETURN_VOID();
}

/*
 * Lock the tables of idempotency keys; false when the stream has changed, so
 * that there may be others by now.  A new one is made only by who has the
 * present one locked.
 */
static bool
lock_idempotency_tables_to_drop(const Stream *stream)
{
	if (OidIsValid(stream->idempotency_old_oid))
		LockRelationOid(stream->idempotency_old_oid, AccessExclusiveLock);
	if (OidIsValid(stream->idempotency_oid))
		LockRelationOid(stream->idempotency_oid, AccessExclusiveLock);
	return stream_is_current(stream);
}

/*
 * Lock the other tables that producers use, in the order in which they lock
 * them: so producers end, or come after.
 */
static void
lock_tables_to_drop(const Stream *stream)
{
	if (OidIsValid(stream->compaction_key_oid))
		LockRelationOid(stream->compaction_key_oid, AccessExclusiveLock);
	if (OidIsValid(stream->fence_oid))
		fence_close(stream);
	if (OidIsValid(stream->sequence_oid))
		LockRelationOid(stream->sequence_oid, AccessExclusiveLock);
}

/*
 * Find a stream that the current role owns and lock it so that nobody uses it
 * any more; false if there is none, and that is no error.  Raises SS001 and
 * 42501.
 *
 * Producers come first: while those that are open are waited for, others can
 * still make and change streams.
 */
static bool
lock_stream_to_drop(const char *name, bool if_exists, Stream *stream)
{
	int64		locked_id = 0;

	while (stream_lookup_any(name, stream))
	{
		if (OidIsValid(access_relation_owner(stream->log_oid)))
			access_check_owner(stream);
		else
			access_check_drop_incomplete(stream);

		/* the name may have come to stand for another stream meanwhile */
		if (stream->stream_id == locked_id)
			return true;
		if (!lock_idempotency_tables_to_drop(stream))
			continue;
		lock_tables_to_drop(stream);
		config_lock_name(name);
		locked_id = stream->stream_id;
	}

	if (!if_exists)
		stream_raise_not_found(name);
	ereport(NOTICE,
			(errcode(ERRCODE_STREAM_NOT_FOUND),
			 errmsg("stream \"%s\" does not exist, skipping", name)));
	return false;
}

/* Drop a stream with all that belongs to it; false if there was none. */
static bool
drop_stream(const char *name, bool if_exists)
{
	Stream		stream;
	Oid			types[] = {INT8OID};
	Datum		values[1];

	if (!lock_stream_to_drop(name, if_exists, &stream))
		return false;

	values[0] = Int64GetDatum(stream.stream_id);
	storage_drop_stream(&stream);
	(void) config_execute("DELETE FROM sqlstreams.consumer_group"
						  " WHERE stream_id OPERATOR(pg_catalog.=) $1",
						  lengthof(types), types, values, NULL, NULL);
	(void) config_execute("DELETE FROM sqlstreams.stream"
						  " WHERE stream_id OPERATOR(pg_catalog.=) $1",
						  lengthof(types), types, values, NULL, NULL);
	log_partition_delete_of_stream(stream.stream_id);
	stream_invalidate_all();
	return true;
}

/*
 * drop_stream(stream, if_exists) returns boolean
 */
Datum
sqlstreams_drop_stream(PG_FUNCTION_ARGS)
{
	char	   *name;
	bool		if_exists = PG_ARGISNULL(1) ? false : PG_GETARG_BOOL(1);

	PreventCommandIfReadOnly("sqlstreams.drop_stream()");
	name = argument_get_name(fcinfo, 0, "stream");
	PG_RETURN_BOOL(drop_stream(name, if_exists));
}

/*
 * Say whether a stream is maintained.  A step of maintenance has the name locked
 * until its transaction ends: none runs when this returns.  Raises SS001 and
 * 42501.
 */
static void
set_suspended(FunctionCallInfo fcinfo, bool is_suspended)
{
	Stream		stream;
	Oid			types[] = {BOOLOID, INT8OID};
	Datum		values[2];

	config_lock_stream(argument_get_name(fcinfo, 0, "stream"), &stream);
	values[0] = BoolGetDatum(is_suspended);
	values[1] = Int64GetDatum(stream.stream_id);
	(void) config_execute("UPDATE sqlstreams.stream SET maintenance_suspended = $1"
						  " WHERE stream_id OPERATOR(pg_catalog.=) $2",
						  lengthof(types), types, values, NULL, NULL);
	stream_invalidate_all();
}

/*
 * suspend_maintenance(stream) returns void
 */
Datum
sqlstreams_suspend_maintenance(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("sqlstreams.suspend_maintenance()");
	set_suspended(fcinfo, true);
	PG_RETURN_VOID();
}

/*
 * resume_maintenance(stream) returns void
 */
Datum
sqlstreams_resume_maintenance(PG_FUNCTION_ARGS)
{
	PreventCommandIfReadOnly("sqlstreams.resume_maintenance()");
	set_suspended(fcinfo, false);
	PG_RETURN_VOID();
}
