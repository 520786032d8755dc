/*
 * log_partition.h
 *		What maintenance knows of the partitions of a log: a row each of
 *		sqlstreams.log_partition.
 */
#ifndef SQLSTREAMS_LOG_PARTITION_H
#define SQLSTREAMS_LOG_PARTITION_H

#include "postgres.h"

#include "access/transam.h"
#include "datatype/timestamp.h"
#include "storage/itemptr.h"
#include "utils/snapshot.h"

typedef struct LogPartition
{
	ItemPointerData tid;		/* of the row that was read */
	int64		number;
	TimestampTz created_at;
	bool		has_writers;	/* who might still write to it was listed ... */
	int			writer_count;
	FullTransactionId *writers;
	uint64		writers_system; /* ... on the server with this identifier */
	TimestampTz sealed_at;		/* 0: not yet */
	TimestampTz dropped_at;		/* 0: its messages are there */
} LogPartition;

extern void log_partition_add(int64 stream_id, int64 number);
extern int	log_partition_list(int64 stream_id, Snapshot snapshot, LogPartition **rows);
extern LogPartition *log_partition_find(LogPartition *rows, int count, int64 number);
extern void log_partition_replace(int64 stream_id, LogPartition *row);
extern void log_partition_delete(LogPartition *row);
extern void log_partition_delete_of_stream(int64 stream_id);

#endif							/* SQLSTREAMS_LOG_PARTITION_H */
