/*
 * worker_registry.c
 *		Which database has a worker, and what is asked of it: shared memory.
 *
 * One entry for each database that has, or may have, the extension.  With the
 * library preloaded there is room for many and the launcher keeps the list.
 * Without, the first process that needs the registry makes it, in the spare
 * memory that the server keeps for such cases; it is small then, and a server
 * that has no spare memory left goes without: then no worker is started by
 * itself, and maintain() does the work.
 *
 * Everything here may be lost in a restart.  One lock protects all of it, and is
 * held for a few assignments.  A latch is used under the lock only: the process
 * that it belongs to takes it out before it ends.
 */
#include "postgres.h"

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "worker_registry.h"

#define PRELOADED_ENTRIES	512
#define SPARE_ENTRIES		16

/* A start that has led to nothing after this time may be tried again. */
#define START_TIMEOUT_MS	10000

typedef struct WorkerRegistry
{
	LWLock		lock;
	int			tranche;
	Latch	   *launcher_latch; /* NULL: no launcher runs */
	int			capacity;
	WorkerEntry entries[FLEXIBLE_ARRAY_MEMBER];
} WorkerRegistry;

static WorkerRegistry *registry = NULL;
static bool is_preloaded = false;
static bool has_tried = false;

/* The entry of this process's database, once it was found. */
static WorkerEntry *my_entry = NULL;

static shmem_startup_hook_type previous_startup_hook = NULL;
static shmem_request_hook_type previous_request_hook = NULL;

static Size
registry_size(int capacity)
{
	return add_size(offsetof(WorkerRegistry, entries), mul_size(capacity, sizeof(WorkerEntry)));
}

/* Find the registry in shared memory, or make it. */
static void
attach(int capacity)
{
	bool		found;
	WorkerRegistry *shared;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("sqlstreams workers", registry_size(capacity), &found);
	if (!found)
	{
		memset(shared, 0, registry_size(capacity));
		shared->tranche = LWLockNewTrancheId();
		LWLockInitialize(&shared->lock, shared->tranche);
		shared->capacity = capacity;
	}
	LWLockRelease(AddinShmemInitLock);
	LWLockRegisterTranche(shared->tranche, "sqlstreams workers");
	registry = shared;
}

static void
request_memory(void)
{
	if (previous_request_hook)
		previous_request_hook();
	RequestAddinShmemSpace(registry_size(PRELOADED_ENTRIES));
}

static void
startup(void)
{
	if (previous_startup_hook)
		previous_startup_hook();
	attach(PRELOADED_ENTRIES);
}

/* Called once, when the library is loaded. */
void
worker_registry_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	is_preloaded = true;
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_memory;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup;
}

/* Was the library loaded with the server?  Then a launcher starts workers. */
bool
worker_registry_is_preloaded(void)
{
	return is_preloaded;
}

/*
 * Make the registry in the server's spare memory; leaves it out when there is
 * none.
 */
static void
attach_to_spare(void)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	has_tried = true;
	if (!IsTransactionState())
	{
		attach(SPARE_ENTRIES);
		return;
	}
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		attach(SPARE_ENTRIES);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		ereport(LOG,
				(errmsg("there is no shared memory left for the workers of sqlstreams"),
				 errhint("Add sqlstreams to shared_preload_libraries, or schedule sqlstreams.maintain().")));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
}

/* Is there a registry? */
bool
worker_registry_is_there(void)
{
	if (registry == NULL && !has_tried)
		attach_to_spare();
	return registry != NULL;
}

/* The entry of a database, or NULL.  The caller holds the lock. */
static WorkerEntry *
find(Oid database)
{
	if (my_entry != NULL && my_entry->database == database)
		return my_entry;
	for (int i = 0; i < registry->capacity; i++)
	{
		WorkerEntry *entry = &registry->entries[i];

		if (entry->database != database)
			continue;
		if (database == MyDatabaseId)
			my_entry = entry;
		return entry;
	}
	return NULL;
}

/* An entry that may be used for another database, or NULL. */
static WorkerEntry *
find_free(void)
{
	WorkerEntry *unused = NULL;

	for (int i = 0; i < registry->capacity; i++)
	{
		WorkerEntry *entry = &registry->entries[i];

		if (!OidIsValid(entry->database))
			return entry;

		/* without a launcher nobody says which databases are gone */
		if (!is_preloaded && entry->pid == 0 && entry->state != WORKER_STARTING &&
			(unused == NULL || entry->state_since < unused->state_since))
			unused = entry;
	}
	return unused;
}

/* The entry of a database, made if it is missing; NULL when there is no room. */
static WorkerEntry *
find_or_add(Oid database)
{
	WorkerEntry *entry = find(database);

	if (entry != NULL)
		return entry;
	entry = find_free();
	if (entry == NULL)
		return NULL;
	memset(entry, 0, sizeof(WorkerEntry));
	entry->database = database;
	entry->state = WORKER_WAITING;
	entry->state_since = GetCurrentTimestamp();
	return entry;
}

