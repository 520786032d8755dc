/*
 * idempotency_rotation.h
 *		A duty of maintenance: dropping old idempotency keys, a table at a time.
 */
#ifndef SQLSTREAMS_IDEMPOTENCY_ROTATION_H
#define SQLSTREAMS_IDEMPOTENCY_ROTATION_H

#include "duty.h"

extern void idempotency_rotation_step(const Stream *stream, DutyMemory *memory, DutyStep *step);

#endif							/* SQLSTREAMS_IDEMPOTENCY_ROTATION_H */
