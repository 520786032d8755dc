/*
 * launcher.h
 *		The process that starts a worker for each database.
 */
#ifndef SQLSTREAMS_LAUNCHER_H
#define SQLSTREAMS_LAUNCHER_H

#include "postgres.h"

extern void launcher_init(void);
extern PGDLLEXPORT void sqlstreams_launcher_main(Datum arg);

#endif							/* SQLSTREAMS_LAUNCHER_H */
