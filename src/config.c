/*
 * config.c
 *		Writing the configuration: the rows of sqlstreams.stream and
 *		sqlstreams.consumer_group, their settings and who waits for whom.
 *
 * Whoever makes, changes or drops a stream or one of its groups holds a
 * heavyweight lock on the stream's name until the end of the transaction, and
 * reads the rows with a snapshot taken after that.  So whatever the isolation
 * level is, what exists already is found, nothing that is written was changed
 * by a transaction that the snapshot does not see, and neither a unique
 * violation nor a serialization failure can come of two at once.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "access.h"
#include "arguments.h"
#include "config.h"
#include "duration.h"
#include "group.h"

/* The lock on a name has the table sqlstreams.stream as class, and this part. */
#define NAME_LOCK_OBJSUBID 1

/*
 * Take the settings from a function's arguments, which stand in their order
 * from "first" on.  One that is NULL is not given.
 */
void
config_get_values(FunctionCallInfo fcinfo, int first,
				  const ConfigSetting *settings, int count, ConfigValue *values)
{
	for (int i = 0; i < count; i++)
	{
		values[i].is_given = !PG_ARGISNULL(first + i);
		values[i].is_null = PG_ARGISNULL(first + i);
		values[i].value = values[i].is_null ? (Datum) 0 : PG_GETARG_DATUM(first + i);
	}
}

/* Raise 22023 for a given bigint or interval that is out of its range. */
void
config_check_values(const ConfigSetting *settings, int count, const ConfigValue *values)
{
	for (int i = 0; i < count; i++)
	{
		const ConfigSetting *setting = &settings[i];

		if (!values[i].is_given)
			continue;
		if (setting->type == INTERVALOID)
			(void) duration_check(setting->name, DatumGetIntervalP(values[i].value),
								  setting->minimum == 0);
		else if (setting->type == INT8OID &&
				 (DatumGetInt64(values[i].value) < setting->minimum ||
				  DatumGetInt64(values[i].value) > setting->maximum))
			argument_raise_invalid(setting->name,
								   psprintf(_("It must be between %lld and %lld."),
											(long long) setting->minimum, (long long) setting->maximum));
	}
}

/* A setting's default, which is not NULL. */
static Datum
default_value(const ConfigSetting *setting)
{
	Oid			input_function;
	Oid			io_param;

	getTypeInputInfo(setting->type, &input_function, &io_param);
	return OidInputFunctionCall(input_function, pstrdup(setting->default_text), io_param, -1);
}

/* Give a setting its default. */
static void
set_default(const ConfigSetting *setting, ConfigValue *value)
{
	value->is_given = true;
	value->is_null = setting->default_text == NULL;
	value->value = value->is_null ? (Datum) 0 : default_value(setting);
}

/* The position of a setting that is to be reset; raises 22023 if there is none. */
static int
find_setting(const char *name, const ConfigSetting *settings, int count)
{
	StringInfoData known;

	initStringInfo(&known);
	for (int i = 0; i < count; i++)
	{
		if (strcmp(name, settings[i].name) == 0)
			return i;
		appendStringInfo(&known, "%s%s", i == 0 ? "" : ", ", settings[i].name);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized setting \"%s\" in argument \"reset\"", name),
			 errhint("The settings are %s.", known.data)));
	return -1;					/* keep the compiler quiet */
}

/*
 * Give the named settings their defaults.  Raises 22004 for a name that is
 * NULL, 22023 for one that is no setting or that is given a value as well.
 */
void
config_reset_values(ArrayType *names, const ConfigSetting *settings, int count, ConfigValue *values)
{
	Datum	   *elements;
	bool	   *nulls;
	int			element_count;
	bool	   *is_reset = palloc0(sizeof(bool) * count);

	if (ARR_NDIM(names) > 1)
		argument_raise_invalid("reset", _("It must have one dimension."));
	deconstruct_array(names, TEXTOID, -1, false, TYPALIGN_INT, &elements, &nulls, &element_count);
	for (int i = 0; i < element_count; i++)
	{
		int			position;

		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"reset\" must not contain nulls")));
		position = find_setting(TextDatumGetCString(elements[i]), settings, count);
		if (values[position].is_given && !is_reset[position])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("cannot both set and reset \"%s\"", settings[position].name)));
		is_reset[position] = true;
		set_default(&settings[position], &values[position]);
	}
}

/* Give every setting that is not given its default. */
void
config_set_defaults(const ConfigSetting *settings, int count, ConfigValue *values)
{
	for (int i = 0; i < count; i++)
		if (!values[i].is_given)
			set_default(&settings[i], &values[i]);
}

