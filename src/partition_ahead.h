/*
 * partition_ahead.h
 *		The duty that makes partitions before producers need them.
 */
#ifndef SQLSTREAMS_PARTITION_AHEAD_H
#define SQLSTREAMS_PARTITION_AHEAD_H

#include "duty.h"

extern void partition_ahead_step(const Stream *stream, DutyMemory *memory, DutyStep *step);

#endif							/* SQLSTREAMS_PARTITION_AHEAD_H */
