/*
 * launcher.c
 *		The process that starts a worker for each database.
 *
 * It runs where the library is preloaded.  It is connected to no database, so
 * it cannot see which ones have the extension: it starts a worker in each, and
 * one that does not find the extension says so in the registry and ends.  Such a
 * database is left alone until somebody uses the extension in it, and looked at
 * again now and then.
 *
 *		waiting --slot free--> starting --> running --ended--> waiting
 *		                          |            ^                  (later and later when
 *		                          |            |                   it fails)
 *		                          +--> absent -+--used, or after a while--> waiting
 *
 * Workers may take half of the server's slots for background workers.  When
 * there are more databases than that, a database waits until something is due
 * there, somebody asks for its worker, or a minute is over; then the worker that
 * has run longest is asked to leave.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "background.h"
#include "compat.h"
#include "launcher.h"
#include "settings.h"
#include "worker.h"
#include "worker_registry.h"

/* Seconds until the launcher is started again if it fails. */
#define RESTART_SECONDS 5

#define NAPTIME_MS 1000

/* A worker is left alone for so long before its slot is given to another. */
#define TENANCY_US (1 * USECS_PER_SEC)

/* A database that waits for a slot gets a turn after this time at the latest. */
#define WAITING_US (60 * USECS_PER_SEC)

/* A database without the extension is looked at again after this time. */
#define ABSENT_RETRY_US (5 * USECS_PER_MINUTE)

/* A worker that fails is started again after a second, doubled up to this. */
#define LAST_RETRY_US (60 * USECS_PER_SEC)

/* A start that has led to nothing after this time is given up. */
#define START_TIMEOUT_US (10 * USECS_PER_SEC)

/* What the launcher remembers of a database. */
typedef struct LauncherDatabase
{
	Oid			oid;			/* hash key */
	bool		is_listed;		/* by the last look at pg_database */
	TimestampTz last_start;
	int			failures;		/* workers in a row that failed */
} LauncherDatabase;

static HTAB *databases = NULL;

/* Have the launcher started with the server.  Called when the library is loaded. */
void
launcher_init(void)
{
	BackgroundWorker worker;

	if (!process_shared_preload_libraries_in_progress || IsBinaryUpgrade)
		return;
	background_fill(&worker, "sqlstreams_launcher_main", "sqlstreams launcher", "sqlstreams launcher");
	worker.bgw_restart_time = RESTART_SECONDS;
	worker.bgw_notify_pid = 0;
	RegisterBackgroundWorker(&worker);
}

static void
leave_callback(int code, Datum arg)
{
	worker_registry_leave_launcher();
}

/* How many workers may run at once. */
static int
worker_limit(void)
{
	return Max(1, max_worker_processes / 2);
}

/* Take in which databases there are to care for. */
static void
list_databases(void)
{
	HASH_SEQ_STATUS status;
	LauncherDatabase *known;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	hash_seq_init(&status, databases);
	while ((known = hash_seq_search(&status)) != NULL)
		known->is_listed = false;

	StartTransactionCommand();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		bool		found;

		if (form->datistemplate || !form->datallowconn || !sqlstreams_worker ||
			!settings_include_database(NameStr(form->datname)) || !worker_registry_add(form->oid))
			continue;
		known = hash_search(databases, &form->oid, HASH_ENTER, &found);
		if (!found)
		{
			known->last_start = 0;
			known->failures = 0;
		}
		known->is_listed = true;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
}

/* Forget the databases that are not to be cared for any more. */
static void
forget_databases(void)
{
	int			count;
	WorkerEntry *entries = worker_registry_copy(&count);

	for (int i = 0; i < count; i++)
	{
		LauncherDatabase *known = hash_search(databases, &entries[i].database, HASH_FIND, NULL);

		if (known != NULL && known->is_listed)
			continue;
		worker_registry_forget(entries[i].database);
		if (known != NULL)
			(void) hash_search(databases, &entries[i].database, HASH_REMOVE, NULL);
	}
}

/* How long a database whose worker failed is left alone. */
static int64
retry_us(const LauncherDatabase *known)
{
	return known->failures == 0 ? 0 :
		Min(USECS_PER_SEC << Min(known->failures - 1, 16), LAST_RETRY_US);
}

