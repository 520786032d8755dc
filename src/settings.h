/*
 * settings.h
 *		The settings of the extension.
 */
#ifndef SQLSTREAMS_SETTINGS_H
#define SQLSTREAMS_SETTINGS_H

#include "postgres.h"

/* A claim that is its own transaction does not wait for its WAL. */
extern bool sqlstreams_relaxed_claim;

/* Log rows that one claim may step over. */
extern int sqlstreams_max_scan;

extern void settings_init(void);

#endif							/* SQLSTREAMS_SETTINGS_H */
