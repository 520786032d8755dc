/*
 * key_lease.c
 *		Which messages have the keys of a group.
 *
 * A row of message_key_lease_<id> names the messages to which a key was given
 * last, its holders.  Whether they still have it is not written here: they do
 * while they are open in their claim, and ordered ones as long as they are not
 * resolved.  So only claims write these rows, under the group's lock, and who
 * resolves a message frees its key without touching them.
 *
 * Rows are replaced by inserting a higher version, that of the cursor, and read
 * from the end of the index: dead versions of a hot key are not in the way.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "key_lease.h"

#define Anum_key_group_id		1
#define Anum_key_message_key	2
#define Anum_key_version		3
#define Anum_key_claim_id		4
#define Anum_key_ordered		5
#define Anum_key_holders		6
#define Anum_key_deferred		7
#define Anum_key_deferred_from	8
#define KEY_COLUMNS				8

static const Oid key_column_types[KEY_COLUMNS] = {
	INT8OID, TEXTOID, INT8OID, INT8OID, BOOLOID, INT8ARRAYOID, BOOLOID, INT8OID
};

/* Open the table for writing.  Raises as lease_open does. */
void
key_lease_open(const Stream *stream, StateTable *table)
{
	if (!state_table_open(table, stream->key_lease_oid, key_column_types, KEY_COLUMNS))
		stream_raise_table_missing(stream);
}

/* Open the table for reading; false when it does not exist, or was altered. */
bool
key_lease_open_to_read(const Stream *stream, StateTable *table)
{
	return state_table_open_to_read(table, stream->key_lease_oid, key_column_types, KEY_COLUMNS);
}

/* Fill a lease from its row; allocates in the current memory context. */
static void
fill_from_row(KeyLease *lease, StateTable *table, HeapTuple tuple)
{
	Datum		values[KEY_COLUMNS];
	bool		isnull[KEY_COLUMNS];
	Datum	   *holders;

	state_table_read_row(table, tuple, values, isnull);
	memset(lease, 0, sizeof(KeyLease));
	lease->tid = tuple->t_self;
	lease->key = DatumGetTextPCopy(values[Anum_key_message_key - 1]);
	lease->claim_id = DatumGetInt64(values[Anum_key_claim_id - 1]);
	lease->is_ordered = DatumGetBool(values[Anum_key_ordered - 1]);
	deconstruct_array(DatumGetArrayTypeP(values[Anum_key_holders - 1]), INT8OID, sizeof(int64),
					  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &holders, NULL, &lease->holder_count);
	lease->holders = palloc(sizeof(int64) * Max(lease->holder_count, 1));
	for (int i = 0; i < lease->holder_count; i++)
		lease->holders[i] = DatumGetInt64(holders[i]);
	lease->has_deferred = DatumGetBool(values[Anum_key_deferred - 1]);
	lease->deferred_from = DatumGetInt64(values[Anum_key_deferred_from - 1]);
}

/* Begin to read the rows of a key. */
static void
begin_scan_of_key(StateScan *scan, StateTable *table, int64 group_id, const text *key, Snapshot snapshot)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], Anum_key_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	ScanKeyInit(&keys[1], Anum_key_message_key, BTEqualStrategyNumber, F_TEXTEQ, PointerGetDatum(key));
	keys[1].sk_collation = C_COLLATION_OID;
	state_scan_begin(scan, table, state_table_primary_key(table), snapshot, 2, keys);
}

/* Find the row of a key; false when the snapshot shows none. */
bool
key_lease_find(StateTable *table, int64 group_id, const text *key, Snapshot snapshot, KeyLease *lease)
{
	StateScan	scan;
	HeapTuple	tuple;
	bool		found;

	begin_scan_of_key(&scan, table, group_id, key, snapshot);
	tuple = state_scan_next(&scan, BackwardScanDirection);
	found = HeapTupleIsValid(tuple);
	if (found)
		fill_from_row(lease, table, tuple);
	state_scan_end(&scan);
	return found;
}

/*
 * May messages wait for a key?  An open claim may be writing its row: then the
 * one before counts, too, for the claim may roll back.
 */
bool
key_lease_may_be_awaited(StateTable *table, int64 group_id, const text *key)
{
	SnapshotData snapshot;
	StateScan	scan;
	HeapTuple	tuple;
	bool		isnull;
	bool		is_awaited = false;

	InitDirtySnapshot(snapshot);
	begin_scan_of_key(&scan, table, group_id, key, &snapshot);
	do
	{
		tuple = state_scan_next(&scan, BackwardScanDirection);
		if (HeapTupleIsValid(tuple))
			is_awaited = DatumGetBool(heap_getattr(tuple, Anum_key_deferred, RelationGetDescr(table->rel), &isnull));
	} while (HeapTupleIsValid(tuple) && !is_awaited && TransactionIdIsValid(snapshot.xmin));
	state_scan_end(&scan);
	return is_awaited;
}

/* The index by which keys are found by the claim of their holders. */
static Oid
find_claim_index(StateTable *table)
{
	static const AttrNumber columns[] = {Anum_key_claim_id, Anum_key_deferred};

	return state_table_index_on(table, columns, lengthof(columns));
}

/* Begin to read the keys whose holders were delivered in a claim. */
static void
begin_scan_of_claim(StateScan *scan, StateTable *table, int64 claim_id, bool with_deferred_only,
					Snapshot snapshot)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], Anum_key_claim_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(claim_id));
	ScanKeyInit(&keys[1], Anum_key_deferred, BTEqualStrategyNumber, F_BOOLEQ, BoolGetDatum(true));
	state_scan_begin(scan, table, find_claim_index(table), snapshot, with_deferred_only ? 2 : 1, keys);
}

