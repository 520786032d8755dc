/*
 * message_log_scan.c
 *		Reading a stream's log in the order of its ids, partition by partition.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "message_log.h"
#include "partition.h"

struct LogScan
{
	const Stream *stream;
	Snapshot	snapshot;
	int64		from_id;		/* of the current partition or before it */
	int64		to_id;			/* the last id of interest */
	int64		searched_to;	/* no row up to it is still to be returned */
	int64		number;			/* of the current partition */
	int64		first_number;	/* of that where the range begins */
	int64		id;				/* of the current row */
	Relation	rel;			/* the current partition; NULL: not opened yet */
	Relation	index;
	IndexScanDesc scan;
	TupleTableSlot *slot;
};

/*
 * Begin to read the rows of the log with ids in a range, in id order, as the
 * snapshot shows them.  The snapshot is registered by the caller, who ends the
 * scan with message_log_scan_end.
 */
LogScan *
message_log_scan_begin(const Stream *stream, Snapshot snapshot, int64 from_id, int64 to_id)
{
	LogScan    *scan = palloc0(sizeof(LogScan));

	scan->stream = stream;
	scan->snapshot = snapshot;
	scan->number = -1;
	message_log_scan_seek(scan, from_id, to_id);
	return scan;
}

/* Leave the current partition.  Its lock stays until the transaction ends. */
static void
close_partition(LogScan *scan)
{
	if (scan->rel == NULL)
		return;
	index_endscan(scan->scan);
	ExecDropSingleTupleTableSlot(scan->slot);
	index_close(scan->index, NoLock);
	table_close(scan->rel, NoLock);
	scan->rel = NULL;
}

/* Put the index scan of the current partition at the range. */
static void
rescan_partition(LogScan *scan)
{
	ScanKeyData keys[2];

	ScanKeyInit(&keys[0], 1, BTGreaterEqualStrategyNumber, F_INT8GE, Int64GetDatum(scan->from_id));
	ScanKeyInit(&keys[1], 1, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(scan->to_id));
	index_rescan(scan->scan, keys, 2, NULL, 0);
}

/* Read another range with the same scan. */
void
message_log_scan_seek(LogScan *scan, int64 from_id, int64 to_id)
{
	int64		number = partition_number(scan->stream, from_id);

	if (number != scan->number)
		close_partition(scan);
	scan->from_id = from_id;
	scan->to_id = to_id;
	scan->searched_to = from_id - 1;
	scan->number = number;
	scan->first_number = number;
	if (scan->rel != NULL)
		rescan_partition(scan);
}

/*
 * Open the partition where the scan is, or the next one that exists; false
 * when there is none up to the end of the range.
 */
static bool
open_partition(LogScan *scan)
{
	Oid			index;

	scan->rel = partition_open(scan->stream, scan->number, scan->snapshot, AccessShareLock);
	while (scan->rel == NULL)
	{
		if (!partition_find_next(scan->stream, scan->number + 1, scan->snapshot, &scan->number))
			return false;
		scan->from_id = partition_first_id(scan->stream, scan->number);
		scan->searched_to = Min(scan->from_id - 1, scan->to_id);
		if (scan->from_id > scan->to_id)
			return false;
		scan->rel = partition_open(scan->stream, scan->number, scan->snapshot, AccessShareLock);
	}

	index = COMPAT_PRIMARY_KEY_INDEX(scan->rel);
	if (!OidIsValid(index))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("partition \"%s\" has no primary key", RelationGetRelationName(scan->rel)),
				 errhint("Add a primary key on column \"id\".")));
	scan->index = index_open(index, AccessShareLock);
	scan->slot = table_slot_create(scan->rel, NULL);
	scan->scan = COMPAT_INDEX_BEGINSCAN(scan->rel, scan->index, scan->snapshot, 2);
	rescan_partition(scan);
	return true;
}

/* Go to the next row; false when there is none. */
bool
message_log_scan_next(LogScan *scan)
{
	bool		isnull;

	for (;;)
	{
		if (scan->from_id > scan->to_id)
			return false;
		if (scan->rel == NULL && !open_partition(scan))
			return false;
		if (index_getnext_slot(scan->scan, ForwardScanDirection, scan->slot))
		{
			scan->id = DatumGetInt64(slot_getattr(scan->slot, Anum_log_id, &isnull));
			scan->searched_to = scan->id;
			return true;
		}

		scan->searched_to = Min(partition_last_id(scan->stream, scan->number), scan->to_id);
		scan->from_id = scan->searched_to + 1;
		if (scan->from_id > scan->to_id)
			return false;
		close_partition(scan);
		scan->number++;
	}
}

/* The id of the current row. */
int64
message_log_scan_id(const LogScan *scan)
{
	return scan->id;
}

/*
 * Every row of the range up to this id was returned.  It stays before a range
 * that has no partition unless there is a later one: rows may still come there.
 */
int64
message_log_scan_searched_to(const LogScan *scan)
{
	return scan->searched_to;
}

/*
 * Has the log no partition for the start of the range, which was searched, though
 * it has a later one?
 */
bool
message_log_scan_has_skipped(const LogScan *scan)
{
	return scan->number > scan->first_number;
}

/* The columns of the current row, valid until the scan moves. */
void
message_log_scan_row(LogScan *scan, Datum **values, bool **isnull)
{
	slot_getallattrs(scan->slot);
	*values = scan->slot->tts_values;
	*isnull = scan->slot->tts_isnull;
}

/* End the scan. */
void
message_log_scan_end(LogScan *scan)
{
	close_partition(scan);
	pfree(scan);
}

/*
 * Set *created_at to the age of the first message from from_id to to_id that is
 * not purged; false when there is none.
 */
bool
message_log_find_created_at(const Stream *stream, Snapshot snapshot, int64 from_id, int64 to_id,
							TimestampTz *created_at)
{
	LogScan    *scan;
	Datum	   *values;
	bool	   *isnull;
	bool		found;

	from_id = Max(from_id, stream->purged_through + 1);
	if (from_id > to_id)
		return false;
	scan = message_log_scan_begin(stream, snapshot, from_id, to_id);
	found = message_log_scan_next(scan);
	if (found)
	{
		message_log_scan_row(scan, &values, &isnull);
		*created_at = DatumGetTimestampTz(values[Anum_log_created_at - 1]);
	}
	message_log_scan_end(scan);
	return found;
}
