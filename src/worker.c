/*
 * worker.c
 *		The worker of a database: does what maintenance is due.
 *
 *		starting --connected--> idle --due, asked for--> working --nothing due--> idle
 *		    |                    |
 *		    +--------------------+--> leaves: terminated, switched off, extension gone,
 *		                              slot or database needed by others
 *
 * The worker holds nothing between two steps, and each step is a short
 * transaction.  It sleeps until something is due, a producer asks for it or
 * naptime is over, and wakes at least once a second to see whether somebody
 * wants the database for himself (DROP DATABASE, CREATE DATABASE ... TEMPLATE,
 * ALTER DATABASE): these wait for a few seconds, tell no background worker, and
 * then give up.
 *
 * One that is terminated comes back: the launcher starts another one; where there
 * is none the worker registers its successor when it ends.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_database.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "background.h"
#include "compat.h"
#include "janitor.h"
#include "settings.h"
#include "worker.h"
#include "worker_registry.h"

/* The longest sleep, so that who wants the database is seen in time. */
#define MAX_SLEEP_MS	1000

/* A worker that follows one which was terminated gives the server time first. */
#define SUCCESSOR_DELAY_MS 1000

/* What there is of the extension in this database. */
typedef enum ExtensionState
{
	EXTENSION_USABLE,
	EXTENSION_MISSING,
	EXTENSION_LOCKED,			/* somebody is dropping or changing it */
	EXTENSION_OTHER_VERSION
} ExtensionState;

static char *database_name;		/* cannot change while a worker is connected */
static bool is_connected = false;
static WorkerState state_after = WORKER_WAITING;
static ExtensionState extension = EXTENSION_MISSING;

/* When what the registry shows failed; 0: nothing failed. */
static TimestampTz reported_at = 0;

/* ... or that turns cannot begin */
#define NO_TURN DT_NOBEGIN

/*
 * Register a worker for a database; false when there is no slot.  A successor
 * is not told about to this process, which is about to end.
 */
bool
worker_register(Oid database, bool is_successor, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;

	background_fill(&worker, "sqlstreams_worker_main", "sqlstreams worker", "sqlstreams worker");
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	worker.bgw_extra[0] = is_successor ? 1 : 0;
	if (is_successor)
		worker.bgw_notify_pid = 0;
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

/* Runs when the process ends, for whatever reason. */
static void
end_callback(int code, Datum arg)
{
	bool		is_wanted = worker_registry_leave(state_after);

	/* the server starts no worker while it shuts down, so this does no harm then */
	if (((code != 0 && is_connected) || is_wanted) && !worker_registry_is_preloaded())
		(void) worker_register(DatumGetObjectId(arg), true, NULL);
}

/*
 * Sleep until a time, at most MAX_SLEEP_MS; says whether somebody set the latch
 * before.
 */
static bool
sleep_until(TimestampTz until)
{
	TimestampTz now = GetCurrentTimestamp();
	long		timeout_ms = until <= now ? 0 : Min((until - now + 999) / 1000, MAX_SLEEP_MS);
	int			events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
								   timeout_ms, compat_wait_event());

	if (events & WL_LATCH_SET)
		ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	return (events & WL_LATCH_SET) != 0;
}

/*
 * Does somebody have a lock on the database that keeps new sessions out, or wait
 * for one?
 */
static bool
is_database_wanted(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, MyDatabaseId, 0);
	if (LockAcquire(&tag, RowExclusiveLock, true, true) == LOCKACQUIRE_NOT_AVAIL)
		return true;
	LockRelease(&tag, RowExclusiveLock, true);
	return false;
}

/* Is it time to leave? */
static bool
should_leave(void)
{
	return !sqlstreams_worker || !settings_include_database(database_name) ||
		worker_registry_should_leave() || is_database_wanted();
}

