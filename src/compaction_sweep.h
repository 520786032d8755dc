/*
 * compaction_sweep.h
 *		The duty that removes compaction heads whose messages are gone.
 */
#ifndef SQLSTREAMS_COMPACTION_SWEEP_H
#define SQLSTREAMS_COMPACTION_SWEEP_H

#include "duty.h"

extern void compaction_sweep_step(const Stream *stream, DutyMemory *memory, DutyStep *step);

#endif							/* SQLSTREAMS_COMPACTION_SWEEP_H */
