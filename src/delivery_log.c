/*
 * delivery_log.c
 *		What became of each delivery.
 *
 * A row of delivery_log_<id> is written in the transaction in which a delivery
 * ends, as far as the stream's delivery_log asks for it.  A claim delivers a
 * message once, so that claim, message and group name a row; the time comes
 * first in the key, since the log is read from its newest end.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "delivery_log.h"

#define Anum_delivery_group_id		1
#define Anum_delivery_message_id	2
#define Anum_delivery_claim_id		3
#define Anum_delivery_attempt		4
#define Anum_delivery_outcome		5
#define Anum_delivery_error			6
#define Anum_delivery_consumer		7
#define Anum_delivery_started_at	8
#define Anum_delivery_ended_at		9
#define DELIVERY_COLUMNS			9

static const Oid delivery_column_types[DELIVERY_COLUMNS] = {
	INT8OID, INT8OID, INT8OID, INT4OID, TEXTOID, TEXTOID, TEXTOID,
	TIMESTAMPTZOID, TIMESTAMPTZOID
};

static const char *const outcome_names[] = {
	[OUTCOME_ACK] = "ack",
	[OUTCOME_NACK] = "nack",
	[OUTCOME_REJECT] = "reject",
	[OUTCOME_DELAY] = "delay",
	[OUTCOME_RELEASE] = "release",
	[OUTCOME_EXPIRED] = "expired",
	[OUTCOME_SPLIT] = "split",
	[OUTCOME_DEFERRED] = "deferred",
	[OUTCOME_SUPERSEDED] = "superseded"
};

/* Does the stream's log record such an outcome? */
bool
delivery_log_has(const Stream *stream, Outcome outcome)
{
	switch (stream->delivery_log)
	{
		case DELIVERY_LOG_ALL:
			return true;
		case DELIVERY_LOG_FAILURES:
			return outcome != OUTCOME_ACK && outcome != OUTCOME_RELEASE;
		default:
			return false;
	}
}

/* Get ready to write rows; opens nothing yet. */
void
delivery_log_begin(DeliveryLog *log, const Stream *stream)
{
	log->stream = stream;
	log->context = CurrentMemoryContext;
	log->is_open = false;
}

/* Open the table, unless it is open.  Raises as lease_open does. */
static void
open_table(DeliveryLog *log)
{
	MemoryContext old = MemoryContextSwitchTo(log->context);

	if (!log->is_open &&
		!state_table_open(&log->table, log->stream->delivery_log_oid, delivery_column_types, DELIVERY_COLUMNS))
		stream_raise_table_missing(log->stream);
	log->is_open = true;
	MemoryContextSwitchTo(old);
}

/*
 * A time that this backend has not written yet: one claim can log two things of a
 * message within a tick of the clock, and the key would have both.
 */
static TimestampTz
next_time(TimestampTz when)
{
	static TimestampTz last = 0;

	/* a clock that was set back further is believed */
	if (when <= last && last - when < USECS_PER_SEC)
		when = last + 1;
	last = when;
	return when;
}

/* Write a row if the stream's log has such. */
void
delivery_log_add(DeliveryLog *log, const Delivery *delivery)
{
	Datum		values[DELIVERY_COLUMNS];
	bool		isnull[DELIVERY_COLUMNS] = {false};

	if (!delivery_log_has(log->stream, delivery->outcome))
		return;
	open_table(log);
	values[Anum_delivery_group_id - 1] = Int64GetDatum(delivery->group_id);
	values[Anum_delivery_message_id - 1] = Int64GetDatum(delivery->message_id);
	values[Anum_delivery_claim_id - 1] = Int64GetDatum(delivery->claim_id);
	values[Anum_delivery_attempt - 1] = Int32GetDatum(delivery->attempt);
	values[Anum_delivery_outcome - 1] = CStringGetTextDatum(outcome_names[delivery->outcome]);
	isnull[Anum_delivery_error - 1] = delivery->error == NULL;
	values[Anum_delivery_error - 1] = PointerGetDatum(delivery->error);
	isnull[Anum_delivery_consumer - 1] = delivery->consumer == NULL;
	values[Anum_delivery_consumer - 1] = delivery->consumer == NULL ? (Datum) 0 :
		CStringGetTextDatum(delivery->consumer);
	values[Anum_delivery_started_at - 1] = TimestampTzGetDatum(delivery->started_at);
	values[Anum_delivery_ended_at - 1] = TimestampTzGetDatum(next_time(delivery->ended_at));
	(void) state_table_insert(&log->table, values, isnull);
}

