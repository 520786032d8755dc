/*
 * inspect_groups.c
 *		The functions behind the views "consumer_groups" and "leases".
 *
 * As inspect.c says: what is there now, of the streams that the current role
 * may use, without writing anything.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "access.h"
#include "cursor.h"
#include "exception.h"
#include "inspect.h"
#include "lease.h"
#include "message_log.h"

PG_FUNCTION_INFO_V1(sqlstreams_list_consumer_groups);
PG_FUNCTION_INFO_V1(sqlstreams_list_leases);

/* Columns of the query for the groups. */
enum
{
	CONFIG_STREAM = 1,
	CONFIG_GROUP,
	CONFIG_GROUP_ID,
	CONFIG_BINDINGS,
	CONFIG_SCHEMA_VERSION,
	CONFIG_SETTINGS
};

/* Columns of list_consumer_groups, from 0. */
enum
{
	GROUP_STREAM,
	GROUP_NAME,
	GROUP_ID,
	GROUP_CLAIMED,
	GROUP_COMMITTED,
	GROUP_SETTLED_HEAD,
	GROUP_HEAD,
	GROUP_BACKLOG,
	GROUP_LEASED,
	GROUP_READY,
	GROUP_INFLIGHT,
	GROUP_DEFERRED,
	GROUP_DEAD,
	GROUP_OLDEST_UNCLAIMED_AT,
	GROUP_OLDEST_UNRESOLVED_AT,
	GROUP_NEXT_DUE_AT,
	GROUP_LAST_CLAIM_AT,
	GROUP_LAST_RESOLVED_AT,
	GROUP_CLAIM_HELD_BY,
	GROUP_HELD_BACK_BY_PIDS,
	GROUP_HELD_BACK_BY_PREPARED,
	GROUP_HELD_BACK_SINCE,
	GROUP_BINDINGS,
	GROUP_SCHEMA_VERSION,
	GROUP_SETTINGS,
	GROUP_SUPERSEDED,
	GROUP_COLUMNS
};

/* Columns of list_leases, from 0. */
enum
{
	LEASE_STREAM,
	LEASE_GROUP,
	LEASE_CLAIM_ID,
	LEASE_CONSUMER,
	LEASE_MESSAGES,
	LEASE_UNRESOLVED,
	LEASE_CLAIMED_AT,
	LEASE_EXPIRES_AT,
	LEASE_TAKEOVERS,
	LEASE_COLUMNS
};

/* Exceptions of a status are counted up to this many. */
#define MAX_EXCEPTIONS_COUNTED 10000

/* A group that is to be shown. */
typedef struct ShownGroup
{
	Stream		stream;
	char	   *name;
	int64		group_id;
	HeapTuple	config;			/* its row of the query */
	TupleDesc	config_desc;
} ShownGroup;

/* What the groups' rows have in common. */
typedef struct GroupView
{
	ReturnSetInfo *result;
	SPITupleTable *claim_holders;	/* who has which group's lock */
	uint64		claim_holder_count;
	int64		heads_stream_id;	/* the stream that these are of; 0: none */
	int64		last;
	int64		settled;
} GroupView;

typedef void (*PutGroup) (GroupView *view, const ShownGroup *group);

/*
 * Call a function for each group whose stream the current role may use, while
 * that stream cannot be dropped.
 */
static void
for_each_group(GroupView *view, PutGroup put)
{
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext,
												  "sqlstreams consumer group",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old;
	uint64		count;
	SPITupleTable *rows = inspect_query("SELECT s.stream_name, g.group_name, g.group_id,"
										" g.bindings, g.schema_version,"
										" pg_catalog.to_jsonb(g) OPERATOR(pg_catalog.-)"
										" '{group_id,stream_id,group_name,start_id,head_id,head_missing_from,head_missing}'::pg_catalog.text[]"
										" FROM sqlstreams.consumer_group g"
										" JOIN sqlstreams.stream s"
										" ON s.stream_id OPERATOR(pg_catalog.=) g.stream_id"
										" ORDER BY s.stream_name, g.group_name",
										0, NULL, NULL, &count);

	for (uint64 i = 0; i < count; i++)
	{
		ShownGroup	group;
		bool		is_null;

		CHECK_FOR_INTERRUPTS();
		group.config = rows->vals[i];
		group.config_desc = rows->tupdesc;
		group.name = SPI_getvalue(group.config, group.config_desc, CONFIG_GROUP);
		group.group_id = DatumGetInt64(SPI_getbinval(group.config, group.config_desc,
													 CONFIG_GROUP_ID, &is_null));
		if (!inspect_enter_stream(SPI_getvalue(group.config, group.config_desc, CONFIG_STREAM), &group.stream))
			continue;

		/* while a restore is running the groups' tables may be missing */
		if (OidIsValid(group.stream.cursor_oid) && OidIsValid(group.stream.lease_oid) &&
			OidIsValid(group.stream.resolved_oid) && OidIsValid(group.stream.exception_oid))
		{
			old = MemoryContextSwitchTo(scratch);
			put(view, &group);
			MemoryContextSwitchTo(old);
			MemoryContextReset(scratch);
		}
		inspect_leave_stream(&group.stream);
	}
}

