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
 *
 * Expired leases are found by an index on their end.  Leases that were resolved
 * leave dead entries in it, so a scan begins where the cursor says that no live
 * lease ends earlier, and looks a little ahead to move that point.  Leases that
 * an open transaction holds would stop it from moving; the cursor lists them.
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
 * How far ahead of now the scan for expired leases passes dead entries: little
 * in the middle of work; more by a claim that has nothing else to do, so that
 * polling seldom writes.
 */
#define EXPIRY_LOOK_AHEAD_US		(250 * 1000)
#define EXPIRY_LOOK_AHEAD_IDLE_US	(10 * 1000 * 1000)

/*
 * How many messages one claim takes out of lost leases that it cannot deliver
 * by way of these.
 */
#define MAX_UNRETURNABLE 10000

/* How often leases that were stepped over are looked at again. */
#define RECHECK_INTERVAL_US (1000 * 1000)

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
										   snapshot, LockTupleExclusive);
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

/* What came of the attempt to take over a claim. */
typedef enum TakeResult
{
	TAKE_DONE,					/* its rows are gone */
	TAKE_BUSY,					/* an open transaction has it */
	TAKE_CHANGED				/* its holder changed it a moment ago */
} TakeResult;

/* The taking over of expired leases by one claim. */
typedef struct LeaseTake
{
	LeaseTables *tables;
	int64		group_id;
	GroupCursor *cursor;
	TimestampTz now;
	int32		max_reclaims;
	int64		max_messages;
	List	   *segments;		/* what was taken, less what is resolved */
	int64		message_count;	/* of these */
	int64		returnable_count;	/* of these, what can be delivered again as
									 * it is */
} LeaseTake;

static bool
is_enough(const LeaseTake *take)
{
	return take->returnable_count >= take->max_messages ||
		take->message_count >= take->max_messages + MAX_UNRETURNABLE;
}

/*
 * Was the lease of a segment's messages lost so often that they go on one by
 * one?
 */
bool
lease_is_spent(const LeaseSegment *segment, int32 max_reclaims)
{
	return !segment->is_released && segment->takeovers >= max_reclaims;
}

/* Add segments, which are gone from the table, without what is resolved. */
static void
add_segments(LeaseTake *take, List *segments, int64 claim_id)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ListCell   *cell;
	int64		claim_size = 0;
	int64		resolved_count;
	int64	   *resolved = lease_load_resolved(take->tables, claim_id, snapshot, &resolved_count);

	UnregisterSnapshot(snapshot);
	foreach(cell, segments)
		claim_size += id_set_count(&((LeaseSegment *) lfirst(cell))->members);
	foreach(cell, segments)
	{
		LeaseSegment *segment = lfirst(cell);

		if (resolved_count > 0)
			id_set_subtract(&segment->members, resolved, resolved_count);
		if (segment->members.run_count == 0)
			continue;
		segment->was_alone = claim_size == 1;
		take->segments = lappend(take->segments, segment);
		take->message_count += id_set_count(&segment->members);
		if (!segment->has_exceptions && !lease_is_spent(segment, take->max_reclaims))
			take->returnable_count += id_set_count(&segment->members);
	}
	if (resolved_count > 0)
		lease_delete_resolved(take->tables, claim_id);
	pfree(resolved);
}

/*
 * Take over an expired claim, unless somebody is at it.  Otherwise *ends_at is
 * when its lease ends.
 */
static TakeResult
take_claim(LeaseTake *take, int64 claim_id, TimestampTz *ends_at)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	List	   *segments = lease_load_claim(take->tables, take->group_id, claim_id, snapshot);
	LeaseSegment *anchor;
	ListCell   *cell;
	TM_Result	result;

	UnregisterSnapshot(snapshot);
	if (segments == NIL)
		return TAKE_DONE;
	anchor = linitial(segments);
	*ends_at = anchor->expires_at;
	if (anchor->expires_at > take->now)
		return TAKE_CHANGED;

	result = lease_delete(take->tables, anchor, false);
	if (result != TM_Ok)
		return result == TM_BeingModified ? TAKE_BUSY : TAKE_CHANGED;
	for_each_from(cell, segments, 1)
		(void) lease_delete(take->tables, lfirst(cell), true);

	/* only now can nobody resolve a message of it any more */
	add_segments(take, segments, claim_id);
	return TAKE_DONE;
}

static bool
is_stepped_over(const GroupCursor *cursor, int64 claim_id)
{
	for (int i = 0; i < cursor->stepped_over_count; i++)
	{
		if (cursor->stepped_over[i] == claim_id)
			return true;
	}
	return false;
}