static bool
is_of_group(StateTable *table, HeapTuple tuple, int64 group_id)
{
	bool		isnull;

	return DatumGetInt64(heap_getattr(tuple, Anum_key_group_id, RelationGetDescr(table->rel), &isnull)) == group_id;
}

/* May messages wait for a key of a group whose holders were delivered in a claim? */
bool
key_lease_is_awaited(StateTable *table, int64 group_id, int64 claim_id, Snapshot snapshot)
{
	StateScan	scan;
	HeapTuple	tuple;

	begin_scan_of_claim(&scan, table, claim_id, true, snapshot);
	do
		tuple = state_scan_next(&scan, ForwardScanDirection);
	while (HeapTupleIsValid(tuple) && !is_of_group(table, tuple, group_id));
	state_scan_end(&scan);
	return HeapTupleIsValid(tuple);
}

/*
 * The keys of a group whose holders were delivered in a claim, all or those for
 * which messages may wait, as a list of KeyLease.
 */
List *
key_lease_list_of_claim(StateTable *table, int64 group_id, int64 claim_id, bool with_deferred_only,
						Snapshot snapshot)
{
	StateScan	scan;
	HeapTuple	tuple;
	List	   *leases = NIL;

	begin_scan_of_claim(&scan, table, claim_id, with_deferred_only, snapshot);
	while ((tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		KeyLease   *lease;

		CHECK_FOR_INTERRUPTS();
		if (!is_of_group(table, tuple, group_id))
			continue;
		lease = palloc(sizeof(KeyLease));
		fill_from_row(lease, table, tuple);
		leases = lappend(leases, lease);
	}
	state_scan_end(&scan);
	return leases;
}

/* The keys of a group for which messages may wait, as a list of KeyLease. */
List *
key_lease_list_of_group(StateTable *table, int64 group_id, Snapshot snapshot)
{
	StateScan	scan;
	ScanKeyData key;
	HeapTuple	tuple;
	List	   *leases = NIL;

	ScanKeyInit(&key, Anum_key_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	state_scan_begin(&scan, table, state_table_primary_key(table), snapshot, 1, &key);
	while ((tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		KeyLease   *lease = palloc(sizeof(KeyLease));

		CHECK_FOR_INTERRUPTS();
		fill_from_row(lease, table, tuple);
		if (lease->has_deferred)
			leases = lappend(leases, lease);
	}
	state_scan_end(&scan);
	return leases;
}

/*
 * Begin a piece of a walk over the rows of all groups, after the row with this
 * primary key (key NULL: at the start).
 */
void
key_lease_walk_begin(StateWalk *walk, StateTable *table, Snapshot snapshot, int64 group_id,
					 text *key, int64 version, int64 max_entries)
{
	Datum		after[] = {Int64GetDatum(group_id), PointerGetDatum(key), Int64GetDatum(version)};

	state_walk_begin(walk, table, snapshot, key != NULL ? after : NULL, max_entries);
}

/* The next row; false at the end of the piece. */
bool
key_lease_walk_next(StateWalk *walk, int64 *group_id, KeyLease *lease)
{
	HeapTuple	tuple = state_walk_next(walk);
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return false;
	*group_id = DatumGetInt64(heap_getattr(tuple, Anum_key_group_id, RelationGetDescr(walk->table->rel), &isnull));
	fill_from_row(lease, walk->table, tuple);
	return true;
}

/* Where the walk is: a copy of the key, and the rest of the primary key. */
text *
key_lease_walk_place(StateWalk *walk, int64 *group_id, int64 *version)
{
	bool		isnull;

	*group_id = DatumGetInt64(slot_getattr(walk->slot, Anum_key_group_id, &isnull));
	*version = DatumGetInt64(slot_getattr(walk->slot, Anum_key_version, &isnull));
	return DatumGetTextPCopy(slot_getattr(walk->slot, Anum_key_message_key, &isnull));
}

/* Insert the row of a key.  The version is higher than any before. */
void
key_lease_insert(StateTable *table, int64 group_id, int64 version, const KeyLease *lease)
{
	Datum		values[KEY_COLUMNS];
	bool		isnull[KEY_COLUMNS] = {false};
	Datum	   *holders = palloc(sizeof(Datum) * Max(lease->holder_count, 1));

	for (int i = 0; i < lease->holder_count; i++)
		holders[i] = Int64GetDatum(lease->holders[i]);
	values[Anum_key_group_id - 1] = Int64GetDatum(group_id);
	values[Anum_key_message_key - 1] = PointerGetDatum(lease->key);
	values[Anum_key_version - 1] = Int64GetDatum(version);
	values[Anum_key_claim_id - 1] = Int64GetDatum(lease->claim_id);
	values[Anum_key_ordered - 1] = BoolGetDatum(lease->is_ordered);
	values[Anum_key_holders - 1] = PointerGetDatum(construct_array(holders, lease->holder_count, INT8OID, sizeof(int64),
																   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	values[Anum_key_deferred - 1] = BoolGetDatum(lease->has_deferred);
	values[Anum_key_deferred_from - 1] = Int64GetDatum(lease->deferred_from);
	(void) state_table_insert(table, values, isnull);
}

/* Delete the row that was read.  The caller holds the group's lock. */
void
key_lease_delete(StateTable *table, const KeyLease *lease)
{
	ItemPointerData tid = lease->tid;

	(void) state_table_delete(table, &tid, true);
}

/* Delete the rows of a group that is being dropped. */
void
key_lease_delete_of_group(StateTable *table, int64 group_id)
{
	state_table_delete_of_group(table, Anum_key_group_id, group_id);
}
