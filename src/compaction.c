/*
 * compaction.c
 *		Compaction heads: which message of a key is its newest version.
 *
 * The head of a key is the greatest (schema_version, compaction_rank,
 * message_id) among its compacted messages.  It is kept in two tables:
 *
 *		compaction_key_<id>		a row for each key, inserted once and never
 *								changed: what is locked
 *		compaction_head_<id>	the head's version; one row of a key is visible
 *
 * A producer takes its keys in their byte order, so that two batches cannot
 * wait for each other, and before it draws an id, so that the ids of a key rise
 * in the order in which its producers had it.  A key is taken by inserting its
 * row or by locking the one that exists, until the transaction ends; both
 * survive PREPARE and end with their savepoint.
 *
 * A new head is a new row, and the one before is deleted.  A new head has a
 * higher message id as a rule, so whoever reads a key's rows backward meets the
 * visible one first, however many dead ones an old snapshot keeps behind it.
 *
 * A head whose message is gone is empty, and still compares by its version.
 * Its row may be removed by who has taken the key, and not while the log has
 * another compacted message of the key: a message of a key without a row counts
 * as the head, lest claims skip what they should deliver while a dump is being
 * restored.
 */
#include "postgres.h"

#include "access/relscan.h"
#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

#include "compaction.h"
#include "compat.h"

/* The first column of both tables, and of their primary keys. */
#define Anum_message_key			1

#define Anum_head_message_id		2
#define Anum_head_schema_version	3
#define Anum_head_compaction_rank	4

static const Oid key_column_types[] = {TEXTOID};
static const Oid head_column_types[] = {TEXTOID, INT8OID, INT4OID, INT8OID};

/* What makes one message of a key newer than another. */
typedef struct CompactionVersion
{
	int32		schema_version;
	int64		rank;
	int64		message_id;
} CompactionVersion;

static bool
is_newer(const CompactionVersion *version, const CompactionVersion *other)
{
	if (version->schema_version != other->schema_version)
		return version->schema_version > other->schema_version;
	if (version->rank != other->rank)
		return version->rank > other->rank;
	return version->message_id > other->message_id;
}

static int
compare_keys(text *key, text *other)
{
	return varstr_cmp(VARDATA_ANY(key), VARSIZE_ANY_EXHDR(key),
					  VARDATA_ANY(other), VARSIZE_ANY_EXHDR(other), C_COLLATION_OID);
}

/*
 * Take a key.  Looks first, because most keys exist; a row that is not visible
 * yet is met by the insertion, which waits for its transaction.
 */
static void
lock_key(StateTable *table, StateLookup *lookup, text *key)
{
	Datum		values[] = {PointerGetDatum(key)};
	bool		isnull[] = {false};
	ItemPointerData tid;

	for (;;)
	{
		if (state_lookup_find(lookup, key))
			tid = lookup->slot->tts_tid;
		else if (state_table_insert_unless_exists(table, values, isnull, &tid))
			return;
		if (state_table_lock(table, &tid, SnapshotAny, LockTupleExclusive) == TM_Ok)
			return;
		CHECK_FOR_INTERRUPTS();
	}
}

/* Say which key is waited for. */
static void
lock_error_callback(void *arg)
{
	char	   *key = text_to_cstring(*(text **) arg);

	if (geterrcode() == ERRCODE_LOCK_NOT_AVAILABLE)
		errdetail("The message key is \"%s\".", key);
	else
		errcontext("while taking message key \"%s\"", key);
}

static int
compare_key_pointers(const void *a, const void *b)
{
	return compare_keys(*(text *const *) a, *(text *const *) b);
}

/*
 * Take keys for this transaction, each once; sorts them.  Waits for others that
 * have them.  Returns false when the tables do not exist (any more): then the
 * caller looks the stream up again.
 */
bool
compaction_lock_keys(const Stream *stream, text **keys, int count)
{
	StateTable	table;
	StateLookup	lookup;
	text	   *current = NULL;
	ErrorContextCallback error_callback = {
		.callback = lock_error_callback,
		.arg = &current,
		.previous = error_context_stack
	};

	/* a key that the running command inserted can be locked, too */
	CommandCounterIncrement();
	if (!OidIsValid(stream->compaction_head_oid) ||
		!state_table_open(&table, stream->compaction_key_oid, key_column_types, lengthof(key_column_types)))
		return false;
	qsort(keys, count, sizeof(text *), compare_key_pointers);
	state_lookup_begin(&lookup, &table, SnapshotSelf);
	for (int i = 0; i < count; i++)
	{
		if (i > 0 && compare_keys(keys[i], current) == 0)
			continue;
		current = keys[i];
		error_context_stack = &error_callback;
		lock_key(&table, &lookup, current);
		error_context_stack = error_callback.previous;
	}
	state_lookup_end(&lookup);
	state_table_close(&table);
	return true;
}

static text *
message_key(const LogMessage *message)
{
	return DatumGetTextPP(message->values[Anum_log_message_key - 1]);
}

