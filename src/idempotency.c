/*
 * idempotency.c
 *		Idempotency keys: which messages of a produce are duplicates.
 *
 * A key is a row of idempotency_key_<id>_<n> with the time of its produce call.
 * Inserting it before the message's id is drawn decides who has it: a producer
 * of the same key waits for an open one to end.  A key whose time to live is
 * over is replaced.  Keys of one call are taken in their byte order, so that
 * two batches cannot wait for each other.
 *
 * Old keys go with their table (idempotency_rotation.c).  Meanwhile there are
 * two, and the stream's phase says what to do with the older one.  A producer has
 * a transaction id and the tables locked to the end of its transaction before
 * it relies on the phase: so whoever announces another phase can find out who
 * may not know of it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "duration.h"
#include "idempotency.h"
#include "lock_holders.h"
#include "state_table.h"
#include "worker_registry.h"

#define Anum_idempotency_key			1
#define Anum_idempotency_created_at		2
#define IDEMPOTENCY_COLUMNS				2

static const Oid idempotency_column_types[IDEMPOTENCY_COLUMNS] = {
	TEXTOID, TIMESTAMPTZOID
};

/* Order by key, then by place: the first of equal keys in a batch has it. */
static int
compare_keys(const void *a, const void *b)
{
	const IdempotencyKey *x = a;
	const IdempotencyKey *y = b;
	int			x_length = VARSIZE_ANY_EXHDR(x->key);
	int			y_length = VARSIZE_ANY_EXHDR(y->key);
	int			order = memcmp(VARDATA_ANY(x->key), VARDATA_ANY(y->key), Min(x_length, y_length));

	if (order == 0)
		order = (x_length > y_length) - (x_length < y_length);
	if (order == 0)
		order = (x->message > y->message) - (x->message < y->message);
	return order;
}

/* The tables of a stream's keys, and what is needed to take keys. */
typedef struct KeyTables
{
	StateTable	current;
	char		phase;			/* IDEMPOTENCY_ONE when there is no old table */
	StateTable	old;			/* only in the other phases */
	StateLookup lookup;			/* in the old table, only in phase "probe" */
	TimestampTz now;
	int64		ttl_us;
} KeyTables;

/* Is the key in the slot one that still protects? */
static bool
is_live(const KeyTables *tables, TupleTableSlot *slot)
{
	bool		isnull;
	TimestampTz created_at = DatumGetTimestampTz(slot_getattr(slot, Anum_idempotency_created_at, &isnull));

	return duration_add(created_at, tables->ttl_us) > tables->now;
}

/*
 * Remove the row at a place if its time to live is over.  Also says yes when
 * there is none any more: either way the key is to be tried again.
 */
static bool
remove_if_expired(const KeyTables *tables, StateTable *table, ItemPointer place)
{
	TupleTableSlot *slot = table_slot_create(table->rel, NULL);
	bool		retry = true;

	if (table_tuple_fetch_row_version(table->rel, place, SnapshotAny, slot))
	{
		if (is_live(tables, slot))
			retry = false;
		else
			(void) state_table_delete(table, place, true);
	}
	ExecDropSingleTupleTableSlot(slot);
	return retry;
}

/*
 * Try to insert a key into a table; says whether it worked, and sets *place to
 * that of the new row.
 */
static bool
insert_key(const KeyTables *tables, StateTable *table, text *key, ItemPointer place)
{
	Datum		values[IDEMPOTENCY_COLUMNS] = {PointerGetDatum(key), TimestampTzGetDatum(tables->now)};
	bool		isnull[IDEMPOTENCY_COLUMNS] = {false};

	while (!state_table_insert_unless_exists(table, values, isnull, place))
	{
		if (!remove_if_expired(tables, table, place))
			return false;
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

/*
 * Insert a key into the current table; says whether it worked.  Who inserts the
 * first one asks for maintenance: the table begins to age.
 */
static bool
insert_current_key(const Stream *stream, KeyTables *tables, text *key)
{
	ItemPointerData place;

	if (!insert_key(tables, &tables->current, key, &place))
		return false;
	if (ItemPointerGetBlockNumber(&place) == 0 && ItemPointerGetOffsetNumber(&place) == FirstOffsetNumber)
		worker_registry_request(stream->stream_id);
	return true;
}

/* Try to become the one who has the key; says whether it worked. */
static bool
claim_key(const Stream *stream, KeyTables *tables, text *key)
{
	ItemPointerData old_place;

	if (tables->phase == IDEMPOTENCY_PROBE && state_lookup_find(&tables->lookup, key) &&
		is_live(tables, tables->lookup.slot))
		return false;
	if (tables->phase == IDEMPOTENCY_BOTH && !insert_key(tables, &tables->old, key, &old_place))
		return false;
	if (insert_current_key(stream, tables, key))
		return true;
	if (tables->phase == IDEMPOTENCY_BOTH)
	{
		/* it was taken in phase "probe", and must not protect longer than that */
		CommandCounterIncrement();
		(void) state_table_delete(&tables->old, &old_place, true);
	}
	return false;
}

/*
 * Lock the stream's tables of keys and open them.  An old table that somebody
 * has dropped by hand has no keys to look for.
 */
static IdempotencyResult
open_tables(const Stream *stream, KeyTables *tables)
{
	if (!OidIsValid(stream->idempotency_oid))
		return IDEMPOTENCY_NO_TABLE;
	if (OidIsValid(stream->idempotency_old_oid))
		lock_holders_join(stream->idempotency_old_oid);
	lock_holders_join(stream->idempotency_oid);
	if (!stream_is_current(stream))
		return IDEMPOTENCY_OUTDATED;

	if (!state_table_open_locked(&tables->current, stream->idempotency_oid,
								 idempotency_column_types, IDEMPOTENCY_COLUMNS))
		return IDEMPOTENCY_NO_TABLE;
	tables->phase = stream->idempotency_phase;
	if (tables->phase != IDEMPOTENCY_ONE &&
		!state_table_open_locked(&tables->old, stream->idempotency_old_oid,
								 idempotency_column_types, IDEMPOTENCY_COLUMNS))
		tables->phase = IDEMPOTENCY_ONE;

	/* what is not committed has no say; and at SERIALIZABLE this is no read */
	if (tables->phase == IDEMPOTENCY_PROBE)
		state_lookup_begin(&tables->lookup, &tables->old, SnapshotSelf);
	return IDEMPOTENCY_DONE;
}

static void
close_tables(KeyTables *tables)
{
	if (tables->phase == IDEMPOTENCY_PROBE)
		state_lookup_end(&tables->lookup);
	if (tables->phase != IDEMPOTENCY_ONE)
		state_table_close(&tables->old);
	state_table_close(&tables->current);
}

/*
 * Take the keys for this transaction, and mark those that are duplicates;
 * sorts the keys.  When it says that it has not, the caller makes the table if
 * that is missing, and looks the stream up again.
 */
IdempotencyResult
idempotency_claim_keys(const Stream *stream, IdempotencyKey *keys, int count)
{
	KeyTables	tables = {.now = GetCurrentTimestamp(),.ttl_us = stream->idempotency_key_ttl_us};
	IdempotencyResult result;

	/* a key that the running command took can be replaced, too */
	CommandCounterIncrement();
	result = open_tables(stream, &tables);
	if (result != IDEMPOTENCY_DONE)
		return result;
	qsort(keys, count, sizeof(IdempotencyKey), compare_keys);
	for (int i = 0; i < count; i++)
		keys[i].is_duplicate = !claim_key(stream, &tables, keys[i].key);
	close_tables(&tables);
	return IDEMPOTENCY_DONE;
}
