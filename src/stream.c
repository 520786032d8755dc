/*
 * stream.c
 *		A stream's definition: load it, cache it, know when it has changed.
 *
 * Each backend keeps the streams that it used in a hash by name.  An entry is
 * good while its generation is the cache's; any change of a row of
 * sqlstreams.stream or sqlstreams.consumer_group raises the generation, by an
 * invalidation of those tables' relcache entries that the change queues.
 * The callback only counts, so it is safe wherever invalidations arrive.
 *
 * A lookup can be outdated by the time that its caller has a lock on the
 * stream.  Callers therefore lock, ask stream_is_current, and look up again
 * when it is not.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_collation.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "access.h"
#include "duration.h"
#include "errors.h"
#include "stream.h"

/* A name this many edits away from an unknown one may be what was meant. */
#define CLOSE_NAME_MAX_DISTANCE 3

/* PostgreSQL measures the distance of no longer names. */
#define CLOSE_NAME_MAX_BYTES 255

pg_noreturn static void raise_incomplete(const Stream *stream);

static HTAB *stream_cache = NULL;
static uint64 cache_generation = 1;
static Oid	config_table_oids[2] = {InvalidOid, InvalidOid};

/* Count a change of the configuration tables.  Runs inside of anything. */
static void
invalidate_callback(Datum arg, Oid relid)
{
	if (!OidIsValid(relid) || relid == config_table_oids[0] || relid == config_table_oids[1])
		cache_generation++;
}

/* Start watching for changes.  Called once, when the library is loaded. */
void
stream_init(void)
{
	CacheRegisterRelcacheCallback(invalidate_callback, (Datum) 0);
}

/* A number that has changed if anything that the caches hold may have. */
uint64
stream_cache_generation(void)
{
	return cache_generation;
}

/* The schema of the extension.  Raises 3F000 when it is not installed here. */
Oid
stream_schema_oid(void)
{
	return get_namespace_oid("sqlstreams", false);
}

/* The table of this name in the extension's schema. */
Oid
stream_config_table_oid(const char *table)
{
	Oid			oid = get_relname_relid(table, stream_schema_oid());

	if (!OidIsValid(oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"sqlstreams.%s\" does not exist", table),
				 errhint("Install the extension in this database with CREATE EXTENSION sqlstreams.")));
	return oid;
}

/*
 * See to it that changes of the configuration from now on raise the generation.
 * The tables are others when the extension was dropped and created again.
 */
void
stream_watch_configuration(void)
{
	Oid			stream_oid = stream_config_table_oid("stream");
	Oid			group_oid = stream_config_table_oid("consumer_group");

	if (stream_oid != config_table_oids[0] || group_oid != config_table_oids[1])
		cache_generation++;
	config_table_oids[0] = stream_oid;
	config_table_oids[1] = group_oid;
}

/*
 * Tell all backends, once this transaction commits, that streams or groups
 * have changed.  This backend knows at its next command.
 */
void
stream_invalidate_all(void)
{
	CacheInvalidateRelcacheByRelid(stream_config_table_oid("stream"));
}

/* The oid of a table of the stream, or InvalidOid. */
Oid
stream_table_oid(const char *kind, int64 stream_id)
{
	char		name[NAMEDATALEN];

	snprintf(name, sizeof(name), "%s_" INT64_FORMAT, kind, stream_id);
	return get_relname_relid(name, stream_schema_oid());
}

/* The oid of one of several numbered tables of the stream, or InvalidOid. */
Oid
stream_numbered_table_oid(const char *kind, int64 stream_id, int64 number)
{
	char		name[NAMEDATALEN];

	snprintf(name, sizeof(name), "%s_" INT64_FORMAT "_" INT64_FORMAT, kind, stream_id, number);
	return get_relname_relid(name, stream_schema_oid());
}

/*
 * The relation of this name in the extension's schema that a snapshot shows
 * (NULL: the latest), or InvalidOid.  Not by a syscache: it can lag behind the
 * snapshot, which may show a producer's messages just before that producer's
 * invalidations arrive.
 */
