/*
 * message_log_keys.h
 *		Which of some keys have messages in the log.
 */
#ifndef SQLSTREAMS_MESSAGE_LOG_KEYS_H
#define SQLSTREAMS_MESSAGE_LOG_KEYS_H

#include "partition.h"
#include "stream.h"

/* A key that is looked for. */
typedef struct SearchedKey
{
	text	   *key;
	bool		is_found;		/* it has, or may have, a compacted message */
} SearchedKey;

extern void message_log_find_compacted(const Stream *stream, const StreamPartition *partitions, int partition_count,
									   SearchedKey *keys, int key_count);

#endif							/* SQLSTREAMS_MESSAGE_LOG_KEYS_H */
