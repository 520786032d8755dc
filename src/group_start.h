/*
 * group_start.h
 *		Where a new consumer group begins to read.
 */
#ifndef SQLSTREAMS_GROUP_START_H
#define SQLSTREAMS_GROUP_START_H

#include "id_set.h"
#include "stream.h"

#include "datatype/timestamp.h"
#include "fmgr.h"

typedef struct GroupStart
{
	int64		start_id;		/* the first id that the group reads */
	int64		head_id;		/* up to it, only what was missing; 0: all */
	IdSet		missing;		/* ids that nobody could see at the start */
} GroupStart;

/* What a call says of it. */
typedef struct GroupStartArguments
{
	int			count;			/* of start_position, start_id and start_time, how
								 * many are given */
	bool		is_beginning;	/* nothing is given, or this */
	bool		is_head;
	bool		has_id;
	int64		id;
	TimestampTz time;			/* otherwise */
} GroupStartArguments;

extern GroupStartArguments group_start_read(FunctionCallInfo fcinfo, int first);
extern void group_start_find(const Stream *stream, const GroupStartArguments *arguments, GroupStart *start);

#endif							/* SQLSTREAMS_GROUP_START_H */
