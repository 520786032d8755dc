/*
 * partition.c
 *		Which partition of a log an id lives in; find, make, drop one.
 *
 * Partition n of stream s is message_log_<s>_<n> and holds the ids from
 * n * partition_size + 1 to (n + 1) * partition_size.  So the partition of an
 * id is known by arithmetic, and found by name; one that somebody has renamed or
 * moved to another schema, by its bounds.
 *
 * Producers and claims lock the partitions that they touch and never the
 * partitioned table, so that what happens to one partition, or to the table as
 * a whole, is none of their business.  A partition that was opened before is
 * found in a small cache; whatever the cache says is checked again, under the
 * partition's lock, after any invalidation of it.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "common/int.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "nodes/primnodes.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "access.h"
#include "compat.h"
#include "errors.h"
#include "log_partition.h"
#include "partition.h"
#include "storage.h"

/* A partition that was found to belong to a log. */
typedef struct KnownPartition
{
	Oid			log_oid;		/* InvalidOid: the place is free */
	int64		number;
	Oid			oid;
	LogShape	shape;
} KnownPartition;

/* One place for each value of a hash; a stream in use has one or two. */
#define KNOWN_PARTITIONS 64

static KnownPartition known_partitions[KNOWN_PARTITIONS];

/* Forget a partition that changed.  Runs inside of anything. */
static void
invalidate_callback(Datum arg, Oid relid)
{
	for (int i = 0; i < KNOWN_PARTITIONS; i++)
	{
		if (!OidIsValid(relid) || known_partitions[i].oid == relid)
			known_partitions[i].log_oid = InvalidOid;
	}
}

/* Start watching for changes.  Called once, when the library is loaded. */
void
partition_init(void)
{
	CacheRegisterRelcacheCallback(invalidate_callback, (Datum) 0);
}

/* The number of the partition that an id lives in. */
int64
partition_number(const Stream *stream, int64 id)
{
	return (id - 1) / stream->partition_size;
}

/* The lowest id of a partition. */
int64
partition_first_id(const Stream *stream, int64 number)
{
	return number * stream->partition_size + 1;
}

/* The highest id of a partition, whose number some id has. */
int64
partition_last_id(const Stream *stream, int64 number)
{
	int64		result;

	if (pg_mul_s64_overflow(number + 1, stream->partition_size, &result))
		return PG_INT64_MAX - 1;
	return Min(result, PG_INT64_MAX - 1);
}

static KnownPartition *
known_place(Oid log_oid, int64 number)
{
	return &known_partitions[((uint64) log_oid * 31 + (uint64) number) % KNOWN_PARTITIONS];
}

/* The table of a log's partition by name, or InvalidOid. */
static Oid
find_by_name(const Stream *stream, int64 number, Snapshot snapshot)
{
	char		name[NAMEDATALEN];

	snprintf(name, sizeof(name), "message_log_" INT64_FORMAT "_" INT64_FORMAT, stream->stream_id, number);
	return stream_find_relation(name, snapshot);
}

/* Is the open relation attached to the stream's log, with its columns? */
static bool
is_partition_of(const Stream *stream, Relation rel)
{
	if (rel->rd_rel->relkind != RELKIND_RELATION || !rel->rd_rel->relispartition ||
		get_partition_parent(RelationGetRelid(rel), true) != stream->log_oid)
		return false;
	message_log_check_columns(rel);
	return true;
}

/* Open a relation that may be the partition, or return NULL. */
static Relation
open_and_check(const Stream *stream, int64 number, Oid oid, LOCKMODE lockmode)
{
	KnownPartition *place = known_place(stream->log_oid, number);
	Relation	rel = try_table_open(oid, lockmode);
	LogShape	shape;

	if (rel == NULL)
		return NULL;

	/* the lock has taken in what changed, so the place can be believed now */
	if (place->log_oid == stream->log_oid && place->number == number && place->oid == oid)
		return rel;
	if (!is_partition_of(stream, rel))
	{
		table_close(rel, lockmode);
		return NULL;
	}
	message_log_find_shape(rel, &shape);
	place->log_oid = stream->log_oid;
	place->number = number;
	place->oid = oid;
	place->shape = shape;
	return rel;
}

