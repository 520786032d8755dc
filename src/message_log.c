/*
 * message_log.c
 *		Append to a stream's log and read from it.  The only C file that knows
 *		the log's columns by number.
 *
 * A partition is written as COPY writes it: the rows straight into the heap,
 * then the indexes.  One to which its owner has added triggers, constraints,
 * columns or indexes is written row by row through the executor's routines,
 * which honour all of these.  What would depend on the partitioned table being
 * named in a query (row-level security, rules, triggers for a statement) is
 * refused rather than bypassed.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "miscadmin.h"
#include "rewrite/rewriteHandler.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
#include "errors.h"
#include "message_log.h"
#include "partition.h"
#include "partition_maker.h"

/*
 * How much is formed before it is written: as with COPY, enough to fill pages,
 * and little enough to stay in the processor's caches.
 */
#define APPEND_CHUNK_ROWS	1000
#define APPEND_CHUNK_BYTES	65536

typedef struct LogColumn
{
	const char *name;
	Oid			type;
} LogColumn;

static const LogColumn log_columns[LOG_COLUMNS] = {
	{"id", INT8OID},
	{"created_at", TIMESTAMPTZOID},
	{"deliver_at", TIMESTAMPTZOID},
	{"compaction_rank", INT8OID},
	{"schema_version", INT4OID},
	{"concurrency", CHAROID},
	{"message_key", TEXTOID},
	{"routing_key", TEXTOID},
	{"headers", JSONBOID},
	{"options", JSONBOID},
	{"payload", JSONBOID},
	{"body", BYTEAOID}
};

/*
 * Raise 55000 unless a partition's first columns are the log's, in their order.
 * Its owner may have added others behind them.
 */
void
message_log_check_columns(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < LOG_COLUMNS; i++)
	{
		Form_pg_attribute attribute = i < desc->natts ? TupleDescAttr(desc, i) : NULL;

		if (attribute == NULL || attribute->attisdropped ||
			attribute->atttypid != log_columns[i].type ||
			strcmp(NameStr(attribute->attname), log_columns[i].name) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("partition \"%s\" has other columns than a message log", RelationGetRelationName(rel)),
					 errdetail("Column %d should be \"%s\".", i + 1, log_columns[i].name)));
	}
}

/* Raise 0A000 for something on the log that neither produce nor claim honours. */
static void
raise_unsupported(const Stream *stream, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("the log of stream \"%s\" has %s, which sqlstreams does not support", stream->name, what),
			 errhint("Remove them from table \"sqlstreams.message_log_%lld\".", (long long) stream->stream_id)));
}

/* Raise 0A000 if the log has rules, or triggers that fire once for a statement. */
static void
check_rules_and_triggers(const Stream *stream)
{
	Relation	rel = try_table_open(stream->log_oid, AccessShareLock);
	TriggerDesc *triggers;

	if (rel == NULL)
		stream_raise_table_missing(stream);
	triggers = rel->trigdesc;
	if (rel->rd_rules != NULL)
		raise_unsupported(stream, "rules");
	if (triggers != NULL && (triggers->trig_insert_before_statement ||
							 triggers->trig_insert_after_statement ||
							 triggers->trig_insert_new_table))
		raise_unsupported(stream, "triggers for each statement");
	table_close(rel, AccessShareLock);
}

/*
 * Raise 0A000 if the log has what only a query that names it would honour.
 * Looks at the partitioned table without locking it, unless it may have such.
 */
void
message_log_check_access(const Stream *stream)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(stream->log_oid));
	Form_pg_class form;
	bool		has_row_security;
	bool		may_have_more;	/* these flags are set back by vacuum only */

	if (!HeapTupleIsValid(tuple))
		stream_raise_table_missing(stream);
	form = (Form_pg_class) GETSTRUCT(tuple);
	has_row_security = form->relrowsecurity;
	may_have_more = form->relhasrules || form->relhastriggers;
	ReleaseSysCache(tuple);

	if (has_row_security)
		raise_unsupported(stream, "row-level security policies");
	if (may_have_more)
		check_rules_and_triggers(stream);
}

/* Has the owner forbidden nulls in a column that may have some? */
static bool
has_added_not_null(TupleDesc desc)
{
	for (int i = 0; i < LOG_COLUMNS; i++)
	{
		if (TupleDescAttr(desc, i)->attnotnull &&
			i != Anum_log_id - 1 && i != Anum_log_created_at - 1 && i != Anum_log_schema_version - 1)
			return true;
	}
	return false;
}

