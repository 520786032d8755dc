/*
 * lease_take.h
 *		Taking over claims whose leases have ended.
 */
#ifndef SQLSTREAMS_LEASE_TAKE_H
#define SQLSTREAMS_LEASE_TAKE_H

#include "lease.h"

extern List *lease_take_expired(LeaseTables *tables, int64 group_id, GroupCursor *cursor, bool *cursor_changed,
								TimestampTz now, bool is_idle, int32 max_reclaims, int64 max_messages);
extern bool lease_is_spent(const LeaseSegment *segment, int32 max_reclaims);

#endif							/* SQLSTREAMS_LEASE_TAKE_H */
