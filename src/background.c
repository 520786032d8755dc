/*
 * background.c
 *		Starting background workers of the extension, and how they begin.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/guc.h"

#include "background.h"
#include "compat.h"

/*
 * Fill the description of a worker that runs a function of this library once
 * the server is no standby, is not started again by itself, and whose start and
 * end this process learns of.
 */
void
background_fill(BackgroundWorker *worker, const char *function, const char *type, const char *name)
{
	memset(worker, 0, sizeof(BackgroundWorker));
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	worker->bgw_notify_pid = MyProcPid;
	strlcpy(worker->bgw_library_name, "sqlstreams", sizeof(worker->bgw_library_name));
	strlcpy(worker->bgw_function_name, function, sizeof(worker->bgw_function_name));
	strlcpy(worker->bgw_type, type, sizeof(worker->bgw_type));
	strlcpy(worker->bgw_name, name, sizeof(worker->bgw_name));
}

/*
 * Settings of a worker's session, whatever the database, the role or the
 * configuration file sets for sessions.
 */
void
background_set_session(void)
{
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("statement_timeout", "0", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("idle_in_transaction_session_timeout", "0", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_read_only", "off", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_deferrable", "off", PGC_USERSET, PGC_S_OVERRIDE);
	SetConfigOption("row_security", "on", PGC_USERSET, PGC_S_OVERRIDE);
	compat_set_no_transaction_timeout();
}
