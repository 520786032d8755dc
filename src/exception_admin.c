/*
 * exception_admin.c
 *		The SQL functions by which people see a stream's exceptions, and bring dead
 *		messages back or forget them.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "access.h"
#include "arguments.h"
#include "config.h"
#include "exception_group.h"
#include "key_holder.h"
#include "message_log.h"

PG_FUNCTION_INFO_V1(sqlstreams_exceptions);
PG_FUNCTION_INFO_V1(sqlstreams_redrive);
PG_FUNCTION_INFO_V1(sqlstreams_discard);

/* Columns of exceptions, from 0. */
enum
{
	SHOWN_GROUP,
	SHOWN_MESSAGE_ID,
	SHOWN_STATUS,
	SHOWN_MESSAGE_KEY,
	SHOWN_CONCURRENCY,
	SHOWN_ATTEMPTS,
	SHOWN_DELAYS,
	SHOWN_TAKEOVERS,
	SHOWN_CAN_RUN_AFTER,
	SHOWN_LAST_ERROR,
	SHOWN_BLOCKED_BY,
	SHOWN_CLAIM_ID,
	SHOWN_PAYLOAD,
	SHOWN_BODY,
	SHOWN_ROUTING_KEY,
	SHOWN_HEADERS,
	SHOWN_CREATED_AT,
	SHOWN_UPDATED_AT,
	SHOWN_COLUMNS
};

/* Exceptions of a status that are found by it, and sorted; with more all are read. */
#define MAX_COLLECTED_IDS 10000

/* The reading of one group's exceptions, by message. */
typedef struct GroupReader
{
	ConsumerGroup group;
	int64	   *ids;			/* of those with the status, if they are few; else
								 * NULL, and ... */
	int64		id_count;
	int64		id_next;
	MemoryContext found;		/* what the exception points to, read by id */
	ExceptionScan scan;			/* ... all are read */
	bool		has_exception;
	Exception	exception;		/* the next to be shown */
} GroupReader;

/* A page of exceptions as it is being made. */
typedef struct ExceptionPage
{
	const Stream *stream;
	Snapshot	snapshot;
	const char *status;			/* only these; NULL: all */
	int64		after_id;
	int64		max_messages;
	ReturnSetInfo *result;
	StateTable	table;
	StateTable	keys;			/* these two say what deferred messages wait for */
	LeaseTables leases;
	LogScan    *log_scan;		/* NULL until the first message is read */
	MemoryContext scratch;		/* for one row */
	GroupReader *readers;		/* by group name */
	int			reader_count;
} ExceptionPage;

/* A parked exception is not distinguished from one that is ready. */
static const char *
status_name(ExceptionStatus status)
{
	switch (status)
	{
		case EXCEPTION_READY:
		case EXCEPTION_PARKED:
			return "ready";
		case EXCEPTION_INFLIGHT:
			return "inflight";
		case EXCEPTION_DEFERRED:
			return "deferred";
		case EXCEPTION_DEAD:
			return "dead";
	}
	return "";
}

/* Raise 22023 unless it is the name of a status. */
static void
check_status(const char *status)
{
	if (strcmp(status, "ready") != 0 && strcmp(status, "inflight") != 0 &&
		strcmp(status, "deferred") != 0 && strcmp(status, "dead") != 0)
		argument_raise_invalid("status", _("It must be \"ready\", \"inflight\", \"deferred\" or \"dead\"."));
}

/* Find a stream from which the current role may consume. */
static void
find_stream(FunctionCallInfo fcinfo, Stream *stream)
{
	stream_lookup(argument_get_name(fcinfo, 0, "stream"), stream);
	access_check_consume(stream);
}

/* Go to the next exception of those whose ids are known. */
static void
advance_by_id(ExceptionPage *page, GroupReader *reader)
{
	MemoryContextReset(reader->found);
	reader->has_exception = false;
	while (!reader->has_exception && reader->id_next < reader->id_count)
	{
		MemoryContext old = MemoryContextSwitchTo(reader->found);

		reader->has_exception = exception_find(&page->table, reader->group.group_id,
											   reader->ids[reader->id_next++], page->snapshot, &reader->exception);
		MemoryContextSwitchTo(old);
	}
}

/* Go to the reader's next exception that is to be shown. */
static void
advance(ExceptionPage *page, GroupReader *reader)
{
	if (reader->ids != NULL)
	{
		advance_by_id(page, reader);
		return;
	}
	do
		reader->has_exception = exception_scan_next(&reader->scan, &reader->exception);
	while (reader->has_exception && page->status != NULL &&
		   strcmp(status_name(reader->exception.status), page->status) != 0);
}

