/*
 * exception.c
 *		Messages that a group has to come back to, or has given up.
 *
 * A message of the log that was acked leaves no trace.  Any other way in which
 * a delivery can end makes the message an exception, a row of its own: ready
 * to be delivered again when it is due, in flight while a claim holds it, or
 * dead.  Rows are replaced by one with a higher version, never updated, and read
 * from the end of the index: the dead versions of a message that fails again and
 * again are not in the way.
 *
 * Whose row it is: one in flight is its claim's (lease.c).  Ready rows are
 * inserted by whoever resolves, and deleted only under the group's lock; dead
 * ones by who gets there first.
 *
 * A claim reads the ready rows in the order in which they are due, from the
 * point that the cursor keeps: rows that were delivered leave dead entries
 * before it.  No row may come in before that point unseen, although those who
 * resolve never take the group's lock:
 *
 *		- a row is in the table soon after its due time, or it is inserted again
 *		  with a later one, in the end with one that leaves twice the time that this
 *		  takes; the point stays behind the clock by more than that;
 *		- claims see rows of open transactions and write their transactions into
 *		  the cursor.  When one has ended the point goes back to the first of its
 *		  rows;
 *		- a clock that was set back is overridden: no row is due before the point
 *		  that its transaction reads first.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/subtrans.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "duration.h"
#include "exception.h"
#include "lease.h"
#include "transaction.h"

#define Anum_exception_group_id		1
#define Anum_exception_message_id	2
#define Anum_exception_status		3
#define Anum_exception_due_at		4
#define Anum_exception_attempts		5
#define Anum_exception_delays		6
#define Anum_exception_takeovers	7
#define Anum_exception_suspect		8
#define Anum_exception_claim_id		9
#define Anum_exception_last_error	10
#define Anum_exception_updated_at	11
#define Anum_exception_version		12
#define EXCEPTION_COLUMNS			12

static const Oid exception_column_types[EXCEPTION_COLUMNS] = {
	INT8OID, INT8OID, CHAROID, TIMESTAMPTZOID, INT4OID, INT4OID, INT4OID,
	BOOLOID, INT8OID, TEXTOID, TIMESTAMPTZOID, INT8OID
};

/*
 * How far the point of the scan stays behind the clock.  Under an old snapshot
 * each claim meets the dead entries of that time.
 */
#define DUE_MARGIN_US (100 * 1000)

/* How late a row may come in. */
#define DUE_MAX_LATENESS_US (DUE_MARGIN_US / 2)

/*
 * What makes the ids of wake-ups for a rescan lower than those of others, which
 * are claim ids: they come first among those that are due.
 */
#define RESCAN_OFFSET (INT64CONST(1) << 53)

/* How many suspects one claim passes on its way to others. */
#define MAX_SUSPECTS_PASSED 1000

/* Open the table for writing.  Raises as lease_open does. */
void
exception_open(const Stream *stream, StateTable *table)
{
	if (!state_table_open(table, stream->exception_oid, exception_column_types, EXCEPTION_COLUMNS))
		stream_raise_table_missing(stream);
}

/* Open the table for reading; false when it does not exist, or was altered. */
bool
exception_open_to_read(const Stream *stream, StateTable *table)
{
	return state_table_open_to_read(table, stream->exception_oid, exception_column_types, EXCEPTION_COLUMNS);
}

/* The index by which exceptions are found by status and due time. */
static Oid
find_due_index(StateTable *table)
{
	static const AttrNumber columns[] = {
		Anum_exception_group_id, Anum_exception_status, Anum_exception_due_at, Anum_exception_message_id
	};

	return state_table_index_on(table, columns, lengthof(columns));
}

/* Copy an error, compressed if it is stored so: most who read a row only move it. */
static text *
copy_error(Datum value)
{
	struct varlena *stored = (struct varlena *) DatumGetPointer(value);
	struct varlena *fetched = detoast_external_attr(stored);

	if (fetched == stored)
		fetched = (struct varlena *) DatumGetPointer(datumCopy(value, false, -1));
	return (text *) fetched;
}

