/*
 * worker_start.c
 *		Starting the worker of this database from a session that needs it.
 *
 * Whoever creates the extension, produces or claims sees to it that a worker
 * runs.  Where there is a launcher it is told, for it may not know that the
 * extension is here; otherwise the session starts the worker itself and goes on
 * at once.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "errors.h"
#include "settings.h"
#include "worker.h"
#include "worker_registry.h"
#include "worker_start.h"

/* A session that sees no worker looks no more often than this. */
#define RETRY_US (1 * USECS_PER_SEC)

/* start_worker() looks so often whether the worker has got to its database. */
#define POLL_MS 10

/* Is a worker to be looked for once more when the transaction commits? */
static bool start_at_commit = false;

PG_FUNCTION_INFO_V1(sqlstreams_start_worker);

/* Is there to be a worker in this database? */
static bool
is_wanted(void)
{
	return sqlstreams_worker && !RecoveryInProgress() && settings_include_database(get_database_name(MyDatabaseId));
}

/*
 * Have a worker started, by the launcher if there is one.  Raises nothing, so
 * that it can be called when a transaction has committed.
 */
static void
try_to_start(void)
{
	if (worker_registry_want(MyDatabaseId) || !worker_registry_begin_start(MyDatabaseId))
		return;
	if (!worker_register(MyDatabaseId, false, NULL))
		worker_registry_end_start(MyDatabaseId);
}

/*
 * A transaction ends.  When it has just created the extension, a worker that was
 * started before did not see that.
 */
static void
transaction_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
			if (start_at_commit)
				try_to_start();
			start_at_commit = false;
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			start_at_commit = false;
			break;
		default:
			break;
	}
}

/* Called once, when the library is loaded. */
void
worker_start_init(void)
{
	RegisterXactCallback(transaction_callback, NULL);
}

/*
 * Have a worker started for this database unless one runs; does not wait for it,
 * and raises nothing.  Cheap when one runs, and when none is to run.
 */
void
worker_start_if_needed(void)
{
	static TimestampTz last_look = 0;
	TimestampTz now;

	if (!sqlstreams_worker || !worker_registry_is_there() || worker_registry_seems_running(MyDatabaseId))
		return;
	now = GetCurrentTimestamp();
	if (now - last_look < RETRY_US)
		return;
	last_look = now;
	if (worker_registry_is_running(MyDatabaseId) || !is_wanted())
		return;
	start_at_commit = true;
	try_to_start();
}

/* Raise SS007 when settings keep a worker out of this database. */
static void
check_settings(void)
{
	const char *name = get_database_name(MyDatabaseId);

	if (!sqlstreams_worker)
		ereport(ERROR,
				(errcode(ERRCODE_MAINTENANCE_UNAVAILABLE),
				 errmsg("could not start a worker in database \"%s\"", name),
				 errhint("Set sqlstreams.worker to on, or schedule sqlstreams.maintain().")));
	if (!settings_include_database(name))
		ereport(ERROR,
				(errcode(ERRCODE_MAINTENANCE_UNAVAILABLE),
				 errmsg("could not start a worker in database \"%s\"", name),
				 errhint("Add the database to sqlstreams.databases, or schedule sqlstreams.maintain().")));
	if (!worker_registry_is_there())
		ereport(ERROR,
				(errcode(ERRCODE_MAINTENANCE_UNAVAILABLE),
				 errmsg("could not start a worker in database \"%s\"", name),
				 errdetail("There is no shared memory left."),
				 errhint("Add sqlstreams to shared_preload_libraries, or schedule sqlstreams.maintain().")));
}

/* Raise SS007: the server has no room for another worker. */
static void
raise_no_slot(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_MAINTENANCE_UNAVAILABLE),
			 errmsg("could not start a worker in database \"%s\"", get_database_name(MyDatabaseId)),
			 errhint("Increase max_worker_processes, or schedule sqlstreams.maintain().")));
}

/* Wait until the worker that was registered works, or has ended. */
static bool
wait_until_running(BackgroundWorkerHandle *handle)
{
	pid_t		pid;

	if (WaitForBackgroundWorkerStartup(handle, &pid) != BGWH_STARTED)
		return worker_registry_is_running(MyDatabaseId);
	while (GetBackgroundWorkerPid(handle, &pid) == BGWH_STARTED)
	{
		if (worker_registry_has_taken_turn(MyDatabaseId))
			return true;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, POLL_MS, compat_wait_event());
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return worker_registry_is_running(MyDatabaseId);
}

/*
 * start_worker() returns boolean
 */
Datum
sqlstreams_start_worker(PG_FUNCTION_ARGS)
{
	BackgroundWorkerHandle *handle;

	PreventCommandDuringRecovery("sqlstreams.start_worker()");
	check_settings();
	if (worker_registry_is_running(MyDatabaseId) || !worker_registry_begin_start(MyDatabaseId))
		PG_RETURN_BOOL(false);
	if (!worker_register(MyDatabaseId, false, &handle))
	{
		worker_registry_end_start(MyDatabaseId);
		raise_no_slot();
	}
	if (!wait_until_running(handle))
	{
		worker_registry_end_start(MyDatabaseId);
		ereport(ERROR,
				(errcode(ERRCODE_MAINTENANCE_UNAVAILABLE),
				 errmsg("could not start a worker in database \"%s\"", get_database_name(MyDatabaseId)),
				 errhint("The server log says why.")));
	}
	PG_RETURN_BOOL(true);
}
