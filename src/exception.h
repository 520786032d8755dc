/*
 * exception.h
 *		Messages that a group has to come back to, or has given up: a row each of
 *		exception_queue_<id>.
 */
#ifndef SQLSTREAMS_EXCEPTION_H
#define SQLSTREAMS_EXCEPTION_H

#include "cursor.h"
#include "state_table.h"

typedef enum ExceptionStatus
{
	EXCEPTION_READY = 'r',		/* to be delivered when it is due */
	EXCEPTION_PARKED = 'p',		/* ready, of a version that the group does not
								 * get now */
	EXCEPTION_INFLIGHT = 'i',	/* in an open claim */
	EXCEPTION_DEFERRED = 'd',	/* waits for its key */
	EXCEPTION_DEAD = 'x'		/* given up */
} ExceptionStatus;

typedef struct Exception
{
	ItemPointerData tid;		/* of the row that was read or written */
	int64		message_id;
	ExceptionStatus status;
	TimestampTz due_at;
	int32		attempts;		/* failures so far */
	int32		delays;
	int32		takeovers;		/* leases that were lost */
	bool		is_suspect;		/* to be delivered alone */
	int64		claim_id;		/* of an open claim; 0: none */
	text	   *last_error;		/* may be compressed; NULL: none */
	TimestampTz updated_at;
	int64		version;		/* of the row; 0: there was none */
} Exception;

/* An exception that was found to be due. */
typedef struct DueException
{
	int64		message_id;
	TimestampTz due_at;
} DueException;

/* Reads exceptions of a group. */
typedef struct ExceptionScan
{
	StateTable *table;
	StateScan	scan;
	MemoryContext row_context;	/* what the current exception points to */
} ExceptionScan;

/* What a group's exceptions of some statuses come to, as far as they are read. */
typedef struct ExceptionSummary
{
	int64		count;
	int64		lowest_id;		/* 0: there are none */
	TimestampTz first_due_at;
} ExceptionSummary;

extern void exception_open(const Stream *stream, StateTable *table);
extern bool exception_open_to_read(const Stream *stream, StateTable *table);

extern bool exception_find(StateTable *table, int64 group_id, int64 message_id, Snapshot snapshot,
						   Exception *exception);
extern void exception_insert(StateTable *table, int64 group_id, Exception *exception);
extern void exception_insert_first(StateTable *table, int64 group_id, Exception *exception);
extern void exception_insert_ready(StateTable *table, int64 group_id, Exception *exception,
								   int64 delay_us, TimestampTz not_before);
extern void exception_insert_wakeup(StateTable *table, int64 group_id, int64 claim_id, text *key,
									bool is_rescan, TimestampTz not_before);
extern bool exception_delete(StateTable *table, Exception *exception, bool wait);

extern void exception_scan_begin(ExceptionScan *scan, StateTable *table, int64 group_id,
								 ExceptionStatus status, Snapshot snapshot);
extern bool exception_scan_next(ExceptionScan *scan, Exception *exception);
extern void exception_scan_end(ExceptionScan *scan);

extern void exception_summarize(StateTable *table, int64 group_id, ExceptionStatus status,
								int64 after_id, int64 max_count, Snapshot snapshot,
								ExceptionSummary *summary);
extern int64 exception_find_unresolved(StateTable *table, int64 group_id, int64 after_id, int64 to_id,
									   Snapshot snapshot);
extern bool exception_has_writers(StateTable *table, int64 group_id, int64 after_id, int64 to_id);
extern int64 exception_find_changing(StateTable *table, int64 group_id, int64 after_id, int64 to_id);
extern bool exception_collect_ids(StateTable *table, int64 group_id, ExceptionStatus status, int64 after_id,
								  Snapshot snapshot, int64 *ids, int64 *count, int64 max_count);
extern void exception_wait_for_writers(StateTable *table, int64 group_id, int64 after_id, int64 to_id);

extern void exception_scan_ids_begin(ExceptionScan *scan, StateTable *table, int64 group_id,
									 int64 after_id, Snapshot snapshot);

extern DueException *exception_collect_due(StateTable *table, int64 group_id, GroupCursor *cursor,
										   bool *cursor_changed, TimestampTz now,
										   int64 max_messages, bool take_suspect, int64 *count);
extern void exception_leave_due(GroupCursor *cursor, const DueException *exception);

#endif							/* SQLSTREAMS_EXCEPTION_H */
