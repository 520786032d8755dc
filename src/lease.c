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
#define LEASE_COLUMNS			12
#define LEASE_INDEXES			2

static const Oid lease_column_types[LEASE_COLUMNS] = {
	INT8OID, INT8OID, INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID,
	INT4OID, INT4OID, BOOLOID, INT8OID, BYTEAOID, TEXTOID
};

#define Anum_resolved_claim_id		1
#define Anum_resolved_message_id	2
#define RESOLVED_COLUMNS			2
#define RESOLVED_INDEXES			1

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

/* How often leases that were stepped over are looked at again. */
#define RECHECK_INTERVAL_US (1000 * 1000)

/* Open the tables.  Raises SS001 when the stream was dropped meanwhile. */
void
lease_open(const Stream *stream, LeaseTables *tables)
{
	if (!state_table_open(&tables->leases, stream->lease_oid, lease_column_types, LEASE_COLUMNS, LEASE_INDEXES) ||
		!state_table_open(&tables->resolved, stream->resolved_oid, resolved_column_types, RESOLVED_COLUMNS, RESOLVED_INDEXES))
		stream_raise_not_found(stream->name);
}

/* Close the tables; their locks stay until the transaction ends. */
void
lease_close(LeaseTables *tables)
{
	state_table_close(&tables->leases);
	state_table_close(&tables->resolved);
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
	state_table_insert(&tables->leases, values, isnull);
}

/* Remove a segment's row. */
TM_Result
lease_delete(LeaseTables *tables, LeaseSegment *segment, bool wait)
{
	return state_table_delete(&tables->leases, &segment->tid, wait);
}

