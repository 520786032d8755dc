/*
 * claim.h
 *		A claim as it is being made: what the parts of claim share.
 */
#ifndef SQLSTREAMS_CLAIM_H
#define SQLSTREAMS_CLAIM_H

#include "cursor.h"
#include "exception.h"
#include "group.h"
#include "lease.h"
#include "message_log.h"
#include "message_options.h"

#include "nodes/execnodes.h"
#include "utils/tuplestore.h"

typedef struct Claim
{
	Stream		stream;
	ConsumerGroup group;
	bool		is_pop;			/* no lease: the messages are done */
	int64		max_messages;
	int64		messages_left;	/* how many more may be returned */
	bool		has_byte_limit;
	int64		bytes_left;
	int64		returned_count;
	int64		scan_left;		/* log rows that may still be stepped over */
	char	   *consumer;
	int64		lease_us;		/* 0: what the messages' timeouts make it */
	ReturnSetInfo *result;
	Tuplestorestate *rows;		/* what is returned, until the lease's end is
								 * known */

	GroupCursor cursor;
	bool		cursor_changed;
	bool		has_charged;	/* a lost lease counted as a failure */
	LeaseTables leases;
	StateTable	exceptions;
	TimestampTz now;
	int64		claim_id;
	int64		longest_timeout_us; /* of the messages returned */
	List	   *segments;		/* of the new claim, to be inserted */
	int64		last_id;		/* the highest that was drawn when the claim began */
	int64		passable_to;	/* what is missing up to here is gone for good */
} Claim;

/* How often something has happened to a message before. */
typedef struct DeliveryCounts
{
	int32		attempts;
	int32		delays;
	int32		takeovers;
} DeliveryCounts;

/* claim_result.c */
extern void claim_result_begin(FunctionCallInfo fcinfo, Claim *claim);
extern bool claim_has_room(const Claim *claim);
extern void claim_return_message(Claim *claim, LogScan *scan, const DeliveryCounts *counts);
extern void claim_lease_messages(Claim *claim, const IdSet *members, int32 takeovers, bool has_exceptions);
extern void claim_result_end(Claim *claim);

/* claim_expired.c, claim_due.c, claim_fresh.c */
extern void claim_return_expired(Claim *claim);
extern void claim_return_due(Claim *claim, int64 max_messages, bool take_suspect);
extern void claim_return_fresh(Claim *claim);

#endif							/* SQLSTREAMS_CLAIM_H */
