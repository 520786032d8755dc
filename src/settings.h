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

/* Background workers do the maintenance. */
extern bool sqlstreams_worker;

/* How often a worker looks for what nobody told it. */
extern int sqlstreams_naptime_ms;

/* In which databases; empty: in every one that has the extension. */
extern char *sqlstreams_databases;

extern void settings_init(void);
extern bool settings_include_database(const char *name);

#endif							/* SQLSTREAMS_SETTINGS_H */
