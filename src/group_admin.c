/*
 * group_admin.c
 *		The SQL functions that make, change and drop consumer groups.
 *
 * All of them hold the lock on the stream's name (config.c), so a group's name
 * needs none of its own.  The group's lock, which claims take, comes after it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "access.h"
#include "arguments.h"
#include "config.h"
#include "cursor.h"
#include "deferred.h"
#include "errors.h"
#include "exception_group.h"
#include "group.h"
#include "group_start.h"
#include "key_lease.h"
#include "lease.h"
#include "message_options.h"
#include "options.h"
#include "storage.h"

/* Counters of attempts are integers, and so are their limits. */
#define MAX_COUNT PG_INT32_MAX

/* A routing key has at most so many bytes, so a longer pattern is a mistake. */
#define MAX_PATTERN_BYTES 1024

/* The settings, in the order of the arguments of create_group and alter_group. */
enum
{
	SETTING_BINDINGS,
	SETTING_SCHEMA_VERSION,
	SETTING_CONCURRENCY,
	SETTING_CONCURRENCY_OVERRIDE,
	SETTING_TIMEOUT,
	SETTING_MAX_RETRIES,
	SETTING_MAX_DELAYS,
	SETTING_BASE_DELAY,
	SETTING_MAX_DELAY,
	SETTING_EXPONENT,
	SETTING_INITIAL_BACKOFF,
	SETTING_MESSAGE_MIN,
	SETTING_MESSAGE_MAX,
	SETTING_MAX_RECLAIMS,
	SETTING_COUNT
};

static const ConfigSetting settings[SETTING_COUNT] = {
	{"bindings", TEXTARRAYOID, NULL, 0, 0},
	{"schema_version", INT8OID, NULL, 1, PG_INT32_MAX},
	{"concurrency", TEXTOID, NULL, 0, 0},
	{"concurrency_override", TEXTOID, NULL, 0, 0},
	{"timeout", INTERVALOID, "30 seconds", 1, 0},
	{"max_retries", INT8OID, "3", 0, MAX_COUNT},
	{"max_delays", INT8OID, "0", 0, MAX_COUNT},
	{"base_delay", INTERVALOID, "1 second", 1, 0},
	{"max_delay", INTERVALOID, "5 minutes", 1, 0},
	{"exponent", INT8OID, "2", 1, MAX_COUNT},
	{"initial_backoff", INTERVALOID, "5 seconds", 0, 0},
	{"message_min", JSONBOID, NULL, 0, 0},
	{"message_max", JSONBOID, NULL, 0, 0},
	{"max_reclaims", INT8OID, "3", 0, MAX_COUNT}
};

PG_FUNCTION_INFO_V1(sqlstreams_create_group);
PG_FUNCTION_INFO_V1(sqlstreams_alter_group);
PG_FUNCTION_INFO_V1(sqlstreams_drop_group);

/* Raise 22023 or 22004 unless these are patterns for routing keys. */
static void
check_bindings(ArrayType *bindings)
{
	Datum	   *patterns;
	bool	   *nulls;
	int			count;

	if (ARR_NDIM(bindings) != 1)
		argument_raise_invalid("bindings", _("It must be a one-dimensional array with at least one pattern."));
	deconstruct_array(bindings, TEXTOID, -1, false, TYPALIGN_INT, &patterns, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		size_t		length;

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"bindings\" must not contain nulls")));
		length = strlen(TextDatumGetCString(patterns[i]));
		if (length == 0 || length > MAX_PATTERN_BYTES)
			argument_raise_invalid("bindings", _("A pattern must have from 1 to 1024 bytes."));
	}
}

/* Raise 22023 unless it is the name of a concurrency policy. */
static void
check_concurrency(const char *argument, const ConfigValue *value)
{
	text	   *policy;
	Concurrency concurrency;

	if (!value->is_given)
		return;
	policy = DatumGetTextPP(value->value);
	if (!concurrency_parse(VARDATA_ANY(policy), VARSIZE_ANY_EXHDR(policy), &concurrency))
		argument_raise_invalid(argument, _("It must be \"parallel\", \"exclusive\" or \"ordered\"."));
}

