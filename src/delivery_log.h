/*
 * delivery_log.h
 *		What became of each delivery: a row each of delivery_log_<id>.
 */
#ifndef SQLSTREAMS_DELIVERY_LOG_H
#define SQLSTREAMS_DELIVERY_LOG_H

#include "state_table.h"
#include "stream.h"

/* How a delivery ended, or why there was none. */
typedef enum Outcome
{
	OUTCOME_ACK,
	OUTCOME_NACK,
	OUTCOME_REJECT,
	OUTCOME_DELAY,
	OUTCOME_RELEASE,
	OUTCOME_EXPIRED,			/* the lease was lost */
	OUTCOME_SPLIT,				/* the lease of fresh ones was lost too often */
	OUTCOME_DEFERRED,			/* its key was not free */
	OUTCOME_SUPERSEDED			/* a newer version of its key has come */
} Outcome;

/* A row to write. */
typedef struct Delivery
{
	int64		group_id;
	int64		message_id;
	int64		claim_id;
	int32		attempt;		/* this delivery's number, from 1 */
	Outcome		outcome;
	text	   *error;			/* NULL: none */
	const char *consumer;		/* NULL: none */
	TimestampTz started_at;
	TimestampTz ended_at;
} Delivery;

/* The log of a stream, opened when the first row is written. */
typedef struct DeliveryLog
{
	const Stream *stream;
	MemoryContext context;		/* lives as long as the log is open */
	bool		is_open;
	StateTable	table;
} DeliveryLog;

/* A row that was read. */
typedef struct StoredDelivery
{
	int64		group_id;
	int64		message_id;
	int64		claim_id;
	int32		attempt;
	text	   *outcome;
	text	   *error;			/* NULL: none */
	text	   *consumer;		/* NULL: none */
	TimestampTz started_at;
	TimestampTz ended_at;
} StoredDelivery;

/* Reads the log of a stream from its newest end. */
typedef struct DeliveryScan
{
	StateTable	table;
	StateScan	scan;
	MemoryContext row_context;	/* what the current row points to */
} DeliveryScan;

extern bool delivery_log_has(const Stream *stream, Outcome outcome);
extern void delivery_log_begin(DeliveryLog *log, const Stream *stream);
extern void delivery_log_add(DeliveryLog *log, const Delivery *delivery);
extern void delivery_log_end(DeliveryLog *log);

extern void delivery_log_scan_begin(DeliveryScan *scan, const Stream *stream, const int64 *message_id,
									Snapshot snapshot);
extern bool delivery_log_scan_next(DeliveryScan *scan, StoredDelivery *delivery);
extern void delivery_log_delete_through(const Stream *stream, int64 last, int64 *rows_left);
extern void delivery_log_scan_end(DeliveryScan *scan);

#endif							/* SQLSTREAMS_DELIVERY_LOG_H */
