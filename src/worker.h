/*
 * worker.h
 *		The worker of a database: does what maintenance is due.
 */
#ifndef SQLSTREAMS_WORKER_H
#define SQLSTREAMS_WORKER_H

#include "postgres.h"

#include "postmaster/bgworker.h"

/* Must be the default_version of the control file. */
#define WORKER_EXTENSION_VERSION "1.0"

extern bool worker_register(Oid database, bool is_successor, BackgroundWorkerHandle **handle);
extern PGDLLEXPORT void sqlstreams_worker_main(Datum arg);

#endif							/* SQLSTREAMS_WORKER_H */
