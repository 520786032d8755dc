/*
 * log_partition.c
 *		What maintenance knows of the partitions of a log.  The only file that
 *		knows the columns of sqlstreams.log_partition.
 *
 * A row is added by whoever makes the partition, who has the log locked, and
 * after that changed only by who has the stream's name locked (config.c).
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

#include "log_partition.h"
#include "state_table.h"
#include "stream.h"

#define Anum_partition_stream_id		1
#define Anum_partition_number			2
#define Anum_partition_created_at		3
#define Anum_partition_waits_for		4
#define Anum_partition_waits_system		5
#define Anum_partition_sealed_at		6
#define Anum_partition_dropped_at		7
#define PARTITION_COLUMNS				7

static const Oid partition_column_types[PARTITION_COLUMNS] = {
	INT8OID, INT8OID, TIMESTAMPTZOID, XID8ARRAYOID, INT8OID, TIMESTAMPTZOID, TIMESTAMPTZOID
};

/* Open the table for writing. */
static void
open_table(StateTable *table)
{
	if (!state_table_open(table, stream_config_table_oid("log_partition"), partition_column_types, PARTITION_COLUMNS))
		elog(ERROR, "table \"log_partition\" does not exist");
}

/* Set a column to a time of which 0 is none. */
static void
fill_time(int column, TimestampTz when, Datum *values, bool *isnull)
{
	values[column - 1] = TimestampTzGetDatum(when);
	isnull[column - 1] = when == 0;
}

/* Set the columns of a row. */
static void
fill_row(int64 stream_id, const LogPartition *row, Datum *values, bool *isnull)
{
	Datum	   *writers = palloc(sizeof(Datum) * Max(row->writer_count, 1));

	memset(isnull, 0, sizeof(bool) * PARTITION_COLUMNS);
	values[Anum_partition_stream_id - 1] = Int64GetDatum(stream_id);
	values[Anum_partition_number - 1] = Int64GetDatum(row->number);
	values[Anum_partition_created_at - 1] = TimestampTzGetDatum(row->created_at);
	for (int i = 0; i < row->writer_count; i++)
		writers[i] = FullTransactionIdGetDatum(row->writers[i]);
	values[Anum_partition_waits_for - 1] =
		PointerGetDatum(construct_array(writers, row->writer_count, XID8OID, sizeof(int64),
										FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	values[Anum_partition_waits_system - 1] = Int64GetDatum((int64) row->writers_system);
	isnull[Anum_partition_waits_for - 1] = isnull[Anum_partition_waits_system - 1] = !row->has_writers;
	fill_time(Anum_partition_sealed_at, row->sealed_at, values, isnull);
	fill_time(Anum_partition_dropped_at, row->dropped_at, values, isnull);
}

/* Fill what is known of a partition from its row; allocates in the current context. */
static void
fill_from_row(LogPartition *partition, StateTable *table, HeapTuple tuple)
{
	Datum		values[PARTITION_COLUMNS];
	bool		isnull[PARTITION_COLUMNS];

	state_table_read_row(table, tuple, values, isnull);
	memset(partition, 0, sizeof(LogPartition));
	partition->tid = tuple->t_self;
	partition->number = DatumGetInt64(values[Anum_partition_number - 1]);
	partition->created_at = DatumGetTimestampTz(values[Anum_partition_created_at - 1]);
	if (!isnull[Anum_partition_waits_for - 1] && !isnull[Anum_partition_waits_system - 1])
	{
		Datum	   *writers;

		deconstruct_array(DatumGetArrayTypePCopy(values[Anum_partition_waits_for - 1]), XID8OID, sizeof(int64),
						  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE, &writers, NULL, &partition->writer_count);
		partition->writers = palloc(sizeof(FullTransactionId) * Max(partition->writer_count, 1));
		for (int i = 0; i < partition->writer_count; i++)
			partition->writers[i] = DatumGetFullTransactionId(writers[i]);
		partition->writers_system = (uint64) DatumGetInt64(values[Anum_partition_waits_system - 1]);
		partition->has_writers = true;
	}
	if (!isnull[Anum_partition_sealed_at - 1])
		partition->sealed_at = DatumGetTimestampTz(values[Anum_partition_sealed_at - 1]);
	if (!isnull[Anum_partition_dropped_at - 1])
		partition->dropped_at = DatumGetTimestampTz(values[Anum_partition_dropped_at - 1]);
}

/* Add the row of a partition that is there from now on, unless it has one. */
void
log_partition_add(int64 stream_id, int64 number)
{
	LogPartition row = {.number = number,.created_at = GetCurrentTimestamp()};
	Datum		values[PARTITION_COLUMNS];
	bool		isnull[PARTITION_COLUMNS];
	ItemPointerData existing;
	StateTable	table;

	fill_row(stream_id, &row, values, isnull);
	open_table(&table);
	(void) state_table_insert_unless_exists(&table, values, isnull, &existing);
	state_table_close(&table);
	CommandCounterIncrement();
}

/* The rows of a stream that a snapshot shows, by number; returns how many. */
int
log_partition_list(int64 stream_id, Snapshot snapshot, LogPartition **rows)
{
	StateTable	table;
	StateScan	scan;
	ScanKeyData key;
	HeapTuple	tuple;
	int			count = 0;
	int			capacity = 16;

	*rows = palloc(sizeof(LogPartition) * capacity);
	if (!state_table_open_to_read(&table, stream_config_table_oid("log_partition"),
								  partition_column_types, PARTITION_COLUMNS))
		return 0;
	ScanKeyInit(&key, Anum_partition_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream_id));
	state_scan_begin(&scan, &table, state_table_primary_key(&table), snapshot, 1, &key);
	while ((tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		if (count == capacity)
		{
			capacity *= 2;
			*rows = repalloc(*rows, sizeof(LogPartition) * capacity);
		}
		fill_from_row(&(*rows)[count++], &table, tuple);
	}
	state_scan_end(&scan);
	state_table_close(&table);
	return count;
}

/* The row of a partition among those of its stream, or NULL. */
LogPartition *
log_partition_find(LogPartition *rows, int count, int64 number)
{
	int			low = 0;
	int			high = count - 1;

	while (low <= high)
	{
		int			middle = low + (high - low) / 2;

		if (rows[middle].number == number)
			return &rows[middle];
		if (rows[middle].number < number)
			low = middle + 1;
		else
			high = middle - 1;
	}
	return NULL;
}

/* Write a row that was read and changed. */
void
log_partition_replace(int64 stream_id, LogPartition *row)
{
	Datum		values[PARTITION_COLUMNS];
	bool		isnull[PARTITION_COLUMNS];
	StateTable	table;

	fill_row(stream_id, row, values, isnull);
	open_table(&table);
	if (state_table_delete(&table, &row->tid, true) != TM_Ok)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a row of table \"log_partition\" was changed by hand"),
				 errhint("Retry, and leave this table to sqlstreams.")));
	row->tid = state_table_insert(&table, values, isnull);
	state_table_close(&table);
	CommandCounterIncrement();
}

/* Forget a partition whose row was read. */
void
log_partition_delete(LogPartition *row)
{
	StateTable	table;

	open_table(&table);
	(void) state_table_delete(&table, &row->tid, true);
	state_table_close(&table);
}

/* Forget the partitions of a stream that is being dropped. */
void
log_partition_delete_of_stream(int64 stream_id)
{
	StateTable	table;

	open_table(&table);
	state_table_delete_of_group(&table, Anum_partition_stream_id, stream_id);
	state_table_close(&table);
}