/*
 * Find the ids of the exceptions that have the page's status, if they are few:
 * they may lie among many with another one.
 */
static void
collect_ids(ExceptionPage *page, GroupReader *reader, int64 after_id)
{
	static const ExceptionStatus all[] = {
		EXCEPTION_READY, EXCEPTION_PARKED, EXCEPTION_INFLIGHT, EXCEPTION_DEFERRED, EXCEPTION_DEAD
	};
	int64	   *ids = palloc(sizeof(int64) * MAX_COLLECTED_IDS);
	bool		are_few = true;

	reader->id_count = 0;
	reader->id_next = 0;
	for (int i = 0; are_few && i < lengthof(all); i++)
	{
		if (strcmp(status_name(all[i]), page->status) == 0)
			are_few = exception_collect_ids(&page->table, reader->group.group_id, all[i], after_id,
											page->snapshot, ids, &reader->id_count, MAX_COLLECTED_IDS);
	}
	qsort(ids, reader->id_count, sizeof(int64), id_compare);
	if (are_few)
		reader->ids = ids;
	else
		pfree(ids);
}

/* Begin to read a group's exceptions. */
static void
begin_reader(ExceptionPage *page, const ConsumerGroup *group)
{
	GroupReader *reader = &page->readers[page->reader_count++];

	int64		after_id = Max(page->after_id, page->stream->purged_through);

	reader->group = *group;
	reader->ids = NULL;
	if (page->status != NULL)
		collect_ids(page, reader, after_id);
	if (reader->ids == NULL)
		exception_scan_ids_begin(&reader->scan, &page->table, group->group_id, after_id, page->snapshot);
	else
		reader->found = AllocSetContextCreate(CurrentMemoryContext, "sqlstreams exception found",
											  ALLOCSET_SMALL_SIZES);
	advance(page, reader);
}

static int
compare_names(const ListCell *a, const ListCell *b)
{
	return strcmp(((const ConfigGroup *) lfirst(a))->name, ((const ConfigGroup *) lfirst(b))->name);
}

/* Begin to read the exceptions of a group, or of all when that is NULL. */
static void
begin_readers(ExceptionPage *page, const ConsumerGroup *group)
{
	List	   *groups;
	ListCell   *cell;

	if (group != NULL)
	{
		page->readers = palloc(sizeof(GroupReader));
		begin_reader(page, group);
		return;
	}
	groups = config_list_groups(page->stream, page->snapshot);
	list_sort(groups, compare_names);
	page->readers = palloc(sizeof(GroupReader) * Max(list_length(groups), 1));
	foreach(cell, groups)
	{
		ConsumerGroup found;

		/* one that was dropped meanwhile has none */
		if (group_lookup_if_exists(page->stream, ((ConfigGroup *) lfirst(cell))->name, &found))
			begin_reader(page, &found);
	}
}

/* The reader whose exception comes next, or NULL. */
static GroupReader *
find_next(ExceptionPage *page)
{
	GroupReader *next = NULL;

	for (int i = 0; i < page->reader_count; i++)
	{
		GroupReader *reader = &page->readers[i];

		if (reader->has_exception &&
			(next == NULL || reader->exception.message_id < next->exception.message_id))
			next = reader;
	}
	return next;
}

/* The message that the key of a deferred message waits for; 0: it is just free. */
static int64
find_blocker(ExceptionPage *page, const ConsumerGroup *group, const text *key)
{
	KeyHolderTables tables = {page->stream, &page->leases, &page->table};
	KeyLease	lease;
	bool		is_open;

	if (!key_lease_find(&page->keys, group->group_id, key, page->snapshot, &lease))
		return 0;
	return key_holder_find(&tables, group->group_id, &lease, page->snapshot, &is_open);
}

/*
 * Set the columns that come from the log; they stay NULL if it has no such
 * message.  Returns the message's policy.
 */
