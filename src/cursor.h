/*
 * cursor.h
 *		How far a consumer group has claimed, and what its next claim must know.
 */
#ifndef SQLSTREAMS_CURSOR_H
#define SQLSTREAMS_CURSOR_H

#include "fence.h"
#include "group.h"

#include "storage/itemptr.h"

/*
 * Expired leases that a claim found locked by an open transaction.  It looks
 * at these again by themselves, so that the scan of expired leases never has
 * to go back to them.
 */
#define CURSOR_MAX_STEPPED_OVER 64

/* Transactions whose exceptions a claim can remember (exception.c). */
#define CURSOR_MAX_DUE_WRITERS 64

/*
 * An open transaction that has inserted exceptions; none of those that were
 * seen is due before the time.
 */
typedef struct DueWriter
{
	FullTransactionId id;
	TimestampTz from;
} DueWriter;

typedef struct GroupCursor
{
	ItemPointerData tid;		/* of the version that was read */
	int64		version;
	int64		claimed;		/* every id up to it was handed out or passed */
	TimestampTz lease_scan_from;	/* no live lease, but for those stepped
									 * over, ends before it */
	TimestampTz recheck_at;		/* when to look at those stepped over */
	int			stepped_over_count;
	int64		stepped_over[CURSOR_MAX_STEPPED_OVER];	/* claim ids */
	FenceMemory fence;
	TimestampTz last_claim_at;	/* 0: never */
	TimestampTz due_from;		/* no ready exception, but for those of the
								 * writers, is due before it */
	int			due_writer_count;
	DueWriter	due_writers[CURSOR_MAX_DUE_WRITERS];
	bool		filled_by_due;	/* the last claim had no room for fresh ones */
	int64		superseded;		/* messages that a newer version replaced */
} GroupCursor;

extern void cursor_create(const Stream *stream, int64 group_id, int64 claimed);
extern bool cursor_read(const Stream *stream, int64 group_id, Snapshot snapshot, GroupCursor *cursor);
extern bool cursor_exists_of_others(const Stream *stream, const int64 *group_ids, int count, Snapshot snapshot);
extern TimestampTz cursor_read_due_from(const Stream *stream, int64 group_id, Snapshot snapshot);
extern void cursor_load(const Stream *stream, const ConsumerGroup *group, GroupCursor *cursor);
extern void cursor_write(const Stream *stream, int64 group_id, GroupCursor *cursor);
extern void cursor_delete(const Stream *stream, int64 group_id);

#endif							/* SQLSTREAMS_CURSOR_H */
