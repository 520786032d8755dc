/*
 * lease.h
 *		The messages that a group's claims hold, and until when.
 */
#ifndef SQLSTREAMS_LEASE_H
#define SQLSTREAMS_LEASE_H

#include "cursor.h"
#include "id_set.h"

#include "nodes/pg_list.h"
#include "state_table.h"

/* Have messages of a segment exclusive or ordered keys? */
typedef enum LeaseKeys
{
	LEASE_KEYS_NONE = 'n',
	LEASE_KEYS_ONE = 'o',		/* no key has two messages in the claim */
	LEASE_KEYS_SEVERAL = 's'	/* one may have */
} LeaseKeys;

/*
 * A claim is one or more segments: messages that have shared their fate so
 * far.  Each is a row of claim_lease_<id>.
 */
typedef struct LeaseSegment
{
	ItemPointerData tid;		/* of the row that was read */
	int64		claim_id;
	int32		segment;
	TimestampTz claimed_at;
	TimestampTz expires_at;
	int64		lease_us;		/* what it was made for */
	int32		takeovers;		/* leases of its messages that were lost */
	bool		is_released;	/* handed back: the next lease is no take-over */
	IdSet		members;
	char	   *consumer;		/* NULL: none */
	bool		has_exceptions; /* its messages have rows in exception_queue */
	LeaseKeys	keys;
	bool		was_alone;		/* taken over: it was the claim's only message */
} LeaseSegment;

/* The tables of a stream's leases, open. */
typedef struct LeaseTables
{
	StateTable	leases;
	StateTable	resolved;
} LeaseTables;

extern void lease_open(const Stream *stream, LeaseTables *tables);
extern bool lease_open_to_read(const Stream *stream, LeaseTables *tables);
extern void lease_close(LeaseTables *tables);
extern int64 lease_draw_claim_id(void);
extern void lease_insert(LeaseTables *tables, int64 group_id, const LeaseSegment *segment);
extern TM_Result lease_delete(LeaseTables *tables, LeaseSegment *segment, bool wait);
extern int	lease_find_segment(List *segments, int64 message_id);
extern bool lease_exists(LeaseTables *tables, int64 claim_id, Snapshot snapshot);
extern bool lease_is_held_for_sure(LeaseTables *tables, int64 claim_id, int64 message_id);
extern List *lease_load_claim(LeaseTables *tables, int64 group_id, int64 claim_id, Snapshot snapshot);
extern List *lease_remove_claim(LeaseTables *tables, int64 group_id, int64 claim_id);
extern void lease_wait_for_claim(LeaseTables *tables, int64 group_id, int64 claim_id);
extern bool lease_lock_claim_if_free(LeaseTables *tables, int64 group_id, int64 claim_id);
extern List *lease_load_group(LeaseTables *tables, int64 group_id, Snapshot snapshot);
extern int64 *lease_load_resolved(LeaseTables *tables, int64 claim_id, Snapshot snapshot, int64 *count);
extern void lease_subtract_resolved(LeaseTables *tables, LeaseSegment *segment, Snapshot snapshot);
extern void lease_delete_resolved(LeaseTables *tables, int64 claim_id);
extern bool lease_insert_resolved(LeaseTables *tables, int64 claim_id, int64 message_id);
extern bool lease_is_resolved(LeaseTables *tables, int64 claim_id, int64 message_id, Snapshot snapshot);
extern void lease_hint_not_after(GroupCursor *cursor, TimestampTz when);
extern void lease_put_back(LeaseTables *tables, int64 group_id, GroupCursor *cursor, LeaseSegment *segment);
extern void lease_begin_ends(StateScan *scan, LeaseTables *tables, int64 group_id, TimestampTz from,
							 TimestampTz to, Snapshot snapshot);
extern bool lease_next_end(StateScan *scan, LeaseTables *tables, TimestampTz *expires_at, int64 *claim_id);

#endif							/* SQLSTREAMS_LEASE_H */