/* Fill an exception from its row; allocates in the current memory context. */
static void
fill_from_row(Exception *exception, StateTable *table, HeapTuple tuple)
{
	Datum		values[EXCEPTION_COLUMNS];
	bool		isnull[EXCEPTION_COLUMNS];

	state_table_read_row(table, tuple, values, isnull);
	memset(exception, 0, sizeof(Exception));
	exception->tid = tuple->t_self;
	exception->message_id = DatumGetInt64(values[Anum_exception_message_id - 1]);
	exception->status = (ExceptionStatus) DatumGetChar(values[Anum_exception_status - 1]);
	exception->due_at = DatumGetTimestampTz(values[Anum_exception_due_at - 1]);
	exception->attempts = DatumGetInt32(values[Anum_exception_attempts - 1]);
	exception->delays = DatumGetInt32(values[Anum_exception_delays - 1]);
	exception->takeovers = DatumGetInt32(values[Anum_exception_takeovers - 1]);
	exception->is_suspect = DatumGetBool(values[Anum_exception_suspect - 1]);
	if (!isnull[Anum_exception_claim_id - 1])
		exception->claim_id = DatumGetInt64(values[Anum_exception_claim_id - 1]);
	if (!isnull[Anum_exception_last_error - 1])
		exception->last_error = copy_error(values[Anum_exception_last_error - 1]);
	exception->updated_at = DatumGetTimestampTz(values[Anum_exception_updated_at - 1]);
	exception->version = DatumGetInt64(values[Anum_exception_version - 1]);
}

/* Begin to read the rows of a message. */
static void
begin_scan_of_message(StateScan *scan, StateTable *table, int64 group_id, int64 message_id, Snapshot snapshot)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], Anum_exception_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	ScanKeyInit(&keys[1], Anum_exception_message_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(message_id));
	state_scan_begin(scan, table, state_table_primary_key(table), snapshot, 2, keys);
}

/* Find the row of a message; false when the snapshot shows none. */
bool
exception_find(StateTable *table, int64 group_id, int64 message_id, Snapshot snapshot, Exception *exception)
{
	StateScan	scan;
	HeapTuple	tuple;
	bool		found;

	begin_scan_of_message(&scan, table, group_id, message_id, snapshot);
	tuple = state_scan_next(&scan, BackwardScanDirection);
	found = HeapTupleIsValid(tuple);
	if (found)
		fill_from_row(exception, table, tuple);
	state_scan_end(&scan);
	return found;
}

/* Insert a row.  A ready one only under the group's lock, due not earlier than now. */
void
exception_insert(StateTable *table, int64 group_id, Exception *exception)
{
	Datum		values[EXCEPTION_COLUMNS];
	bool		isnull[EXCEPTION_COLUMNS] = {false};

	values[Anum_exception_group_id - 1] = Int64GetDatum(group_id);
	values[Anum_exception_message_id - 1] = Int64GetDatum(exception->message_id);
	values[Anum_exception_status - 1] = CharGetDatum((char) exception->status);
	values[Anum_exception_due_at - 1] = TimestampTzGetDatum(exception->due_at);
	values[Anum_exception_attempts - 1] = Int32GetDatum(exception->attempts);
	values[Anum_exception_delays - 1] = Int32GetDatum(exception->delays);
	values[Anum_exception_takeovers - 1] = Int32GetDatum(exception->takeovers);
	values[Anum_exception_suspect - 1] = BoolGetDatum(exception->is_suspect);
	values[Anum_exception_claim_id - 1] = Int64GetDatum(exception->claim_id);
	isnull[Anum_exception_claim_id - 1] = exception->claim_id == 0;
	values[Anum_exception_last_error - 1] = PointerGetDatum(exception->last_error);
	isnull[Anum_exception_last_error - 1] = exception->last_error == NULL;
	values[Anum_exception_updated_at - 1] = TimestampTzGetDatum(exception->updated_at);
	values[Anum_exception_version - 1] = Int64GetDatum(++exception->version);
	exception->tid = state_table_insert(table, values, isnull);
}

/*
 * As exception_insert, for a message that should have no row.  One that was left
 * over goes: it must not make every claim of the group fail.
 */
void
exception_insert_first(StateTable *table, int64 group_id, Exception *exception)
{
	Exception	present;

	if (exception_find(table, group_id, exception->message_id, SnapshotSelf, &present))
		(void) exception_delete(table, &present, false);
	exception_insert(table, group_id, exception);
}