/*
 * The shape of a partition that the caller has just opened.  It is one without
 * indexes when the partition has changed since.
 */
LogShape
partition_shape(const Stream *stream, int64 number)
{
	const KnownPartition *place = known_place(stream->log_oid, number);
	LogShape	unknown = {InvalidOid, InvalidOid};

	return place->log_oid == stream->log_oid && place->number == number ? place->shape : unknown;
}

/* The number in a partition's name, or -1 when it has another name. */
static int64
number_in_name(const Stream *stream, const char *name)
{
	char		prefix[NAMEDATALEN];
	char	   *end;
	int64		number;

	snprintf(prefix, sizeof(prefix), "message_log_" INT64_FORMAT "_", stream->stream_id);
	if (strncmp(name, prefix, strlen(prefix)) != 0 || name[strlen(prefix)] == '\0')
		return -1;
	errno = 0;
	number = strtoll(name + strlen(prefix), &end, 10);
	return *end == '\0' && errno == 0 ? number : -1;
}

/* One end of a partition's range, or 0 when it is none that we make. */
static int64
bound_value(List *datums)
{
	PartitionRangeDatum *datum = list_length(datums) == 1 ? linitial(datums) : NULL;

	if (datum == NULL || datum->kind != PARTITION_RANGE_DATUM_VALUE || !IsA(datum->value, Const))
		return 0;
	return DatumGetInt64(((Const *) datum->value)->constvalue);
}

/* The number that a partition's range of ids has, or -1 for another range. */
static int64
number_of_bounds(const Stream *stream, HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	Datum		value = heap_getattr(tuple, Anum_pg_class_relpartbound, desc, &isnull);
	PartitionBoundSpec *bounds;
	int64		first_id;
	int64		number;

	if (isnull)
		return -1;
	bounds = stringToNode(TextDatumGetCString(value));
	first_id = bound_value(bounds->lowerdatums);
	if (first_id <= 0)
		return -1;
	number = partition_number(stream, first_id);
	return partition_first_id(stream, number) == first_id &&
		partition_last_id(stream, number) + 1 == bound_value(bounds->upperdatums) ? number : -1;
}

/*
 * The number of a table that is attached to the log, or -1 if it has none.  It
 * may have been given another name or schema.
 */
static int64
find_number(const Stream *stream, Oid oid, Snapshot snapshot)
{
	Relation	rel = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	int64		number = -1;

	/* as in stream_find_relation, not by a syscache */
	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(oid));
	scan = systable_beginscan(rel, ClassOidIndexId, true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple) && ((Form_pg_class) GETSTRUCT(tuple))->relnamespace == stream_schema_oid())
		number = number_in_name(stream, NameStr(((Form_pg_class) GETSTRUCT(tuple))->relname));
	if (HeapTupleIsValid(tuple) && number < 0)
		number = number_of_bounds(stream, tuple, RelationGetDescr(rel));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return number;
}

static int
compare_partitions(const void *a, const void *b)
{
	int64		x = ((const StreamPartition *) a)->number;
	int64		y = ((const StreamPartition *) b)->number;

	return (x > y) - (x < y);
}

