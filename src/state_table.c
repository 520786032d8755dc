/*
 * state_table.c
 *		Tables of ours whose rows are written often: direct access to them.
 *
 * Cursors, leases and keys are read and written without planner and executor,
 * by the functions that PostgreSQL uses for its own catalogs.  These know
 * plain tables with plain indexes only.  The tables belong to the stream's
 * owner, who may have added something to them that would be bypassed here; so
 * opening one checks that it is as it was made, and refuses it otherwise.
 *
 * Two tools keep what is written a thousand times a second cheap to find while
 * an old snapshot keeps dead versions alive: rows are replaced by inserting one
 * with a higher number in its key and deleting the one before, and they are
 * read from the end of the index.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "state_table.h"

/* Raise 55000 for a table that has been changed so that we cannot write it. */
static void
raise_altered(Relation rel, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" has been altered", RelationGetRelationName(rel)),
			 errdetail_internal("%s", detail),
			 errhint("Undo the change: this table holds internal state and is written without the executor.")));
}

/* Has the table the columns that it was made with? */
static bool
has_columns(Relation rel, const Oid *column_types, int column_count)
{
	TupleDesc	desc = RelationGetDescr(rel);

	if (rel->rd_rel->relkind != RELKIND_RELATION || rel->rd_rel->relam != HEAP_TABLE_AM_OID ||
		desc->natts < column_count)
		return false;
	for (int i = 0; i < column_count; i++)
	{
		if (TupleDescAttr(desc, i)->atttypid != column_types[i])
			return false;
	}
	for (int i = column_count; i < desc->natts; i++)
	{
		if (!TupleDescAttr(desc, i)->attisdropped)
			return false;
	}
	return true;
}

/* Raise 55000 if somebody put something on the table that we would bypass. */
static void
check_plain(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	if (rel->trigdesc != NULL)
		raise_altered(rel, _("It has triggers."));
	if (rel->rd_rel->relrowsecurity)
		raise_altered(rel, _("It has row-level security."));
	if (rel->rd_rules != NULL)
		raise_altered(rel, _("It has rules."));
	if (desc->constr != NULL && desc->constr->num_check > 0)
		raise_altered(rel, _("It has check constraints."));
	if (compat_has_generated_column(desc))
		raise_altered(rel, _("It has generated columns."));
}

/* Raise 55000 unless an index is one that plain insertion can fill. */
static void
check_plain_index(Relation rel, Relation index, IndexInfo *info)
{
	if (info->ii_Expressions != NIL || info->ii_Predicate != NIL ||
		info->ii_ExclusionOps != NULL || !index->rd_index->indimmediate)
		raise_altered(rel, psprintf(_("Index \"%s\" has expressions, a predicate, or is deferrable."),
									RelationGetRelationName(index)));
}

/* Open a state table for writing, with a lock that stays. */
static bool
open_to_write(StateTable *table, Oid oid, LOCKMODE lockmode, const Oid *column_types, int column_count)
{
	memset(table, 0, sizeof(StateTable));
	table->lock_at_close = NoLock;
	table->rel = OidIsValid(oid) ? try_table_open(oid, lockmode) : NULL;
	if (table->rel == NULL)
		return false;
	if (!has_columns(table->rel, column_types, column_count))
		raise_altered(table->rel, _("It has other columns than it was made with."));
	check_plain(table->rel);
	table->column_count = column_count;
	table->context = CurrentMemoryContext;
	return true;
}

/*
 * Open a state table for writing, keeping the lock until the transaction ends.
 * Returns false when it does not exist any more.  Raises 55000 when it was
 * altered.
 */
bool
state_table_open(StateTable *table, Oid oid, const Oid *column_types, int column_count)
{
	return open_to_write(table, oid, RowExclusiveLock, column_types, column_count);
}

/* As state_table_open, for a table that the caller has locked so. */
bool
state_table_open_locked(StateTable *table, Oid oid, const Oid *column_types, int column_count)
{
	return open_to_write(table, oid, NoLock, column_types, column_count);
}

/*
 * Open a state table for reading, with a lock that goes when it is closed.
 * Returns false when it does not exist, or has other columns than it should.
 */
bool
state_table_open_to_read(StateTable *table, Oid oid, const Oid *column_types, int column_count)
{
	memset(table, 0, sizeof(StateTable));
	table->lock_at_close = AccessShareLock;
	table->rel = OidIsValid(oid) ? try_table_open(oid, AccessShareLock) : NULL;
	if (table->rel == NULL)
		return false;
	table->column_count = column_count;
	if (has_columns(table->rel, column_types, column_count))
		return true;
	table_close(table->rel, AccessShareLock);
	return false;
}

/* Close a state table that was opened. */
void
state_table_close(StateTable *table)
{
	if (table->indexes != NULL)
		CatalogCloseIndexes(table->indexes);
	if (table->estate != NULL)
	{
		ExecCloseIndices(table->result_rel);
		ExecDropSingleTupleTableSlot(table->slot);
		FreeExecutorState(table->estate);
	}
	table_close(table->rel, table->lock_at_close);
}

