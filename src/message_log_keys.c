/*
 * message_log_keys.c
 *		Which of some keys have messages in the log.
 *
 * One partition after the other is opened, all keys are looked for in it, and its
 * lock is given back: there may be more partitions than a transaction can lock.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_collation.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "message_log_keys.h"

/* How many messages of a key that are not compacted are passed in a partition. */
#define MAX_PASSED 20

/*
 * Has a partition a compacted message of a key, after an id?  True also when that
 * takes too long to tell.
 */
static bool
may_have_compacted(IndexScanDesc scan, TupleTableSlot *slot, text *key, int64 after_id)
{
	int			passed_count = 0;
	ScanKeyData keys[2];
	bool		is_null = true;

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_TEXTEQ, PointerGetDatum(key));
	ScanKeyInit(&keys[1], 2, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(after_id));
	index_rescan(scan, keys, lengthof(keys), NULL, 0);
	while (is_null && index_getnext_slot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		if (passed_count++ == MAX_PASSED)
			return true;
		(void) slot_getattr(slot, Anum_log_compaction_rank, &is_null);
	}
	return !is_null;
}

/* Look for the keys that were not found yet in a partition. */
static void
find_in_partition(Relation rel, Oid index_oid, int64 after_id, SearchedKey *keys, int key_count)
{
	Relation	index = index_open(index_oid, AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan = COMPAT_INDEX_BEGINSCAN(rel, index, SnapshotSelf, 2);

	for (int i = 0; i < key_count; i++)
	{
		if (!keys[i].is_found)
			keys[i].is_found = may_have_compacted(scan, slot, keys[i].key, after_id);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
}

/*
 * Find the keys of which the log has compacted messages that were not purged, as
 * it is now.  A key counts as found when that cannot be told: where a partition
 * has lost its index on keys or does not have it yet, as during a restore, and
 * where there are many messages of the key that are not compacted.
 */
void
message_log_find_compacted(const Stream *stream, const StreamPartition *partitions, int partition_count,
						   SearchedKey *keys, int key_count)
{
	for (int i = 0; i < partition_count; i++)
	{
		Relation	rel;
		Oid			index;

		if (partition_last_id(stream, partitions[i].number) <= stream->purged_through)
			continue;
		rel = partition_open(stream, partitions[i].number, NULL, AccessShareLock);
		index = rel != NULL ? message_log_find_key_index(rel) : InvalidOid;
		if (OidIsValid(index))
			find_in_partition(rel, index, stream->purged_through, keys, key_count);
		for (int k = 0; k < key_count && !OidIsValid(index); k++)
			keys[k].is_found = true;
		if (rel != NULL)
			table_close(rel, AccessShareLock);
	}
}
