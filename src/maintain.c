/*
 * maintain.c
 *		The SQL procedure that does one pass of maintenance now.
 *
 * For those who have no slot for a worker to spare, and for who does not want to
 * wait for it.  Called on its own it commits after each step, as the worker does.
 * In a transaction block, or from a function, all of it is part of that
 * transaction, and leaves out what others would wait for until that ends: making
 * and dropping tables.  Each step is a subtransaction: what fails is a warning,
 * and the rest is done.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/acl.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "errors.h"
#include "janitor.h"

PG_FUNCTION_INFO_V1(sqlstreams_maintain);

/* May the current role do maintenance of an owner's streams? */
static bool
may_maintain(Oid owner)
{
	return has_privs_of_role(GetUserId(), owner) || compat_owns_database(MyDatabaseId, GetUserId());
}

/* Was the procedure called where it may commit? */
static bool
may_commit(FunctionCallInfo fcinfo)
{
	return fcinfo->context != NULL && IsA(fcinfo->context, CallContext) &&
		!castNode(CallContext, fcinfo->context)->atomic;
}

/* Tell the caller of a step that failed. */
static void
warn(const ErrorData *error)
{
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE || error->sqlerrcode == ERRCODE_PARTITION_LOCK_TIMEOUT)
		return;
	ereport(WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("%s", error->message),
			 error->detail ? errdetail_internal("%s", error->detail) : 0,
			 error->hint ? errhint("%s", error->hint) : 0));
}

/* Do a step, whatever comes of it.  The context is reset. */
static void
attempt_step(Janitor *janitor, MemoryContext context)
{
	MemoryContext old = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		PushActiveSnapshot(GetLatestSnapshot());
		(void) janitor_do_step(janitor);
		PopActiveSnapshot();
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(error);
		janitor_step_failed(janitor, error);
		warn(error);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	MemoryContextReset(context);
	CurrentResourceOwner = owner;
}

/* Do what is due now of all streams, and what follows from it at once. */
static void
do_pass(Janitor *janitor, bool commits)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "sqlstreams maintain step", ALLOCSET_DEFAULT_SIZES);
	TimestampTz now = GetCurrentTimestamp();

	for (;;)
	{
		janitor_refresh(janitor);
		if (!janitor_pick(janitor, now))
			break;
		attempt_step(janitor, context);
		if (commits)
			SPI_commit();
		CHECK_FOR_INTERRUPTS();
	}
	if (janitor_skipped_streams(janitor) > 0)
		ereport(NOTICE,
				(errmsg_plural("skipped %llu stream that the current role does not own",
							   "skipped %llu streams that the current role does not own",
							   janitor_skipped_streams(janitor),
							   (unsigned long long) janitor_skipped_streams(janitor))));
	if (janitor_has_refused(janitor))
		ereport(NOTICE,
				(errmsg("some maintenance was left out"),
				 errdetail("Others would have to wait for it until this transaction ends."),
				 errhint("Call sqlstreams.maintain() outside of a transaction block, and of a function.")));
}

/*
 * maintain(), a procedure
 */
Datum
sqlstreams_maintain(PG_FUNCTION_ARGS)
{
	bool		commits = may_commit(fcinfo);
	MemoryContext context;
	MemoryContext old;

	PreventCommandIfReadOnly("sqlstreams.maintain()");
	if (SPI_connect_ext(commits ? SPI_OPT_NONATOMIC : 0) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect_ext failed");

	/* outlives the transactions of the pass */
	context = AllocSetContextCreate(PortalContext, "sqlstreams maintain", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	do_pass(janitor_create(may_maintain, true, commits), commits);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	SPI_finish();
	PG_RETURN_VOID();
}
