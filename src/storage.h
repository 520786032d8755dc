/*
 * storage.h
 *		A stream's tables: their names, making and dropping them.
 */
#ifndef SQLSTREAMS_STORAGE_H
#define SQLSTREAMS_STORAGE_H

#include "stream.h"

extern Oid	storage_create_stream(int64 stream_id, Oid owner);
extern void storage_create_group_tables(const Stream *stream);
extern void storage_create_idempotency_table(int64 stream_id, Oid log_oid);
extern void storage_hand_to_owner(const char *kind, const char *name, Oid owner);
extern void storage_give_to(Oid table, Oid owner);
extern void storage_drop_stream(const Stream *stream);
extern void storage_execute(const char *sql);

#endif							/* SQLSTREAMS_STORAGE_H */