/* Take the lock on a name; says whether it was had. */
static bool
take_name_lock(const char *stream_name, bool wait)
{
	ResourceOwner saved_owner = CurrentResourceOwner;
	uint32		hash = hash_bytes((const unsigned char *) stream_name, strlen(stream_name));
	LOCKTAG		tag;
	bool		has_it;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, stream_config_table_oid("stream"), (Oid) hash, NAME_LOCK_OBJSUBID);
	CurrentResourceOwner = TopTransactionResourceOwner;
	has_it = LockAcquire(&tag, AccessExclusiveLock, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
	CurrentResourceOwner = saved_owner;
	if (has_it)
		AcceptInvalidationMessages();
	return has_it;
}

/*
 * Wait for whoever else is making, changing or dropping a stream of this name,
 * and make others wait until the transaction ends.  Two names with one hash
 * wait for each other, which does no harm.
 *
 * The lock belongs to the top transaction: a cursor that is rolled back must
 * not release it while what an earlier FETCH wrote lives on.
 */
void
config_lock_name(const char *stream_name)
{
	(void) take_name_lock(stream_name, true);
}

/* As config_lock_name, but returns false instead of waiting. */
bool
config_lock_name_if_free(const char *stream_name)
{
	return take_name_lock(stream_name, false);
}

/*
 * Find a stream that the current role owns and lock its name, so that it is
 * still what it was until the transaction ends.  Raises SS001 and 42501.
 */
void
config_lock_stream(const char *stream_name, Stream *stream)
{
	/* who has no right to it must not make others wait */
	stream_lookup(stream_name, stream);
	access_check_owner(stream);

	config_lock_name(stream_name);
	stream_lookup(stream_name, stream);
	access_check_owner(stream);
}

/* The stream's groups that the snapshot shows, as a list of ConfigGroup. */
List *
config_list_groups(const Stream *stream, Snapshot snapshot)
{
	Relation	rel = table_open(stream_config_table_oid("consumer_group"), AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	List	   *groups = NIL;

	ScanKeyInit(&key, Anum_group_stream_id, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(stream->stream_id));
	scan = systable_beginscan(rel, stream_config_table_oid("consumer_group_stream_id_group_name_key"),
							  true, snapshot, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		ConfigGroup *group = palloc(sizeof(ConfigGroup));
		bool		is_null;

		group->group_id = DatumGetInt64(heap_getattr(tuple, Anum_group_id, desc, &is_null));
		group->name = TextDatumGetCString(heap_getattr(tuple, Anum_group_name, desc, &is_null));
		group->start_id = DatumGetInt64(heap_getattr(tuple, Anum_group_start_id, desc, &is_null));
		groups = lappend(groups, group);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return groups;
}

/*
 * Run a statement on the configuration tables with a snapshot of now, also in
 * a transaction that keeps one of its own, as the extension.  Returns the
 * number of rows; *first, unless that is NULL or there is no row, becomes the
 * bigint that the first one begins with.
 */
uint64
config_execute(const char *sql, int argument_count, Oid *types,
			   Datum *values, const char *nulls, int64 *first)
{
	AccessState saved;
	SPIPlanPtr	plan;
	uint64		rows;
	int			result;
	bool		is_null;

	access_become_extension(&saved);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	plan = SPI_prepare(sql, argument_count, types);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	result = SPI_execute_snapshot(plan, values, nulls, GetLatestSnapshot(),
								  InvalidSnapshot, false, true, 0);
	if (result < 0)
		elog(ERROR, "SPI_execute_snapshot failed: %s", SPI_result_code_string(result));

	rows = SPI_processed;
	if (first != NULL && rows > 0)
		*first = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &is_null));
	SPI_finish();
	access_restore(&saved);
	return rows;
}

/*
 * Write the given settings of one row; the table's and the columns' names are
 * constants of ours.
 */
void
config_update(const char *table, const char *key_column, int64 key,
			  const ConfigSetting *settings, int count, const ConfigValue *values)
{
	Oid		   *types = palloc(sizeof(Oid) * (count + 1));
	Datum	   *datums = palloc(sizeof(Datum) * (count + 1));
	char	   *nulls = palloc(count + 2);
	StringInfoData sql;
	int			used = 0;

	initStringInfo(&sql);
	appendStringInfo(&sql, "UPDATE sqlstreams.%s SET ", table);
	for (int i = 0; i < count; i++)
	{
		if (!values[i].is_given)
			continue;
		types[used] = settings[i].type;
		datums[used] = values[i].value;
		nulls[used] = values[i].is_null ? 'n' : ' ';
		appendStringInfo(&sql, "%s%s = $%d", used == 0 ? "" : ", ", settings[i].name, used + 1);
		used++;
	}
	if (used == 0)
		return;

	types[used] = INT8OID;
	datums[used] = Int64GetDatum(key);
	nulls[used] = ' ';
	appendStringInfo(&sql, " WHERE %s OPERATOR(pg_catalog.=) $%d", key_column, used + 1);
	nulls[used + 1] = '\0';
	(void) config_execute(sql.data, used + 1, types, datums, nulls, NULL);
}