/* Take out of a segment's members what was acked by itself or purged. */
static void
remove_resolved(LeaseTables *tables, const Stream *stream, LeaseSegment *segment)
{
	lease_subtract_resolved(tables, segment, GetActiveSnapshot());
	id_set_remove_through(&segment->members, stream->purged_through);
}

/*
 * Set *lowest to the lowest message of the group that was handed out and is
 * neither resolved nor an exception, 0 if there is none, and *leased to how many
 * are in claims that are still their holders'.
 */
static void
read_unresolved(const ShownGroup *group, int64 *lowest, int64 *leased)
{
	LeaseTables tables;
	ListCell   *cell;

	*lowest = 0;
	*leased = 0;
	if (!lease_open_to_read(&group->stream, &tables))
		return;
	foreach(cell, lease_load_group(&tables, group->group_id, GetActiveSnapshot()))
	{
		LeaseSegment *segment = lfirst(cell);
		int64		first;

		CHECK_FOR_INTERRUPTS();
		remove_resolved(&tables, &group->stream, segment);
		if (id_set_count(&segment->members) == 0)
			continue;
		first = id_set_nth(&segment->members, 0);
		if (!segment->has_exceptions && (*lowest == 0 || first < *lowest))
			*lowest = first;
		if (!segment->is_released)
			*leased += id_set_count(&segment->members);
	}
	lease_close(&tables);
}

/* Read who has the locks of groups, which claims take (group_lock). */
static void
read_claim_holders(GroupView *view)
{
	Oid			types[] = {OIDOID, OIDOID};
	Datum		values[] = {ObjectIdGetDatum(MyDatabaseId),
	ObjectIdGetDatum(stream_config_table_oid("consumer_group"))};

	view->claim_holders = inspect_query("SELECT objid, objsubid, COALESCE(pid, 0) FROM pg_catalog.pg_locks"
										" WHERE locktype OPERATOR(pg_catalog.=) 'object'"
										" AND database OPERATOR(pg_catalog.=) $1"
										" AND classid OPERATOR(pg_catalog.=) $2"
										" AND granted",
										lengthof(types), types, values, &view->claim_holder_count);
}

/*
 * Set *pid to the process that has the group's lock, 0 for a prepared
 * transaction as in pg_blocking_pids; false when nobody has it.
 */
static bool
find_claim_holder(const GroupView *view, int64 group_id, int32 *pid)
{
	TupleDesc	desc = view->claim_holders->tupdesc;
	bool		is_null;

	for (uint64 i = 0; i < view->claim_holder_count; i++)
	{
		HeapTuple	row = view->claim_holders->vals[i];

		if (DatumGetObjectId(SPI_getbinval(row, desc, 1, &is_null)) == (uint32) group_id &&
			(uint16) DatumGetInt16(SPI_getbinval(row, desc, 2, &is_null)) == (uint16) (group_id >> 32))
		{
			*pid = DatumGetInt32(SPI_getbinval(row, desc, 3, &is_null));
			return true;
		}
	}
	return false;
}

/* The holders of a fence memory that are still in progress, as an array of xid. */
static ArrayType *
list_holders_in_progress(const FenceMemory *memory, int *count)
{
	Datum	   *xids = palloc(sizeof(Datum) * Max(memory->holder_count, 1));

	*count = 0;
	for (int i = 0; i < memory->holder_count; i++)
	{
		TransactionId xid = XidFromFullTransactionId(memory->holders[i]);

		if (TransactionIdIsInProgress(xid))
			xids[(*count)++] = TransactionIdGetDatum(xid);
	}
	return construct_array(xids, *count, XIDOID, sizeof(TransactionId), true, TYPALIGN_INT);
}