Oid
stream_find_relation(const char *name, Snapshot snapshot)
{
	Relation	rel = table_open(RelationRelationId, AccessShareLock);
	NameData	relname;
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			result = InvalidOid;

	namestrcpy(&relname, name);
	ScanKeyInit(&keys[0], Anum_pg_class_relname, BTEqualStrategyNumber, F_NAMEEQ, NameGetDatum(&relname));
	ScanKeyInit(&keys[1], Anum_pg_class_relnamespace, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(stream_schema_oid()));
	scan = systable_beginscan(rel, ClassNameNspIndexId, true, snapshot, 2, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		result = ((Form_pg_class) GETSTRUCT(tuple))->oid;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}

/*
 * A partition is sealed so many times while its first message is kept, so that
 * a message is kept a quarter longer than asked at most.
 */
#define PARTITIONS_OF_RETENTION 4

/* Fill the settings of a stream from its row in sqlstreams.stream. */
static void
fill_settings(Stream *stream, const Datum *values, const bool *isnull)
{
	stream->partition_size = DatumGetInt64(values[Anum_stream_partition_size]);
	if (!isnull[Anum_stream_retention])
		stream->retention_us = duration_from_interval(DatumGetIntervalP(values[Anum_stream_retention]));
	if (!isnull[Anum_stream_partition_interval])
		stream->partition_interval_us =
			duration_from_interval(DatumGetIntervalP(values[Anum_stream_partition_interval]));
	else if (stream->retention_us > 0)
		stream->partition_interval_us = Max(stream->retention_us / PARTITIONS_OF_RETENTION, 1);
	stream->allow_drop_past_committed = DatumGetBool(values[Anum_stream_allow_drop_past_committed]);
	stream->idempotency_key_ttl_us =
		duration_from_interval(DatumGetIntervalP(values[Anum_stream_idempotency_key_ttl]));
	stream->empty_compaction_head_ttl_us =
		duration_from_interval(DatumGetIntervalP(values[Anum_stream_empty_compaction_head_ttl]));
	stream->delivery_log = *TextDatumGetCString(values[Anum_stream_delivery_log]);
	if (!isnull[Anum_stream_message_defaults])
	{
		message_options_read(DatumGetJsonbP(values[Anum_stream_message_defaults]), &stream->asked_options);
		stream->concurrency = concurrency_read(DatumGetJsonbP(values[Anum_stream_message_defaults]));
	}
	stream->purged_through = DatumGetInt64(values[Anum_stream_purged_through]);
	if (!isnull[Anum_stream_purged_at])
		stream->purged_at = DatumGetTimestampTz(values[Anum_stream_purged_at]);
	stream->maintenance_suspended = DatumGetBool(values[Anum_stream_maintenance_suspended]);
	stream->idempotency_generation = DatumGetInt64(values[Anum_stream_idempotency_generation]);
	stream->idempotency_phase = *TextDatumGetCString(values[Anum_stream_idempotency_phase]);
}

/* Fill a stream from its row in sqlstreams.stream. */
static void
fill_from_row(Stream *stream, HeapTuple tuple, TupleDesc desc)
{
	bool		isnull[Natts_stream + 1];
	Datum		values[Natts_stream + 1];

	for (int i = 1; i <= Natts_stream; i++)
		values[i] = heap_getattr(tuple, i, desc, &isnull[i]);

	memset(stream, 0, sizeof(Stream));
	strlcpy(stream->name, TextDatumGetCString(values[Anum_stream_name]), sizeof(stream->name));
	stream->stream_id = DatumGetInt64(values[Anum_stream_id]);
	fill_settings(stream, values, isnull);
	stream->log_oid = stream_table_oid("message_log", stream->stream_id);
	stream->sequence_oid = stream_table_oid("message_id", stream->stream_id);
	stream->fence_oid = get_rel_type_id(stream->log_oid);
	stream->cursor_oid = stream_table_oid("group_cursor", stream->stream_id);
	stream->lease_oid = stream_table_oid("claim_lease", stream->stream_id);
	stream->resolved_oid = stream_table_oid("claim_resolved", stream->stream_id);
	stream->exception_oid = stream_table_oid("exception_queue", stream->stream_id);
	stream->key_lease_oid = stream_table_oid("message_key_lease", stream->stream_id);
	stream->deferred_oid = stream_table_oid("deferred_message", stream->stream_id);
	stream->delivery_log_oid = stream_table_oid("delivery_log", stream->stream_id);
	stream->idempotency_oid = stream_numbered_table_oid("idempotency_key", stream->stream_id,
														stream->idempotency_generation);
	if (stream->idempotency_phase != IDEMPOTENCY_ONE)
		stream->idempotency_old_oid = stream_numbered_table_oid("idempotency_key", stream->stream_id,
																stream->idempotency_generation - 1);
	stream->compaction_key_oid = stream_table_oid("compaction_key", stream->stream_id);
	stream->compaction_head_oid = stream_table_oid("compaction_head", stream->stream_id);
}

/* Read a stream by name from the configuration; false when there is none. */
static bool
load(const char *name, Stream *stream)
{
	Relation	rel;
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	bool		found;
	uint64		generation;

	stream_watch_configuration();

	/* the lock takes in what has changed, so the count comes after it */
	rel = table_open(config_table_oids[0], AccessShareLock);
	generation = cache_generation;

	ScanKeyInit(&key, Anum_stream_name, BTEqualStrategyNumber, F_TEXTEQ, CStringGetTextDatum(name));
	key.sk_collation = C_COLLATION_OID;
	scan = systable_beginscan(rel, stream_config_table_oid("stream_stream_name_key"), true,
							  NULL, 1, &key);
	tuple = systable_getnext(scan);
	found = HeapTupleIsValid(tuple);
	if (found)
		fill_from_row(stream, tuple, RelationGetDescr(rel));
	stream->generation = generation;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/* Make the hash at first use; it lives as long as the backend. */
static void
create_cache(void)
{
	HASHCTL		ctl;

	ctl.keysize = STREAM_NAME_MAX_BYTES + 1;
	ctl.entrysize = sizeof(Stream);
	ctl.hcxt = TopMemoryContext;
	stream_cache = hash_create("sqlstreams streams", 64, &ctl,
							   HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
}

/* Find a stream by name, with or without its tables; false when there is none. */
bool
stream_lookup_any(const char *name, Stream *stream)
{
	Stream	   *entry;

	if (strlen(name) > STREAM_NAME_MAX_BYTES)
		return false;
	if (stream_cache == NULL)
		create_cache();

	entry = hash_search(stream_cache, name, HASH_FIND, NULL);
	if (entry != NULL && entry->generation == cache_generation)
	{
		*stream = *entry;
		return true;
	}

	if (!load(name, stream))
	{
		if (entry != NULL)
			hash_search(stream_cache, name, HASH_REMOVE, NULL);
		return false;
	}

	/* a stream that is not complete yet will be, without telling us */
	if (OidIsValid(stream->log_oid) && OidIsValid(stream->sequence_oid))
	{
		entry = hash_search(stream_cache, name, HASH_ENTER, NULL);
		*entry = *stream;
	}
	return true;
}

/*
 * Find a stream by name; false when there is none, or its log is not there (a
 * restore is running).
 */
bool
stream_lookup_complete(const char *name, Stream *stream)
{
	return stream_lookup_any(name, stream) && OidIsValid(stream->log_oid) && OidIsValid(stream->sequence_oid);
}

/* Raise 55000 for a stream that lacks some of its tables. */
static void
raise_incomplete(const Stream *stream)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("some tables of stream \"%s\" are missing", stream->name),
			 errdetail("Their names end in \"_%lld\" in schema \"sqlstreams\".", (long long) stream->stream_id),
			 errhint("Wait for a running restore to end; or drop the stream if somebody has dropped its tables.")));
}

