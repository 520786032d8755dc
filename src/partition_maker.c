/*
 * partition_maker.c
 *		Objects that producers need at once, made in a transaction of their own.
 *
 * A producer at the edge of a partition cannot make the next one in its own
 * transaction: every other producer would wait for that to end.  It starts a
 * background worker that does this one thing, and waits for it.  Producers that
 * come meanwhile queue for a lock, see that the work is done, and go on.
 *
 *		partition missing -> lock "making" of the stream -> still missing?
 *			-> worker started: wait for its end, unlock
 *			-> no worker to be had, or it failed (a lock of ours may have been in
 *			   its way): make it here; the lock stays until commit
 *			-> own locks are in the worker's way for sure: make it here
 *
 * Nobody waits for a lock longer than lock_timeout, or 5 seconds when that is
 * off.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/snapmgr.h"

#include "access.h"
#include "background.h"
#include "compat.h"
#include "errors.h"
#include "partition.h"
#include "partition_maker.h"
#include "storage.h"

#define DEFAULT_LOCK_TIMEOUT_MS 5000

/* A batch may span many small partitions; each is some catalog rows and files. */
#define MAX_PARTITIONS_AT_ONCE 100

typedef enum MakerKind
{
	MAKE_PARTITIONS,
	MAKE_FEATURE
} MakerKind;

/* What is to be made; handed to the worker in bgw_extra. */
typedef struct MakerTask
{
	MakerKind	kind;
	Oid			database;
	Oid			log_oid;
	int			lock_timeout_ms;
	StorageFeature feature;		/* whose tables are made */
	int64		generation;		/* of idempotency keys */
	int64		stream_id;
	int64		partition_size;
	int64		number;			/* of the first partition */
	int64		last_number;	/* of the last one */
} MakerTask;

StaticAssertDecl(sizeof(MakerTask) <= BGW_EXTRALEN, "task does not fit into bgw_extra");

/* Is there what the task should make? */
static bool
is_done(const Stream *stream, const MakerTask *task)
{
	if (task->kind == MAKE_PARTITIONS)
	{
		Relation	rel = partition_open(stream, task->number, NULL, AccessShareLock);

		if (rel != NULL)
			table_close(rel, AccessShareLock);
		return rel != NULL;
	}
	return storage_has_feature(stream, task->feature);
}

/* Make it, in the current transaction. */
static void
do_task(const MakerTask *task)
{
	if (task->kind == MAKE_PARTITIONS)
	{
		for (int64 number = task->number; number <= task->last_number; number++)
			partition_create(task->stream_id, task->log_oid, task->partition_size, number);
	}
	else
		storage_create_feature(task->stream_id, task->log_oid, task->feature, task->generation);
	CommandCounterIncrement();
}

/* Does this transaction hold a lock on the log that a worker would wait for? */
static bool
is_in_workers_way(Oid log_oid)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, log_oid);
	for (LOCKMODE mode = ShareUpdateExclusiveLock; mode <= AccessExclusiveLock; mode++)
	{
		if (compat_lock_held_by_me(&tag, mode))
			return true;
	}
	return false;
}

/* The lock of who makes something for the stream; SQL cannot name it. */
static void
set_making_tag(LOCKTAG *tag, int64 stream_id)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, stream_config_table_oid("stream"),
					   (uint32) stream_id, (uint16) (stream_id >> 32));
}

/* Start a worker for the task and wait for its end; false if none can be had. */
static bool
run_in_worker(const MakerTask *task)
{
	BackgroundWorker worker;
	BackgroundWorkerHandle *handle;

	background_fill(&worker, "sqlstreams_maker_main", "sqlstreams maker",
					psprintf("sqlstreams maker for stream %lld", (long long) task->stream_id));
	memcpy(worker.bgw_extra, task, sizeof(MakerTask));

	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		return false;
	(void) WaitForBackgroundWorkerShutdown(handle);
	AcceptInvalidationMessages();
	return true;
}

/* Raise SS006. */
static void
raise_lock_timeout(const Stream *stream)
{
	ereport(ERROR,
			(errcode(ERRCODE_PARTITION_LOCK_TIMEOUT),
			 errmsg("could not get a lock to make a table of stream \"%s\" in time", stream->name),
			 errdetail("Another transaction is making it, or has locked table \"sqlstreams.message_log_%lld\".",
					   (long long) stream->stream_id),
			 errhint("Retry the transaction.")));
}

