/*
 * cursor.c
 *		How far a consumer group has claimed, and what its next claim must know.
 *
 * A group has one visible row in group_cursor_<id>.  Each claim inserts a row
 * with the next version and deletes the one before, and reads from the end of
 * the index: so the first row that a scan meets is the newest, however many
 * dead versions an old snapshot keeps alive below it.
 *
 * Read and written under the group's lock (group_lock); created with the group.
 * Its hints are lower bounds that only the holder of that lock moves.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

#include "cursor.h"
#include "state_table.h"

#define Anum_cursor_group_id		1
#define Anum_cursor_version			2
#define Anum_cursor_claimed			3
#define Anum_cursor_lease_scan_from 4
#define Anum_cursor_recheck_at		5
#define Anum_cursor_stepped_over	6
#define Anum_cursor_fence_last		7
#define Anum_cursor_fence_holders	8
#define Anum_cursor_fence_system	9
#define Anum_cursor_fence_database	10
#define Anum_cursor_last_claim_at	11
#define Anum_cursor_due_from		12
#define Anum_cursor_due_writers		13
#define Anum_cursor_due_writers_from 14
#define Anum_cursor_filled_by_due	15
#define Anum_cursor_superseded		16
#define CURSOR_COLUMNS				16

static const Oid cursor_column_types[CURSOR_COLUMNS] = {
	INT8OID, INT8OID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8ARRAYOID,
	INT8OID, XID8ARRAYOID, INT8OID, OIDOID, TIMESTAMPTZOID,
	TIMESTAMPTZOID, XID8ARRAYOID, TIMESTAMPTZARRAYOID, BOOLOID, INT8OID
};

/* The longest array of a row but for the holders of the fence. */
#define CURSOR_MAX_ELEMENTS Max(CURSOR_MAX_STEPPED_OVER, CURSOR_MAX_DUE_WRITERS)

/* Open the table.  A group's tables go only with its stream. */
static void
open_table(const Stream *stream, StateTable *table)
{
	if (!state_table_open(table, stream->cursor_oid, cursor_column_types, CURSOR_COLUMNS))
		stream_raise_table_missing(stream);
}