static CompactionVersion
message_version(const LogMessage *message)
{
	CompactionVersion version = {
		.schema_version = DatumGetInt32(message->values[Anum_log_schema_version - 1]),
		.rank = DatumGetInt64(message->values[Anum_log_compaction_rank - 1]),
		.message_id = message->id
	};

	return version;
}

/* The version in the row that was found. */
static CompactionVersion
found_version(StateLookup *lookup)
{
	bool		isnull;
	CompactionVersion version = {
		.schema_version = DatumGetInt32(slot_getattr(lookup->slot, Anum_head_schema_version, &isnull)),
		.rank = DatumGetInt64(slot_getattr(lookup->slot, Anum_head_compaction_rank, &isnull)),
		.message_id = DatumGetInt64(slot_getattr(lookup->slot, Anum_head_message_id, &isnull))
	};

	return version;
}

/* Make a version the head of its key, which the caller has taken, if it is newer. */
static void
write_head(StateTable *table, StateLookup *lookup, text *key, const CompactionVersion *version)
{
	Datum		values[] = {
		PointerGetDatum(key),
		Int64GetDatum(version->message_id),
		Int32GetDatum(version->schema_version),
		Int64GetDatum(version->rank)
	};
	bool		isnull[lengthof(values)] = {false};

	if (state_lookup_find(lookup, key))
	{
		CompactionVersion present = found_version(lookup);

		if (!is_newer(version, &present))
			return;
		(void) state_table_delete(table, &lookup->slot->tts_tid, true);
	}
	(void) state_table_insert(table, values, isnull);
}

static int
compare_messages(const void *a, const void *b)
{
	return compare_keys(message_key(*(LogMessage *const *) a), message_key(*(LogMessage *const *) b));
}

/*
 * Write the heads that follow from messages of this transaction, all compacted,
 * whose keys it has taken; sorts them.  One that a trigger refused is no head.
 *
 * Reads with SnapshotSelf: nobody else changes rows of a key that is taken, and
 * at SERIALIZABLE it does not count as a read that others could invalidate.
 */
void
compaction_write_heads(const Stream *stream, LogMessage **messages, int count)
{
	StateTable	table;
	StateLookup	lookup;
	int			end;

	/* a head that the running command wrote can be deleted, too */
	CommandCounterIncrement();
	if (!state_table_open(&table, stream->compaction_head_oid, head_column_types, lengthof(head_column_types)))
		stream_raise_table_missing(stream);
	qsort(messages, count, sizeof(LogMessage *), compare_messages);
	state_lookup_begin(&lookup, &table, SnapshotSelf);
	for (int i = 0; i < count; i = end)
	{
		CompactionVersion newest = message_version(messages[i]);

		for (end = i + 1; end < count && compare_messages(&messages[end], &messages[i]) == 0; end++)
		{
			CompactionVersion version = message_version(messages[end]);

			if (newest.message_id == 0 || (version.message_id != 0 && is_newer(&version, &newest)))
				newest = version;
		}
		if (newest.message_id != 0)
			write_head(&table, &lookup, message_key(messages[i]), &newest);
		CHECK_FOR_INTERRUPTS();
	}
	state_lookup_end(&lookup);
	state_table_close(&table);
}

struct CompactionReader
{
	const Stream *stream;
	Snapshot	snapshot;
	bool		has_tried;		/* to open the table */
	bool		is_open;
	StateTable	table;
	StateLookup	lookup;
};

/*
 * Begin to look for heads as a snapshot shows them.  The stream and the snapshot
 * are kept by the caller until compaction_reader_close.  Costs nothing until
 * the first look.
 */
CompactionReader *
compaction_reader_open(const Stream *stream, Snapshot snapshot)
{
	CompactionReader *reader = palloc0(sizeof(CompactionReader));

	reader->stream = stream;
	reader->snapshot = snapshot;
	return reader;
}

/* Open the table that the snapshot shows, if there is one. */
static void
open_heads(CompactionReader *reader)
{
	Oid			oid = reader->stream->compaction_head_oid;

	reader->has_tried = true;
	if (!OidIsValid(oid))
	{
		char		name[NAMEDATALEN];

		/* it may have been made since the stream was looked up */
		snprintf(name, sizeof(name), "compaction_head_" INT64_FORMAT, reader->stream->stream_id);
		InvalidateCatalogSnapshot();
		oid = stream_find_relation(name, NULL);
	}
	reader->is_open = state_table_open_to_read(&reader->table, oid, head_column_types, lengthof(head_column_types));
	if (reader->is_open)
		state_lookup_begin(&reader->lookup, &reader->table, reader->snapshot);
}

/* Find the head of a key; false when none is known. */
bool
compaction_find_head(CompactionReader *reader, text *key, int64 *message_id)
{
	if (!reader->has_tried)
		open_heads(reader);
	if (!reader->is_open || !state_lookup_find(&reader->lookup, key))
		return false;
	*message_id = found_version(&reader->lookup).message_id;
	return true;
}