static Concurrency
fill_from_log(ExceptionPage *page, const ConsumerGroup *group, int64 message_id, Datum *values, bool *nulls)
{
	Datum	   *row;
	bool	   *row_isnull;
	Concurrency asked = CONCURRENCY_UNSET;

	if (page->log_scan == NULL)
		page->log_scan = message_log_scan_begin(page->stream, page->snapshot, message_id, message_id);
	else
		message_log_scan_seek(page->log_scan, message_id, message_id);
	if (!message_log_scan_next(page->log_scan))
		return CONCURRENCY_PARALLEL;
	message_log_scan_row(page->log_scan, &row, &row_isnull);

#define COPY_COLUMN(to, from) \
	(values[to] = row[(from) - 1], nulls[to] = row_isnull[(from) - 1])

	COPY_COLUMN(SHOWN_MESSAGE_KEY, Anum_log_message_key);
	COPY_COLUMN(SHOWN_PAYLOAD, Anum_log_payload);
	COPY_COLUMN(SHOWN_BODY, Anum_log_body);
	COPY_COLUMN(SHOWN_ROUTING_KEY, Anum_log_routing_key);
	COPY_COLUMN(SHOWN_HEADERS, Anum_log_headers);
	COPY_COLUMN(SHOWN_CREATED_AT, Anum_log_created_at);

#undef COPY_COLUMN
	if (nulls[SHOWN_MESSAGE_KEY])
		return CONCURRENCY_PARALLEL;
	if (!row_isnull[Anum_log_concurrency - 1])
		asked = (Concurrency) DatumGetChar(row[Anum_log_concurrency - 1]);
	return group_concurrency(group, concurrency_first(asked, page->stream->concurrency));
}

/* Add the reader's exception to the result. */
static void
put_exception(ExceptionPage *page, const GroupReader *reader)
{
	const Exception *exception = &reader->exception;
	Datum		values[SHOWN_COLUMNS] = {0};
	bool		nulls[SHOWN_COLUMNS];
	Concurrency concurrency;
	int64		blocked_by = 0;
	MemoryContext old;

	memset(nulls, true, sizeof(nulls));
	concurrency = fill_from_log(page, &reader->group, exception->message_id, values, nulls);

	old = MemoryContextSwitchTo(page->scratch);
	if (exception->status == EXCEPTION_DEFERRED && !nulls[SHOWN_MESSAGE_KEY])
		blocked_by = find_blocker(page, &reader->group, DatumGetTextPP(values[SHOWN_MESSAGE_KEY]));
#define SET_COLUMN(column, datum) \
	(values[column] = (datum), nulls[column] = false)

	SET_COLUMN(SHOWN_GROUP, CStringGetTextDatum(reader->group.name));
	SET_COLUMN(SHOWN_MESSAGE_ID, Int64GetDatum(exception->message_id));
	SET_COLUMN(SHOWN_STATUS, CStringGetTextDatum(status_name(exception->status)));
	SET_COLUMN(SHOWN_CONCURRENCY, CStringGetTextDatum(concurrency_name(concurrency)));
	if (blocked_by != 0)
		SET_COLUMN(SHOWN_BLOCKED_BY, Int64GetDatum(blocked_by));
	SET_COLUMN(SHOWN_ATTEMPTS, Int32GetDatum(exception->attempts));
	SET_COLUMN(SHOWN_DELAYS, Int32GetDatum(exception->delays));
	SET_COLUMN(SHOWN_TAKEOVERS, Int32GetDatum(exception->takeovers));
	if (exception->status != EXCEPTION_DEAD)
		SET_COLUMN(SHOWN_CAN_RUN_AFTER, TimestampTzGetDatum(exception->due_at));
	if (exception->last_error != NULL)
		SET_COLUMN(SHOWN_LAST_ERROR, PointerGetDatum(exception->last_error));
	if (exception->claim_id != 0)
		SET_COLUMN(SHOWN_CLAIM_ID, Int64GetDatum(exception->claim_id));
	SET_COLUMN(SHOWN_UPDATED_AT, TimestampTzGetDatum(exception->updated_at));

#undef SET_COLUMN
	tuplestore_putvalues(page->result->setResult, page->result->setDesc, values, nulls);
	MemoryContextSwitchTo(old);
	MemoryContextReset(page->scratch);
}

/* Return the page: as many as are asked for, and all of the last message. */
static void
put_page(ExceptionPage *page, const ConsumerGroup *group)
{
	int64		count = 0;
	int64		last_id = 0;
	GroupReader *reader;

	if (!exception_open_to_read(page->stream, &page->table) ||
		!key_lease_open_to_read(page->stream, &page->keys) ||
		!lease_open_to_read(page->stream, &page->leases))
		stream_raise_table_missing(page->stream);
	page->scratch = AllocSetContextCreate(CurrentMemoryContext, "sqlstreams exceptions",
										  ALLOCSET_DEFAULT_SIZES);
	begin_readers(page, group);
	while ((reader = find_next(page)) != NULL &&
		   (count < page->max_messages || reader->exception.message_id == last_id))
	{
		put_exception(page, reader);
		last_id = reader->exception.message_id;
		count++;
		advance(page, reader);
	}
	for (int i = 0; i < page->reader_count; i++)
	{
		if (page->readers[i].ids == NULL)
			exception_scan_end(&page->readers[i].scan);
	}
	if (page->log_scan != NULL)
		message_log_scan_end(page->log_scan);
	lease_close(&page->leases);
	state_table_close(&page->keys);
	state_table_close(&page->table);
}