/* Insert a row that is ready after a delay, as is said above. */
static void
insert_when_ready(StateTable *table, int64 group_id, Exception *exception,
				  int64 delay_us, TimestampTz not_before)
{
	exception->status = EXCEPTION_READY;
	for (int attempt = 1;; attempt++)
	{
		TimestampTz inserted_at;

		exception->updated_at = GetCurrentTimestamp();
		exception->due_at = Max(duration_add(exception->updated_at, delay_us), not_before);
		exception_insert(table, group_id, exception);
		inserted_at = GetCurrentTimestamp();
		if (inserted_at - exception->due_at <= DUE_MAX_LATENESS_US)
			return;

		/* a row that takes long to write, and not by chance, is due after that */
		if (attempt > 1)
			delay_us = Max(delay_us, 2 * (inserted_at - exception->updated_at));

		/* what this command inserted only a later one can delete */
		CommandCounterIncrement();
		(void) exception_delete(table, exception, true);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Insert a row that is ready after a delay, and not before a time: the point
 * that the group's cursor had after this transaction began.
 */
void
exception_insert_ready(StateTable *table, int64 group_id, Exception *exception,
					   int64 delay_us, TimestampTz not_before)
{
	exception->claim_id = 0;
	insert_when_ready(table, group_id, exception, delay_us, not_before);
}

/*
 * Insert a wake-up: the next claim looks at a key, or at those that a claim has
 * had (0: at all of the group).  is_rescan: messages wait for the key without its
 * row saying so.  Such a row has a negative id of its own; the key is its error.
 */
void
exception_insert_wakeup(StateTable *table, int64 group_id, int64 claim_id, text *key, bool is_rescan,
						TimestampTz not_before)
{
	Exception	wakeup = {
		.message_id = -lease_draw_claim_id() - (is_rescan ? RESCAN_OFFSET : 0),
		.claim_id = claim_id,
		.attempts = is_rescan ? 1 : 0,
		.last_error = key
	};

	insert_when_ready(table, group_id, &wakeup, 0, not_before);
}

/*
 * Delete a row; false when somebody else did, or with wait = false when an open
 * transaction has it.
 */
bool
exception_delete(StateTable *table, Exception *exception, bool wait)
{
	return state_table_delete(table, &exception->tid, wait) == TM_Ok;
}

/* Begin to read the rows of a group that have a status, by due time. */
static void
begin_status_scan(StateScan *scan, StateTable *table, int64 group_id, ExceptionStatus status, Snapshot snapshot)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], Anum_exception_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	ScanKeyInit(&keys[1], Anum_exception_status, BTEqualStrategyNumber, F_CHAREQ, CharGetDatum((char) status));
	state_scan_begin(scan, table, find_due_index(table), snapshot, lengthof(keys), keys);
}

/* Begin to read rows in the order of an index. */
static void
begin_scan(ExceptionScan *scan, StateTable *table, Oid index, Snapshot snapshot, int key_count, ScanKey keys)
{
	scan->table = table;
	scan->row_context = AllocSetContextCreate(CurrentMemoryContext, "sqlstreams exception",
											  ALLOCSET_SMALL_SIZES);
	state_scan_begin(&scan->scan, table, index, snapshot, key_count, keys);
}

/* Begin to read a group's exceptions that have a status, by due time. */
void
exception_scan_begin(ExceptionScan *scan, StateTable *table, int64 group_id,
					 ExceptionStatus status, Snapshot snapshot)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], Anum_exception_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	ScanKeyInit(&keys[1], Anum_exception_status, BTEqualStrategyNumber, F_CHAREQ, CharGetDatum((char) status));
	begin_scan(scan, table, find_due_index(table), snapshot, lengthof(keys), keys);
}

/* Begin to read a group's exceptions after an id, by id. */
void
exception_scan_ids_begin(ExceptionScan *scan, StateTable *table, int64 group_id,
						 int64 after_id, Snapshot snapshot)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], Anum_exception_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	ScanKeyInit(&keys[1], Anum_exception_message_id, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(after_id));
	begin_scan(scan, table, state_table_primary_key(table), snapshot, lengthof(keys), keys);
}

/*
 * Read the next exception; false when there is none.  What it points to is
 * valid until the next call.
 */
