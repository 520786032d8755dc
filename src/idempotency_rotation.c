/*
 * idempotency_rotation.c
 *		A duty of maintenance: dropping old idempotency keys, a table at a time.
 *
 *		phase one	-> make the next table, announce "both"
 *		phase both	-> list who may still be in phase one; when they have all ended,
 *					   announce "probe"
 *		phase probe	-> when all that is only in the old table is over, drop it and
 *					   announce "one"
 *
 * What producers do in each phase is in idempotency.c, why it is exact in
 * README.md.  A table takes keys for a time to live before it becomes the old
 * one, and is the old one for as long: so what is stored and over is never much
 * more than what still protects.
 *
 * The state is a part of the stream's row.  It is written under the lock of the
 * stream's name, and a table of keys is made under a lock on the present one as
 * well, so that drop_stream knows them all.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/xid8.h"

#include "config.h"
#include "duration.h"
#include "idempotency_rotation.h"
#include "lock_holders.h"
#include "storage.h"
#include "transaction.h"

/* A table takes keys at least so long, lest short times to live make many. */
#define MIN_GENERATION_US	(5 * USECS_PER_SEC)

/*
 * How often to look for keys in an empty table.  The first key of a table asks
 * for this duty; this is for one whose asking was lost.
 */
#define MIN_EMPTY_CHECK_US	USECS_PER_HOUR

/* Who is waited for is looked at again after a tenth of the wait, within this. */
#define MIN_RETRY_US		USECS_PER_SEC
#define MAX_RETRY_US		USECS_PER_MINUTE

/* What a stream's row says of the tables of its keys. */
typedef struct Rotation
{
	char		phase;			/* an IdempotencyPhase */
	int64		generation;		/* of the table that is filled */
	bool		has_since;
	TimestampTz since;			/* in phase one: the table takes keys at least
								 * since then; else the phase was announced */
	FullTransactionId announced_by; /* who announced phase "both" */
	bool		is_listed;		/* the next two are set */
	FullTransactionId *waits_for;
	int			waits_for_count;
	uint64		waits_system;	/* where these ids have a meaning */
} Rotation;