/* Make a segment of a row, in the current memory context. */
static LeaseSegment *
make_segment(HeapTuple tuple, TupleDesc desc)
{
	LeaseSegment *segment = palloc0(sizeof(LeaseSegment));
	Datum		values[LEASE_COLUMNS];
	bool		isnull[LEASE_COLUMNS];

	heap_deform_tuple(tuple, desc, values, isnull);
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
	return segment;
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
			segments = lappend(segments, make_segment(tuple, desc));
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
	state_scan_begin(&scan, &tables->leases, state_table_index_on(&tables->leases, Anum_lease_group_id),
					 snapshot, 1, &key);
	while ((tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
		segments = lappend(segments, make_segment(tuple, RelationGetDescr(tables->leases.rel)));
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

/*
 * Take over an expired claim, unless somebody is at it: add its segments, less
 * what is resolved, to *taken.
 */
static TakeResult
take_claim(LeaseTables *tables, int64 group_id, int64 claim_id, TimestampTz now, List **taken)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	List	   *segments = lease_load_claim(tables, group_id, claim_id, snapshot);
	ListCell   *cell;
	int64	   *resolved;
	int64		resolved_count;

	UnregisterSnapshot(snapshot);
	if (segments == NIL)
		return TAKE_DONE;
	if (((LeaseSegment *) linitial(segments))->expires_at > now)
		return TAKE_CHANGED;

	foreach(cell, segments)
	{
		switch (lease_delete(tables, lfirst(cell), false))
		{
			case TM_Ok:
				break;
			case TM_BeingModified:
				if (cell == list_head(segments))
					return TAKE_BUSY;
				/* FALLTHROUGH */
			default:
				if (cell == list_head(segments))
					return TAKE_CHANGED;
				elog(ERROR, "claim " INT64_FORMAT " was changed without its anchor", claim_id);
		}
	}

	/* only now can nobody resolve a message of it any more */
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	resolved = lease_load_resolved(tables, claim_id, snapshot, &resolved_count);
	UnregisterSnapshot(snapshot);
	foreach(cell, segments)
	{
		LeaseSegment *segment = lfirst(cell);

		id_set_subtract(&segment->members, resolved, resolved_count);
		if (segment->members.run_count > 0)
			*taken = lappend(*taken, segment);
	}
	if (resolved_count > 0)
		lease_delete_resolved(tables, claim_id);
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

static int64
count_messages(List *segments)
{
	int64		count = 0;
	ListCell   *cell;

	foreach(cell, segments)
		count += id_set_count(&((LeaseSegment *) lfirst(cell))->members);
	return count;
}

/* Look again at the leases that were stepped over, and keep those still busy. */
static void
recheck_stepped_over(LeaseTables *tables, int64 group_id, GroupCursor *cursor,
					 TimestampTz now, int64 max_messages, List **taken)
{
	int			kept = 0;

	for (int i = 0; i < cursor->stepped_over_count; i++)
	{
		int64		claim_id = cursor->stepped_over[i];

		if (count_messages(*taken) >= max_messages ||
			take_claim(tables, group_id, claim_id, now, taken) != TAKE_DONE)
			cursor->stepped_over[kept++] = claim_id;
	}
	cursor->stepped_over_count = kept;
	cursor->recheck_at = now + RECHECK_INTERVAL_US;
}

/*
 * Take over the claim of an expired lease that the scan met; says whether the
 * scan's point may move past it.
 */
static bool
take_met_claim(LeaseTables *tables, int64 group_id, int64 claim_id, GroupCursor *cursor,
			   TimestampTz now, List **taken)
{
	if (is_stepped_over(cursor, claim_id))
		return true;
	switch (take_claim(tables, group_id, claim_id, now, taken))
	{
		case TAKE_DONE:
			return true;
		case TAKE_BUSY:
			if (cursor->stepped_over_count == CURSOR_MAX_STEPPED_OVER)
				return false;
			if (cursor->stepped_over_count == 0)
				cursor->recheck_at = now + RECHECK_INTERVAL_US;
			cursor->stepped_over[cursor->stepped_over_count++] = claim_id;
			return true;
		case TAKE_CHANGED:
			break;
	}
	return false;
}

/* Take over expired leases in the order of their ends, and move the point. */
static void
scan_expired(LeaseTables *tables, int64 group_id, GroupCursor *cursor,
			 TimestampTz now, TimestampTz ahead, int64 max_messages, List **taken)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleDesc	desc = RelationGetDescr(tables->leases.rel);
	TimestampTz point = ahead;
	ScanKeyData keys[3];
	StateScan	scan;
	HeapTuple	tuple;

	ScanKeyInit(&keys[0], Anum_lease_group_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(group_id));
	ScanKeyInit(&keys[1], Anum_lease_expires_at, BTGreaterEqualStrategyNumber, F_TIMESTAMPTZ_GE,
				TimestampTzGetDatum(cursor->lease_scan_from));
	ScanKeyInit(&keys[2], Anum_lease_expires_at, BTLessStrategyNumber, F_TIMESTAMPTZ_LT,
				TimestampTzGetDatum(ahead));
	state_scan_begin(&scan, &tables->leases, state_table_index_on(&tables->leases, Anum_lease_group_id),
					 snapshot, 3, keys);
	while ((tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		bool		isnull;
		TimestampTz expires_at = DatumGetTimestampTz(heap_getattr(tuple, Anum_lease_expires_at, desc, &isnull));
		int64		claim_id = DatumGetInt64(heap_getattr(tuple, Anum_lease_claim_id, desc, &isnull));

		if (expires_at > now || count_messages(*taken) >= max_messages)
		{
			point = Min(point, expires_at);
			break;
		}
		if (!take_met_claim(tables, group_id, claim_id, cursor, now, taken))
			point = Min(point, expires_at);
	}
	state_scan_end(&scan);
	UnregisterSnapshot(snapshot);
	cursor->lease_scan_from = point;
}

/*
 * Put back what does not fit of what was taken: a claim of its own that nobody
 * holds and that stays expired, so that its former holder's claim is lost as a
 * whole.
 */
void
lease_put_back(LeaseTables *tables, int64 group_id, GroupCursor *cursor, LeaseSegment *segment)
{
	segment->claim_id = lease_draw_claim_id();
	segment->segment = 0;
	lease_insert(tables, group_id, segment);
	lease_hint_not_after(cursor, segment->expires_at);
}

/*
 * Take over expired leases of the group, as a list of segments with at least
 * max_messages messages if there are so many; the caller puts back what is too
 * much.  Sets *cursor_changed when the cursor has to be written.  is_idle: there
 * are no fresh messages.  The caller holds the group's lock.
 */
List *
lease_take_expired(LeaseTables *tables, int64 group_id, GroupCursor *cursor, bool *cursor_changed,
				   TimestampTz now, bool is_idle, int64 max_messages)
{
	TimestampTz ahead = now + (is_idle ? EXPIRY_LOOK_AHEAD_IDLE_US : EXPIRY_LOOK_AHEAD_US);
	List	   *taken = NIL;

	if (cursor->stepped_over_count > 0 && now >= cursor->recheck_at)
	{
		recheck_stepped_over(tables, group_id, cursor, now, max_messages, &taken);
		*cursor_changed = true;
	}
	if (now >= cursor->lease_scan_from && count_messages(taken) < max_messages)
	{
		scan_expired(tables, group_id, cursor, now, ahead, max_messages, &taken);
		*cursor_changed = true;
	}
	return taken;
}