/* Has nothing been added to the partition but, maybe, indexes? */
static bool
is_plain(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	return desc->natts == LOG_COLUMNS &&
		!has_added_not_null(desc) &&
		rel->trigdesc == NULL &&
		(desc->constr == NULL || desc->constr->num_check == 0) &&
		!compat_has_generated_column(desc);
}

/* Is this the index that a log has on message keys, for messages that have one? */
static bool
is_key_index(Relation index)
{
	List	   *predicate = RelationGetIndexPredicate(index);
	NullTest   *test = list_length(predicate) == 1 ? linitial(predicate) : NULL;

	return IndexRelationGetNumberOfAttributes(index) == 2 &&
		index->rd_index->indkey.values[0] == Anum_log_message_key &&
		index->rd_index->indkey.values[1] == Anum_log_id &&
		!index->rd_index->indisunique &&
		test != NULL && IsA(test, NullTest) && test->nulltesttype == IS_NOT_NULL &&
		IsA(test->arg, Var) && ((Var *) test->arg)->varattno == Anum_log_message_key;
}

/* The index of a partition on message keys, or InvalidOid when it is missing. */
Oid
message_log_find_key_index(Relation rel)
{
	ListCell   *cell;

	foreach(cell, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);
		bool		is_found = index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indisvalid &&
			is_key_index(index);

		index_close(index, AccessShareLock);
		if (is_found)
			return lfirst_oid(cell);
	}
	return InvalidOid;
}

/* Is this the index that a log has on ids? */
static bool
is_id_index(Relation index)
{
	return IndexRelationGetNumberOfAttributes(index) == 1 &&
		index->rd_index->indkey.values[0] == Anum_log_id &&
		index->rd_index->indisprimary && index->rd_index->indimmediate;
}

/* Find out whether nothing was added to a partition. */
void
message_log_find_shape(Relation rel, LogShape *shape)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *cell;

	shape->id_index = shape->key_index = InvalidOid;
	if (!is_plain(rel) || rel->rd_rel->relam != HEAP_TABLE_AM_OID || list_length(indexes) != 2)
		return;
	foreach(cell, indexes)
	{
		Relation	index = index_open(lfirst_oid(cell), AccessShareLock);

		if (index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indisready)
		{
			if (is_id_index(index))
				shape->id_index = RelationGetRelid(index);
			else if (is_key_index(index))
				shape->key_index = RelationGetRelid(index);
		}
		index_close(index, AccessShareLock);
	}
	if (!OidIsValid(shape->key_index))
		shape->id_index = InvalidOid;
}

/* Put a message into a slot of the partition. */
static void
store_message(TupleTableSlot *slot, const LogMessage *message)
{
	ExecClearTuple(slot);
	memcpy(slot->tts_values, message->values, sizeof(message->values));
	memcpy(slot->tts_isnull, message->isnull, sizeof(message->isnull));
	slot->tts_values[Anum_log_id - 1] = Int64GetDatum(message->id);
	slot->tts_isnull[Anum_log_id - 1] = false;
}

/* The open indexes of a partition to which nothing was added. */
typedef struct LogIndexes
{
	Relation	rel;
	Relation	by_id;
	Relation	by_key;			/* NULL: no message has a key */
	IndexInfo  *info;			/* a B-tree takes no notice of it */
} LogIndexes;

/* Open the indexes that the messages need. */
static void
open_indexes(LogIndexes *indexes, Relation rel, const LogShape *shape, LogMessage **messages, int count)
{
	bool		has_key = false;

	for (int i = 0; i < count && !has_key; i++)
		has_key = !messages[i]->isnull[Anum_log_message_key - 1];
	indexes->rel = rel;
	indexes->by_id = index_open(shape->id_index, RowExclusiveLock);
	indexes->by_key = has_key ? index_open(shape->key_index, RowExclusiveLock) : NULL;
	indexes->info = makeNode(IndexInfo);
}

static void
close_indexes(LogIndexes *indexes)
{
	index_close(indexes->by_id, RowExclusiveLock);
	if (indexes->by_key != NULL)
		index_close(indexes->by_key, RowExclusiveLock);
}

/* Add a row that was written to the indexes. */
static void
insert_index_entries(LogIndexes *indexes, ItemPointer tid, const LogMessage *message)
{
	Datum		id = Int64GetDatum(message->id);
	Datum		key[2] = {message->values[Anum_log_message_key - 1], id};
	bool		isnull[2] = {false, false};

	(void) index_insert(indexes->by_id, &id, isnull, tid, indexes->rel, UNIQUE_CHECK_YES, false, indexes->info);
	if (!message->isnull[Anum_log_message_key - 1])
		(void) index_insert(indexes->by_key, key, isnull, tid, indexes->rel, UNIQUE_CHECK_NO, false, indexes->info);
}