/* As partition_list, as a snapshot shows the partitions. */
static int
list_partitions(const Stream *stream, Snapshot snapshot, StreamPartition **partitions)
{
	Relation	rel = table_open(InheritsRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	int			count = 0;
	int			capacity = 16;

	*partitions = palloc(sizeof(StreamPartition) * capacity);
	ScanKeyInit(&key, Anum_pg_inherits_inhparent, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(stream->log_oid));
	scan = systable_beginscan(rel, InheritsParentIndexId, true, snapshot, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Oid			oid = ((Form_pg_inherits) GETSTRUCT(tuple))->inhrelid;
		int64		number = find_number(stream, oid, snapshot);

		if (number < 0)
			continue;
		if (count == capacity)
		{
			capacity *= 2;
			*partitions = repalloc(*partitions, sizeof(StreamPartition) * capacity);
		}
		(*partitions)[count].oid = oid;
		(*partitions)[count++].number = number;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	qsort(*partitions, count, sizeof(StreamPartition), compare_partitions);
	return count;
}

/* The partitions of the stream's log, by number, without locking any. */
int
partition_list(const Stream *stream, StreamPartition **partitions)
{
	return list_partitions(stream, NULL, partitions);
}

/* A partition that has another name than it was given, or InvalidOid. */
static Oid
find_by_bounds(const Stream *stream, int64 number, Snapshot snapshot)
{
	StreamPartition *partitions;
	int			count = list_partitions(stream, snapshot, &partitions);

	for (int i = 0; i < count; i++)
	{
		if (partitions[i].number == number)
			return partitions[i].oid;
	}
	return InvalidOid;
}

/*
 * Open a partition of the stream's log with a lock, or return NULL when there
 * is none.  With a snapshot, a partition that this snapshot shows is found.
 */
Relation
partition_open(const Stream *stream, int64 number, Snapshot snapshot, LOCKMODE lockmode)
{
	KnownPartition *place = known_place(stream->log_oid, number);
	Relation	rel = NULL;
	Oid			oid;

	if (place->log_oid == stream->log_oid && place->number == number)
		rel = open_and_check(stream, number, place->oid, lockmode);
	if (rel != NULL)
		return rel;
	oid = find_by_name(stream, number, snapshot);
	if (OidIsValid(oid))
		rel = open_and_check(stream, number, oid, lockmode);
	if (rel != NULL)
		return rel;
	oid = find_by_bounds(stream, number, snapshot);
	return OidIsValid(oid) ? open_and_check(stream, number, oid, lockmode) : NULL;
}

/* The partition with a number, attached to the log, or InvalidOid.  Locks nothing. */
static Oid
find_attached(const Stream *stream, int64 number)
{
	Oid			oid = find_by_name(stream, number, NULL);

	if (OidIsValid(oid) && get_rel_relispartition(oid) && get_partition_parent(oid, true) == stream->log_oid)
		return oid;
	return find_by_bounds(stream, number, NULL);
}

/* Is there a partition with this number, attached to the log? */
bool
partition_exists(const Stream *stream, int64 number)
{
	return OidIsValid(find_attached(stream, number));
}

/*
 * Find the lowest partition that the snapshot shows with this number or a
 * higher one.
 */
bool
partition_find_next(const Stream *stream, int64 number, Snapshot snapshot, int64 *found)
{
	StreamPartition *partitions;
	int			count = list_partitions(stream, snapshot, &partitions);

	for (int i = 0; i < count; i++)
	{
		*found = partitions[i].number;
		if (*found >= number)
			return true;
	}
	return false;
}

/* Raise SS005 for a table that stands where a partition should be. */
static void
raise_not_attached(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_PARTITION_CREATION_BEHIND),
			 errmsg("table \"%s\" is not a partition of its log", name),
			 errhint("Attach it again, or drop it.")));
}

/*
 * Make a partition of a log unless it exists.
 *
 * The table is made by itself and then attached, which takes a weaker lock on
 * the partitioned table than CREATE TABLE ... PARTITION OF.  Attaching is done
 * as the owner, since it builds the owner's indexes.
 */