/*
 * exceptions(stream, consumer_group, status, after_id, max_messages): exceptions
 * in the order of their messages
 */
Datum
sqlstreams_exceptions(PG_FUNCTION_ARGS)
{
	ExceptionPage page = {0};
	Stream		stream;
	ConsumerGroup group;

	page.status = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	page.after_id = argument_get_integer_or(fcinfo, 3, "after_id", PG_INT64_MIN, PG_INT64_MAX, 0);
	page.max_messages = argument_get_integer(fcinfo, 4, "max_messages", 1, BATCH_MAX_MESSAGES);
	find_stream(fcinfo, &stream);
	if (page.status != NULL)
		check_status(page.status);
	if (!PG_ARGISNULL(1))
		group_lookup(&stream, text_to_cstring(PG_GETARG_TEXT_PP(1)), &group);
	message_log_check_access(&stream);

	InitMaterializedSRF(fcinfo, 0);
	page.result = (ReturnSetInfo *) fcinfo->resultinfo;
	page.stream = &stream;
	page.snapshot = GetActiveSnapshot();

	/* made with the first group */
	if (OidIsValid(stream.exception_oid))
		put_page(&page, PG_ARGISNULL(1) ? NULL : &group);
	return (Datum) 0;
}

/* The ids of argument message_ids, each once.  Raises 22004 for a NULL. */
static int64 *
read_ids(FunctionCallInfo fcinfo, int number, int *count)
{
	bool	   *isnull;
	int			element_count;
	Datum	   *elements = argument_get_array(fcinfo, number, "message_ids", INT8OID, &isnull, &element_count);
	int64	   *ids = palloc_extended(sizeof(int64) * Max(element_count, 1), MCXT_ALLOC_HUGE);

	for (int i = 0; i < element_count; i++)
	{
		argument_check_element("message_ids", isnull, i);
		ids[i] = DatumGetInt64(elements[i]);
	}
	qsort(ids, element_count, sizeof(int64), id_compare);
	*count = 0;
	for (int i = 0; i < element_count; i++)
	{
		if (*count == 0 || ids[i] != ids[*count - 1])
			ids[(*count)++] = ids[i];
	}
	return ids;
}

/* A call about dead messages of a group. */
typedef struct DeadCall
{
	Stream		stream;
	ConsumerGroup group;
	DeadChoice	choice;
} DeadCall;

/* Read the arguments stream, consumer_group, message_ids and error_like. */
static void
read_dead_call(FunctionCallInfo fcinfo, DeadCall *call)
{
	char	   *group_name = argument_get_name(fcinfo, 1, "consumer_group");

	memset(&call->choice, 0, sizeof(DeadChoice));
	find_stream(fcinfo, &call->stream);
	group_lookup(&call->stream, group_name, &call->group);
	call->choice.has_ids = !PG_ARGISNULL(2);
	if (call->choice.has_ids)
		call->choice.ids = read_ids(fcinfo, 2, &call->choice.id_count);
	if (!PG_ARGISNULL(3))
		call->choice.error_like = PG_GETARG_TEXT_PP(3);
}

/* redrive(stream, consumer_group, message_ids, error_like): dead ones again. */
Datum
sqlstreams_redrive(PG_FUNCTION_ARGS)
{
	DeadCall	call;

	PreventCommandIfReadOnly("sqlstreams.redrive()");
	read_dead_call(fcinfo, &call);
	PG_RETURN_INT64(exception_group_redrive(&call.stream, call.group.group_id, &call.choice));
}

/* discard(stream, consumer_group, message_ids, error_like): forget dead ones. */
Datum
sqlstreams_discard(PG_FUNCTION_ARGS)
{
	DeadCall	call;

	PreventCommandIfReadOnly("sqlstreams.discard()");
	read_dead_call(fcinfo, &call);
	if (!call.choice.has_ids && call.choice.error_like == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("one of \"message_ids\" and \"error_like\" must be given"),
				 errhint("An error_like of '%%' means all that have an error.")));
	PG_RETURN_INT64(exception_group_discard(&call.stream, call.group.group_id, &call.choice));
}
