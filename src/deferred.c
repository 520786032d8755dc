/*
 * deferred.c
 *		The messages that wait for their keys.
 *
 * A message is deferred by a claim, under the group's lock, which is also the
 * only one to take it out again.  A holder that fails defers later messages of
 * its own claim without that lock, and wakes the next claim (key_wakeup.c): until
 * it commits, these rows are passed over.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "deferred.h"

#define Anum_deferred_group_id		1
#define Anum_deferred_message_key	2
#define Anum_deferred_message_id	3
#define DEFERRED_COLUMNS			3

static const Oid deferred_column_types[DEFERRED_COLUMNS] = {
	INT8OID, TEXTOID, INT8OID
};

/* Open the table for writing.  Raises as lease_open does. */
void
deferred_open(const Stream *stream, StateTable *table)
{
	if (!state_table_open(table, stream->deferred_oid, deferred_column_types, DEFERRED_COLUMNS))
		stream_raise_table_missing(stream);
}

/* Let a message wait for its key. */
void
deferred_insert(StateTable *table, int64 group_id, text *key, int64 message_id)
{
	Datum		values[DEFERRED_COLUMNS] = {Int64GetDatum(group_id), PointerGetDatum(key), Int64GetDatum(message_id)};
	bool		isnull[DEFERRED_COLUMNS] = {false};
	ItemPointerData existing;

	(void) state_table_insert_unless_exists(table, values, isnull, &existing);
}

/* Begin to read the rows of a key from an id on. */
static void
begin_scan_of_key(StateScan *scan, StateTable *table, int64 group_id, const text *key, int64 from_id,
				  Snapshot snapshot)
{
	ScanKeyData keys[3];

	ScanKeyInit(&keys[0], Anum_deferred_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	ScanKeyInit(&keys[1], Anum_deferred_message_key, BTEqualStrategyNumber, F_TEXTEQ, PointerGetDatum(key));
	keys[1].sk_collation = C_COLLATION_OID;
	ScanKeyInit(&keys[2], Anum_deferred_message_id, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from_id));
	state_scan_begin(scan, table, state_table_primary_key(table), snapshot, 3, keys);
}

/*
 * Find the first message from an id on that waits for a key; false when there
 * is none.  Sees what the running command has written, and not what others
 * have not committed.
 */
bool
deferred_find_first(StateTable *table, int64 group_id, const text *key, int64 from_id,
					int64 *message_id, ItemPointer tid)
{
	SnapshotData snapshot;
	StateScan	scan;
	HeapTuple	tuple;
	bool		isnull;

	if (state_table_is_empty(table))
		return false;
	InitDirtySnapshot(snapshot);
	begin_scan_of_key(&scan, table, group_id, key, from_id, &snapshot);
	do
		tuple = state_scan_next(&scan, ForwardScanDirection);
	while (HeapTupleIsValid(tuple) && TransactionIdIsValid(snapshot.xmin));
	if (HeapTupleIsValid(tuple))
	{
		*message_id = DatumGetInt64(heap_getattr(tuple, Anum_deferred_message_id, RelationGetDescr(table->rel), &isnull));
		*tid = tuple->t_self;
	}
	state_scan_end(&scan);
	return HeapTupleIsValid(tuple);
}

/* A message waits no longer. */
void
deferred_delete(StateTable *table, ItemPointer tid)
{
	(void) state_table_delete(table, tid, true);
}

/*
 * Delete the rows of a key up to an id, of purged messages, which claims pass
 * over; *rows_left says how many may be deleted.  Says whether the key has none
 * any more, nor may an open transaction leave it one.
 */
bool
deferred_delete_through(StateTable *table, int64 group_id, const text *key, int64 through, int64 *rows_left)
{
	SnapshotData snapshot;
	StateScan	scan;
	HeapTuple	tuple;
	bool		has_none = true;

	if (state_table_is_empty(table))
		return true;
	InitDirtySnapshot(snapshot);
	begin_scan_of_key(&scan, table, group_id, key, 0, &snapshot);
	while (has_none && (tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;
		int64		message_id = DatumGetInt64(heap_getattr(tuple, Anum_deferred_message_id,
															RelationGetDescr(table->rel), &isnull));

		has_none = message_id <= through && (*rows_left)-- > 0 &&
			!TransactionIdIsValid(snapshot.xmin) && !TransactionIdIsValid(snapshot.xmax) &&
			state_table_delete(table, &tuple->t_self, false) == TM_Ok;
	}
	state_scan_end(&scan);
	return has_none;
}

/* Delete the rows of a group that is being dropped. */
void
deferred_delete_of_group(StateTable *table, int64 group_id)
{
	state_table_delete_of_group(table, Anum_deferred_group_id, group_id);
}
