/*
 * resolution.h
 *		What a holder says of its claim: ack, release, extend.
 */
#ifndef SQLSTREAMS_RESOLUTION_H
#define SQLSTREAMS_RESOLUTION_H

#include "group.h"

extern int64 resolution_ack(const Stream *stream, const ConsumerGroup *group, int64 claim_id);
extern int64 resolution_ack_messages(const Stream *stream, const ConsumerGroup *group, int64 claim_id,
									 const int64 *sorted_ids, int64 count);
extern int64 resolution_release(const Stream *stream, const ConsumerGroup *group, int64 claim_id);
extern int64 resolution_release_messages(const Stream *stream, const ConsumerGroup *group, int64 claim_id,
										 const int64 *sorted_ids, int64 count);
extern TimestampTz resolution_extend(const Stream *stream, const ConsumerGroup *group, int64 claim_id,
									 int64 lease_us);

#endif							/* SQLSTREAMS_RESOLUTION_H */
