/*
 * key_holder.h
 *		Which message has a key.
 */
#ifndef SQLSTREAMS_KEY_HOLDER_H
#define SQLSTREAMS_KEY_HOLDER_H

#include "exception.h"
#include "key_lease.h"
#include "lease.h"

/* The tables of a stream that say so, open. */
typedef struct KeyHolderTables
{
	const Stream *stream;
	LeaseTables *leases;
	StateTable *exceptions;
} KeyHolderTables;

extern bool key_holder_is_known(const KeyHolderTables *tables, int64 group_id, const KeyLease *lease,
								Snapshot snapshot);
extern int64 key_holder_find(const KeyHolderTables *tables, int64 group_id, const KeyLease *lease,
							 Snapshot snapshot, bool *is_open);

#endif							/* SQLSTREAMS_KEY_HOLDER_H */