/* Append one message to a partition to which nothing was added. */
static void
append_one(LogIndexes *indexes, LogMessage *message)
{
	HeapTuple	tuple;

	message->values[Anum_log_id - 1] = Int64GetDatum(message->id);
	message->isnull[Anum_log_id - 1] = false;
	tuple = heap_form_tuple(RelationGetDescr(indexes->rel), message->values, message->isnull);
	heap_insert(indexes->rel, tuple, GetCurrentCommandId(true), 0, NULL);
	insert_index_entries(indexes, &tuple->t_self, message);
	heap_freetuple(tuple);
}

/* About how much of a page a message takes. */
static Size
message_size(const LogMessage *message)
{
	AttrNumber	body = message->isnull[Anum_log_payload - 1] ? Anum_log_body : Anum_log_payload;

	return VARSIZE_ANY(DatumGetPointer(message->values[body - 1]));
}

/*
 * Put messages into slots, which are made as they are needed, until a chunk is
 * full; returns how many.
 */
static int
fill_chunk(Relation rel, TupleTableSlot **slots, LogMessage **messages, int count)
{
	Size		size = 0;
	int			filled = 0;

	while (filled < count && filled < APPEND_CHUNK_ROWS && size < APPEND_CHUNK_BYTES)
	{
		if (slots[filled] == NULL)
			slots[filled] = table_slot_create(rel, NULL);
		store_message(slots[filled], messages[filled]);
		ExecStoreVirtualTuple(slots[filled]);
		size += message_size(messages[filled++]);
	}
	return filled;
}

/*
 * Append messages to a partition to which nothing was added, many to a page and
 * a WAL record.
 */
static void
append_many(LogIndexes *indexes, LogMessage **messages, int count)
{
	Relation	rel = indexes->rel;
	TupleTableSlot **slots = palloc0(sizeof(TupleTableSlot *) * APPEND_CHUNK_ROWS);
	BulkInsertState bulk = GetBulkInsertState();
	int			filled;

	for (int done = 0; done < count; done += filled)
	{
		filled = fill_chunk(rel, slots, messages + done, count - done);
		table_multi_insert(rel, slots, filled, GetCurrentCommandId(true), 0, bulk);
		for (int i = 0; i < filled; i++)
			insert_index_entries(indexes, &slots[i]->tts_tid, messages[done + i]);
		CHECK_FOR_INTERRUPTS();
	}

	for (int i = 0; i < APPEND_CHUNK_ROWS && slots[i] != NULL; i++)
		ExecDropSingleTupleTableSlot(slots[i]);
	FreeBulkInsertState(bulk);
}

/* The defaults of the columns behind the log's own, NULL where there is none. */
static ExprState **
prepare_added_columns(Relation rel, EState *estate)
{
	TupleDesc	desc = RelationGetDescr(rel);
	ExprState **defaults = palloc0(sizeof(ExprState *) * desc->natts);

	for (int i = LOG_COLUMNS; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		Expr	   *expr = NULL;

		if (!attribute->attisdropped && attribute->attgenerated == '\0')
			expr = (Expr *) build_column_default(rel, i + 1);
		if (expr != NULL)
			defaults[i] = ExecPrepareExpr(expr, estate);
	}
	return defaults;
}

/* Set the columns behind the log's own. */
static void
fill_added_columns(TupleTableSlot *slot, EState *estate, ExprState **defaults)
{
	for (int i = LOG_COLUMNS; i < slot->tts_tupleDescriptor->natts; i++)
	{
		slot->tts_values[i] = (Datum) 0;
		slot->tts_isnull[i] = true;
		if (defaults[i] != NULL)
			slot->tts_values[i] = ExecEvalExpr(defaults[i], GetPerTupleExprContext(estate),
											   &slot->tts_isnull[i]);
	}
}

/*
 * Raise 39P01 if a trigger changed what names the row, or decides which message
 * is its key's head: that is kept in other tables, too (compaction.c).
 */
