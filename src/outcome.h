/*
 * outcome.h
 *		What an outcome does to a message.
 */
#ifndef SQLSTREAMS_OUTCOME_H
#define SQLSTREAMS_OUTCOME_H

#include "delivery_log.h"
#include "exception.h"
#include "lease.h"
#include "message_log.h"

/* Instead of a delay: as the message's policy says. */
#define OUTCOME_BACKOFF (-1)

/* What is said of a message, or of all others. */
typedef struct Resolution
{
	int64		message_id;
	Outcome		outcome;
	text	   *error;			/* NULL: none */
	int64		delay_us;		/* of delay and nack; OUTCOME_BACKOFF: by policy */
	text	   *key;			/* of OUTCOME_DEFERRED: what it waits for */
	bool		is_added;		/* the caller did not name it: it may be resolved already */
} Resolution;

/* Writes what became of messages of one group. */
typedef struct OutcomeWriter
{
	const Stream *stream;
	const ConsumerGroup *group;
	const GroupCursor *cursor;	/* under the group's lock; NULL: not locked */
	DeliveryLog log;
	int64		dead_count;		/* messages that are now dead */
	bool		has_charged;	/* a lost lease counted as a failure */

	/* from here on: set when the first exception is read or written */
	bool		is_open;
	StateTable	exceptions;
	Snapshot	snapshot;
	TimestampTz not_before;		/* no exception is due earlier */
	LogScan    *log_scan;
	MemoryContext context;		/* what lives until outcome_end */
	MemoryContext scratch;		/* for one message */
} OutcomeWriter;

extern void outcome_begin(OutcomeWriter *writer, const Stream *stream, const ConsumerGroup *group,
						  const GroupCursor *cursor);
extern bool outcome_leaves_trace(const OutcomeWriter *writer, const LeaseSegment *segment, Outcome outcome);
extern void outcome_write(OutcomeWriter *writer, const LeaseSegment *segment, int64 message_id,
						  Outcome outcome, text *error, int64 delay_us);
extern void outcome_write_all(OutcomeWriter *writer, const LeaseSegment *segment, Outcome outcome);
extern void outcome_wake(OutcomeWriter *writer, int64 claim_id, text *key, bool is_rescan);
extern bool outcome_copy_key(OutcomeWriter *writer, int64 message_id, text **key);
extern void outcome_end(OutcomeWriter *writer);

#endif							/* SQLSTREAMS_OUTCOME_H */