/* End writing. */
void
delivery_log_end(DeliveryLog *log)
{
	if (log->is_open)
		state_table_close(&log->table);
	log->is_open = false;
}

/* The index by which the deliveries of a message are found. */
static Oid
find_message_index(StateTable *table)
{
	static const AttrNumber columns[] = {Anum_delivery_message_id, Anum_delivery_ended_at};

	return state_table_index_on(table, columns, lengthof(columns));
}

/*
 * Begin to read the log, or what it has of a message, as the snapshot shows it,
 * the newest first.  Raises as lease_open does.
 */
void
delivery_log_scan_begin(DeliveryScan *scan, const Stream *stream, const int64 *message_id, Snapshot snapshot)
{
	ScanKeyData key;

	if (!state_table_open_to_read(&scan->table, stream->delivery_log_oid, delivery_column_types, DELIVERY_COLUMNS))
		stream_raise_table_missing(stream);
	scan->row_context = AllocSetContextCreate(CurrentMemoryContext, "sqlstreams delivery",
											  ALLOCSET_SMALL_SIZES);
	if (message_id == NULL)
	{
		state_scan_begin(&scan->scan, &scan->table, state_table_primary_key(&scan->table), snapshot, 0, NULL);
		return;
	}
	ScanKeyInit(&key, Anum_delivery_message_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(*message_id));
	state_scan_begin(&scan->scan, &scan->table, find_message_index(&scan->table), snapshot, 1, &key);
}

/* A text of a row, or NULL; allocates in the current memory context. */
static text *
copy_text(const Datum *values, const bool *isnull, int column)
{
	return isnull[column - 1] ? NULL : DatumGetTextPCopy(values[column - 1]);
}

/*
 * Read the next delivery; false when there is none.  What it points to is valid
 * until the next call.
 */
bool
delivery_log_scan_next(DeliveryScan *scan, StoredDelivery *delivery)
{
	HeapTuple	tuple = state_scan_next(&scan->scan, BackwardScanDirection);
	Datum		values[DELIVERY_COLUMNS];
	bool		isnull[DELIVERY_COLUMNS];
	MemoryContext old;

	CHECK_FOR_INTERRUPTS();
	if (!HeapTupleIsValid(tuple))
		return false;
	MemoryContextReset(scan->row_context);
	old = MemoryContextSwitchTo(scan->row_context);
	state_table_read_row(&scan->table, tuple, values, isnull);
	delivery->group_id = DatumGetInt64(values[Anum_delivery_group_id - 1]);
	delivery->message_id = DatumGetInt64(values[Anum_delivery_message_id - 1]);
	delivery->claim_id = DatumGetInt64(values[Anum_delivery_claim_id - 1]);
	delivery->attempt = DatumGetInt32(values[Anum_delivery_attempt - 1]);
	delivery->outcome = copy_text(values, isnull, Anum_delivery_outcome);
	delivery->error = copy_text(values, isnull, Anum_delivery_error);
	delivery->consumer = copy_text(values, isnull, Anum_delivery_consumer);
	delivery->started_at = DatumGetTimestampTz(values[Anum_delivery_started_at - 1]);
	delivery->ended_at = DatumGetTimestampTz(values[Anum_delivery_ended_at - 1]);
	MemoryContextSwitchTo(old);
	return true;
}

/* End reading. */
void
delivery_log_scan_end(DeliveryScan *scan)
{
	state_scan_end(&scan->scan);
	state_table_close(&scan->table);
	MemoryContextDelete(scan->row_context);
}

/* Delete the rows of messages up to an id, as long as *rows_left. */
void
delivery_log_delete_through(const Stream *stream, int64 last, int64 *rows_left)
{
	StateTable	table;
	StateScan	scan;
	ScanKeyData key;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	HeapTuple	tuple;

	if (!state_table_open(&table, stream->delivery_log_oid, delivery_column_types, DELIVERY_COLUMNS))
		stream_raise_table_missing(stream);
	ScanKeyInit(&key, Anum_delivery_message_id, BTLessEqualStrategyNumber, F_INT8LE, Int64GetDatum(last));
	state_scan_begin(&scan, &table, find_message_index(&table), snapshot, 1, &key);
	while (*rows_left > 0 && (tuple = state_scan_next(&scan, ForwardScanDirection)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (state_table_delete(&table, &tuple->t_self, false) == TM_Ok)
			(*rows_left)--;
	}
	state_scan_end(&scan);
	state_table_close(&table);
	UnregisterSnapshot(snapshot);
}
