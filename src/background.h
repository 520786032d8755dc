/*
 * background.h
 *		Starting background workers of the extension, and how they begin.
 */
#ifndef SQLSTREAMS_BACKGROUND_H
#define SQLSTREAMS_BACKGROUND_H

#include "postgres.h"

#include "postmaster/bgworker.h"

extern void background_fill(BackgroundWorker *worker, const char *function, const char *type, const char *name);
extern void background_set_session(void);

#endif							/* SQLSTREAMS_BACKGROUND_H */