static void
set_state(WorkerEntry *entry, WorkerState state)
{
	entry->state = state;
	entry->state_since = GetCurrentTimestamp();
}

/* Wake the worker of an entry, if one runs. */
static void
wake(WorkerEntry *entry)
{
	if (entry->latch != NULL)
		SetLatch(entry->latch);
}

/*
 * Does a worker of this process's database run, as far as can be told without
 * the lock?  Asked by every produce and claim.  False also before the entry was
 * found once.
 */
bool
worker_registry_seems_running(Oid database)
{
	volatile WorkerEntry *entry = my_entry;

	return entry != NULL && entry->database == database && entry->pid != 0;
}

/* Does a worker of a database run? */
bool
worker_registry_is_running(Oid database)
{
	const WorkerEntry *entry;
	bool		result;

	LWLockAcquire(&registry->lock, LW_SHARED);
	entry = find(database);
	result = entry != NULL && entry->pid != 0;
	LWLockRelease(&registry->lock);
	return result;
}

/* Does a worker of a database run, and has ended its first turn? */
bool
worker_registry_has_taken_turn(Oid database)
{
	const WorkerEntry *entry;
	bool		result;

	LWLockAcquire(&registry->lock, LW_SHARED);
	entry = find(database);
	result = entry != NULL && entry->pid != 0 && entry->last_turn != 0;
	LWLockRelease(&registry->lock);
	return result;
}

/* Add a stream to the requests of an entry. */
static void
add_request(WorkerEntry *entry, int64 stream_id)
{
	for (int i = 0; i < entry->request_count; i++)
	{
		if (entry->requests[i] == stream_id)
			return;
	}
	if (entry->request_count < WORKER_MAX_REQUESTS)
		entry->requests[entry->request_count++] = stream_id;
	else
		entry->all_requested = true;
}

/*
 * Ask the worker of this database to look at a stream now.  When none runs
 * nothing is asked: a worker that starts looks at all streams, and whoever
 * produces sees to it that one does (worker_start.c).
 */
void
worker_registry_request(int64 stream_id)
{
	WorkerEntry *entry;

	if (!worker_registry_is_there())
		return;
	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	entry = find(MyDatabaseId);
	if (entry != NULL && entry->latch != NULL)
	{
		add_request(entry, stream_id);
		wake(entry);
	}
	LWLockRelease(&registry->lock);
}

/*
 * A database needs a worker, also if the one that runs is about to leave because
 * it did not find the extension.  Tells the launcher; false when there is none.
 */
bool
worker_registry_want(Oid database)
{
	WorkerEntry *entry;
	bool		has_launcher;

	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	has_launcher = registry->launcher_latch != NULL;
	entry = find_or_add(database);
	if (entry != NULL)
		entry->is_wanted = true;
	if (entry != NULL && entry->state == WORKER_ABSENT)
		set_state(entry, WORKER_WAITING);
	if (has_launcher)
		SetLatch(registry->launcher_latch);
	LWLockRelease(&registry->lock);
	return has_launcher;
}

/*
 * Begin to start a worker; false when one runs, or somebody else is starting
 * one, or there is no room.  Who gets true starts it, or ends the start.
 */
bool
worker_registry_begin_start(Oid database)
{
	WorkerEntry *entry;
	TimestampTz now = GetCurrentTimestamp();
	bool		may_start;

	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	entry = find_or_add(database);
	may_start = entry != NULL && entry->pid == 0 &&
		(entry->state != WORKER_STARTING ||
		 TimestampDifferenceExceeds(entry->state_since, now, START_TIMEOUT_MS));
	if (may_start)
		set_state(entry, WORKER_STARTING);
	LWLockRelease(&registry->lock);
	return may_start;
}

/* A start came to nothing. */
void
worker_registry_end_start(Oid database)
{
	WorkerEntry *entry;

	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	entry = find(database);
	if (entry != NULL && entry->pid == 0)
		set_state(entry, WORKER_WAITING);
	LWLockRelease(&registry->lock);
}

/* A copy of all entries that are in use, in the current memory context. */
WorkerEntry *
worker_registry_copy(int *count)
{
	WorkerEntry *copy = palloc(sizeof(WorkerEntry) * registry->capacity);

	*count = 0;
	LWLockAcquire(&registry->lock, LW_SHARED);
	for (int i = 0; i < registry->capacity; i++)
	{
		if (OidIsValid(registry->entries[i].database))
			copy[(*count)++] = registry->entries[i];
	}
	LWLockRelease(&registry->lock);
	return copy;
}

/*
 * Become the worker of a database; false when it has one, or there is no room.
 * It ends with worker_registry_leave.
 */
