/*
 * group_start.h
 *		Where a new consumer group begins to read.
 */
#ifndef SQLSTREAMS_GROUP_START_H
#define SQLSTREAMS_GROUP_START_H

#include "id_set.h"
#include "stream.h"

#include "datatype/timestamp.h"

typedef struct GroupStart
{
	int64		start_id;		/* the first id that the group reads */
	int64		head_id;		/* up to it, only what was missing; 0: all */
	IdSet		missing;		/* ids that nobody could see at the start */
} GroupStart;

extern void group_start_at_head(const Stream *stream, GroupStart *start);
extern void group_start_at_time(const Stream *stream, TimestampTz when, GroupStart *start);

#endif							/* SQLSTREAMS_GROUP_START_H */
