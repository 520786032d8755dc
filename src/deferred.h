/*
 * deferred.h
 *		The messages that wait for their keys, in the order in which they get
 *		them: a row each of deferred_message_<id>, beside the exception.
 */
#ifndef SQLSTREAMS_DEFERRED_H
#define SQLSTREAMS_DEFERRED_H

#include "group.h"
#include "state_table.h"

extern void deferred_open(const Stream *stream, StateTable *table);
extern void deferred_insert(StateTable *table, int64 group_id, text *key, int64 message_id);
extern bool deferred_find_first(StateTable *table, int64 group_id, const text *key, int64 from_id,
								int64 *message_id, ItemPointer tid);
extern bool deferred_delete_through(StateTable *table, int64 group_id, const text *key, int64 through,
									int64 *rows_left);
extern void deferred_delete_of_group(StateTable *table, int64 group_id);
extern void deferred_delete(StateTable *table, ItemPointer tid);

#endif							/* SQLSTREAMS_DEFERRED_H */