/* Read the row of a stream whose name is locked.  Raises SS001 if somebody deleted it by hand. */
static void
read_rotation(const Stream *stream, Rotation *rotation)
{
	Relation	rel = table_open(stream_config_table_oid("stream"), AccessShareLock);
	TupleDesc	desc = RelationGetDescr(rel);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Datum		values[Natts_stream + 1];
	bool		isnull[Natts_stream + 1];

	ScanKeyInit(&key, Anum_stream_id, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(stream->stream_id));
	scan = systable_beginscan(rel, stream_config_table_oid("stream_pkey"), true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (!HeapTupleIsValid(tuple))
		stream_raise_not_found(stream->name);
	for (int i = 1; i <= Natts_stream; i++)
		values[i] = heap_getattr(tuple, i, desc, &isnull[i]);

	memset(rotation, 0, sizeof(Rotation));
	rotation->phase = *TextDatumGetCString(values[Anum_stream_idempotency_phase]);
	rotation->generation = DatumGetInt64(values[Anum_stream_idempotency_generation]);
	rotation->has_since = !isnull[Anum_stream_idempotency_since];
	if (rotation->has_since)
		rotation->since = DatumGetTimestampTz(values[Anum_stream_idempotency_since]);
	if (!isnull[Anum_stream_idempotency_announced_by])
		rotation->announced_by = DatumGetFullTransactionId(values[Anum_stream_idempotency_announced_by]);
	rotation->is_listed = !isnull[Anum_stream_idempotency_waits_for] &&
		!isnull[Anum_stream_idempotency_waits_system];
	if (rotation->is_listed)
	{
		rotation->waits_for_count =
			transaction_ids_from_array(values[Anum_stream_idempotency_waits_for], &rotation->waits_for);
		rotation->waits_system = (uint64) DatumGetInt64(values[Anum_stream_idempotency_waits_system]);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

/* The name of a phase in the row. */
static const char *
phase_name(char phase)
{
	switch (phase)
	{
		case IDEMPOTENCY_BOTH:
			return "both";
		case IDEMPOTENCY_PROBE:
			return "probe";
		default:
			return "one";
	}
}

/* Write the row of a stream. */
static void
write_rotation(const Stream *stream, const Rotation *rotation)
{
	Oid			types[] = {INT8OID, TEXTOID, INT8OID, TIMESTAMPTZOID, XID8OID, XID8ARRAYOID, INT8OID};
	Datum		values[] = {
		Int64GetDatum(stream->stream_id),
		CStringGetTextDatum(phase_name(rotation->phase)),
		Int64GetDatum(rotation->generation),
		TimestampTzGetDatum(rotation->since),
		FullTransactionIdGetDatum(rotation->announced_by),
		transaction_ids_to_array(rotation->waits_for, rotation->waits_for_count),
		Int64GetDatum((int64) rotation->waits_system)
	};
	char		nulls[] = "       ";

	nulls[3] = rotation->has_since ? ' ' : 'n';
	nulls[4] = FullTransactionIdIsValid(rotation->announced_by) ? ' ' : 'n';
	nulls[5] = nulls[6] = rotation->is_listed ? ' ' : 'n';
	(void) config_execute("UPDATE sqlstreams.stream SET idempotency_phase = $2, idempotency_generation = $3,"
						  " idempotency_since = $4, idempotency_announced_by = $5,"
						  " idempotency_waits_for = $6, idempotency_waits_system = $7"
						  " WHERE stream_id OPERATOR(pg_catalog.=) $1",
						  lengthof(types), types, values, nulls, NULL);
}

/* Write the row and tell all backends of another phase. */
static void
announce(const Stream *stream, Rotation *rotation, char phase)
{
	rotation->phase = phase;
	rotation->is_listed = false;
	rotation->waits_for_count = 0;
	write_rotation(stream, rotation);
	stream_invalidate_all();
}

/* When to look again for what has been awaited since a time. */
static TimestampTz
retry_at(const DutyStep *step, TimestampTz since)
{
	int64		tenth = (step->now - since) / 10;

	return step->now + Max(MIN_RETRY_US, Min(tenth, MAX_RETRY_US));
}

/*
 * Phase one: begin with a new table when the present one has taken keys for
 * long enough.
 */
static void
begin_generation(const Stream *stream, Rotation *rotation, bool has_keys, DutyStep *step)
{
	TimestampTz due;

	if (!has_keys)
	{
		step->next = duration_add(step->now, Max(stream->idempotency_key_ttl_us, MIN_EMPTY_CHECK_US));
		return;
	}
	if (!rotation->has_since)
	{
		rotation->has_since = true;
		rotation->since = step->now;
		write_rotation(stream, rotation);
		step->done = "found the first idempotency keys";
	}
	due = duration_add(rotation->since, Max(stream->idempotency_key_ttl_us, MIN_GENERATION_US));
	if (step->now < due)
	{
		step->next = due;
		return;
	}

	storage_create_idempotency_table(stream, rotation->generation + 1);
	rotation->generation++;
	rotation->since = step->now;
	rotation->announced_by = GetTopFullTransactionId();
	announce(stream, rotation, IDEMPOTENCY_BOTH);
	step->done = "made a table of idempotency keys";
	step->next = step->now;
}

/*
 * Phase both: go on when nobody can be in phase one any more.  Who may be is
 * listed in a transaction after the one that announced this phase: whoever
 * locks the table later knows of it.
 */
static void
end_phase_both(const Stream *stream, Rotation *rotation, DutyStep *step)
{
	step->next = retry_at(step, rotation->since);
	if (FullTransactionIdIsValid(rotation->announced_by) &&
		FullTransactionIdEquals(rotation->announced_by, GetTopFullTransactionIdIfAny()))
		return;
	if (!rotation->is_listed || rotation->waits_system != GetSystemIdentifier())
	{
		rotation->waits_for_count = lock_holders_list(stream->idempotency_old_oid, &rotation->waits_for);
		rotation->waits_system = GetSystemIdentifier();
		rotation->is_listed = true;
		if (rotation->waits_for_count > 0)
		{
			write_rotation(stream, rotation);
			step->done = "listed the producers to wait for";
			return;
		}
	}
	if (!lock_holders_have_ended(rotation->waits_for, rotation->waits_for_count))
		return;

	/* the clock after they have ended: no key that is only in the old table is younger */
	rotation->since = GetCurrentTimestamp();
	announce(stream, rotation, IDEMPOTENCY_PROBE);
	step->done = "began to fill another table of idempotency keys";
	step->next = step->now;
}

/* Phase probe: drop the old table when its keys are over and it is free. */
static void
drop_old_generation(const Stream *stream, Rotation *rotation, DutyStep *step)
{
	TimestampTz due = duration_add(rotation->since, stream->idempotency_key_ttl_us);

	if (step->now < due)
	{
		step->next = due;
		return;
	}
	if (!duty_may_lock_out(step))
		return;
	if (!ConditionalLockRelationOid(stream->idempotency_old_oid, AccessExclusiveLock))
	{
		step->next = retry_at(step, due);
		return;
	}
	storage_drop_idempotency_table(stream, rotation->generation - 1);
	announce(stream, rotation, IDEMPOTENCY_ONE);
	step->done = "dropped old idempotency keys";
	step->next = step->now;
}

/*
 * Is the table there?  It stays locked against being dropped.  Sets *has_keys if
 * anything has ever been inserted.
 */
static bool
look_at_table(Oid oid, bool *has_keys)
{
	Relation	rel = OidIsValid(oid) ? try_table_open(oid, AccessShareLock) : NULL;

	if (rel == NULL)
		return false;
	*has_keys = RelationGetNumberOfBlocks(rel) > 0;
	table_close(rel, NoLock);
	return true;
}

/* The duty: one step towards the next phase. */
void
idempotency_rotation_step(const Stream *stream, DutyMemory *memory, DutyStep *step)
{
	bool		has_keys = false;
	bool		has_old_keys;
	bool		has_old = look_at_table(stream->idempotency_old_oid, &has_old_keys);
	bool		has_current = look_at_table(stream->idempotency_oid, &has_keys);
	Rotation	rotation;

	step->next = DT_NOEND;
	if (!has_old && !has_current)
		return;
	read_rotation(stream, &rotation);
	if (rotation.phase == IDEMPOTENCY_ONE)
		begin_generation(stream, &rotation, has_keys, step);
	else if (!has_old)
	{
		/* somebody has dropped it by hand */
		announce(stream, &rotation, IDEMPOTENCY_ONE);
		step->done = "found old idempotency keys dropped";
		step->next = step->now;
	}
	else if (rotation.phase == IDEMPOTENCY_BOTH)
		end_phase_both(stream, &rotation, step);
	else
		drop_old_generation(stream, &rotation, step);
}
