/*
 * inspect_workers.c
 *		The function behind the view "workers".
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "worker_registry.h"
#include "worker_start.h"

PG_FUNCTION_INFO_V1(sqlstreams_list_workers);

/* Columns of list_workers, from 0. */
enum
{
	WORKER_DATABASE,
	WORKER_PID,
	WORKER_STATE,
	WORKER_STARTED_AT,
	WORKER_LAST_TURN,
	WORKER_NEXT_TURN,
	WORKER_ERROR,
	WORKER_ERROR_AT,
	WORKER_LAST_ACTION,
	WORKER_COLUMNS
};

/* Is there something to show of a database? */
static bool
is_shown(const WorkerEntry *entry)
{
	switch (entry->state)
	{
		case WORKER_ABSENT:
			return false;
		case WORKER_WAITING:
			/* only a launcher is going to start one */
			return worker_registry_is_preloaded();
		default:
			return true;
	}
}

static const char *
state_name(WorkerState state)
{
	switch (state)
	{
		case WORKER_ABSENT:
		case WORKER_WAITING:
			return "waiting";
		case WORKER_STARTING:
			return "starting";
		case WORKER_IDLE:
			return "idle";
		case WORKER_WORKING:
			return "working";
	}
	return NULL;				/* keep the compiler quiet */
}

static void
set_time(Datum *values, bool *nulls, int column, TimestampTz at)
{
	values[column] = TimestampTzGetDatum(at);
	nulls[column] = at == 0;
}

/* What a worker did and failed with names streams, which not all may know of. */
static void
set_text(Datum *values, bool *nulls, int column, const char *text, bool may_see)
{
	nulls[column] = text[0] == '\0';
	values[column] = CStringGetTextDatum(may_see ? text : "<insufficient privilege>");
}

/* The name and the owner of a database; false when it was dropped. */
static bool
find_database(Oid database, NameData *name, Oid *owner)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	Form_pg_database form;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_database) GETSTRUCT(tuple);
	*name = form->datname;
	*owner = form->datdba;
	ReleaseSysCache(tuple);
	return true;
}

/* Add a database's row to the result. */
static void
put_worker(ReturnSetInfo *result, const WorkerEntry *entry, bool may_see_all)
{
	Datum		values[WORKER_COLUMNS] = {0};
	bool		nulls[WORKER_COLUMNS] = {0};
	NameData	name;
	Oid			owner;
	bool		may_see;

	if (!is_shown(entry) || !find_database(entry->database, &name, &owner))
		return;
	may_see = may_see_all || has_privs_of_role(GetUserId(), owner);
	values[WORKER_DATABASE] = NameGetDatum(&name);
	values[WORKER_PID] = Int32GetDatum(entry->pid);
	nulls[WORKER_PID] = entry->pid == 0;
	values[WORKER_STATE] = CStringGetTextDatum(state_name(entry->state));
	set_time(values, nulls, WORKER_STARTED_AT, entry->started_at);
	set_time(values, nulls, WORKER_LAST_TURN, entry->last_turn);
	set_time(values, nulls, WORKER_NEXT_TURN, entry->next_turn);
	set_text(values, nulls, WORKER_ERROR, entry->error, may_see);
	set_time(values, nulls, WORKER_ERROR_AT, entry->error_at);
	set_text(values, nulls, WORKER_LAST_ACTION, entry->action, true);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * list_workers() returns setof record: what view "workers" shows
 */
Datum
sqlstreams_list_workers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result;
	WorkerEntry *entries;
	int			count;
	bool		may_see_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);

	InitMaterializedSRF(fcinfo, 0);
	result = (ReturnSetInfo *) fcinfo->resultinfo;
	worker_start_if_needed();
	if (!worker_registry_is_there())
		return (Datum) 0;
	entries = worker_registry_copy(&count);
	for (int i = 0; i < count; i++)
		put_worker(result, &entries[i], may_see_all);
	return (Datum) 0;
}
