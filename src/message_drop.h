/*
 * message_drop.h
 *		Letting go of the oldest messages of a stream.
 */
#ifndef SQLSTREAMS_MESSAGE_DROP_H
#define SQLSTREAMS_MESSAGE_DROP_H

#include "stream.h"

/* What came of forgetting some of what hangs on messages. */
typedef struct MessageSweep
{
	int64		rows_left;		/* that may still be deleted */
	bool		is_busy;		/* an open transaction has some of it */
} MessageSweep;

extern void message_drop_through(const Stream *stream, int64 last);
extern void message_drop_exceptions(const Stream *stream, int64 last, bool dead_only, MessageSweep *sweep);
extern void message_drop_deliveries(const Stream *stream, int64 last, MessageSweep *sweep);

#endif							/* SQLSTREAMS_MESSAGE_DROP_H */
