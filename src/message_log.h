/*
 * message_log.h
 *		Append to a stream's log and read from it.
 */
#ifndef SQLSTREAMS_MESSAGE_LOG_H
#define SQLSTREAMS_MESSAGE_LOG_H

#include "stream.h"

#include "utils/rel.h"
#include "utils/snapshot.h"

/* Column numbers of message_log_<id>. */
#define Anum_log_id					1
#define Anum_log_created_at			2
#define Anum_log_deliver_at			3
#define Anum_log_compaction_rank	4
#define Anum_log_schema_version		5
#define Anum_log_concurrency		6
#define Anum_log_message_key		7
#define Anum_log_routing_key		8
#define Anum_log_headers			9
#define Anum_log_options			10
#define Anum_log_payload			11
#define Anum_log_body				12
#define LOG_COLUMNS					12

/* A row to append; values and isnull are indexed by column number - 1. */
typedef struct LogMessage
{
	int64		id;				/* 0: not stored (a duplicate) */
	Datum		values[LOG_COLUMNS];
	bool		isnull[LOG_COLUMNS];
} LogMessage;

/*
 * The indexes of a partition to which nothing was added: then its rows can be
 * written without the executor.  Invalid otherwise.
 */
typedef struct LogShape
{
	Oid			id_index;
	Oid			key_index;
} LogShape;

typedef struct LogScan LogScan;

extern void message_log_check_columns(Relation rel);
extern Oid	message_log_find_key_index(Relation rel);
extern void message_log_find_shape(Relation rel, LogShape *shape);
extern void message_log_check_access(const Stream *stream);
extern void message_log_append(const Stream *stream, LogMessage **messages, int count);

extern LogScan *message_log_scan_begin(const Stream *stream, Snapshot snapshot, int64 from_id, int64 to_id);
extern void message_log_scan_seek(LogScan *scan, int64 from_id, int64 to_id);
extern bool message_log_scan_next(LogScan *scan);
extern int64 message_log_scan_id(const LogScan *scan);
extern int64 message_log_scan_searched_to(const LogScan *scan);
extern bool message_log_scan_has_skipped(const LogScan *scan);
extern void message_log_scan_row(LogScan *scan, Datum **values, bool **isnull);
extern void message_log_scan_end(LogScan *scan);
extern bool message_log_find_created_at(const Stream *stream, Snapshot snapshot, int64 from_id, int64 to_id,
										TimestampTz *created_at);

#endif							/* SQLSTREAMS_MESSAGE_LOG_H */
