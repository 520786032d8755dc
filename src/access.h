/*
 * access.h
 *		Who may do what with a stream, and acting as somebody else.
 */
#ifndef SQLSTREAMS_ACCESS_H
#define SQLSTREAMS_ACCESS_H

#include "stream.h"

/* What has to be put back after acting as another role. */
typedef struct AccessState
{
	Oid			userid;
	int			security_context;
	int			guc_nest_level;
	bool		creating_extension;
} AccessState;

extern void access_check_produce(const Stream *stream);
extern void access_check_consume(const Stream *stream);
extern void access_check_read(const Stream *stream);
extern void access_open_to_read(const char *name, Stream *stream);
extern void access_check_owner(const Stream *stream);
extern void access_check_drop_incomplete(const Stream *stream);
extern bool access_is_visible(const Stream *stream);
extern Oid	access_relation_owner(Oid relation);
extern Oid	access_stream_owner(const Stream *stream);
extern void access_become_extension(AccessState *saved);
extern void access_become_owner(Oid owner, AccessState *saved);
extern void access_restore(const AccessState *saved);

#endif							/* SQLSTREAMS_ACCESS_H */