/* Is a compacted message the head of its key, as far as is known? */
bool
compaction_is_head(CompactionReader *reader, text *key, int64 message_id)
{
	int64		head_id;

	return !compaction_find_head(reader, key, &head_id) || head_id == message_id;
}

/* End looking for heads. */
void
compaction_reader_close(CompactionReader *reader)
{
	if (reader->is_open)
	{
		state_lookup_end(&reader->lookup);
		state_table_close(&reader->table);
	}
	pfree(reader);
}

/* Begin to read the keys after one (NULL: all), with or without heads. */
void
compaction_keys_begin(CompactionKeyScan *scan, const Stream *stream, text *after_key, Snapshot snapshot)
{
	ScanKeyData key;

	scan->is_open = state_table_open_to_read(&scan->table, stream->compaction_key_oid,
											 key_column_types, lengthof(key_column_types));
	if (!scan->is_open)
		return;
	if (after_key != NULL)
		ScanKeyInit(&key, Anum_message_key, BTGreaterStrategyNumber, F_TEXT_GT, PointerGetDatum(after_key));
	state_scan_begin(&scan->scan, &scan->table, state_table_primary_key(&scan->table), snapshot,
					 after_key != NULL ? 1 : 0, &key);
}

/* The next key, valid until the next call, or NULL. */
text *
compaction_keys_next(CompactionKeyScan *scan)
{
	HeapTuple	tuple = scan->is_open ? state_scan_next(&scan->scan, ForwardScanDirection) : NULL;
	bool		isnull;

	CHECK_FOR_INTERRUPTS();
	if (!HeapTupleIsValid(tuple))
		return NULL;
	return DatumGetTextPP(heap_getattr(tuple, Anum_message_key, RelationGetDescr(scan->table.rel), &isnull));
}

/* End reading keys. */
void
compaction_keys_end(CompactionKeyScan *scan)
{
	if (!scan->is_open)
		return;
	state_scan_end(&scan->scan);
	state_table_close(&scan->table);
}

/* Both tables, open for removing heads. */
struct CompactionEditor
{
	StateTable	keys;
	StateTable	heads;
	StateLookup	key_lookup;
	StateLookup	head_lookup;
};

/* Begin to remove heads; NULL when there is no table of them. */
CompactionEditor *
compaction_editor_open(const Stream *stream)
{
	CompactionEditor *editor = palloc(sizeof(CompactionEditor));

	/* as for who produces */
	CommandCounterIncrement();
	if (!OidIsValid(stream->compaction_head_oid) ||
		!state_table_open(&editor->keys, stream->compaction_key_oid, key_column_types, lengthof(key_column_types)))
		return NULL;
	if (!state_table_open(&editor->heads, stream->compaction_head_oid, head_column_types, lengthof(head_column_types)))
		stream_raise_table_missing(stream);
	state_lookup_begin(&editor->key_lookup, &editor->keys, SnapshotSelf);
	state_lookup_begin(&editor->head_lookup, &editor->heads, SnapshotSelf);
	return editor;
}

/* Begin a piece of a walk over the keys, after one (NULL: at the start). */
void
compaction_editor_walk(CompactionEditor *editor, StateWalk *walk, text *after_key, int64 max_entries)
{
	Datum		after = PointerGetDatum(after_key);

	state_walk_begin(walk, &editor->keys, SnapshotSelf, after_key != NULL ? &after : NULL, max_entries);
}

/* The key where a walk is, valid until it moves. */
text *
compaction_editor_key(StateWalk *walk)
{
	bool		isnull;

	return DatumGetTextPP(slot_getattr(walk->slot, Anum_message_key, &isnull));
}

/* Find the head of a key as it is now; false when there is none. */
bool
compaction_editor_find(CompactionEditor *editor, text *key, int64 *message_id)
{
	if (!state_lookup_find(&editor->head_lookup, key))
		return false;
	*message_id = found_version(&editor->head_lookup).message_id;
	return true;
}

/* Take a key if nobody has it; false when somebody does, or it is gone. */
bool
compaction_editor_take(CompactionEditor *editor, text *key)
{
	return state_lookup_find(&editor->key_lookup, key) &&
		state_table_lock_if_free(&editor->keys, &editor->key_lookup.slot->tts_tid, SnapshotAny,
								 LockTupleExclusive) == TM_Ok;
}

/* Remove a key, which was taken, and its head. */
void
compaction_editor_remove(CompactionEditor *editor, text *key)
{
	if (state_lookup_find(&editor->head_lookup, key))
		(void) state_table_delete(&editor->heads, &editor->head_lookup.slot->tts_tid, true);
	if (state_lookup_find(&editor->key_lookup, key))
		(void) state_table_delete(&editor->keys, &editor->key_lookup.slot->tts_tid, true);
}

/* End removing heads. */
void
compaction_editor_close(CompactionEditor *editor)
{
	state_lookup_end(&editor->head_lookup);
	state_lookup_end(&editor->key_lookup);
	state_table_close(&editor->heads);
	state_table_close(&editor->keys);
	pfree(editor);
}
