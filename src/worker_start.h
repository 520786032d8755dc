/*
 * worker_start.h
 *		Starting the worker of this database from a session that needs it.
 */
#ifndef SQLSTREAMS_WORKER_START_H
#define SQLSTREAMS_WORKER_START_H

#include "postgres.h"

extern void worker_start_init(void);
extern void worker_start_if_needed(void);

#endif							/* SQLSTREAMS_WORKER_START_H */
