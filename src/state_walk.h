/*
 * state_walk.h
 *		Going through a whole state table, a piece at a time.
 */
#ifndef SQLSTREAMS_STATE_WALK_H
#define SQLSTREAMS_STATE_WALK_H

#include "state_table.h"

/* One piece. */
typedef struct StateWalk
{
	StateTable *table;
	Snapshot	snapshot;
	MemoryContext context;		/* of what lives as long as the piece */
	Relation	index;
	IndexScanDesc scan;
	ScanKeyData key;			/* these two: where the piece began */
	ScanKeyData members[INDEX_MAX_KEYS];
	TupleTableSlot *slot;		/* where the walk is, at a row or at a dead one */
	int64		entries_left;
	bool		is_at_end;		/* of the table */
} StateWalk;

extern void state_walk_begin(StateWalk *walk, StateTable *table, Snapshot snapshot,
							 const Datum *after, int64 max_entries);
extern HeapTuple state_walk_next(StateWalk *walk);
extern void state_walk_end(StateWalk *walk);

#endif							/* SQLSTREAMS_STATE_WALK_H */