/* A bound as it will be: what the call says of it, else what it is. */
static AskedOptions
read_bound(const ConfigValue *value, const AskedOptions *stored)
{
	AskedOptions bound = {0};

	if (!value->is_given && stored != NULL)
		return *stored;
	if (value->is_given && !value->is_null)
		message_options_read(DatumGetJsonbP(value->value), &bound);
	return bound;
}

/*
 * Raise 22023 if a message would have to get more than it may.  "stored" is
 * the group that is changed, NULL for a new one.
 */
static void
check_bounds(const ConfigValue *values, const ConsumerGroup *stored)
{
	AskedOptions lower = read_bound(&values[SETTING_MESSAGE_MIN], stored ? &stored->message_min : NULL);
	AskedOptions upper = read_bound(&values[SETTING_MESSAGE_MAX], stored ? &stored->message_max : NULL);

	message_options_check_bounds(&lower, &upper);
}

/* Raise 22023 for a given setting that is no good. */
static void
check_settings(const ConfigValue *values)
{
	config_check_values(settings, SETTING_COUNT, values);
	if (values[SETTING_BINDINGS].is_given)
		check_bindings(DatumGetArrayTypeP(values[SETTING_BINDINGS].value));
	check_concurrency("concurrency", &values[SETTING_CONCURRENCY]);
	check_concurrency("concurrency_override", &values[SETTING_CONCURRENCY_OVERRIDE]);
	if (values[SETTING_MESSAGE_MIN].is_given)
		options_check("message_min", DatumGetJsonbP(values[SETTING_MESSAGE_MIN].value));
	if (values[SETTING_MESSAGE_MAX].is_given)
		options_check("message_max", DatumGetJsonbP(values[SETTING_MESSAGE_MAX].value));
}

/* The id of the stream's group of this name, or 0.  The caller has locked the stream. */
static int64
find_group(const Stream *stream, const char *name)
{
	Oid			types[] = {INT8OID, TEXTOID};
	Datum		values[] = {Int64GetDatum(stream->stream_id), CStringGetTextDatum(name)};
	int64		group_id = 0;

	(void) config_execute("SELECT group_id FROM sqlstreams.consumer_group"
						  " WHERE stream_id OPERATOR(pg_catalog.=) $1"
						  " AND group_name OPERATOR(pg_catalog.=) $2",
						  lengthof(types), types, values, NULL, &group_id);
	return group_id;
}

/* Add the row of a new group; every setting has a value.  Returns its id. */
static int64
insert_group(const Stream *stream, const char *name, const GroupStart *start, const ConfigValue *values)
{
	Oid			types[SETTING_COUNT + 6] = {INT8OID, TEXTOID, INT8OID, INT8OID, INT8OID, BYTEAOID};
	Datum		datums[SETTING_COUNT + 6] = {Int64GetDatum(stream->stream_id),
		CStringGetTextDatum(name), Int64GetDatum(start->start_id), Int64GetDatum(start->head_id)};
	char		nulls[SETTING_COUNT + 7] = "    nn";
	int64		group_id = 0;

	if (start->missing.run_count > 0)
	{
		datums[4] = Int64GetDatum(start->missing.runs[0].first);
		datums[5] = PointerGetDatum(id_set_encode(&start->missing));
		nulls[4] = nulls[5] = ' ';
	}
	for (int i = 0; i < SETTING_COUNT; i++)
	{
		types[i + 6] = settings[i].type;
		datums[i + 6] = values[i].value;
		nulls[i + 6] = values[i].is_null ? 'n' : ' ';
	}
	(void) config_execute("INSERT INTO sqlstreams.consumer_group"
						  " (group_id, stream_id, group_name, start_id, head_id, head_missing_from, head_missing, bindings, schema_version, concurrency,"
						  " concurrency_override, timeout, max_retries, max_delays, base_delay,"
						  " max_delay, exponent, initial_backoff, message_min, message_max, max_reclaims)"
						  " VALUES (pg_catalog.nextval('sqlstreams.group_id_seq'), $1, $2, $3, $4, $5,"
						  " $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)"
						  " RETURNING group_id",
						  lengthof(types), types, datums, nulls, &group_id);
	return group_id;
}

