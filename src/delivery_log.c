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
#include "utils/builtins.h"
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
	[OUTCOME_SPLIT] = "split"
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
	values[Anum_delivery_ended_at - 1] = TimestampTzGetDatum(delivery->ended_at);
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