/* Was nothing ever written to the table?  Cheaper than a scan. */
bool
state_table_is_empty(StateTable *table)
{
	return RelationGetNumberOfBlocks(table->rel) == 0;
}

/* The index of the table's primary key. */
Oid
state_table_primary_key(StateTable *table)
{
	Oid			index = COMPAT_PRIMARY_KEY_INDEX(table->rel);

	if (!OidIsValid(index))
		raise_altered(table->rel, _("Its primary key is missing."));
	return index;
}

/* The index on exactly these columns. */
Oid
state_table_index_on(StateTable *table, const AttrNumber *columns, int column_count)
{
	ListCell   *cell;

	foreach(cell, RelationGetIndexList(table->rel))
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);
		bool		matches = index->rd_index->indisvalid &&
			IndexRelationGetNumberOfKeyAttributes(index) == column_count;

		for (int i = 0; matches && i < column_count; i++)
			matches = index->rd_index->indkey.values[i] == columns[i];
		index_close(index, AccessShareLock);
		if (matches)
			return lfirst_oid(cell);
	}
	raise_altered(table->rel, _("One of its indexes is missing."));
	return InvalidOid;
}

/* The columns of a row. */
void
state_table_read_row(StateTable *table, HeapTuple tuple, Datum *values, bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(table->rel);
	Datum	   *all_values = palloc(sizeof(Datum) * desc->natts);
	bool	   *all_isnull = palloc(sizeof(bool) * desc->natts);

	heap_deform_tuple(tuple, desc, all_values, all_isnull);
	memcpy(values, all_values, sizeof(Datum) * table->column_count);
	memcpy(isnull, all_isnull, sizeof(bool) * table->column_count);
	pfree(all_values);
	pfree(all_isnull);
}

/* Put the columns of a row into a slot, nulls for columns that were dropped. */
static void
fill_slot(StateTable *table, TupleTableSlot *slot, const Datum *values, const bool *isnull)
{
	ExecClearTuple(slot);
	memset(slot->tts_isnull, true, sizeof(bool) * slot->tts_tupleDescriptor->natts);
	memcpy(slot->tts_values, values, sizeof(Datum) * table->column_count);
	memcpy(slot->tts_isnull, isnull, sizeof(bool) * table->column_count);
	ExecStoreVirtualTuple(slot);
}

/* Open the indexes, for as long as the table is open. */
static void
open_indexes(StateTable *table)
{
	MemoryContext old = MemoryContextSwitchTo(table->context);

	table->indexes = CatalogOpenIndexes(table->rel);
	MemoryContextSwitchTo(old);
	for (int i = 0; i < table->indexes->ri_NumIndices; i++)
		check_plain_index(table->rel, table->indexes->ri_IndexRelationDescs[i],
						  table->indexes->ri_IndexRelationInfo[i]);
}

/* Insert a row; returns its place. */
ItemPointerData
state_table_insert(StateTable *table, Datum *values, bool *isnull)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(table->rel), &TTSOpsVirtual);
	HeapTuple	tuple;
	ItemPointerData tid;

	fill_slot(table, slot, values, isnull);
	tuple = ExecCopySlotHeapTuple(slot);
	ExecDropSingleTupleTableSlot(slot);
	if (table->indexes == NULL)
		open_indexes(table);
	CatalogTupleInsertWithInfo(table->rel, tuple, table->indexes);
	tid = tuple->t_self;
	heap_freetuple(tuple);
	return tid;
}

/* Get what state_table_insert_unless_exists needs. */
static void
prepare_insert_unless_exists(StateTable *table)
{
	table->estate = CreateExecutorState();
	table->result_rel = makeNode(ResultRelInfo);
	table->slot = table_slot_create(table->rel, NULL);
	InitResultRelInfo(table->result_rel, table->rel, 0, NULL, 0);
	ExecOpenIndices(table->result_rel, true);
	(void) state_table_primary_key(table);
	for (int i = 0; i < table->result_rel->ri_NumIndices; i++)
		check_plain_index(table->rel, table->result_rel->ri_IndexRelationDescs[i],
						  table->result_rel->ri_IndexRelationInfo[i]);
}

/*
 * Insert a row unless one with its key exists; says whether it did, and sets
 * *place to that of the new row, or of the one that is in the way.  Waits for a
 * transaction that is inserting or deleting the key.  This is what INSERT ... ON
 * CONFLICT DO NOTHING does, at every isolation level.
 */
bool
state_table_insert_unless_exists(StateTable *table, Datum *values, bool *isnull,
								 ItemPointer place)
{
	TupleTableSlot *slot;
	bool		inserted = false;

	if (table->estate == NULL)
		prepare_insert_unless_exists(table);

	slot = table->slot;
	fill_slot(table, slot, values, isnull);
	slot->tts_tableOid = RelationGetRelid(table->rel);

	/* a conflict that shows only after the row is in takes it out again */
	while (!inserted &&
		   COMPAT_EXEC_CHECK_INDEX_CONSTRAINTS(table->result_rel, slot, table->estate, place))
	{
		uint32		token = SpeculativeInsertionLockAcquire(GetCurrentTransactionId());
		bool		conflict = false;

		table_tuple_insert_speculative(table->rel, slot, GetCurrentCommandId(true), 0, NULL, token);
		(void) compat_insert_index_tuples(table->result_rel, slot, table->estate, true, &conflict);
		table_tuple_complete_speculative(table->rel, slot, token, !conflict);
		SpeculativeInsertionLockRelease(GetCurrentTransactionId());
		inserted = !conflict;
		*place = slot->tts_tid;
		CHECK_FOR_INTERRUPTS();
	}
	ResetPerTupleExprContext(table->estate);
	return inserted;
}

