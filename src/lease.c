/*
 * lease.c
 *		The messages that a group's claims hold, and until when.
 *
 * A claim is a row in claim_lease_<id> for each of its segments.  Messages
 * that are resolved one by one get a row in claim_resolved_<id>; a claim that
 * is resolved as a whole loses its rows.
 *
 * Who may touch a claim is settled on the row of its lowest segment, the
 * anchor, which goes last of all:
 *
 *		resolve some messages	lock it shared (many at once), add rows
 *		resolve the claim		delete it, waiting for those who share it
 *		extend					replace it, or give up at once
 *		take over (claim)		delete it, or step over the claim at once
 *
 * so that claims never wait for those who resolve, and a claim cannot be taken
 * over from its first ack to the end of that transaction.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "errors.h"
#include "lease.h"

#define Anum_lease_group_id		1
#define Anum_lease_claim_id		2
#define Anum_lease_segment		3
#define Anum_lease_expires_at	4
#define Anum_lease_claimed_at	5
#define Anum_lease_lease_us		6
#define Anum_lease_messages		7
#define Anum_lease_takeovers	8
#define Anum_lease_released		9
#define Anum_lease_first_id		10
#define Anum_lease_members		11
#define Anum_lease_consumer		12
#define Anum_lease_exceptions	13
#define Anum_lease_keys			14
#define LEASE_COLUMNS			14

static const Oid lease_column_types[LEASE_COLUMNS] = {
	INT8OID, INT8OID, INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID,
	INT4OID, INT4OID, BOOLOID, INT8OID, BYTEAOID, TEXTOID,
	BOOLOID, CHAROID
};

#define Anum_resolved_claim_id		1
#define Anum_resolved_message_id	2
#define RESOLVED_COLUMNS			2

static const Oid resolved_column_types[RESOLVED_COLUMNS] = {
	INT8OID, INT8OID
};

/* Claim ids are exact in a double. */
#define CLAIM_ID_BITS 53

/* Random numbers fetched at once: one costs hardly less than some. */
#define CLAIM_IDS_DRAWN 32

/*
 * Open the tables.  Raises SS001 when the stream was dropped meanwhile, 55000
 * when they are missing or were altered.
 */
void
lease_open(const Stream *stream, LeaseTables *tables)
{
	if (!state_table_open(&tables->leases, stream->lease_oid, lease_column_types, LEASE_COLUMNS) ||
		!state_table_open(&tables->resolved, stream->resolved_oid, resolved_column_types, RESOLVED_COLUMNS))
		stream_raise_table_missing(stream);
}

/* Close the tables; their locks stay until the transaction ends. */
void
lease_close(LeaseTables *tables)
{
	state_table_close(&tables->leases);
	state_table_close(&tables->resolved);
}

/*
 * Open the tables for reading; false when they do not exist, or are not as they
 * were made.
 */
bool
lease_open_to_read(const Stream *stream, LeaseTables *tables)
{
	if (!state_table_open_to_read(&tables->leases, stream->lease_oid, lease_column_types, LEASE_COLUMNS))
		return false;
	if (state_table_open_to_read(&tables->resolved, stream->resolved_oid, resolved_column_types, RESOLVED_COLUMNS))
		return true;
	state_table_close(&tables->leases);
	return false;
}

/* The index by which leases are found by their end. */
static Oid
find_expiry_index(LeaseTables *tables)
{
	static const AttrNumber columns[] = {
		Anum_lease_group_id, Anum_lease_expires_at, Anum_lease_claim_id, Anum_lease_segment
	};

	return state_table_index_on(&tables->leases, columns, lengthof(columns));
}

/* A new claim id, which nobody can guess and nothing brings back. */
int64
lease_draw_claim_id(void)
{
	static uint64 random[CLAIM_IDS_DRAWN];
	static int	left = 0;
	int64		claim_id;

	do
	{
		if (left == 0)
		{
			if (!pg_strong_random(random, sizeof(random)))
				ereport(ERROR,
						(errcode(ERRCODE_INTERNAL_ERROR),
						 errmsg("could not generate a claim id")));
			left = CLAIM_IDS_DRAWN;
		}
		claim_id = (int64) (random[--left] >> (64 - CLAIM_ID_BITS));
	} while (claim_id == 0);
	return claim_id;
}

