/*
 * idempotency.c
 *		Idempotency keys: which messages of a produce are duplicates.
 *
 * A key is a row of idempotency_key_<id> with the time of its produce call.
 * Inserting it before the message's id is drawn decides who has it: a producer
 * of the same key waits for an open one to end.  A key whose time to live is
 * over is replaced.  Keys of one call are taken in their byte order, so that
 * two batches cannot wait for each other.
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
#include "state_table.h"

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

/*
 * Remove the row at a place if its time to live is over.  Also says yes when
 * there is none any more: either way the key is to be tried again.
 */
static bool
remove_if_expired(StateTable *table, ItemPointer tid, TimestampTz now, int64 ttl_us)
{
	TupleTableSlot *slot = table_slot_create(table->rel, NULL);
	bool		retry = true;

	if (table_tuple_fetch_row_version(table->rel, tid, SnapshotAny, slot))
	{
		bool		isnull;
		TimestampTz created_at = DatumGetTimestampTz(slot_getattr(slot, Anum_idempotency_created_at, &isnull));

		if (duration_add(created_at, ttl_us) > now)
			retry = false;
		else
			(void) state_table_delete(table, tid, true);
	}
	ExecDropSingleTupleTableSlot(slot);
	return retry;
}

/* Try to become the one who has the key; says whether it worked. */
static bool
claim_key(StateTable *table, text *key, TimestampTz now, int64 ttl_us)
{
	Datum		values[IDEMPOTENCY_COLUMNS] = {PointerGetDatum(key), TimestampTzGetDatum(now)};
	bool		isnull[IDEMPOTENCY_COLUMNS] = {false};
	ItemPointerData existing;

	while (!state_table_insert_unless_exists(table, values, isnull, &existing))
	{
		if (!remove_if_expired(table, &existing, now, ttl_us))
			return false;
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}

/*
 * Take the keys for this transaction, and mark those that are duplicates;
 * sorts the keys.  Returns false when the table of keys does not exist (any
 * more): then the caller looks the stream up again.
 */
bool
idempotency_claim_keys(const Stream *stream, IdempotencyKey *keys, int count)
{
	StateTable	table;
	TimestampTz now = GetCurrentTimestamp();

	/* a key that the running command took can be replaced, too */
	CommandCounterIncrement();
	if (!state_table_open(&table, stream->idempotency_oid, idempotency_column_types, IDEMPOTENCY_COLUMNS))
		return false;
	qsort(keys, count, sizeof(IdempotencyKey), compare_keys);
	for (int i = 0; i < count; i++)
		keys[i].is_duplicate = !claim_key(&table, keys[i].key, now, stream->idempotency_key_ttl_us);
	state_table_close(&table);
	return true;
}
