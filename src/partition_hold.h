/*
 * partition_hold.h
 *		Why a partition is still there.
 */
#ifndef SQLSTREAMS_PARTITION_HOLD_H
#define SQLSTREAMS_PARTITION_HOLD_H

#include "log_partition.h"
#include "stream.h"

/* What a stream's groups keep. */
typedef struct GroupHold
{
	int64		from_id;		/* the lowest id that one needs; PG_INT64_MAX: none */
	char	   *reason;			/* who needs it, in words */
} GroupHold;

extern bool partition_hold_find_writer(const LogPartition *row, FullTransactionId *writer);
extern char *partition_hold_by_writers(const LogPartition *row);
extern void partition_hold_by_groups(const Stream *stream, int64 to_id, Snapshot snapshot, GroupHold *hold);
extern char *partition_hold_by_dependent(Oid partition);
extern bool partition_hold_is_expired(const Stream *stream, const LogPartition *row, TimestampTz now);

#endif							/* SQLSTREAMS_PARTITION_HOLD_H */