/*
 * Raise an error for a table of the stream that could not be opened: SS001 when
 * the stream was dropped meanwhile, else 55000.
 */
void
stream_raise_table_missing(const Stream *stream)
{
	Stream		now;

	AcceptInvalidationMessages();
	if (!stream_lookup_any(stream->name, &now) || now.stream_id != stream->stream_id)
		stream_raise_not_found(stream->name);
	raise_incomplete(stream);
}

/*
 * Find a stream by name; false when there is none.  Takes no lock that lasts.
 * Raises 55000 when its log is missing.
 */
bool
stream_lookup_if_exists(const char *name, Stream *stream)
{
	if (!stream_lookup_any(name, stream))
		return false;
	if (!OidIsValid(stream->log_oid) || !OidIsValid(stream->sequence_oid))
		raise_incomplete(stream);
	return true;
}

/* Find a stream by name.  Raises SS001. */
void
stream_lookup(const char *name, Stream *stream)
{
	if (!stream_lookup_if_exists(name, stream))
		stream_raise_not_found(name);
}

/* Has nothing changed since the stream was looked up? */
bool
stream_is_current(const Stream *stream)
{
	return stream->generation == cache_generation;
}

/*
 * Has nobody purged messages of the stream since it was looked up, nor begun to
 * change it?  The cache would tell only what is committed.
 */
