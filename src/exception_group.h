/*
 * exception_group.h
 *		What is done to many exceptions of a group at once.
 */
#ifndef SQLSTREAMS_EXCEPTION_GROUP_H
#define SQLSTREAMS_EXCEPTION_GROUP_H

#include "exception.h"

/* Which dead messages of a group are meant: those to which all of it applies. */
typedef struct DeadChoice
{
	bool		has_ids;
	const int64 *ids;			/* each once */
	int			id_count;
	text	   *error_like;		/* a pattern for the last error; NULL: any */
} DeadChoice;

extern int64 exception_group_redrive(const Stream *stream, int64 group_id, const DeadChoice *choice);
extern int64 exception_group_discard(const Stream *stream, int64 group_id, const DeadChoice *choice);
extern bool exception_group_is_busy(const Stream *stream, int64 group_id, int64 after_id, int64 to_id);
extern void exception_group_wait(const Stream *stream, int64 group_id, int64 after_id, int64 to_id);
extern void exception_group_delete(const Stream *stream, int64 group_id, int64 after_id, int64 to_id,
								   bool delete_dead);
extern bool exception_group_delete_free(const Stream *stream, int64 group_id, int64 after_id, int64 to_id,
										bool dead_only, int64 *rows_left);
extern void exception_group_unpark(const Stream *stream, int64 group_id);

#endif							/* SQLSTREAMS_EXCEPTION_GROUP_H */