/*
 * Put the first column of a query's rows into an array, or leave the column
 * NULL when there are none; *since becomes the earliest time of the second.
 */
static void
fill_holders(SPITupleTable *rows, uint64 count, Oid type, int column,
			 Datum *values, bool *nulls, TimestampTz *since)
{
	Datum	   *holders = palloc(sizeof(Datum) * Max(count, 1));
	bool		is_null;

	for (uint64 i = 0; i < count; i++)
	{
		Datum		when;

		holders[i] = SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &is_null);
		when = SPI_getbinval(rows->vals[i], rows->tupdesc, 2, &is_null);
		if (!is_null && DatumGetTimestampTz(when) < *since)
			*since = DatumGetTimestampTz(when);
	}
	nulls[column] = count == 0;
	if (count == 0)
		return;
	if (type == INT4OID)
		values[column] = PointerGetDatum(construct_array(holders, count, INT4OID, sizeof(int32),
														 true, TYPALIGN_INT));
	else
		values[column] = PointerGetDatum(construct_array(holders, count, TEXTOID, -1,
														 false, TYPALIGN_INT));
}

/* Set the columns that say which open producers the next hole waits for. */
static void
fill_held_back(const GroupCursor *cursor, Datum *values, bool *nulls)
{
	Oid			types[] = {XIDARRAYOID};
	Datum		arguments[1];
	int			in_progress = 0;
	uint64		count;
	SPITupleTable *rows;
	TimestampTz since = DT_NOEND;

	nulls[GROUP_HELD_BACK_BY_PIDS] = true;
	nulls[GROUP_HELD_BACK_BY_PREPARED] = true;
	nulls[GROUP_HELD_BACK_SINCE] = true;
	if (!fence_memory_is_valid(&cursor->fence) || cursor->claimed >= cursor->fence.last)
		return;
	arguments[0] = PointerGetDatum(list_holders_in_progress(&cursor->fence, &in_progress));
	if (in_progress == 0)
		return;

	rows = inspect_query("SELECT pid, xact_start FROM pg_catalog.pg_stat_activity"
						 " WHERE backend_xid OPERATOR(pg_catalog.=) ANY ($1) ORDER BY pid",
						 lengthof(types), types, arguments, &count);
	fill_holders(rows, count, INT4OID, GROUP_HELD_BACK_BY_PIDS, values, nulls, &since);
	rows = inspect_query("SELECT gid, prepared FROM pg_catalog.pg_prepared_xacts"
						 " WHERE transaction OPERATOR(pg_catalog.=) ANY ($1) ORDER BY gid",
						 lengthof(types), types, arguments, &count);
	fill_holders(rows, count, TEXTOID, GROUP_HELD_BACK_BY_PREPARED, values, nulls, &since);

	nulls[GROUP_HELD_BACK_SINCE] = since == DT_NOEND;
	values[GROUP_HELD_BACK_SINCE] = TimestampTzGetDatum(since);
}

/* Set a column to the age of the first message from from_id to last, or NULL. */
static void
fill_created_at(const Stream *stream, int64 from_id, int64 last, int column, Datum *values, bool *nulls)
{
	TimestampTz created_at = 0;

	nulls[column] = !message_log_find_created_at(stream, GetActiveSnapshot(), from_id, last, &created_at);
	values[column] = TimestampTzGetDatum(created_at);
}

/* Read the heads of the group's stream, once a stream; false if it is gone. */
static bool
read_heads(GroupView *view, const Stream *stream)
{
	if (view->heads_stream_id == stream->stream_id)
		return true;
	if (!inspect_read_heads(stream, &view->last, &view->settled))
		return false;
	view->heads_stream_id = stream->stream_id;
	return true;
}

/* Count the group's exceptions with a status, on top of what was counted. */
static void
count_exceptions(const ShownGroup *group, StateTable *table, ExceptionStatus status, ExceptionSummary *summary)
{
	exception_summarize(table, group->group_id, status, group->stream.purged_through,
						MAX_EXCEPTIONS_COUNTED, GetActiveSnapshot(), summary);
}