bool
stream_is_unchanged_for_sure(const Stream *stream)
{
	Relation	rel = table_open(stream_config_table_oid("stream"), AccessShareLock);
	SnapshotData snapshot;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		isnull;
	bool		is_unchanged;

	InitDirtySnapshot(snapshot);
	ScanKeyInit(&key, Anum_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream->stream_id));
	scan = systable_beginscan(rel, stream_config_table_oid("stream_pkey"), true, &snapshot, 1, &key);
	tuple = systable_getnext(scan);
	is_unchanged = HeapTupleIsValid(tuple) &&
		!TransactionIdIsValid(snapshot.xmin) && !TransactionIdIsValid(snapshot.xmax) &&
		DatumGetInt64(heap_getattr(tuple, Anum_stream_purged_through, RelationGetDescr(rel), &isnull)) == stream->purged_through;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return is_unchanged;
}

/*
 * The name of the stream most like the given one among those that the current
 * role may use, or NULL.
 */
static char *
find_close_name(const char *name)
{
	Relation	rel = table_open(stream_config_table_oid("stream"), AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;
	char	   *best = NULL;
	int			best_distance = CLOSE_NAME_MAX_DISTANCE + 1;
	int			length = strlen(name);

	if (length > CLOSE_NAME_MAX_BYTES)
		length = 0;

	while (length > 0 && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Stream		stream;
		int			distance;

		fill_from_row(&stream, tuple, RelationGetDescr(rel));
		distance = varstr_levenshtein_less_equal(name, length, stream.name, strlen(stream.name),
												 1, 1, 1, best_distance - 1, true);
		if (distance < best_distance && distance < length &&
			OidIsValid(stream.log_oid) && access_is_visible(&stream))
		{
			best = pstrdup(stream.name);
			best_distance = distance;
		}
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return best;
}

/* As much of a name that a user gave as a message should show. */
const char *
stream_clip_name(const char *name)
{
	int			length = strlen(name);

	if (length <= STREAM_NAME_MAX_BYTES)
		return name;
	return psprintf("%s...", pnstrdup(name, pg_mbcliplen(name, length, STREAM_NAME_MAX_BYTES)));
}

/* Raise SS001, with the name that may have been meant. */
void
stream_raise_not_found(const char *name)
{
	char	   *close_name = find_close_name(name);

	ereport(ERROR,
			(errcode(ERRCODE_STREAM_NOT_FOUND),
			 errmsg("stream \"%s\" does not exist", stream_clip_name(name)),
			 close_name ?
			 errhint("Perhaps you meant stream \"%s\".", close_name) :
			 errhint("Create it with sqlstreams.create_stream().")));
}

/*
 * Raise 22023 unless a new stream or group may have this name: 1 to 200 of
 * a-z, 0-9, dot, underscore and hyphen; for a stream not starting with
 * "__system.".
 */
void
stream_check_name(const char *argument, const char *name, bool is_stream)
{
	size_t		length = strlen(name);

	if (length == 0 || length > STREAM_NAME_MAX_BYTES ||
		strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != length)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid name \"%s\" for argument \"%s\"", stream_clip_name(name), argument),
				 errdetail("A name consists of 1 to %d lower-case letters, digits, dots, underscores and hyphens.",
						   STREAM_NAME_MAX_BYTES)));
	if (is_stream && strncmp(name, "__system.", strlen("__system.")) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid name \"%s\" for argument \"%s\"", stream_clip_name(name), argument),
				 errdetail("Names that begin with \"__system.\" are reserved.")));
}