/* Store a segment.  The caller sees to it that the cursor's hint is not later. */
void
lease_insert(LeaseTables *tables, int64 group_id, const LeaseSegment *segment)
{
	Datum		values[LEASE_COLUMNS];
	bool		isnull[LEASE_COLUMNS] = {false};

	values[Anum_lease_group_id - 1] = Int64GetDatum(group_id);
	values[Anum_lease_claim_id - 1] = Int64GetDatum(segment->claim_id);
	values[Anum_lease_segment - 1] = Int32GetDatum(segment->segment);
	values[Anum_lease_expires_at - 1] = TimestampTzGetDatum(segment->expires_at);
	values[Anum_lease_claimed_at - 1] = TimestampTzGetDatum(segment->claimed_at);
	values[Anum_lease_lease_us - 1] = Int64GetDatum(segment->lease_us);
	values[Anum_lease_messages - 1] = Int32GetDatum((int32) id_set_count(&segment->members));
	values[Anum_lease_takeovers - 1] = Int32GetDatum(segment->takeovers);
	values[Anum_lease_released - 1] = BoolGetDatum(segment->is_released);
	values[Anum_lease_first_id - 1] = Int64GetDatum(segment->members.runs[0].first);
	values[Anum_lease_members - 1] = PointerGetDatum(id_set_encode(&segment->members));
	isnull[Anum_lease_consumer - 1] = segment->consumer == NULL;
	values[Anum_lease_consumer - 1] = segment->consumer == NULL ? (Datum) 0 : CStringGetTextDatum(segment->consumer);
	values[Anum_lease_exceptions - 1] = BoolGetDatum(segment->has_exceptions);
	values[Anum_lease_keys - 1] = CharGetDatum((char) segment->keys);
	(void) state_table_insert(&tables->leases, values, isnull);
}

/* Remove a segment's row. */
TM_Result
lease_delete(LeaseTables *tables, LeaseSegment *segment, bool wait)
{
	return state_table_delete(&tables->leases, &segment->tid, wait);
}

/* Make a segment of a row, in the current memory context. */
static LeaseSegment *
make_segment(LeaseTables *tables, HeapTuple tuple)
{
	LeaseSegment *segment = palloc0(sizeof(LeaseSegment));
	Datum		values[LEASE_COLUMNS];
	bool		isnull[LEASE_COLUMNS];

	state_table_read_row(&tables->leases, tuple, values, isnull);
	segment->tid = tuple->t_self;
	segment->claim_id = DatumGetInt64(values[Anum_lease_claim_id - 1]);
	segment->segment = DatumGetInt32(values[Anum_lease_segment - 1]);
	segment->expires_at = DatumGetTimestampTz(values[Anum_lease_expires_at - 1]);
	segment->claimed_at = DatumGetTimestampTz(values[Anum_lease_claimed_at - 1]);
	segment->lease_us = DatumGetInt64(values[Anum_lease_lease_us - 1]);
	segment->takeovers = DatumGetInt32(values[Anum_lease_takeovers - 1]);
	segment->is_released = DatumGetBool(values[Anum_lease_released - 1]);
	id_set_decode(&segment->members, DatumGetInt64(values[Anum_lease_first_id - 1]),
				  DatumGetByteaPP(values[Anum_lease_members - 1]));
	if (!isnull[Anum_lease_consumer - 1])
		segment->consumer = TextDatumGetCString(values[Anum_lease_consumer - 1]);
	segment->has_exceptions = DatumGetBool(values[Anum_lease_exceptions - 1]);
	segment->keys = (LeaseKeys) DatumGetChar(values[Anum_lease_keys - 1]);
	return segment;
}

/* The place of the segment that has a message, or -1. */
int
lease_find_segment(List *segments, int64 message_id)
{
	for (int i = 0; i < list_length(segments); i++)
	{
		if (id_set_contains(&((LeaseSegment *) list_nth(segments, i))->members, message_id))
			return i;
	}
	return -1;
}

/* Does the snapshot show a claim? */
bool
lease_exists(LeaseTables *tables, int64 claim_id, Snapshot snapshot)
{
	StateScan	scan;
	ScanKeyData key;
	bool		found;

	ScanKeyInit(&key, Anum_lease_claim_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(claim_id));
	state_scan_begin(&scan, &tables->leases, state_table_primary_key(&tables->leases), snapshot, 1, &key);
	found = state_scan_next(&scan, ForwardScanDirection) != NULL;
	state_scan_end(&scan);
	return found;
}

/*
 * Is a claim there, without any transaction that has begun to replace or remove
 * it, or to resolve the message?
 */
bool
lease_is_held_for_sure(LeaseTables *tables, int64 claim_id, int64 message_id)
{
	SnapshotData snapshot;
	StateScan	scan;
	ScanKeyData key;
	bool		is_held;

	InitDirtySnapshot(snapshot);
	ScanKeyInit(&key, Anum_lease_claim_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(claim_id));
	state_scan_begin(&scan, &tables->leases, state_table_primary_key(&tables->leases), &snapshot, 1, &key);
	is_held = state_scan_next(&scan, ForwardScanDirection) != NULL &&
		!TransactionIdIsValid(snapshot.xmin) && !TransactionIdIsValid(snapshot.xmax);
	state_scan_end(&scan);
	return is_held && !lease_is_resolved(tables, claim_id, message_id, &snapshot);
}