/* Make an array of 8-byte values that are passed by value. */
static Datum
make_array(Datum *elements, int count, Oid type)
{
	return PointerGetDatum(construct_array(elements, count, type, sizeof(int64),
										   FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static Datum *
read_array(Datum array, Oid type, int *count)
{
	Datum	   *elements;

	deconstruct_array(DatumGetArrayTypeP(array), type, sizeof(int64),
					  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &elements, NULL, count);
	return elements;
}

/* Set the columns for the writers of exceptions, NULL when there are none. */
static void
fill_due_writers(const GroupCursor *cursor, Datum *elements, Datum *values, bool *isnull)
{
	isnull[Anum_cursor_due_writers - 1] = cursor->due_writer_count == 0;
	isnull[Anum_cursor_due_writers_from - 1] = cursor->due_writer_count == 0;
	if (cursor->due_writer_count == 0)
		return;
	for (int i = 0; i < cursor->due_writer_count; i++)
		elements[i] = FullTransactionIdGetDatum(cursor->due_writers[i].id);
	values[Anum_cursor_due_writers - 1] = make_array(elements, cursor->due_writer_count, XID8OID);
	for (int i = 0; i < cursor->due_writer_count; i++)
		elements[i] = TimestampTzGetDatum(cursor->due_writers[i].from);
	values[Anum_cursor_due_writers_from - 1] = make_array(elements, cursor->due_writer_count, TIMESTAMPTZOID);
}

/* Set the columns of a row from a cursor. */
static void
fill_row(int64 group_id, const GroupCursor *cursor, Datum *values, bool *isnull)
{
	Datum	   *elements = palloc(sizeof(Datum) * Max(cursor->fence.holder_count, CURSOR_MAX_ELEMENTS));

	memset(isnull, 0, sizeof(bool) * CURSOR_COLUMNS);
	values[Anum_cursor_group_id - 1] = Int64GetDatum(group_id);
	values[Anum_cursor_version - 1] = Int64GetDatum(cursor->version);
	values[Anum_cursor_claimed - 1] = Int64GetDatum(cursor->claimed);
	values[Anum_cursor_lease_scan_from - 1] = TimestampTzGetDatum(cursor->lease_scan_from);
	values[Anum_cursor_recheck_at - 1] = TimestampTzGetDatum(cursor->recheck_at);
	for (int i = 0; i < cursor->stepped_over_count; i++)
		elements[i] = Int64GetDatum(cursor->stepped_over[i]);
	values[Anum_cursor_stepped_over - 1] = make_array(elements, cursor->stepped_over_count, INT8OID);
	values[Anum_cursor_fence_last - 1] = Int64GetDatum(cursor->fence.last);
	for (int i = 0; i < cursor->fence.holder_count; i++)
		elements[i] = FullTransactionIdGetDatum(cursor->fence.holders[i]);
	values[Anum_cursor_fence_holders - 1] = make_array(elements, cursor->fence.holder_count, XID8OID);
	values[Anum_cursor_fence_system - 1] = Int64GetDatum((int64) cursor->fence.system_identifier);
	values[Anum_cursor_fence_database - 1] = ObjectIdGetDatum(cursor->fence.database);
	values[Anum_cursor_last_claim_at - 1] = TimestampTzGetDatum(cursor->last_claim_at);
	isnull[Anum_cursor_last_claim_at - 1] = cursor->last_claim_at == 0;
	values[Anum_cursor_due_from - 1] = TimestampTzGetDatum(cursor->due_from);
	fill_due_writers(cursor, elements, values, isnull);
	values[Anum_cursor_filled_by_due - 1] = BoolGetDatum(cursor->filled_by_due);
	values[Anum_cursor_superseded - 1] = Int64GetDatum(cursor->superseded);
	pfree(elements);
}

/* Set the writers of a cursor from two arrays. */
static void
read_due_writers(GroupCursor *cursor, Datum ids, Datum times)
{
	int			id_count;
	int			time_count;
	Datum	   *id_elements = read_array(ids, XID8OID, &id_count);
	Datum	   *time_elements = read_array(times, TIMESTAMPTZOID, &time_count);

	cursor->due_writer_count = Min(Min(id_count, time_count), CURSOR_MAX_DUE_WRITERS);
	for (int i = 0; i < cursor->due_writer_count; i++)
	{
		cursor->due_writers[i].id = DatumGetFullTransactionId(id_elements[i]);
		cursor->due_writers[i].from = DatumGetTimestampTz(time_elements[i]);
	}
}

/* Fill a cursor from a row; allocates the holders in the current context. */
static void
fill_cursor(GroupCursor *cursor, StateTable *table, HeapTuple tuple)
{
	Datum		values[CURSOR_COLUMNS];
	bool		isnull[CURSOR_COLUMNS];
	Datum	   *elements;

	state_table_read_row(table, tuple, values, isnull);
	memset(cursor, 0, sizeof(GroupCursor));
	cursor->tid = tuple->t_self;
	cursor->version = DatumGetInt64(values[Anum_cursor_version - 1]);
	cursor->claimed = DatumGetInt64(values[Anum_cursor_claimed - 1]);
	cursor->lease_scan_from = DatumGetTimestampTz(values[Anum_cursor_lease_scan_from - 1]);
	cursor->recheck_at = DatumGetTimestampTz(values[Anum_cursor_recheck_at - 1]);
	elements = read_array(values[Anum_cursor_stepped_over - 1], INT8OID, &cursor->stepped_over_count);
	cursor->stepped_over_count = Min(cursor->stepped_over_count, CURSOR_MAX_STEPPED_OVER);
	for (int i = 0; i < cursor->stepped_over_count; i++)
		cursor->stepped_over[i] = DatumGetInt64(elements[i]);
	cursor->fence.last = DatumGetInt64(values[Anum_cursor_fence_last - 1]);
	elements = read_array(values[Anum_cursor_fence_holders - 1], XID8OID, &cursor->fence.holder_count);
	cursor->fence.holders = palloc(sizeof(FullTransactionId) * Max(cursor->fence.holder_count, 1));
	for (int i = 0; i < cursor->fence.holder_count; i++)
		cursor->fence.holders[i] = DatumGetFullTransactionId(elements[i]);
	cursor->fence.system_identifier = (uint64) DatumGetInt64(values[Anum_cursor_fence_system - 1]);
	cursor->fence.database = DatumGetObjectId(values[Anum_cursor_fence_database - 1]);
	if (!isnull[Anum_cursor_last_claim_at - 1])
		cursor->last_claim_at = DatumGetTimestampTz(values[Anum_cursor_last_claim_at - 1]);
	cursor->due_from = DatumGetTimestampTz(values[Anum_cursor_due_from - 1]);
	if (!isnull[Anum_cursor_due_writers - 1] && !isnull[Anum_cursor_due_writers_from - 1])
		read_due_writers(cursor, values[Anum_cursor_due_writers - 1], values[Anum_cursor_due_writers_from - 1]);
	cursor->filled_by_due = DatumGetBool(values[Anum_cursor_filled_by_due - 1]);
	cursor->superseded = DatumGetInt64(values[Anum_cursor_superseded - 1]);
}

/* Insert a version of a group's cursor. */
static void
insert_row(StateTable *table, int64 group_id, const GroupCursor *cursor)
{
	Datum		values[CURSOR_COLUMNS];
	bool		isnull[CURSOR_COLUMNS];

	fill_row(group_id, cursor, values, isnull);
	(void) state_table_insert(table, values, isnull);
}

/* Give a new group its cursor, as if it had claimed every id up to "claimed". */
void
cursor_create(const Stream *stream, int64 group_id, int64 claimed)
{
	StateTable	table;
	GroupCursor cursor = {0};

	cursor.version = 1;
	cursor.claimed = claimed;
	cursor.lease_scan_from = DT_NOBEGIN;
	cursor.recheck_at = DT_NOBEGIN;
	cursor.due_from = DT_NOBEGIN;
	open_table(stream, &table);
	insert_row(&table, group_id, &cursor);
	state_table_close(&table);
}

/*
 * The last version of a group's cursor that this backend saw: looking only at
 * later ones keeps the scan from reading the dead versions on the same page.
 */
static int64 seen_group_id = 0;
static int64 seen_version = 0;

/* Find the visible version that is not below a version; false if there is none. */
static bool
find_version(StateTable *table, int64 group_id, int64 from_version, Snapshot snapshot, GroupCursor *cursor)
{
	StateScan	scan;
	ScanKeyData keys[2];
	HeapTuple	tuple;
	bool		found;

	ScanKeyInit(&keys[0], Anum_cursor_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	ScanKeyInit(&keys[1], Anum_cursor_version, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(from_version));
	state_scan_begin(&scan, table, state_table_primary_key(table), snapshot, 2, keys);
	tuple = state_scan_next(&scan, BackwardScanDirection);
	found = HeapTupleIsValid(tuple);
	if (found)
		fill_cursor(cursor, table, tuple);
	state_scan_end(&scan);
	return found;
}

/*
 * Read a group's cursor as the snapshot shows it; false when there is none.
 * Allocates in the current memory context.
 */
bool
cursor_read(const Stream *stream, int64 group_id, Snapshot snapshot, GroupCursor *cursor)
{
	StateTable	table;
	bool		found;

	if (!state_table_open_to_read(&table, stream->cursor_oid, cursor_column_types, CURSOR_COLUMNS))
		return false;

	/* what was seen may have been rolled back, or lie before a restore */
	found = (seen_group_id == group_id && find_version(&table, group_id, seen_version, snapshot, cursor)) ||
		find_version(&table, group_id, 0, snapshot, cursor);
	state_table_close(&table);
	if (found)
	{
		seen_group_id = group_id;
		seen_version = cursor->version;
	}
	return found;
}

/* Does a snapshot show a cursor of a group with an id between two others? */
static bool
exists_between(StateTable *table, int64 after_id, int64 before_id, Snapshot snapshot)
{
	StateScan	scan;
	ScanKeyData keys[2];
	bool		found;

	ScanKeyInit(&keys[0], Anum_cursor_group_id, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(after_id));
	ScanKeyInit(&keys[1], Anum_cursor_group_id, BTLessStrategyNumber, F_INT8LT, Int64GetDatum(before_id));
	state_scan_begin(&scan, table, state_table_primary_key(table), snapshot, 2, keys);
	found = HeapTupleIsValid(state_scan_next(&scan, ForwardScanDirection));
	state_scan_end(&scan);
	return found;
}

/*
 * Does a snapshot show a cursor of a group that is not among these, whose ids
 * rise?
 */
bool
cursor_exists_of_others(const Stream *stream, const int64 *group_ids, int count, Snapshot snapshot)
{
	StateTable	table;
	int64		after_id = 0;
	bool		found = false;

	if (!state_table_open_to_read(&table, stream->cursor_oid, cursor_column_types, CURSOR_COLUMNS))
		return false;
	for (int i = 0; i <= count && !found; i++)
	{
		int64		before_id = i < count ? group_ids[i] : PG_INT64_MAX;

		found = exists_between(&table, after_id, before_id, snapshot);
		after_id = before_id;
	}
	state_table_close(&table);
	return found;
}

/* Before what time the snapshot shows that no ready exception is due. */
TimestampTz
cursor_read_due_from(const Stream *stream, int64 group_id, Snapshot snapshot)
{
	GroupCursor cursor;

	return cursor_read(stream, group_id, snapshot, &cursor) ? cursor.due_from : DT_NOBEGIN;
}

/*
 * Read the cursor that a group must have, as it is now.  Raises
 * SS002 when the group was dropped meanwhile, 55000 when only its cursor is
 * missing.
 */
void
cursor_load(const Stream *stream, const ConsumerGroup *group, GroupCursor *cursor)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	bool		found = cursor_read(stream, group->group_id, snapshot, cursor);
	ConsumerGroup now;

	UnregisterSnapshot(snapshot);
	if (found)
		return;
	group_lookup(stream, group->name, &now);
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("consumer group \"%s\" of stream \"%s\" has no cursor", group->name, stream->name),
			 errhint("Wait for a running restore to end, or drop the group.")));
}

/* Replace the version that was read.  The caller holds the group's lock. */
void
cursor_write(const Stream *stream, int64 group_id, GroupCursor *cursor)
{
	StateTable	table;

	open_table(stream, &table);
	cursor->version++;
	insert_row(&table, group_id, cursor);
	if (state_table_delete(&table, &cursor->tid, true) != TM_Ok)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a row of table \"%s\" was changed by hand", RelationGetRelationName(table.rel)),
				 errhint("Retry, and leave this table to sqlstreams.")));
	state_table_close(&table);
}

/* Remove a group's cursor.  The caller holds the group's lock. */
void
cursor_delete(const Stream *stream, int64 group_id)
{
	GroupCursor cursor;
	StateTable	table;

	if (!cursor_read(stream, group_id, GetLatestSnapshot(), &cursor))
		return;
	open_table(stream, &table);
	(void) state_table_delete(&table, &cursor.tid, true);
	state_table_close(&table);
}
