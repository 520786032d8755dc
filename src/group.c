/*
 * group.c
 *		A consumer group's definition: load it, cache it, lock it.
 *
 * Cached as streams are (stream.c), by stream and name, under the same
 * generation.  An entry owns a memory context with its patterns and options,
 * which goes when the group is looked up and has changed: no claim is being made
 * at that time, since a claim runs no code of users.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_collation.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "duration.h"
#include "errors.h"
#include "group.h"

typedef struct GroupKey
{
	int64		stream_id;
	char		name[STREAM_NAME_MAX_BYTES + 1];
} GroupKey;

typedef struct GroupEntry
{
	GroupKey	key;
	ConsumerGroup group;
} GroupEntry;

static HTAB *group_cache = NULL;

/* Make the hash.  Called once, when the library is loaded. */
void
group_init(void)
{
	HASHCTL		ctl;

	ctl.keysize = sizeof(GroupKey);
	ctl.entrysize = sizeof(GroupEntry);
	ctl.hcxt = TopMemoryContext;
	group_cache = hash_create("sqlstreams consumer groups", 64, &ctl,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* The policy of a column. */
static Concurrency
read_concurrency(Datum value)
{
	text	   *name = DatumGetTextPP(value);
	Concurrency concurrency = CONCURRENCY_UNSET;

	(void) concurrency_parse(VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name), &concurrency);
	return concurrency;
}

/*
 * Fill a group from its row in sqlstreams.consumer_group.  What it points to is
 * made in a context of its own.
 */
static void
fill_from_row(ConsumerGroup *group, HeapTuple tuple, TupleDesc desc)
{
	Datum		values[Anum_group_head_missing + 1];
	bool		isnull[Anum_group_head_missing + 1];
	MessageOptions own;
	MemoryContext old;

	for (int i = 1; i <= Anum_group_head_missing; i++)
		values[i] = heap_getattr(tuple, i, desc, &isnull[i]);

	memset(group, 0, sizeof(ConsumerGroup));
	group->context = AllocSetContextCreate(CurrentMemoryContext, "sqlstreams consumer group",
										   ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(group->context);
	strlcpy(group->name, TextDatumGetCString(values[Anum_group_name]), sizeof(group->name));
	group->group_id = DatumGetInt64(values[Anum_group_id]);
	group->stream_id = DatumGetInt64(values[Anum_group_stream_id]);
	if (!isnull[Anum_group_schema_version])
		group->schema_version = DatumGetInt32(values[Anum_group_schema_version]);
	if (!isnull[Anum_group_concurrency])
		group->concurrency = read_concurrency(values[Anum_group_concurrency]);
	if (!isnull[Anum_group_concurrency_override])
		group->concurrency_override = read_concurrency(values[Anum_group_concurrency_override]);
	if (!isnull[Anum_group_bindings])
		routing_compile(&group->routing, DatumGetArrayTypeP(values[Anum_group_bindings]));
	group->max_reclaims = (int32) DatumGetInt64(values[Anum_group_max_reclaims]);
	if (!isnull[Anum_group_message_min])
		message_options_read(DatumGetJsonbP(values[Anum_group_message_min]), &group->message_min);
	if (!isnull[Anum_group_message_max])
		message_options_read(DatumGetJsonbP(values[Anum_group_message_max]), &group->message_max);
	own.timeout_us = duration_from_interval(DatumGetIntervalP(values[Anum_group_timeout]));
	own.max_retries = (int32) DatumGetInt64(values[Anum_group_max_retries]);
	own.max_delays = (int32) DatumGetInt64(values[Anum_group_max_delays]);
	own.base_delay_us = duration_from_interval(DatumGetIntervalP(values[Anum_group_base_delay]));
	own.max_delay_us = duration_from_interval(DatumGetIntervalP(values[Anum_group_max_delay]));
	own.exponent = (int32) DatumGetInt64(values[Anum_group_exponent]);
	message_options_make_policy(&own, &group->message_min, &group->message_max,
								duration_from_interval(DatumGetIntervalP(values[Anum_group_initial_backoff])),
								&group->policy);
	group->options = message_options_make_jsonb(&group->policy.own);
	group->head_id = DatumGetInt64(values[Anum_group_head_id]);
	if (!isnull[Anum_group_head_missing])
		id_set_decode(&group->missing, DatumGetInt64(values[Anum_group_head_missing_from]),
					  DatumGetByteaPP(values[Anum_group_head_missing]));
	MemoryContextSwitchTo(old);
}

/* Read a group from the configuration; false when there is none. */
static bool
load(const Stream *stream, const char *name, ConsumerGroup *group)
{
	Relation	rel = table_open(stream_config_table_oid("consumer_group"), AccessShareLock);
	uint64		generation = stream_cache_generation();
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found;

	ScanKeyInit(&keys[0], Anum_group_stream_id, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(stream->stream_id));
	ScanKeyInit(&keys[1], Anum_group_name, BTEqualStrategyNumber, F_TEXTEQ,
				CStringGetTextDatum(name));
	keys[1].sk_collation = C_COLLATION_OID;
	scan = systable_beginscan(rel, stream_config_table_oid("consumer_group_stream_id_group_name_key"),
							  true, NULL, 2, keys);
	tuple = systable_getnext(scan);
	found = HeapTupleIsValid(tuple);
	if (found)
		fill_from_row(group, tuple, RelationGetDescr(rel));
	group->generation = generation;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/* Find a group by name; false when there is none. */
bool
group_lookup_if_exists(const Stream *stream, const char *name, ConsumerGroup *group)
{
	GroupKey	key;
	GroupEntry *entry;
	bool		found;

	if (strlen(name) > STREAM_NAME_MAX_BYTES)
		return false;

	memset(&key, 0, sizeof(key));
	key.stream_id = stream->stream_id;
	strlcpy(key.name, name, sizeof(key.name));

	entry = hash_search(group_cache, &key, HASH_FIND, NULL);
	if (entry != NULL && entry->group.generation == stream_cache_generation())
	{
		*group = entry->group;
		return true;
	}
	if (!load(stream, name, group))
	{
		if (entry != NULL)
		{
			MemoryContextDelete(entry->group.context);
			hash_search(group_cache, &key, HASH_REMOVE, NULL);
		}
		return false;
	}

	entry = hash_search(group_cache, &key, HASH_ENTER, &found);
	if (found)
		MemoryContextDelete(entry->group.context);
	MemoryContextSetParent(group->context, TopMemoryContext);
	entry->group = *group;
	return true;
}

/* Find a group by name.  Raises SS002. */
void
group_lookup(const Stream *stream, const char *name, ConsumerGroup *group)
{
	if (!group_lookup_if_exists(stream, name, group))
		ereport(ERROR,
				(errcode(ERRCODE_GROUP_NOT_FOUND),
				 errmsg("consumer group \"%s\" of stream \"%s\" does not exist", stream_clip_name(name), stream->name),
				 errhint("Create it with sqlstreams.create_group().")));
}

/* Does the group get every message? */
bool
group_wants_all(const ConsumerGroup *group)
{
	return group->schema_version == 0 && group->routing.count == 0;
}

/*
 * Does the group get a message with this id, version and routing key (NULL:
 * none)?
 */
bool
group_wants(const ConsumerGroup *group, int64 message_id, int32 schema_version, const text *routing_key)
{
	if (message_id <= group->head_id && !id_set_contains(&group->missing, message_id))
		return false;
	return (group->schema_version == 0 || group->schema_version == schema_version) &&
		routing_matches(&group->routing, routing_key);
}

/* The policy for a message with a key that asks for one, or for none. */
Concurrency
group_concurrency(const ConsumerGroup *group, Concurrency asked)
{
	return concurrency_first(concurrency_first(group->concurrency_override, asked),
							 concurrency_first(group->concurrency, CONCURRENCY_PARALLEL));
}

/* SQL cannot name the lock. */
static void
set_lock_tag(int64 group_id, LOCKTAG *tag)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, stream_config_table_oid("consumer_group"),
					   (uint32) group_id, (uint16) (group_id >> 32));
}

/* Take the lock of a group; says whether it was had. */
static bool
take_lock(int64 group_id, bool wait)
{
	LOCKTAG		tag;
	ResourceOwner old = CurrentResourceOwner;
	bool		has_it;

	set_lock_tag(group_id, &tag);
	CurrentResourceOwner = TopTransactionResourceOwner;
	has_it = LockAcquire(&tag, ExclusiveLock, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
	CurrentResourceOwner = old;
	return has_it;
}

/*
 * Take the group's lock until the transaction ends.  It is held by the top
 * transaction, since a cursor's portal or a savepoint would give it up while
 * what was claimed lives on.  Takes in invalidations, so that the caller can see
 * whether the group has changed.
 */
void
group_lock(const ConsumerGroup *group)
{
	(void) take_lock(group->group_id, true);
	AcceptInvalidationMessages();
}

/*
 * Take the lock of a group, which may be one that was dropped, until the
 * transaction ends; false when somebody has it.
 */
bool
group_lock_if_free(int64 group_id)
{
	return take_lock(group_id, false);
}

/* Give the group's lock back, under which nothing was written. */
void
group_unlock(const ConsumerGroup *group)
{
	LOCKTAG		tag;
	ResourceOwner old = CurrentResourceOwner;

	set_lock_tag(group->group_id, &tag);
	CurrentResourceOwner = TopTransactionResourceOwner;
	(void) LockRelease(&tag, ExclusiveLock, false);
	CurrentResourceOwner = old;
}