/* The segments of a group's claim that the snapshot shows, the anchor first. */
List *
lease_load_claim(LeaseTables *tables, int64 group_id, int64 claim_id, Snapshot snapshot)
{
	StateScan	scan;
	ScanKeyData key;
	HeapTuple	tuple;
	List	   *segments = NIL;
	TupleDesc	desc = RelationGetDescr(tables->leases.rel);

	ScanKeyInit(&key, Anum_lease_claim_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(claim_id));
	state_scan_begin(&scan, &tables->leases, state_table_primary_key(&tables->leases), snapshot, 1, &key);
	while ((tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;

		if (DatumGetInt64(heap_getattr(tuple, Anum_lease_group_id, desc, &isnull)) == group_id)
			segments = lappend(segments, make_segment(tables, tuple));
	}
	state_scan_end(&scan);
	return segments;
}

/*
 * All segments of a group's claims that the snapshot shows, those of a claim
 * side by side with the anchor first.
 */
List *
lease_load_group(LeaseTables *tables, int64 group_id, Snapshot snapshot)
{
	StateScan	scan;
	ScanKeyData key;
	HeapTuple	tuple;
	List	   *segments = NIL;

	ScanKeyInit(&key, Anum_lease_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	state_scan_begin(&scan, &tables->leases, find_expiry_index(tables),
					 snapshot, 1, &key);
	while ((tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
		segments = lappend(segments, make_segment(tables, tuple));
	state_scan_end(&scan);
	return segments;
}

/* Begin to read the rows of a claim's resolved messages, in id order. */
static void
begin_resolved_scan(StateScan *scan, LeaseTables *tables, int64 claim_id, Snapshot snapshot)
{
	ScanKeyData key;

	ScanKeyInit(&key, Anum_resolved_claim_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(claim_id));
	state_scan_begin(scan, &tables->resolved, state_table_primary_key(&tables->resolved), snapshot, 1, &key);
}

/* The ids of a claim's messages that were resolved one by one, rising. */
int64 *
lease_load_resolved(LeaseTables *tables, int64 claim_id, Snapshot snapshot, int64 *count)
{
	StateScan	scan;
	HeapTuple	tuple;
	int64		capacity = 64;
	int64	   *ids = palloc(sizeof(int64) * capacity);

	*count = 0;
	begin_resolved_scan(&scan, tables, claim_id, snapshot);
	while ((tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;

		if (*count == capacity)
		{
			capacity *= 2;
			ids = repalloc_huge(ids, sizeof(int64) * capacity);
		}
		ids[(*count)++] = DatumGetInt64(heap_getattr(tuple, Anum_resolved_message_id,
													 RelationGetDescr(tables->resolved.rel), &isnull));
	}
	state_scan_end(&scan);
	return ids;
}

/* Take out of a segment's members what was resolved by itself. */
void
lease_subtract_resolved(LeaseTables *tables, LeaseSegment *segment, Snapshot snapshot)
{
	int64		count;
	int64	   *resolved = lease_load_resolved(tables, segment->claim_id, snapshot, &count);

	id_set_subtract(&segment->members, resolved, count);
	pfree(resolved);
}

/* Remove the rows of a claim's resolved messages, once the claim has gone. */
void
lease_delete_resolved(LeaseTables *tables, int64 claim_id)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	StateScan	scan;
	HeapTuple	tuple;

	begin_resolved_scan(&scan, tables, claim_id, snapshot);
	while ((tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
		(void) state_table_delete(&tables->resolved, &tuple->t_self, true);
	state_scan_end(&scan);
	UnregisterSnapshot(snapshot);
}

/*
 * Record that a message of a claim is resolved; false when it was already.
 * Waits for another transaction that is doing the same.
 */
bool
lease_insert_resolved(LeaseTables *tables, int64 claim_id, int64 message_id)
{
	Datum		values[RESOLVED_COLUMNS] = {Int64GetDatum(claim_id), Int64GetDatum(message_id)};
	bool		isnull[RESOLVED_COLUMNS] = {false};
	ItemPointerData existing;

	return state_table_insert_unless_exists(&tables->resolved, values, isnull, &existing);
}

/* Does the snapshot show that a message of a claim is resolved? */
bool
lease_is_resolved(LeaseTables *tables, int64 claim_id, int64 message_id, Snapshot snapshot)
{
	StateScan	scan;
	ScanKeyData keys[2];
	bool		found;

	ScanKeyInit(&keys[0], Anum_resolved_claim_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(claim_id));
	ScanKeyInit(&keys[1], Anum_resolved_message_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(message_id));
	state_scan_begin(&scan, &tables->resolved, state_table_primary_key(&tables->resolved), snapshot, 2, keys);
	found = state_scan_next(&scan, ForwardScanDirection) != NULL;
	state_scan_end(&scan);
	return found;
}

/*
 * Remove all rows of a claim, waiting for those who are resolving messages of
 * it, and return its segments without what is resolved.  NIL when the claim is
 * gone.
 */
List *
lease_remove_claim(LeaseTables *tables, int64 group_id, int64 claim_id)
{
	List	   *segments;
	ListCell   *cell;
	Snapshot	snapshot;
	int64	   *resolved;
	int64		resolved_count;

	/* when the anchor was replaced meanwhile, by extend, find the new one */
	do
	{
		snapshot = RegisterSnapshot(GetLatestSnapshot());
		segments = lease_load_claim(tables, group_id, claim_id, snapshot);
		UnregisterSnapshot(snapshot);
		if (segments == NIL)
			return NIL;
	} while (lease_delete(tables, linitial(segments), true) != TM_Ok);

	for_each_from(cell, segments, 1)
		(void) lease_delete(tables, lfirst(cell), true);

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	resolved = lease_load_resolved(tables, claim_id, snapshot, &resolved_count);
	UnregisterSnapshot(snapshot);
	foreach(cell, segments)
		id_set_subtract(&((LeaseSegment *) lfirst(cell))->members, resolved, resolved_count);
	if (resolved_count > 0)
		lease_delete_resolved(tables, claim_id);
	return segments;
}

/* Wait for those who are resolving messages of a claim, and keep others out. */
void
lease_wait_for_claim(LeaseTables *tables, int64 group_id, int64 claim_id)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	List	   *segments = lease_load_claim(tables, group_id, claim_id, snapshot);

	if (segments != NIL)
		(void) state_table_lock(&tables->leases, &((LeaseSegment *) linitial(segments))->tid,
								snapshot, LockTupleExclusive);
	UnregisterSnapshot(snapshot);
}

/* Keep others out of a claim; false when somebody is resolving messages of it. */
bool
lease_lock_claim_if_free(LeaseTables *tables, int64 group_id, int64 claim_id)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	List	   *segments = lease_load_claim(tables, group_id, claim_id, snapshot);
	bool		is_free = true;

	if (segments != NIL)
		is_free = state_table_lock_if_free(&tables->leases, &((LeaseSegment *) linitial(segments))->tid,
										   snapshot, LockTupleExclusive) != TM_WouldBlock;
	UnregisterSnapshot(snapshot);
	return is_free;
}

/* Move the point before which no live lease ends so that it is not later. */
void
lease_hint_not_after(GroupCursor *cursor, TimestampTz when)
{
	if (when < cursor->lease_scan_from)
		cursor->lease_scan_from = when;
}

/*
 * Put messages where the next claim takes them, as a claim of its own that
 * nobody holds.
 */
void
lease_put_back(LeaseTables *tables, int64 group_id, GroupCursor *cursor, LeaseSegment *segment)
{
	segment->claim_id = lease_draw_claim_id();
	segment->segment = 0;
	segment->is_released = true;
	lease_insert(tables, group_id, segment);
	lease_hint_not_after(cursor, segment->expires_at);
}

/* Begin to read the ends of a group's leases from a time on, up to another. */
void
lease_begin_ends(StateScan *scan, LeaseTables *tables, int64 group_id, TimestampTz from, TimestampTz to,
				 Snapshot snapshot)
{
	ScanKeyData keys[3];

	ScanKeyInit(&keys[0], Anum_lease_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	ScanKeyInit(&keys[1], Anum_lease_expires_at, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				TimestampTzGetDatum(from));
	ScanKeyInit(&keys[2], Anum_lease_expires_at, BTLessStrategyNumber, F_TIMESTAMPTZ_LT,
				TimestampTzGetDatum(to));
	state_scan_begin(scan, &tables->leases, find_expiry_index(tables), snapshot, lengthof(keys), keys);
}

/*
 * Read the next end, and of which claim; false when there is none.  Those of a
 * claim, one for each segment, come one after the other.
 */
bool
lease_next_end(StateScan *scan, LeaseTables *tables, TimestampTz *expires_at, int64 *claim_id)
{
	HeapTuple	tuple = state_scan_next(scan, ForwardScanDirection);
	TupleDesc	desc = RelationGetDescr(tables->leases.rel);
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return false;
	*expires_at = DatumGetTimestampTz(heap_getattr(tuple, Anum_lease_expires_at, desc, &isnull));
	*claim_id = DatumGetInt64(heap_getattr(tuple, Anum_lease_claim_id, desc, &isnull));
	return true;
}
