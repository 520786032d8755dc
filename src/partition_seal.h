/*
 * partition_seal.h
 *		The duty that finds out that nobody writes to a partition any more.
 */
#ifndef SQLSTREAMS_PARTITION_SEAL_H
#define SQLSTREAMS_PARTITION_SEAL_H

#include "duty.h"

extern void partition_seal_step(const Stream *stream, DutyMemory *memory, DutyStep *step);

#endif							/* SQLSTREAMS_PARTITION_SEAL_H */