/*
 * Start a worker for a database; false when there is no slot for it.  The last
 * one has failed if it never came to the end of a turn.
 */
static bool
start(LauncherDatabase *known, bool has_failed, TimestampTz now)
{
	if (!worker_registry_begin_start(known->oid))
		return true;
	if (!worker_register(known->oid, false, NULL))
	{
		worker_registry_end_start(known->oid);
		return false;
	}
	known->failures = known->last_start != 0 && has_failed ? known->failures + 1 : 0;
	known->last_start = now;
	return true;
}

/* What there is to choose from. */
typedef struct Choice
{
	int			running;		/* workers */
	WorkerEntry *longest;		/* the worker that has run longest, or NULL */
	WorkerEntry *next;			/* the database that is next, or NULL */
	LauncherDatabase *known;	/* the same */
	bool		is_urgent;		/* a worker should leave for it */
} Choice;

/* Has a database that waits for its worker something to be done? */
static bool
is_urgent(const WorkerEntry *entry, TimestampTz now)
{
	return entry->is_wanted || entry->last_turn == 0 || entry->next_due <= now ||
		now - entry->last_turn > WAITING_US;
}

/* Let a waiting database be the next one if it comes before the one chosen so far. */
static void
consider_waiting(Choice *choice, WorkerEntry *entry, TimestampTz now)
{
	LauncherDatabase *known = hash_search(databases, &entry->database, HASH_FIND, NULL);
	bool		urgent = is_urgent(entry, now);

	if (known == NULL || now < known->last_start + retry_us(known))
		return;
	if (choice->next == NULL || (urgent && !choice->is_urgent) ||
		(urgent == choice->is_urgent && known->last_start < choice->known->last_start))
	{
		choice->next = entry;
		choice->known = known;
		choice->is_urgent = urgent;
	}
}

/* Take an entry into account. */
static void
consider(Choice *choice, WorkerEntry *entry, TimestampTz now)
{
	if (entry->pid == 0 && entry->state == WORKER_STARTING && now - entry->state_since > START_TIMEOUT_US)
		worker_registry_end_start(entry->database);
	else if (entry->state == WORKER_ABSENT && now - entry->state_since > ABSENT_RETRY_US)
		worker_registry_retry(entry->database);

	if (entry->pid != 0 || entry->state == WORKER_STARTING)
		choice->running++;
	if (entry->pid != 0 && (choice->longest == NULL || entry->started_at < choice->longest->started_at))
		choice->longest = entry;
	if (entry->pid == 0 && entry->state == WORKER_WAITING)
		consider_waiting(choice, entry, now);
}

/*
 * Start as many workers as there is room for; when there is none, make some by
 * asking a worker to leave.
 */
static void
start_workers(void)
{
	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		Choice		choice = {0};
		int			count;
		WorkerEntry *entries = worker_registry_copy(&count);

		for (int i = 0; i < count; i++)
			consider(&choice, &entries[i], now);
		if (choice.next == NULL)
			return;
		if (choice.running < worker_limit() && start(choice.known, choice.next->last_turn == 0, now))
			continue;
		if (choice.is_urgent && choice.longest != NULL && choice.longest->last_turn != 0 &&
			now - choice.longest->started_at > TENANCY_US)
			worker_registry_ask_to_leave(choice.longest->database);
		return;
	}
}

/* The process's main function. */
void
sqlstreams_launcher_main(Datum arg)
{
	MemoryContext context;
	HASHCTL		ctl;

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	background_set_session();
	worker_registry_enter_launcher();
	before_shmem_exit(leave_callback, (Datum) 0);

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(LauncherDatabase);
	ctl.hcxt = TopMemoryContext;
	databases = hash_create("sqlstreams databases", 16, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	context = AllocSetContextCreate(TopMemoryContext, "sqlstreams launcher", ALLOCSET_DEFAULT_SIZES);

	for (;;)
	{
		MemoryContextSwitchTo(context);
		list_databases();
		MemoryContextSwitchTo(context);
		forget_databases();
		start_workers();
		MemoryContextReset(context);

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, NAPTIME_MS, compat_wait_event());
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
}