/* Find the extension, and keep it as it is until the transaction ends. */
static ExtensionState
lock_extension(void)
{
	LOCKTAG		tag;
	Relation	rel;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	ExtensionState result = EXTENSION_MISSING;
	Oid			oid = get_extension_oid("sqlstreams", true);

	if (!OidIsValid(oid))
		return EXTENSION_MISSING;
	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, ExtensionRelationId, oid, 0);
	if (LockAcquire(&tag, AccessShareLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return EXTENSION_LOCKED;
	AcceptInvalidationMessages();

	rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(oid));
	scan = systable_beginscan(rel, ExtensionOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		version = heap_getattr(tuple, Anum_pg_extension_extversion, RelationGetDescr(rel), &isnull);

		result = strcmp(TextDatumGetCString(version), WORKER_EXTENSION_VERSION) == 0 ?
			EXTENSION_USABLE : EXTENSION_OTHER_VERSION;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}

static void
begin_transaction(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

static void
commit_transaction(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
	pgstat_report_stat(false);
}

/* Look at the extension and, if it is usable, take in what has changed. */
static void
look_around(Janitor *janitor)
{
	WorkerRequests requests;

	extension = lock_extension();
	if (extension != EXTENSION_USABLE)
		return;
	worker_registry_take_requests(&requests);
	janitor_refresh(janitor);
	if (requests.all)
		janitor_notify_all(janitor);
	for (int i = 0; i < requests.count; i++)
		janitor_notify(janitor, requests.stream_ids[i]);
}

/* Do a step of the janitor. */
static void
do_step(Janitor *janitor)
{
	const char *done;

	if (lock_extension() != EXTENSION_USABLE)
		return;
	done = janitor_do_step(janitor);
	if (done != NULL)
		worker_registry_report_action(done);
}

/*
 * Do something in a transaction of its own, whatever comes of it; returns the
 * error that has ended the transaction, or NULL.  The current memory context is
 * the scratch context before and after.
 */
static ErrorData *
attempt(void (*action) (Janitor *), Janitor *janitor)
{
	MemoryContext scratch = CurrentMemoryContext;
	ErrorData  *volatile error = NULL;

	PG_TRY();
	{
		begin_transaction();
		action(janitor);
		commit_transaction();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(scratch);
		error = CopyErrorData();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(scratch);
	return error;
}

/* Tell what fails now, if that has changed. */
static void
report_error(Janitor *janitor)
{
	TimestampTz at;
	const char *error = janitor_error(janitor, &at);

	if (error == NULL)
		at = 0;
	if (at == reported_at)
		return;
	reported_at = at;
	worker_registry_report_error(error, at);
}

/* A turn cannot begin: tell why, and log it the first time. */
static void
report_no_turn(const char *error)
{
	if (reported_at != NO_TURN)
		ereport(LOG,
				(errmsg("sqlstreams worker of database \"%s\" cannot work: %s", database_name, error)));
	reported_at = NO_TURN;
	worker_registry_report_error(error, GetCurrentTimestamp());
}

/*
 * See what has changed; says whether there may be work.  Ends the process when
 * the extension is not there.
 */
static bool
begin_turn(Janitor *janitor)
{
	ErrorData  *error = attempt(look_around, janitor);

	if (error != NULL)
	{
		report_no_turn(error->message);
		return false;
	}
	if (extension == EXTENSION_MISSING)
	{
		state_after = WORKER_ABSENT;
		proc_exit(0);
	}
	if (extension == EXTENSION_OTHER_VERSION)
		report_no_turn("the installed version of the extension is not that of the library:"
					   " run ALTER EXTENSION sqlstreams UPDATE");
	return extension == EXTENSION_USABLE;
}

/*
 * Do what is due, for a second at most, and set *next_due to when something is
 * due again; false when it is time to leave.
 */
static bool
take_turn(Janitor *janitor, TimestampTz *next_due)
{
	TimestampTz begun_at = GetCurrentTimestamp();
	TimestampTz now = begun_at;

	*next_due = DT_NOEND;
	if (!begin_turn(janitor))
		return true;
	while (now < begun_at + USECS_PER_SEC && janitor_pick(janitor, now))
	{
		ErrorData  *error;

		if (should_leave())
			return false;
		worker_registry_report_state(WORKER_WORKING);
		pgstat_report_activity(STATE_RUNNING, "doing maintenance of a stream");
		error = attempt(do_step, janitor);
		if (error != NULL)
			janitor_step_failed(janitor, error);
		report_error(janitor);
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(CurrentMemoryContext);
		now = GetCurrentTimestamp();
	}
	report_error(janitor);
	pgstat_report_activity(STATE_IDLE, NULL);
	*next_due = janitor_next_due(janitor);
	return true;
}

/*
 * Take turns until it is time to leave.  A turn begins when something is due,
 * somebody asks for it, or naptime is over.
 */
static void
run(void)
{
	MemoryContext scratch = AllocSetContextCreate(TopMemoryContext, "sqlstreams worker turn", ALLOCSET_DEFAULT_SIZES);
	Janitor    *janitor = janitor_create(NULL, false, true);
	TimestampTz next_due;

	MemoryContextSwitchTo(scratch);
	while (!should_leave() && take_turn(janitor, &next_due))
	{
		TimestampTz now = GetCurrentTimestamp();
		TimestampTz next_turn = Min(next_due, now + sqlstreams_naptime_ms * INT64CONST(1000));

		MemoryContextReset(scratch);
		worker_registry_report_turn(now, Max(next_turn, now), next_due);
		while (!sleep_until(next_turn) && !should_leave() && GetCurrentTimestamp() < next_turn)
			;
	}
}

/* The process's main function. */
void
sqlstreams_worker_main(Datum arg)
{
	Oid			database = DatumGetObjectId(arg);

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();

	if (!worker_registry_is_there() || !worker_registry_enter(database))
		proc_exit(0);
	before_shmem_exit(end_callback, arg);
	if (MyBgworkerEntry->bgw_extra[0] != 0)
		(void) sleep_until(GetCurrentTimestamp() + SUCCESSOR_DELAY_MS * INT64CONST(1000));

	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	is_connected = true;
	background_set_session();
	begin_transaction();
	database_name = MemoryContextStrdup(TopMemoryContext, get_database_name(database));
	commit_transaction();

	ereport(DEBUG1, (errmsg("sqlstreams worker of database \"%s\" started", database_name)));
	run();
	proc_exit(0);
}