bool
exception_scan_next(ExceptionScan *scan, Exception *exception)
{
	HeapTuple	tuple = state_scan_next(&scan->scan, ForwardScanDirection);
	MemoryContext old;

	CHECK_FOR_INTERRUPTS();
	if (!HeapTupleIsValid(tuple))
		return false;
	MemoryContextReset(scan->row_context);
	old = MemoryContextSwitchTo(scan->row_context);
	fill_from_row(exception, scan->table, tuple);
	MemoryContextSwitchTo(old);
	return true;
}

/* End reading. */
void
exception_scan_end(ExceptionScan *scan)
{
	state_scan_end(&scan->scan);
	MemoryContextDelete(scan->row_context);
}

/*
 * Add a group's exceptions that have a status, of messages after an id, to a
 * summary, until it has max_count.
 */
void
exception_summarize(StateTable *table, int64 group_id, ExceptionStatus status,
					int64 after_id, int64 max_count, Snapshot snapshot, ExceptionSummary *summary)
{
	TupleDesc	desc = RelationGetDescr(table->rel);
	StateScan	scan;
	HeapTuple	tuple;

	begin_status_scan(&scan, table, group_id, status, snapshot);
	while (summary->count < max_count && (tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;
		int64		message_id = DatumGetInt64(heap_getattr(tuple, Anum_exception_message_id, desc, &isnull));
		TimestampTz due_at = DatumGetTimestampTz(heap_getattr(tuple, Anum_exception_due_at, desc, &isnull));

		CHECK_FOR_INTERRUPTS();
		if (message_id <= after_id)
			continue;
		if (summary->count == 0 || due_at < summary->first_due_at)
			summary->first_due_at = due_at;
		if (summary->count == 0 || message_id < summary->lowest_id)
			summary->lowest_id = message_id;
		summary->count++;
	}
	state_scan_end(&scan);
}

/*
 * Add the ids of a group's exceptions that have a status, of messages after an
 * id, to ids, which has room for max_count; false when there are more.
 */
bool
exception_collect_ids(StateTable *table, int64 group_id, ExceptionStatus status, int64 after_id,
					  Snapshot snapshot, int64 *ids, int64 *count, int64 max_count)
{
	TupleDesc	desc = RelationGetDescr(table->rel);
	StateScan	scan;
	HeapTuple	tuple;
	bool		has_room = true;

	begin_status_scan(&scan, table, group_id, status, snapshot);
	while (has_room && (tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;
		int64		message_id = DatumGetInt64(heap_getattr(tuple, Anum_exception_message_id, desc, &isnull));

		CHECK_FOR_INTERRUPTS();
		if (message_id <= after_id)
			continue;
		has_room = *count < max_count;
		if (has_room)
			ids[(*count)++] = message_id;
	}
	state_scan_end(&scan);
	return has_room;
}

/*
 * The lowest message after an id and up to another whose exception is not dead;
 * 0 when there is none.
 */
int64
exception_find_unresolved(StateTable *table, int64 group_id, int64 after_id, int64 to_id, Snapshot snapshot)
{
	TupleDesc	desc = RelationGetDescr(table->rel);
	StateScan	scan;
	ScanKeyData keys[3];
	HeapTuple	tuple;
	int64		found = 0;

	ScanKeyInit(&keys[0], Anum_exception_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	ScanKeyInit(&keys[1], Anum_exception_message_id, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(after_id));
	ScanKeyInit(&keys[2], Anum_exception_message_id, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(to_id));
	state_scan_begin(&scan, table, state_table_primary_key(table), snapshot, lengthof(keys), keys);
	while (found == 0 && (tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		if (DatumGetChar(heap_getattr(tuple, Anum_exception_status, desc, &isnull)) != EXCEPTION_DEAD)
			found = DatumGetInt64(heap_getattr(tuple, Anum_exception_message_id, desc, &isnull));
	}
	state_scan_end(&scan);
	return found;
}

/*
 * An open transaction that has inserted or deleted exceptions of messages after
 * *after_id and up to to_id, or invalid.  Moves *after_id up to the first of
 * these.
 */
static TransactionId
find_writer(StateTable *table, int64 group_id, int64 *after_id, int64 to_id)
{
	TupleDesc	desc = RelationGetDescr(table->rel);
	TransactionId writer = InvalidTransactionId;
	SnapshotData snapshot;
	ScanKeyData keys[3];
	StateScan	scan;
	HeapTuple	tuple;

	InitDirtySnapshot(snapshot);
	ScanKeyInit(&keys[0], Anum_exception_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	ScanKeyInit(&keys[1], Anum_exception_message_id, BTGreaterStrategyNumber, F_INT8GT, Int64GetDatum(*after_id));
	ScanKeyInit(&keys[2], Anum_exception_message_id, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(to_id));
	state_scan_begin(&scan, table, state_table_primary_key(table), &snapshot, lengthof(keys), keys);
	while (!TransactionIdIsValid(writer) && (tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		writer = TransactionIdIsValid(snapshot.xmin) ? snapshot.xmin : snapshot.xmax;
		if (!TransactionIdIsValid(writer))
			*after_id = DatumGetInt64(heap_getattr(tuple, Anum_exception_message_id, desc, &isnull));
	}
	state_scan_end(&scan);
	return writer;
}

/* Has an open transaction inserted or deleted exceptions of messages after an id, up to another? */
bool
exception_has_writers(StateTable *table, int64 group_id, int64 after_id, int64 to_id)
{
	return TransactionIdIsValid(find_writer(table, group_id, &after_id, to_id));
}

/*
 * The lowest message after an id and up to another of which that can be so; 0
 * when none is being changed.
 */
int64
exception_find_changing(StateTable *table, int64 group_id, int64 after_id, int64 to_id)
{
	return TransactionIdIsValid(find_writer(table, group_id, &after_id, to_id)) ? after_id + 1 : 0;
}

/*
 * Wait for the open transactions that have inserted or deleted exceptions of
 * messages after an id and up to another.
 */
void
exception_wait_for_writers(StateTable *table, int64 group_id, int64 after_id, int64 to_id)
{
	TransactionId writer;

	while (TransactionIdIsValid(writer = find_writer(table, group_id, &after_id, to_id)))
		XactLockTableWait(writer, NULL, NULL, XLTW_None);
}

/*
 * Forget the remembered writers that have ended, and go back to the first row
 * of each; says whether there were any.  What ended before is visible to a scan
 * that begins after.
 */
static bool
forget_ended_writers(GroupCursor *cursor)
{
	int			kept = 0;
	bool		has_ended;

	for (int i = 0; i < cursor->due_writer_count; i++)
	{
		DueWriter	writer = cursor->due_writers[i];

		if (transaction_is_in_progress(writer.id))
			cursor->due_writers[kept++] = writer;
		else
			cursor->due_from = Min(cursor->due_from, writer.from);
	}
	has_ended = kept < cursor->due_writer_count;
	cursor->due_writer_count = kept;
	return has_ended;
}

/*
 * Remember the transaction that inserted a row and is still open; false when
 * there is no room.
 */
static bool
remember_writer(GroupCursor *cursor, bool *cursor_changed, TransactionId xid, TimestampTz due_at)
{
	FullTransactionId id = transaction_full_id(SubTransGetTopmostTransaction(xid));
	DueWriter  *writer = cursor->due_writers;

	for (int i = 0; i < cursor->due_writer_count; i++, writer++)
	{
		if (FullTransactionIdEquals(writer->id, id))
		{
			writer->from = Min(writer->from, due_at);
			return true;
		}
	}
	if (cursor->due_writer_count == CURSOR_MAX_DUE_WRITERS)
		return false;
	writer->id = id;
	writer->from = due_at;
	cursor->due_writer_count++;
	*cursor_changed = true;
	return true;
}

/* A look for the exceptions that are due. */
typedef struct DueSearch
{
	StateTable *table;
	GroupCursor *cursor;
	bool	   *cursor_changed;
	SnapshotData snapshot;		/* shows rows of open transactions, too */
	bool		take_suspect;
	bool		has_suspect;	/* found one, and nothing else */
	int			suspects_passed;
	TimestampTz point;			/* of the first row that stays */
	DueException *found;
	int64		count;
	int64		capacity;
} DueSearch;

/* Does the search take a row that the scan has met? */
static bool
takes_row(DueSearch *search, TimestampTz due_at, bool is_suspect)
{
	if (TransactionIdIsValid(search->snapshot.xmin))
	{
		if (!remember_writer(search->cursor, search->cursor_changed, search->snapshot.xmin, due_at))
			search->point = Min(search->point, due_at);
		return false;
	}
	if (TransactionIdIsValid(search->snapshot.xmax))
	{
		search->point = Min(search->point, due_at);
		return false;
	}
	if (is_suspect && (!search->take_suspect || search->count > 0))
	{
		search->suspects_passed++;
		search->point = Min(search->point, due_at);
		return false;
	}
	return true;
}

/* Add a row to what was found. */
static void
add_found(DueSearch *search, int64 message_id, TimestampTz due_at)
{
	if (search->count == search->capacity)
	{
		search->capacity *= 2;
		search->found = repalloc_huge(search->found, sizeof(DueException) * search->capacity);
	}
	search->found[search->count].message_id = message_id;
	search->found[search->count++].due_at = due_at;
}

/* Look at a row; says whether there may be another to look at. */
static bool
look_at_row(DueSearch *search, HeapTuple tuple, int64 max_messages)
{
	TupleDesc	desc = RelationGetDescr(search->table->rel);
	bool		isnull;
	int64		message_id = DatumGetInt64(heap_getattr(tuple, Anum_exception_message_id, desc, &isnull));
	TimestampTz due_at = DatumGetTimestampTz(heap_getattr(tuple, Anum_exception_due_at, desc, &isnull));
	bool		is_suspect = DatumGetBool(heap_getattr(tuple, Anum_exception_suspect, desc, &isnull));

	if (takes_row(search, due_at, is_suspect))
	{
		add_found(search, message_id, due_at);
		search->has_suspect = is_suspect;
	}
	if (search->count < max_messages && !search->has_suspect &&
		search->suspects_passed < MAX_SUSPECTS_PASSED)
		return true;
	search->point = Min(search->point, due_at);
	return false;
}

/*
 * Find ready exceptions that are due, in that order; *count becomes how many.
 * Moves the cursor's point as if the caller took them all: it tells
 * exception_leave_due of each that it does not.  A suspect comes alone, if
 * take_suspect, or not at all.  Sets *cursor_changed when the cursor has to be
 * written even so.  The caller holds the group's lock.
 */
DueException *
exception_collect_due(StateTable *table, int64 group_id, GroupCursor *cursor, bool *cursor_changed,
					  TimestampTz now, int64 max_messages, bool take_suspect, int64 *count)
{
	DueSearch	search = {
		.table = table,
		.cursor = cursor,
		.cursor_changed = cursor_changed,
		.take_suspect = take_suspect,
		.point = now - DUE_MARGIN_US,
		.capacity = 64
	};
	ScanKeyData keys[4];
	StateScan	scan;
	HeapTuple	tuple;

	if (forget_ended_writers(cursor))
		*cursor_changed = true;
	search.found = palloc(sizeof(DueException) * search.capacity);
	if (!state_table_is_empty(table))
	{
		InitDirtySnapshot(search.snapshot);
		ScanKeyInit(&keys[0], Anum_exception_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
		ScanKeyInit(&keys[1], Anum_exception_status, BTEqualStrategyNumber, F_CHAREQ, CharGetDatum(EXCEPTION_READY));
		ScanKeyInit(&keys[2], Anum_exception_due_at, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
					TimestampTzGetDatum(cursor->due_from));
		ScanKeyInit(&keys[3], Anum_exception_due_at, BTLessEqualStrategyNumber, F_TIMESTAMPTZ_LE,
					TimestampTzGetDatum(now));
		state_scan_begin(&scan, table, find_due_index(table), &search.snapshot, lengthof(keys), keys);
		while ((tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL &&
			   look_at_row(&search, tuple, max_messages))
			CHECK_FOR_INTERRUPTS();
		state_scan_end(&scan);
	}
	cursor->due_from = Max(cursor->due_from, search.point);
	*count = search.count;
	return search.found;
}

/* Keep an exception that was found in sight of the next claim. */
void
exception_leave_due(GroupCursor *cursor, const DueException *exception)
{
	cursor->due_from = Min(cursor->due_from, exception->due_at);
}