void
partition_create(int64 stream_id, Oid log_oid, int64 partition_size, int64 number)
{
	AccessState saved;
	Stream		stream = {0};
	Oid			owner = access_relation_owner(log_oid);
	char	   *log = psprintf("message_log_" INT64_FORMAT, stream_id);
	char	   *name = psprintf("%s_" INT64_FORMAT, log, number);
	Relation	rel;

	if (!OidIsValid(owner))
		return;

	/* attaching takes this lock; whoever has it before us may have made it */
	LockRelationOid(log_oid, ShareUpdateExclusiveLock);
	stream.stream_id = stream_id;
	stream.log_oid = log_oid;
	stream.partition_size = partition_size;
	rel = partition_open(&stream, number, NULL, AccessShareLock);
	if (rel != NULL)
	{
		table_close(rel, AccessShareLock);
		return;
	}
	if (OidIsValid(find_by_name(&stream, number, NULL)))
		raise_not_attached(name);

	access_become_extension(&saved);
	storage_execute(psprintf("CREATE TABLE sqlstreams.%s (LIKE sqlstreams.%s INCLUDING DEFAULTS INCLUDING CONSTRAINTS"
							 " INCLUDING GENERATED INCLUDING STORAGE INCLUDING COMPRESSION)", name, log));
	storage_hand_to_owner("TABLE", name, owner);
	access_restore(&saved);

	access_become_owner(owner, &saved);
	storage_execute(psprintf("ALTER TABLE sqlstreams.%s ATTACH PARTITION sqlstreams.%s"
							 " FOR VALUES FROM (" INT64_FORMAT ") TO (" INT64_FORMAT ")", log, name,
							 partition_first_id(&stream, number),
							 partition_last_id(&stream, number) + 1));
	access_restore(&saved);
	log_partition_add(stream_id, number);
}

/*
 * Make a partition unless it exists, if nobody has the log locked against that
 * just now; says whether it was free.
 */
bool
partition_create_if_free(const Stream *stream, int64 number)
{
	if (!ConditionalLockRelationOid(stream->log_oid, ShareUpdateExclusiveLock))
		return false;
	partition_create(stream->stream_id, stream->log_oid, stream->partition_size, number);
	CommandCounterIncrement();
	return true;
}

/* May this transaction have made partitions of the log, which others do not see yet? */
bool
partition_is_being_made_here(const Stream *stream)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, stream->log_oid);
	return compat_lock_held_by_me(&tag, ShareUpdateExclusiveLock);
}

/* The TOAST table of a table, or InvalidOid. */
static Oid
find_toast_table(Oid oid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(oid));
	Oid			toast;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	toast = ((Form_pg_class) GETSTRUCT(tuple))->reltoastrelid;
	ReleaseSysCache(tuple);
	return toast;
}

/*
 * Lock a partition that is to be dropped, and what goes with it, if nobody has
 * any of it just now.  The TOAST table can be locked by itself, by a vacuum.
 */
static bool
lock_to_drop_if_free(const Stream *stream, Oid oid)
{
	Oid			toast;

	if (!ConditionalLockRelationOid(stream->log_oid, AccessExclusiveLock))
		return false;
	if (ConditionalLockRelationOid(oid, AccessExclusiveLock))
	{
		toast = find_toast_table(oid);
		if (!OidIsValid(toast) || ConditionalLockRelationOid(toast, AccessExclusiveLock))
			return true;
		UnlockRelationOid(oid, AccessExclusiveLock);
	}
	UnlockRelationOid(stream->log_oid, AccessExclusiveLock);
	return false;
}

/*
 * Drop a partition if nobody has it or its log locked just now; says whether
 * it is gone.
 */
bool
partition_drop_if_free(const Stream *stream, int64 number)
{
	AccessState saved;
	Oid			oid = find_attached(stream, number);

	if (!OidIsValid(oid))
		return true;
	if (!lock_to_drop_if_free(stream, oid))
		return false;
	access_become_extension(&saved);
	storage_execute(psprintf("DROP TABLE %s",
							 quote_qualified_identifier(get_namespace_name(get_rel_namespace(oid)),
														get_rel_name(oid))));
	access_restore(&saved);
	return true;
}
