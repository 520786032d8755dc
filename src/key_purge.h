/*
 * key_purge.h
 *		What becomes of exclusive and ordered keys when messages are purged.
 */
#ifndef SQLSTREAMS_KEY_PURGE_H
#define SQLSTREAMS_KEY_PURGE_H

#include "group.h"

extern void key_purge_group(const Stream *stream, const ConsumerGroup *group, int64 last, Snapshot before);

#endif							/* SQLSTREAMS_KEY_PURGE_H */
