/*
 * state_table.h
 *		Tables of ours whose rows are written often: direct access to them.
 */
#ifndef SQLSTREAMS_STATE_TABLE_H
#define SQLSTREAMS_STATE_TABLE_H

#include "postgres.h"

#include "access/genam.h"
#include "access/tableam.h"
#include "catalog/indexing.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

typedef struct StateTable
{
	Relation	rel;
	LOCKMODE	lock_at_close;	/* given up then */
	int			column_count;	/* without columns added and dropped again */
	MemoryContext context;		/* of what lives until the table is closed */
	CatalogIndexState indexes;	/* NULL until the first plain insert */
	struct EState *estate;		/* these three: NULL until the first insert
								 * that looks for its key before */
	struct ResultRelInfo *result_rel;
	struct TupleTableSlot *slot;
} StateTable;

/* Finds the last row of a key that a snapshot shows; for many keys. */
typedef struct StateLookup
{
	Relation	index;
	IndexScanDesc scan;
	struct TupleTableSlot *slot;	/* the row that was found */
} StateLookup;

typedef struct StateScan
{
	Relation	index;
	SysScanDesc scan;
} StateScan;

extern bool state_table_open(StateTable *table, Oid oid, const Oid *column_types, int column_count);
extern bool state_table_open_locked(StateTable *table, Oid oid, const Oid *column_types, int column_count);
extern bool state_table_open_to_read(StateTable *table, Oid oid, const Oid *column_types, int column_count);
extern void state_table_close(StateTable *table);
extern void state_table_read_row(StateTable *table, HeapTuple tuple, Datum *values, bool *isnull);
extern ItemPointerData state_table_insert(StateTable *table, Datum *values, bool *isnull);
extern bool state_table_insert_unless_exists(StateTable *table, Datum *values, bool *isnull,
											 ItemPointer place);
extern TM_Result state_table_delete(StateTable *table, ItemPointer tid, bool wait);
extern TM_Result state_table_lock(StateTable *table, ItemPointer tid, Snapshot snapshot,
								  LockTupleMode mode);
extern TM_Result state_table_lock_if_free(StateTable *table, ItemPointer tid, Snapshot snapshot,
										  LockTupleMode mode);
extern void state_lookup_begin(StateLookup *lookup, StateTable *table, Snapshot snapshot);
extern bool state_lookup_find(StateLookup *lookup, text *key);
extern void state_lookup_end(StateLookup *lookup);
extern void state_scan_begin(StateScan *scan, StateTable *table, Oid index,
							 Snapshot snapshot, int key_count, ScanKey keys);
extern HeapTuple state_scan_next(StateScan *scan, ScanDirection direction);
extern void state_scan_end(StateScan *scan);
extern bool state_table_is_empty(StateTable *table);
extern void state_table_delete_of_group(StateTable *table, AttrNumber column, int64 group_id);
extern Oid	state_table_primary_key(StateTable *table);
extern Oid	state_table_index_on(StateTable *table, const AttrNumber *columns, int column_count);

#endif							/* SQLSTREAMS_STATE_TABLE_H */
