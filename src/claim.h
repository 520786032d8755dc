/*
 * claim.h
 *		A claim as it is being made: what the parts of claim share.
 */
#ifndef SQLSTREAMS_CLAIM_H
#define SQLSTREAMS_CLAIM_H

#include "compaction.h"
#include "concurrency.h"
#include "cursor.h"
#include "delivery_log.h"
#include "exception.h"
#include "group.h"
#include "lease.h"
#include "message_log.h"
#include "message_options.h"

#include "nodes/execnodes.h"
#include "utils/tuplestore.h"

typedef struct ClaimKeys ClaimKeys;
typedef struct KeyState KeyState;

typedef struct Claim
{
	Stream		stream;
	ConsumerGroup group;
	bool		is_pop;			/* no lease: the messages are done */
	int64		max_messages;
	int64		max_per_key;	/* messages of one exclusive or ordered key */
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
	bool		has_key;		/* claim_take_key gave the last message its key */
	bool		has_keys;		/* ... or any that was returned */
	bool		has_several_per_key;	/* more than one of a key */
	ClaimKeys  *keys;			/* NULL until the first is met */
	List	   *unfinished_keys;	/* of which it may carry more: KeyState */
	CompactionReader *heads;	/* NULL unless a scan has met a compacted message */
	Snapshot	heads_snapshot;
	DeliveryLog log;
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
extern void claim_lease_messages(Claim *claim, const IdSet *members, int32 takeovers,
								 bool has_exceptions, bool has_keys);
extern void claim_result_end(Claim *claim);

/* claim_message.c */
extern bool claim_is_superseded(Claim *claim, LogScan *scan);
extern void claim_close_heads(Claim *claim);
extern bool claim_is_for_later(const Claim *claim, LogScan *scan, TimestampTz *deliver_at);
extern Concurrency claim_concurrency(const Claim *claim, LogScan *scan);
extern text *claim_message_key(LogScan *scan);
extern void claim_supersede(Claim *claim, int64 message_id, int32 attempts);
extern void claim_defer(Claim *claim, LogScan *scan, Exception *exception);
extern bool claim_take_key(Claim *claim, LogScan *scan, bool was_held);

/* claim_keys.c */
extern bool claim_keys_take(Claim *claim, const text *key, int64 message_id, Concurrency concurrency);
extern bool claim_keys_reserve(Claim *claim, const text *key, int64 message_id);
extern KeyState *claim_keys_drop(Claim *claim, const text *key, int64 message_id);
extern bool claim_keys_has(Claim *claim, const text *key, int64 message_id);
extern void claim_keys_defer(Claim *claim, const text *key, int64 message_id);
extern List *claim_keys_woken(Claim *claim, const Exception *wakeup);
extern bool claim_keys_next_deferred(Claim *claim, KeyState *state, int64 *message_id);
extern bool claim_keys_is_unwatched(Claim *claim, const KeyState *state);
extern void claim_keys_wake_all(Claim *claim);
extern const text *claim_keys_key(const KeyState *state);
extern bool claim_keys_may_follow(const Claim *claim, const KeyState *state);
extern bool claim_keys_has_more(const KeyState *state);
extern void claim_keys_write(Claim *claim);

/* claim_expired.c, claim_due.c, claim_fresh.c */
extern void claim_return_expired(Claim *claim);
extern void claim_return_due(Claim *claim, int64 max_messages, bool take_suspect);
extern void claim_return_fresh(Claim *claim);

#endif							/* SQLSTREAMS_CLAIM_H */
