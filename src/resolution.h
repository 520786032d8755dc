/*
 * resolution.h
 *		What a holder says of its claim.
 */
#ifndef SQLSTREAMS_RESOLUTION_H
#define SQLSTREAMS_RESOLUTION_H

#include "outcome.h"

pg_noreturn extern void resolution_raise_lost(const ConsumerGroup *group, int64 claim_id);
extern int64 resolution_resolve(const Stream *stream, const ConsumerGroup *group, int64 claim_id,
								const Resolution *named, int64 named_count, const Resolution *others,
								int64 *dead_count);
extern int64 resolution_ack(const Stream *stream, const ConsumerGroup *group, int64 claim_id);
extern TimestampTz resolution_extend(const Stream *stream, const ConsumerGroup *group, int64 claim_id,
									 int64 lease_us);

#endif							/* SQLSTREAMS_RESOLUTION_H */