/* Lock the row at a place until the transaction ends. */
static TM_Result
lock_row(StateTable *table, ItemPointer tid, Snapshot snapshot, LockTupleMode mode,
		 LockWaitPolicy wait_policy)
{
	TM_FailureData failure;
	TupleTableSlot *slot = table_slot_create(table->rel, NULL);
	TM_Result	result;

	result = table_tuple_lock(table->rel, tid, snapshot, slot, GetCurrentCommandId(true),
							  mode, wait_policy, 0, &failure);
	ExecDropSingleTupleTableSlot(slot);
	return result;
}

/*
 * Delete the row at a place.  With wait, waits for transactions that have
 * locked or changed it; without, returns TM_BeingModified when there is one.
 */
TM_Result
state_table_delete(StateTable *table, ItemPointer tid, bool wait)
{
	TM_FailureData failure;

	/*
	 * Deleting without waiting would give up for a lock of our own, too;
	 * locking does not.
	 */
	if (!wait)
	{
		TM_Result	result = lock_row(table, tid, SnapshotAny, LockTupleExclusive, LockWaitSkip);

		if (result != TM_Ok)
			return result == TM_WouldBlock ? TM_BeingModified : result;
	}
	return table_tuple_delete(table->rel, tid, GetCurrentCommandId(true),
							  InvalidSnapshot, InvalidSnapshot, true, &failure, false);
}

/* Lock the row at a place, waiting for others, until the transaction ends. */
TM_Result
state_table_lock(StateTable *table, ItemPointer tid, Snapshot snapshot, LockTupleMode mode)
{
	return lock_row(table, tid, snapshot, mode, LockWaitBlock);
}

/* As state_table_lock, but TM_WouldBlock when others have the row. */
TM_Result
state_table_lock_if_free(StateTable *table, ItemPointer tid, Snapshot snapshot, LockTupleMode mode)
{
	return lock_row(table, tid, snapshot, mode, LockWaitSkip);
}

/* Begin to look rows up by the first column of the primary key, a text. */
void
state_lookup_begin(StateLookup *lookup, StateTable *table, Snapshot snapshot)
{
	lookup->index = index_open(state_table_primary_key(table), AccessShareLock);
	lookup->scan = COMPAT_INDEX_BEGINSCAN(table->rel, lookup->index, snapshot, 1);
	lookup->slot = table_slot_create(table->rel, NULL);
}

/* Find the last row of a key; false when there is none. */
bool
state_lookup_find(StateLookup *lookup, text *key)
{
	ScanKeyData scan_key;

	ScanKeyInit(&scan_key, 1, BTEqualStrategyNumber, F_TEXTEQ, PointerGetDatum(key));
	index_rescan(lookup->scan, &scan_key, 1, NULL, 0);
	return index_getnext_slot(lookup->scan, BackwardScanDirection, lookup->slot);
}

/* End looking up. */
void
state_lookup_end(StateLookup *lookup)
{
	index_endscan(lookup->scan);
	ExecDropSingleTupleTableSlot(lookup->slot);
	index_close(lookup->index, AccessShareLock);
}

/* Begin to read rows in the order of an index.  Keys name table columns. */
void
state_scan_begin(StateScan *scan, StateTable *table, Oid index, Snapshot snapshot,
				 int key_count, ScanKey keys)
{
	scan->index = index_open(index, AccessShareLock);
	scan->scan = systable_beginscan_ordered(table->rel, scan->index, snapshot, key_count, keys);
}

/* The next row in that direction, or NULL; valid until the next call. */
HeapTuple
state_scan_next(StateScan *scan, ScanDirection direction)
{
	return systable_getnext_ordered(scan->scan, direction);
}

/* End reading. */
void
state_scan_end(StateScan *scan)
{
	systable_endscan_ordered(scan->scan);
	index_close(scan->index, AccessShareLock);
}

/*
 * Delete the rows of a group that nobody is changing.  The column with the
 * group's id is the first of the primary key.
 */
void
state_table_delete_of_group(StateTable *table, AttrNumber column, int64 group_id)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	StateScan	scan;
	ScanKeyData key;
	HeapTuple	tuple;

	ScanKeyInit(&key, column, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	state_scan_begin(&scan, table, state_table_primary_key(table), snapshot, 1, &key);
	while ((tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		(void) state_table_delete(table, &tuple->t_self, false);
		CHECK_FOR_INTERRUPTS();
	}
	state_scan_end(&scan);
	UnregisterSnapshot(snapshot);
}