/* Make what the task says, in a worker if possible, in time or not at all. */
static void
make(const Stream *stream, MakerTask *task)
{
	LOCKTAG		tag;

	if (is_in_workers_way(task->log_oid))
	{
		do_task(task);
		return;
	}

	set_making_tag(&tag, task->stream_id);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	AcceptInvalidationMessages();
	if (is_done(stream, task) || (run_in_worker(task) && is_done(stream, task)))
		LockRelease(&tag, ExclusiveLock, false);
	else
		do_task(task);
}

/*
 * As make, with lock_timeout set if it is off, and an error that says what to
 * do when it strikes.
 */
static void
make_in_time(const Stream *stream, MakerTask *task)
{
	MemoryContext context = CurrentMemoryContext;
	int			guc_nest_level = NewGUCNestLevel();
	char		timeout[32];

	task->database = MyDatabaseId;
	task->log_oid = stream->log_oid;
	task->stream_id = stream->stream_id;
	task->partition_size = stream->partition_size;
	task->lock_timeout_ms = LockTimeout > 0 ? LockTimeout : DEFAULT_LOCK_TIMEOUT_MS;
	snprintf(timeout, sizeof(timeout), "%d", task->lock_timeout_ms);
	(void) set_config_option("lock_timeout", timeout, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);

	PG_TRY();
	{
		make(stream, task);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		FlushErrorState();
		raise_lock_timeout(stream);
	}
	PG_END_TRY();
	AtEOXact_GUC(false, guc_nest_level);
}

/*
 * Raise SS001 if the stream was dropped meanwhile, SS006 if its log is locked,
 * else SS005: a worker could not do its task.
 */
static void
raise_not_made(const Stream *stream)
{
	(void) access_stream_owner(stream);
	if (!ConditionalLockRelationOid(stream->log_oid, ShareUpdateExclusiveLock))
		raise_lock_timeout(stream);
	ereport(ERROR,
			(errcode(ERRCODE_PARTITION_CREATION_BEHIND),
			 errmsg("could not make a table that stream \"%s\" needs", stream->name),
			 errhint("The server log says why; then retry the transaction.")));
}

/*
 * Open a partition of the stream's log to append to it, and make it first if it
 * is missing, together with those that follow up to last_number, which the
 * caller needs next.  Raises SS005 or SS006 if it cannot be made.
 */
Relation
partition_maker_open(const Stream *stream, int64 number, int64 last_number)
{
	Relation	rel = partition_open(stream, number, NULL, RowExclusiveLock);
	MakerTask	task = {.kind = MAKE_PARTITIONS,.number = number};

	if (rel != NULL)
		return rel;
	task.last_number = Min(last_number, number + MAX_PARTITIONS_AT_ONCE - 1);
	make_in_time(stream, &task);
	rel = partition_open(stream, number, NULL, RowExclusiveLock);
	if (rel == NULL)
		raise_not_made(stream);
	return rel;
}

/* Make the tables of a feature of the stream.  Raises SS001, SS005 or SS006. */
void
partition_maker_make_feature(const Stream *stream, StorageFeature feature)
{
	MakerTask	task = {.kind = MAKE_FEATURE,.feature = feature,.generation = stream->idempotency_generation};

	make_in_time(stream, &task);
	if (!is_done(stream, &task))
		raise_not_made(stream);
}

/* The worker: does one task in one transaction and ends. */
void
sqlstreams_maker_main(Datum arg)
{
	MakerTask	task;
	char		timeout[32];

	memcpy(&task, MyBgworkerEntry->bgw_extra, sizeof(task));
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(task.database, InvalidOid, BGWORKER_BYPASS_ALLOWCONN);

	snprintf(timeout, sizeof(timeout), "%d", task.lock_timeout_ms);
	SetConfigOption("lock_timeout", timeout, PGC_USERSET, PGC_S_OVERRIDE);
	background_set_session();

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	pgstat_report_activity(STATE_RUNNING, "making a table that a producer needs");
	do_task(&task);
	PopActiveSnapshot();
	CommitTransactionCommand();
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
}