/* Look again at the leases that were stepped over, and keep those still busy. */
static void
recheck_stepped_over(LeaseTake *take)
{
	GroupCursor *cursor = take->cursor;
	int			kept = 0;

	for (int i = 0; i < cursor->stepped_over_count; i++)
	{
		int64		claim_id = cursor->stepped_over[i];
		TimestampTz ends_at;
		TakeResult	result = is_enough(take) ? TAKE_BUSY : take_claim(take, claim_id, &ends_at);

		/* one that was extended is found by its new end, if the scan will get there */
		if (result == TAKE_BUSY ||
			(result == TAKE_CHANGED && ends_at < cursor->lease_scan_from))
			cursor->stepped_over[kept++] = claim_id;
	}
	cursor->stepped_over_count = kept;
	cursor->recheck_at = take->now + RECHECK_INTERVAL_US;
}

/*
 * Take over the claim of an expired lease that the scan met; says whether the
 * scan's point may move past it.
 */
static bool
take_met_claim(LeaseTake *take, int64 claim_id)
{
	GroupCursor *cursor = take->cursor;
	TimestampTz ends_at;

	if (is_stepped_over(cursor, claim_id))
		return true;
	switch (take_claim(take, claim_id, &ends_at))
	{
		case TAKE_DONE:
			return true;
		case TAKE_BUSY:
			if (cursor->stepped_over_count == CURSOR_MAX_STEPPED_OVER)
				return false;
			if (cursor->stepped_over_count == 0)
				cursor->recheck_at = take->now + RECHECK_INTERVAL_US;
			cursor->stepped_over[cursor->stepped_over_count++] = claim_id;
			return true;
		case TAKE_CHANGED:
			break;
	}
	return false;
}

/* Begin to read the group's leases that end from the cursor's point to a time. */
static void
begin_expiry_scan(StateScan *scan, const LeaseTake *take, TimestampTz to, Snapshot snapshot)
{
	ScanKeyData keys[3];

	ScanKeyInit(&keys[0], Anum_lease_group_id, BTEqualStrategyNumber, F_INT8EQ,
				Int64GetDatum(take->group_id));
	ScanKeyInit(&keys[1], Anum_lease_expires_at, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				TimestampTzGetDatum(take->cursor->lease_scan_from));
	ScanKeyInit(&keys[2], Anum_lease_expires_at, BTLessStrategyNumber, F_TIMESTAMPTZ_LT,
				TimestampTzGetDatum(to));
	state_scan_begin(scan, &take->tables->leases, find_expiry_index(take->tables), snapshot, 3, keys);
}

/*
 * Take over expired leases in the order of their ends, and move the point;
 * "ahead" is how far it may move.
 */
static void
scan_expired(LeaseTake *take, TimestampTz ahead)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleDesc	desc = RelationGetDescr(take->tables->leases.rel);
	TimestampTz point = ahead;
	int64		met_claim_id = 0;	/* a claim's rows come one after the other */
	StateScan	scan;
	HeapTuple	tuple;

	begin_expiry_scan(&scan, take, ahead, snapshot);
	while ((tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;
		TimestampTz expires_at = DatumGetTimestampTz(heap_getattr(tuple, Anum_lease_expires_at, desc, &isnull));
		int64		claim_id = DatumGetInt64(heap_getattr(tuple, Anum_lease_claim_id, desc, &isnull));

		if (claim_id == met_claim_id)
			continue;
		if (expires_at > take->now || is_enough(take))
		{
			point = Min(point, expires_at);
			break;
		}
		if (!take_met_claim(take, claim_id))
			point = Min(point, expires_at);
		met_claim_id = claim_id;
		CHECK_FOR_INTERRUPTS();
	}
	state_scan_end(&scan);
	UnregisterSnapshot(snapshot);
	take->cursor->lease_scan_from = point;
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

/*
 * Take over expired leases of the group, as a list of segments with at least
 * max_messages messages that can be delivered again if there are so many; the
 * caller puts back what is too much.  Sets *cursor_changed when the cursor has to be written.  is_idle: there
 * are no fresh messages.  The caller holds the group's lock.
 */
List *
lease_take_expired(LeaseTables *tables, int64 group_id, GroupCursor *cursor, bool *cursor_changed,
				   TimestampTz now, bool is_idle, int32 max_reclaims, int64 max_messages)
{
	LeaseTake	take = {
		.tables = tables,
		.group_id = group_id,
		.cursor = cursor,
		.now = now,
		.max_reclaims = max_reclaims,
		.max_messages = max_messages
	};

	/* a time further ahead is from before the clock was set back */
	if (cursor->stepped_over_count > 0 &&
		(now >= cursor->recheck_at || cursor->recheck_at > now + RECHECK_INTERVAL_US))
	{
		recheck_stepped_over(&take);
		*cursor_changed = true;
	}
	if (now >= cursor->lease_scan_from && !is_enough(&take))
	{
		scan_expired(&take, now + (is_idle ? EXPIRY_LOOK_AHEAD_IDLE_US : EXPIRY_LOOK_AHEAD_US));
		*cursor_changed = true;
	}
	return take.segments;
}
