/*
 * retention.h
 *		The duty that drops messages whose time is over.
 */
#ifndef SQLSTREAMS_RETENTION_H
#define SQLSTREAMS_RETENTION_H

#include "duty.h"

extern void retention_step(const Stream *stream, DutyMemory *memory, DutyStep *step);

#endif							/* SQLSTREAMS_RETENTION_H */