/* Make the tables for the state of a stream's groups when they are not there yet. */
static void
ensure_group_tables(Stream *stream)
{
	if (OidIsValid(stream->cursor_oid))
		return;
	storage_create_group_tables(stream);
	stream_invalidate_all();
	CommandCounterIncrement();
	stream_lookup(stream->name, stream);
}

/*
 * Make a group; its arguments have been checked.
 * Returns its id, or that of the one that exists.  Raises SS001, SS003 and
 * 42501.
 */
static int64
create_group(const char *stream_name, const char *name, const GroupStartArguments *arguments,
			 ConfigValue *values, bool if_not_exists)
{
	Stream		stream;
	GroupStart	start;
	int64		group_id;

	config_lock_stream(stream_name, &stream);
	group_id = find_group(&stream, name);
	if (group_id != 0)
	{
		ereport(if_not_exists ? NOTICE : ERROR,
				(errcode(ERRCODE_STREAM_OR_GROUP_EXISTS),
				 if_not_exists ?
				 errmsg("consumer group \"%s\" of stream \"%s\" already exists, skipping", name, stream_name) :
				 errmsg("consumer group \"%s\" of stream \"%s\" already exists", name, stream_name)));
		return group_id;
	}

	ensure_group_tables(&stream);
	config_set_defaults(settings, SETTING_COUNT, values);
	group_start_find(&stream, arguments, &start);
	group_id = insert_group(&stream, name, &start, values);
	cursor_create(&stream, group_id, start.start_id - 1);
	stream_invalidate_all();
	return group_id;
}

/*
 * create_group(stream, consumer_group, start_position, start_id, start_time, ...,
 * if_not_exists) returns bigint
 */
Datum
sqlstreams_create_group(PG_FUNCTION_ARGS)
{
	char	   *stream_name;
	char	   *name;
	GroupStartArguments start;
	bool		if_not_exists = PG_ARGISNULL(19) ? false : PG_GETARG_BOOL(19);
	ConfigValue values[SETTING_COUNT];

	PreventCommandIfReadOnly("sqlstreams.create_group()");
	stream_name = argument_get_name(fcinfo, 0, "stream");
	name = argument_get_name(fcinfo, 1, "consumer_group");
	config_get_values(fcinfo, 5, settings, SETTING_COUNT, values);

	stream_check_name("consumer_group", name, false);
	start = group_start_read(fcinfo, 2);
	check_settings(values);
	check_bounds(values, NULL);

	PG_RETURN_INT64(create_group(stream_name, name, &start, values, if_not_exists));
}

/*
 * If the group gets another version now, let its exceptions that claims have
 * stepped over be looked at again.  Claims that are open end first.
 */
static void
apply_schema_version(const Stream *stream, const ConsumerGroup *group, const ConfigValue *value)
{
	int64		version = value->is_null ? 0 : DatumGetInt64(value->value);

	if (!value->is_given || version == group->schema_version)
		return;
	group_lock(group);
	exception_group_unpark(stream, group->group_id);
}

/*
 * alter_group(stream, consumer_group, ..., reset) returns void
 */
Datum
sqlstreams_alter_group(PG_FUNCTION_ARGS)
{
	Stream		stream;
	ConsumerGroup group;
	char	   *stream_name;
	char	   *name;
	ConfigValue values[SETTING_COUNT];

	PreventCommandIfReadOnly("sqlstreams.alter_group()");
	stream_name = argument_get_name(fcinfo, 0, "stream");
	name = argument_get_name(fcinfo, 1, "consumer_group");
	config_get_values(fcinfo, 2, settings, SETTING_COUNT, values);

	check_settings(values);
	if (!PG_ARGISNULL(SETTING_COUNT + 2))
		config_reset_values(PG_GETARG_ARRAYTYPE_P(SETTING_COUNT + 2), settings, SETTING_COUNT, values);

	config_lock_stream(stream_name, &stream);

	/* take in what the running command has changed already */
	CommandCounterIncrement();
	group_lookup(&stream, name, &group);
	check_bounds(values, &group);
	apply_schema_version(&stream, &group, &values[SETTING_SCHEMA_VERSION]);
	config_update("consumer_group", "group_id", group.group_id, settings, SETTING_COUNT, values);
	stream_invalidate_all();
	PG_RETURN_VOID();
}

