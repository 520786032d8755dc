/*
 * key_sweep.h
 *		The duty that forgets exclusive and ordered keys that nobody uses.
 */
#ifndef SQLSTREAMS_KEY_SWEEP_H
#define SQLSTREAMS_KEY_SWEEP_H

#include "duty.h"

extern void key_sweep_step(const Stream *stream, DutyMemory *memory, DutyStep *step);

#endif							/* SQLSTREAMS_KEY_SWEEP_H */