/* The lower of two ids of which 0 is none. */
static int64
lower_id(int64 a, int64 b)
{
	return a == 0 || (b != 0 && b < a) ? b : a;
}

/*
 * Set the columns that say what exceptions the group has.  Returns the lowest
 * message among those counted that are not dead, 0 if there is none.
 */
static int64
fill_exceptions(const ShownGroup *group, Datum *values, bool *nulls)
{
	ExceptionSummary ready = {0};
	ExceptionSummary inflight = {0};
	ExceptionSummary deferred = {0};
	ExceptionSummary dead = {0};
	StateTable	table;

	nulls[GROUP_NEXT_DUE_AT] = true;
	if (exception_open_to_read(&group->stream, &table))
	{
		count_exceptions(group, &table, EXCEPTION_READY, &ready);
		nulls[GROUP_NEXT_DUE_AT] = ready.count == 0;
		values[GROUP_NEXT_DUE_AT] = TimestampTzGetDatum(ready.first_due_at);
		count_exceptions(group, &table, EXCEPTION_PARKED, &ready);
		count_exceptions(group, &table, EXCEPTION_INFLIGHT, &inflight);
		count_exceptions(group, &table, EXCEPTION_DEFERRED, &deferred);
		count_exceptions(group, &table, EXCEPTION_DEAD, &dead);
		state_table_close(&table);
	}
	values[GROUP_READY] = Int64GetDatum(ready.count);
	values[GROUP_INFLIGHT] = Int64GetDatum(inflight.count);
	values[GROUP_DEFERRED] = Int64GetDatum(deferred.count);
	values[GROUP_DEAD] = Int64GetDatum(dead.count);
	return lower_id(ready.lowest_id, lower_id(inflight.lowest_id, deferred.lowest_id));
}

/* Set the columns that say how far the group is. */
static void
fill_progress(const GroupView *view, const ShownGroup *group, const GroupCursor *cursor,
			  Datum *values, bool *nulls)
{
	int64		claimed = Max(cursor->claimed, group->stream.purged_through);
	int64		committed;
	int64		lowest;
	int64		leased;
	int64		lowest_exception = fill_exceptions(group, values, nulls);

	read_unresolved(group, &lowest, &leased);
	committed = lowest > 0 ? lowest - 1 : claimed;

	values[GROUP_CLAIMED] = Int64GetDatum(claimed);
	values[GROUP_COMMITTED] = Int64GetDatum(committed);
	values[GROUP_SETTLED_HEAD] = Int64GetDatum(view->settled);
	values[GROUP_HEAD] = Int64GetDatum(view->last);
	values[GROUP_BACKLOG] = Int64GetDatum(Max(view->settled - claimed, 0));
	values[GROUP_LEASED] = Int64GetDatum(leased);
	fill_created_at(&group->stream, claimed + 1, view->last, GROUP_OLDEST_UNCLAIMED_AT, values, nulls);
	fill_created_at(&group->stream, lower_id(committed + 1, lowest_exception), view->last,
					GROUP_OLDEST_UNRESOLVED_AT, values, nulls);
}

/* Set the columns that come from the group's definition. */
static void
fill_config(const ShownGroup *group, Datum *values, bool *nulls)
{
	values[GROUP_STREAM] = CStringGetTextDatum(group->stream.name);
	values[GROUP_NAME] = CStringGetTextDatum(group->name);
	values[GROUP_ID] = Int64GetDatum(group->group_id);
	values[GROUP_BINDINGS] = SPI_getbinval(group->config, group->config_desc,
										   CONFIG_BINDINGS, &nulls[GROUP_BINDINGS]);
	values[GROUP_SCHEMA_VERSION] = SPI_getbinval(group->config, group->config_desc,
												 CONFIG_SCHEMA_VERSION, &nulls[GROUP_SCHEMA_VERSION]);
	values[GROUP_SETTINGS] = SPI_getbinval(group->config, group->config_desc,
										   CONFIG_SETTINGS, &nulls[GROUP_SETTINGS]);
}

