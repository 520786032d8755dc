/*
 * state_walk.c
 *		Going through a whole state table, a piece at a time.
 *
 * A walk goes by the primary key.  A piece of it is so many entries of the index,
 * those of dead rows included: while an old snapshot keeps them there may be
 * millions between two rows, and a piece must not take long.  So a piece may end
 * at a dead row; the next one goes on after it.
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "state_walk.h"

/* A scan key for a primary key of one column that is greater than a value. */
static void
init_key_after(ScanKey key, Relation index, Datum after)
{
	Oid			type = index->rd_opcintype[0];
	Oid			operator = get_opfamily_member(index->rd_opfamily[0], type, type, BTGreaterStrategyNumber);

	ScanKeyEntryInitialize(key, 0, 1, BTGreaterStrategyNumber, InvalidOid, index->rd_indcollation[0],
						   get_opcode(operator), after);
}

/* A scan key for a primary key of several columns that is greater than these values. */
static void
init_row_after(ScanKey key, ScanKey members, Relation index, const Datum *after)
{
	int			count = IndexRelationGetNumberOfKeyAttributes(index);

	for (int i = 0; i < count; i++)
		ScanKeyEntryInitializeWithInfo(&members[i], SK_ROW_MEMBER | (i == count - 1 ? SK_ROW_END : 0), i + 1,
									   BTGreaterStrategyNumber, InvalidOid, index->rd_indcollation[i],
									   index_getprocinfo(index, i + 1, BTORDER_PROC), after[i]);
	memset(key, 0, sizeof(ScanKeyData));
	key->sk_flags = SK_ROW_HEADER;
	key->sk_attno = 1;
	key->sk_strategy = BTGreaterStrategyNumber;
	key->sk_argument = PointerGetDatum(members);
}

/*
 * Begin a piece of the walk after the row whose primary key has these values,
 * which are kept by the caller until state_walk_end; NULL: at the start.  The
 * snapshot says which rows are shown.
 */
void
state_walk_begin(StateWalk *walk, StateTable *table, Snapshot snapshot, const Datum *after, int64 max_entries)
{
	memset(walk, 0, sizeof(StateWalk));
	walk->table = table;
	walk->snapshot = snapshot;
	walk->context = CurrentMemoryContext;
	walk->entries_left = max_entries;
	walk->index = index_open(state_table_primary_key(table), AccessShareLock);
	walk->slot = table_slot_create(table->rel, NULL);
	walk->scan = COMPAT_INDEX_BEGINSCAN(table->rel, walk->index, SnapshotAny, after != NULL ? 1 : 0);
	if (after != NULL && IndexRelationGetNumberOfKeyAttributes(walk->index) == 1)
		init_key_after(&walk->key, walk->index, after[0]);
	else if (after != NULL)
		init_row_after(&walk->key, walk->members, walk->index, after);
	index_rescan(walk->scan, &walk->key, after != NULL ? 1 : 0, NULL, 0);
}

/*
 * The next row, valid until the next call; NULL when there is none or when the
 * piece is at its end.
 */
HeapTuple
state_walk_next(StateWalk *walk)
{
	MemoryContext old = MemoryContextSwitchTo(walk->context);
	HeapTuple	tuple = NULL;

	while (tuple == NULL && !walk->is_at_end && walk->entries_left > 0)
	{
		CHECK_FOR_INTERRUPTS();
		walk->entries_left--;
		walk->is_at_end = !index_getnext_slot(walk->scan, ForwardScanDirection, walk->slot);
		if (!walk->is_at_end && table_tuple_satisfies_snapshot(walk->table->rel, walk->slot, walk->snapshot))
			tuple = ExecFetchSlotHeapTuple(walk->slot, false, NULL);
	}
	MemoryContextSwitchTo(old);
	return tuple;
}

/* End the piece. */
void
state_walk_end(StateWalk *walk)
{
	index_endscan(walk->scan);
	ExecDropSingleTupleTableSlot(walk->slot);
	index_close(walk->index, AccessShareLock);
}
