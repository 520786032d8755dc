/*
 * key_lease.h
 *		Which messages have the keys of a group: a row for each key of
 *		message_key_lease_<id>.
 */
#ifndef SQLSTREAMS_KEY_LEASE_H
#define SQLSTREAMS_KEY_LEASE_H

#include "group.h"
#include "state_table.h"
#include "state_walk.h"

#include "nodes/pg_list.h"

typedef struct KeyLease
{
	ItemPointerData tid;		/* of the row that was read */
	text	   *key;
	int64		claim_id;		/* in which the holders were delivered last */
	bool		is_ordered;		/* the holders keep the key until they are
								 * resolved */
	int			holder_count;
	int64	   *holders;		/* message ids, rising */
	bool		has_deferred;	/* messages may wait for the key ... */
	int64		deferred_from;	/* ... none of them below this id */
} KeyLease;

extern void key_lease_open(const Stream *stream, StateTable *table);
extern bool key_lease_open_to_read(const Stream *stream, StateTable *table);
extern bool key_lease_find(StateTable *table, int64 group_id, const text *key, Snapshot snapshot,
						   KeyLease *lease);
extern bool key_lease_may_be_awaited(StateTable *table, int64 group_id, const text *key);
extern bool key_lease_is_awaited(StateTable *table, int64 group_id, int64 claim_id, Snapshot snapshot);
extern List *key_lease_list_of_claim(StateTable *table, int64 group_id, int64 claim_id, bool with_deferred_only,
									 Snapshot snapshot);
extern List *key_lease_list_of_group(StateTable *table, int64 group_id, Snapshot snapshot);
extern void key_lease_walk_begin(StateWalk *walk, StateTable *table, Snapshot snapshot, int64 group_id,
								 text *key, int64 version, int64 max_entries);
extern bool key_lease_walk_next(StateWalk *walk, int64 *group_id, KeyLease *lease);
extern text *key_lease_walk_place(StateWalk *walk, int64 *group_id, int64 *version);
extern void key_lease_insert(StateTable *table, int64 group_id, int64 version, const KeyLease *lease);
extern void key_lease_delete_of_group(StateTable *table, int64 group_id);
extern void key_lease_delete(StateTable *table, const KeyLease *lease);

#endif							/* SQLSTREAMS_KEY_LEASE_H */