/* Add a group's row to the result. */
static void
put_group(GroupView *view, const ShownGroup *group)
{
	Datum		values[GROUP_COLUMNS] = {0};
	bool		nulls[GROUP_COLUMNS] = {0};
	GroupCursor cursor;
	int32		holder = 0;

	if (!cursor_read(&group->stream, group->group_id, GetActiveSnapshot(), &cursor) ||
		!read_heads(view, &group->stream))
		return;
	fill_progress(view, group, &cursor, values, nulls);
	fill_config(group, values, nulls);
	fill_held_back(&cursor, values, nulls);

	nulls[GROUP_LAST_RESOLVED_AT] = true;

	values[GROUP_SUPERSEDED] = Int64GetDatum(cursor.superseded);
	values[GROUP_LAST_CLAIM_AT] = TimestampTzGetDatum(cursor.last_claim_at);
	nulls[GROUP_LAST_CLAIM_AT] = cursor.last_claim_at == 0;
	nulls[GROUP_CLAIM_HELD_BY] = !find_claim_holder(view, group->group_id, &holder);
	values[GROUP_CLAIM_HELD_BY] = Int32GetDatum(holder);
	tuplestore_putvalues(view->result->setResult, view->result->setDesc, values, nulls);
}

/*
 * list_consumer_groups() returns setof record: what view "consumer_groups" shows
 */
Datum
sqlstreams_list_consumer_groups(PG_FUNCTION_ARGS)
{
	GroupView	view = {.result = inspect_begin(fcinfo)};

	read_claim_holders(&view);
	for_each_group(&view, put_group);
	inspect_end();
	return (Datum) 0;
}

/*
 * Add a row for the claim whose first segment is given, with the counts of all
 * of its segments; none when nothing of it is open.
 */
static void
put_lease(GroupView *view, const ShownGroup *group, const LeaseSegment *segment,
		  int64 messages, int64 unresolved, int32 takeovers)
{
	Datum		values[LEASE_COLUMNS];
	bool		nulls[LEASE_COLUMNS] = {0};

	if (unresolved == 0)
		return;
	values[LEASE_STREAM] = CStringGetTextDatum(group->stream.name);
	values[LEASE_GROUP] = CStringGetTextDatum(group->name);
	values[LEASE_CLAIM_ID] = Int64GetDatum(segment->claim_id);
	nulls[LEASE_CONSUMER] = segment->consumer == NULL;
	values[LEASE_CONSUMER] = segment->consumer != NULL ? CStringGetTextDatum(segment->consumer) : (Datum) 0;
	values[LEASE_MESSAGES] = Int64GetDatum(messages);
	values[LEASE_UNRESOLVED] = Int64GetDatum(unresolved);
	values[LEASE_CLAIMED_AT] = TimestampTzGetDatum(segment->claimed_at);
	values[LEASE_EXPIRES_AT] = TimestampTzGetDatum(segment->expires_at);
	values[LEASE_TAKEOVERS] = Int32GetDatum(takeovers);
	tuplestore_putvalues(view->result->setResult, view->result->setDesc, values, nulls);
}

/* Add a row for each claim of a group that is not resolved or handed back. */
static void
put_leases_of_group(GroupView *view, const ShownGroup *group)
{
	LeaseTables tables;
	ListCell   *cell;
	const LeaseSegment *first = NULL;
	int64		messages = 0;
	int64		unresolved = 0;
	int32		takeovers = 0;

	if (!lease_open_to_read(&group->stream, &tables))
		return;
	foreach(cell, lease_load_group(&tables, group->group_id, GetActiveSnapshot()))
	{
		LeaseSegment *segment = lfirst(cell);

		CHECK_FOR_INTERRUPTS();
		if (segment->is_released)
			continue;
		if (first != NULL && first->claim_id != segment->claim_id)
		{
			put_lease(view, group, first, messages, unresolved, takeovers);
			first = NULL;
		}
		if (first == NULL)
		{
			first = segment;
			messages = unresolved = takeovers = 0;
		}
		messages += id_set_count(&segment->members);
		takeovers = Max(takeovers, segment->takeovers);
		remove_resolved(&tables, &group->stream, segment);
		unresolved += id_set_count(&segment->members);
	}
	if (first != NULL)
		put_lease(view, group, first, messages, unresolved, takeovers);
	lease_close(&tables);
}

/*
 * list_leases() returns setof record: what view "leases" shows
 */
Datum
sqlstreams_list_leases(PG_FUNCTION_ARGS)
{
	GroupView	view = {.result = inspect_begin(fcinfo)};

	for_each_group(&view, put_leases_of_group);
	inspect_end();
	return (Datum) 0;
}