/*
 * Is there no such group, or not even the stream?  Says so in a NOTICE: who
 * asks is about to skip it.
 */
static bool
is_missing(const char *stream_name, const char *name)
{
	Stream		stream;
	ConsumerGroup group;

	if (!stream_lookup_if_exists(stream_name, &stream))
	{
		ereport(NOTICE,
				(errcode(ERRCODE_STREAM_NOT_FOUND),
				 errmsg("stream \"%s\" does not exist, skipping", stream_name)));
		return true;
	}
	access_check_owner(&stream);
	if (group_lookup_if_exists(&stream, name, &group))
		return false;
	ereport(NOTICE,
			(errcode(ERRCODE_GROUP_NOT_FOUND),
			 errmsg("consumer group \"%s\" of stream \"%s\" does not exist, skipping",
					name, stream_name)));
	return true;
}

/*
 * Remove a group's claims.  One that an open transaction is resolving stays,
 * with nobody to find it: waiting for that transaction could take for ever.
 */
static void
delete_leases(const Stream *stream, int64 group_id)
{
	LeaseTables tables;
	ListCell   *cell;
	int64		claim_id = 0;
	bool		is_ours = false;

	lease_open(stream, &tables);
	foreach(cell, lease_load_group(&tables, group_id, GetActiveSnapshot()))
	{
		LeaseSegment *segment = lfirst(cell);
		bool		is_anchor = segment->claim_id != claim_id;

		if (!is_anchor && !is_ours)
			continue;
		claim_id = segment->claim_id;
		is_ours = lease_delete(&tables, segment, false) == TM_Ok;
		if (is_anchor && is_ours)
			lease_delete_resolved(&tables, claim_id);
	}
	lease_close(&tables);
}

/* Remove what is known of a group's keys. */
static void
delete_keys(const Stream *stream, int64 group_id)
{
	StateTable	table;

	key_lease_open(stream, &table);
	key_lease_delete_of_group(&table, group_id);
	state_table_close(&table);
	deferred_open(stream, &table);
	deferred_delete_of_group(&table, group_id);
	state_table_close(&table);
}

/*
 * Drop a group with its cursor, claims and exceptions; false if there was none.
 * What the delivery log has of it is not seen any more.
 */
static bool
drop_group(const char *stream_name, const char *name, bool if_exists)
{
	Stream		stream;
	ConsumerGroup group;
	Oid			types[] = {INT8OID};
	Datum		values[1];
	int64		rows_left = PG_INT64_MAX;

	if (if_exists && is_missing(stream_name, name))
		return false;
	config_lock_stream(stream_name, &stream);
	group_lookup(&stream, name, &group);

	/* claims that are open end first; those of the running command go, too */
	group_lock(&group);
	CommandCounterIncrement();
	PushActiveSnapshot(GetLatestSnapshot());
	delete_leases(&stream, group.group_id);
	PopActiveSnapshot();
	(void) exception_group_delete_free(&stream, group.group_id, PG_INT64_MIN, PG_INT64_MAX, false, &rows_left);
	delete_keys(&stream, group.group_id);
	cursor_delete(&stream, group.group_id);

	values[0] = Int64GetDatum(group.group_id);
	(void) config_execute("DELETE FROM sqlstreams.consumer_group"
						  " WHERE group_id OPERATOR(pg_catalog.=) $1",
						  lengthof(types), types, values, NULL, NULL);
	stream_invalidate_all();
	return true;
}

/*
 * drop_group(stream, consumer_group, if_exists) returns boolean
 */
Datum
sqlstreams_drop_group(PG_FUNCTION_ARGS)
{
	char	   *stream_name;
	char	   *name;
	bool		if_exists = PG_ARGISNULL(2) ? false : PG_GETARG_BOOL(2);

	PreventCommandIfReadOnly("sqlstreams.drop_group()");
	stream_name = argument_get_name(fcinfo, 0, "stream");
	name = argument_get_name(fcinfo, 1, "consumer_group");
	PG_RETURN_BOOL(drop_group(stream_name, name, if_exists));
}