bool
worker_registry_enter(Oid database)
{
	WorkerEntry *entry;
	bool		is_mine;

	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	entry = find_or_add(database);
	is_mine = entry != NULL && entry->pid == 0;
	if (is_mine)
	{
		entry->pid = MyProcPid;
		entry->latch = MyLatch;
		entry->should_leave = false;
		entry->is_wanted = false;
		entry->started_at = GetCurrentTimestamp();
		entry->last_turn = 0;
		entry->next_turn = 0;
		entry->next_due = 0;
		entry->action[0] = '\0';
		entry->error[0] = '\0';
		entry->error_at = 0;
		entry->all_requested = false;
		entry->request_count = 0;
		set_state(entry, WORKER_STARTING);
		my_entry = entry;
	}
	LWLockRelease(&registry->lock);
	return is_mine;
}

/*
 * End being the worker, whatever ends it; the entry goes on in a state.  Returns
 * whether the extension was missing and somebody has asked for it since.
 */
bool
worker_registry_leave(WorkerState state)
{
	bool		is_wanted;

	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	is_wanted = state == WORKER_ABSENT && my_entry->is_wanted;
	my_entry->pid = 0;
	my_entry->latch = NULL;
	set_state(my_entry, is_wanted ? WORKER_WAITING : state);
	if (registry->launcher_latch != NULL)
		SetLatch(registry->launcher_latch);
	LWLockRelease(&registry->lock);
	return is_wanted;
}

/* Does somebody else need this worker's slot? */
bool
worker_registry_should_leave(void)
{
	bool		result;

	LWLockAcquire(&registry->lock, LW_SHARED);
	result = my_entry->should_leave;
	LWLockRelease(&registry->lock);
	return result;
}

/* Take what was requested of this worker. */
void
worker_registry_take_requests(WorkerRequests *requests)
{
	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	requests->all = my_entry->all_requested;
	requests->count = my_entry->request_count;
	memcpy(requests->stream_ids, my_entry->requests, sizeof(int64) * my_entry->request_count);
	my_entry->all_requested = false;
	my_entry->request_count = 0;
	LWLockRelease(&registry->lock);
}

/* Say what this worker is doing. */
void
worker_registry_report_state(WorkerState state)
{
	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	set_state(my_entry, state);
	LWLockRelease(&registry->lock);
}

/* Say that a turn has ended, when the next one is, and when something is due. */
void
worker_registry_report_turn(TimestampTz now, TimestampTz next_turn, TimestampTz next_due)
{
	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	my_entry->last_turn = now;
	my_entry->next_turn = next_turn;
	my_entry->next_due = next_due;
	set_state(my_entry, WORKER_IDLE);
	LWLockRelease(&registry->lock);
}

/* Say what this worker has just done. */
void
worker_registry_report_action(const char *action)
{
	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	strlcpy(my_entry->action, action, WORKER_ACTION_MAX_BYTES);
	LWLockRelease(&registry->lock);
}

/* Put a text that may be too long into shared memory, cut between characters. */
static void
store_error(WorkerEntry *entry, const char *error, int length, TimestampTz at)
{
	memcpy(entry->error, error, length);
	entry->error[length] = '\0';
	entry->error_at = at;
}

/* Say what fails now; NULL for nothing. */
void
worker_registry_report_error(const char *error, TimestampTz at)
{
	int			length = error == NULL ? 0 : pg_mbcliplen(error, strlen(error), WORKER_ERROR_MAX_BYTES - 1);

	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	store_error(my_entry, error == NULL ? "" : error, length, error == NULL ? 0 : at);
	LWLockRelease(&registry->lock);
}

/* Become the launcher; ends with worker_registry_leave_launcher. */
void
worker_registry_enter_launcher(void)
{
	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	registry->launcher_latch = MyLatch;
	LWLockRelease(&registry->lock);
}

/* End being the launcher. */
void
worker_registry_leave_launcher(void)
{
	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	registry->launcher_latch = NULL;
	LWLockRelease(&registry->lock);
}

/* Add a database unless it is there; false when there is no room. */
bool
worker_registry_add(Oid database)
{
	bool		is_there;

	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	is_there = find_or_add(database) != NULL;
	LWLockRelease(&registry->lock);
	return is_there;
}

/* Forget a database that is gone or is to have no worker; not while one runs. */
void
worker_registry_forget(Oid database)
{
	WorkerEntry *entry;

	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	entry = find(database);
	if (entry != NULL && entry->pid == 0)
		entry->database = InvalidOid;
	LWLockRelease(&registry->lock);
}

/* Ask the worker of a database to make room for others. */
void
worker_registry_ask_to_leave(Oid database)
{
	WorkerEntry *entry;

	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	entry = find(database);
	if (entry != NULL && entry->pid != 0)
	{
		entry->should_leave = true;
		wake(entry);
	}
	LWLockRelease(&registry->lock);
}

/* Let a database whose extension was missing be looked at again. */
void
worker_registry_retry(Oid database)
{
	WorkerEntry *entry;

	LWLockAcquire(&registry->lock, LW_EXCLUSIVE);
	entry = find(database);
	if (entry != NULL && entry->state == WORKER_ABSENT)
		set_state(entry, WORKER_WAITING);
	LWLockRelease(&registry->lock);
}