static void
check_row_after_triggers(Relation rel, TupleTableSlot *slot, const LogMessage *message)
{
	static const AttrNumber columns[] = {Anum_log_message_key, Anum_log_schema_version, Anum_log_compaction_rank};
	bool		isnull;

	if (DatumGetInt64(slot_getattr(slot, Anum_log_id, &isnull)) != message->id)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("a trigger on table \"%s\" changed a message id", RelationGetRelationName(rel))));

	(void) slot_getattr(slot, Anum_log_compaction_rank, &isnull);
	if (isnull && message->isnull[Anum_log_compaction_rank - 1])
		return;
	for (int i = 0; i < lengthof(columns); i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(rel), columns[i] - 1);
		Datum		value = slot_getattr(slot, columns[i], &isnull);

		if (isnull != message->isnull[columns[i] - 1] ||
			(!isnull && !datum_image_eq(value, message->values[columns[i] - 1],
										attribute->attbyval, attribute->attlen)))
			ereport(ERROR,
					(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
					 errmsg("a trigger on table \"%s\" changed column \"%s\" of a compacted message",
							RelationGetRelationName(rel), NameStr(attribute->attname))));
	}
}

/*
 * Append a message with all that its owner put on the partition.  A trigger
 * may refuse the row: then its id is set to 0, as nothing is stored.
 */
static void
append_row(ResultRelInfo *rri, EState *estate, TupleTableSlot *slot,
		   ExprState **defaults, LogMessage *message)
{
	store_message(slot, message);
	fill_added_columns(slot, estate, defaults);
	ExecStoreVirtualTuple(slot);
	ItemPointerSetInvalid(&slot->tts_tid);

	ExecSimpleRelationInsert(rri, estate, slot);

	if (!ItemPointerIsValid(&slot->tts_tid))
		message->id = 0;
	else
		check_row_after_triggers(rri->ri_RelationDesc, slot, message);
	ResetPerTupleExprContext(estate);
}

/* Append to a partition to which something was added. */
static void
append_with_executor(Relation rel, LogMessage **messages, int count)
{
	EState	   *estate = CreateExecutorState();
	MemoryContext old = MemoryContextSwitchTo(estate->es_query_cxt);
	ResultRelInfo *rri = makeNode(ResultRelInfo);
	TupleTableSlot *slot = table_slot_create(rel, &estate->es_tupleTable);
	ExprState **defaults = prepare_added_columns(rel, estate);

	InitResultRelInfo(rri, rel, 0, NULL, 0);
	ExecOpenIndices(rri, false);
	estate->es_output_cid = GetCurrentCommandId(true);
	AfterTriggerBeginQuery();
	for (int i = 0; i < count; i++)
	{
		append_row(rri, estate, slot, defaults, messages[i]);
		CHECK_FOR_INTERRUPTS();
	}
	AfterTriggerEndQuery(estate);
	ExecCloseResultRelations(estate);
	ExecCloseIndices(rri);
	ExecResetTupleTable(estate->es_tupleTable, false);
	MemoryContextSwitchTo(old);
	FreeExecutorState(estate);
}

/* Append messages that live in one partition, which is open. */
static void
append_to_partition(Relation rel, const LogShape *shape, LogMessage **messages, int count)
{
	LogIndexes	indexes;

	if (!OidIsValid(shape->id_index))
	{
		append_with_executor(rel, messages, count);
		return;
	}
	open_indexes(&indexes, rel, shape, messages, count);
	if (count == 1)
		append_one(&indexes, messages[0]);
	else
		append_many(&indexes, messages, count);
	close_indexes(&indexes);
}

/*
 * As append_to_partition, but an error about a constraint says nothing of the
 * row: PostgreSQL's detail would show the payload.
 */
static void
append_without_detail(Relation rel, const LogShape *shape, LogMessage **messages, int count)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		append_to_partition(rel, shape, messages, count);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION)
			error->detail = NULL;
		FlushErrorState();
		ReThrowError(error);
	}
	PG_END_TRY();
}

/*
 * Append messages, whose ids rise, to the log.  Makes partitions that are
 * missing.  The caller is inside of the stream's fence.  The partitions stay
 * locked until the transaction ends.
 */
void
message_log_append(const Stream *stream, LogMessage **messages, int count)
{
	int			done = 0;

	message_log_check_access(stream);
	while (done < count)
	{
		int64		number = partition_number(stream, messages[done]->id);
		int64		last_id = partition_last_id(stream, number);
		Relation	rel = partition_maker_open(stream, number,
												   partition_number(stream, messages[count - 1]->id));
		LogShape	shape = partition_shape(stream, number);
		int			end = done + 1;

		while (end < count && messages[end]->id <= last_id)
			end++;
		append_without_detail(rel, &shape, &messages[done], end - done);
		table_close(rel, NoLock);
		done = end;
	}
}
