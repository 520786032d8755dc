/*
 * storage.h
 *		A stream's tables: their names, making and dropping them.
 */
#ifndef SQLSTREAMS_STORAGE_H
#define SQLSTREAMS_STORAGE_H

#include "stream.h"

/* Features of a stream whose tables a producer makes when it first needs them. */
typedef enum StorageFeature
{
	STORAGE_IDEMPOTENCY,
	STORAGE_COMPACTION
} StorageFeature;

extern Oid	storage_create_stream(int64 stream_id, Oid owner);
extern bool storage_is_complete(const Stream *stream);
extern void storage_create_group_tables(const Stream *stream);
extern bool storage_has_feature(const Stream *stream, StorageFeature feature);
extern void storage_create_feature(int64 stream_id, Oid log_oid, StorageFeature feature, int64 generation);
extern void storage_create_idempotency_table(const Stream *stream, int64 generation);
extern void storage_drop_idempotency_table(const Stream *stream, int64 generation);
extern void storage_hand_to_owner(const char *kind, const char *name, Oid owner);
extern void storage_give_to(Oid table, Oid owner);
extern void storage_give_tables_to(const Stream *stream, Oid owner);
extern void storage_drop_stream(const Stream *stream);
extern void storage_execute(const char *sql);

#endif							/* SQLSTREAMS_STORAGE_H */
