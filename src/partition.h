/*
 * partition.h
 *		Which partition of a log an id lives in; find, make, drop one.
 */
#ifndef SQLSTREAMS_PARTITION_H
#define SQLSTREAMS_PARTITION_H

#include "stream.h"

#include "message_log.h"

#include "storage/lockdefs.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

/* A partition of a log. */
typedef struct StreamPartition
{
	Oid			oid;
	int64		number;
} StreamPartition;

extern void partition_init(void);
extern int64 partition_number(const Stream *stream, int64 id);
extern int64 partition_first_id(const Stream *stream, int64 number);
extern int64 partition_last_id(const Stream *stream, int64 number);
extern Relation partition_open(const Stream *stream, int64 number, Snapshot snapshot, LOCKMODE lockmode);
extern LogShape partition_shape(const Stream *stream, int64 number);
extern bool partition_exists(const Stream *stream, int64 number);
extern bool partition_find_next(const Stream *stream, int64 number, Snapshot snapshot, int64 *found);
extern int partition_list(const Stream *stream, StreamPartition **partitions);
extern void partition_create(int64 stream_id, Oid log_oid, int64 partition_size, int64 number);
extern bool partition_create_if_free(const Stream *stream, int64 number);
extern bool partition_is_being_made_here(const Stream *stream);
extern bool partition_drop_if_free(const Stream *stream, int64 number);

#endif							/* SQLSTREAMS_PARTITION_H */
