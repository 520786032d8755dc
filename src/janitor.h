/*
 * janitor.h
 *		What maintenance is due, and doing it.
 */
#ifndef SQLSTREAMS_JANITOR_H
#define SQLSTREAMS_JANITOR_H

#include "postgres.h"

#include "datatype/timestamp.h"

typedef struct Janitor Janitor;

/* Which streams a janitor cares for; "owner" is the stream's. */
typedef bool (*JanitorFilter) (Oid owner);

extern Janitor *janitor_create(JanitorFilter filter, bool waits, bool commits);
extern void janitor_refresh(Janitor *janitor);
extern void janitor_notify(Janitor *janitor, int64 stream_id);
extern void janitor_notify_all(Janitor *janitor);
extern TimestampTz janitor_next_due(Janitor *janitor);
extern bool janitor_pick(Janitor *janitor, TimestampTz now);
extern const char *janitor_do_step(Janitor *janitor);
extern void janitor_step_failed(Janitor *janitor, const ErrorData *error);
extern const char *janitor_error(const Janitor *janitor, TimestampTz *at);
extern uint64 janitor_skipped_streams(const Janitor *janitor);
extern bool janitor_has_refused(const Janitor *janitor);

#endif							/* SQLSTREAMS_JANITOR_H */
