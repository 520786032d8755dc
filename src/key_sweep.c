/*
 * key_sweep.c
 *		The duty that forgets exclusive and ordered keys that nobody uses.
 *
 * A claim leaves a row of message_key_lease_<id> for each key that it gives to a
 * message.  The row says nothing any more when none of the messages that it names
 * is open in its claim or an exception, dead ones included, and no message waits
 * for the key: to a claim, such a key is as one without a row.
 *
 * Rows are deleted without the group's lock, under which claims work: a claim
 * never waits for this, but for the moment in which it replaces the very row.
 * That is safe for a row which says that no message waits for the key:
 *
 *		- who resolves can only make a message known that is open in a claim, and
 *		  redrive one that is dead; so a key that is unused stays so until a claim
 *		  gives it to a message, or lets one wait for it;
 *		- a claim that does either writes a new row of the key, whether it has
 *		  read this one or not, and only this one is deleted here.  When it rolls
 *		  back, no message has the key or waits for it;
 *		- wake-ups are left for rows that say that messages wait, never for this.
 *
 * A row which says that messages wait may be relied on by a claim that lets
 * another wait and leaves the row as it is.  It is deleted under the group's lock,
 * if that is free, after a second look.  Most lose this mark by themselves: the
 * last message that waited leaves a wake-up when it is resolved, and the claim that
 * follows that finds no other.
 *
 * With the rows go those of messages that waited for the key and were purged, over
 * which claims pass.
 *
 * All keys are gone through again and again as long as the table has ever had
 * any, and seldom when that comes to nothing.  The first claim that writes a key
 * asks for it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "deferred.h"
#include "key_holder.h"
#include "key_sweep.h"
#include "relaxed_commit.h"

/* How many entries of the index one step looks at, rows that are gone included. */
#define STEP_ENTRIES	10000

/* How many rows it deletes ... */
#define STEP_ROWS		1000

/* ... and how many of them under a group's lock. */
#define STEP_LOCKED_ROWS	100

/*
 * How long after a walk the next one begins: at first, and after one that has
 * found enough to remove; otherwise twice as long each time, up to the last.
 */
#define FIRST_WAIT_US	(60 * USECS_PER_SEC)
#define LAST_WAIT_US	(3600 * USECS_PER_SEC)

/* One row of so many is enough. */
#define ENOUGH_PARTS	10

/* A row that may go. */
typedef struct UnusedKey
{
	int64		group_id;
	ItemPointerData tid;
	text	   *key;			/* of one that says that messages wait; else NULL */
} UnusedKey;

/* A step. */
typedef struct Sweep
{
	KeyHolderTables tables;
	LeaseTables leases;
	StateTable	exceptions;
	StateTable	keys;
	StateTable	deferred;
	Snapshot	snapshot;
	MemoryContext scratch;		/* for one row */
	int64		deferred_left;	/* rows of purged messages that may be deleted */
	UnusedKey	unused[STEP_ROWS];
	int			unused_count;
	int			locked_count;	/* of these: to be deleted under the group's lock */
} Sweep;

/* Open the tables; false when the groups have none, or never had a key. */
static bool
open_tables(Sweep *sweep, const Stream *stream)
{
	if (!OidIsValid(stream->key_lease_oid))
		return false;
	key_lease_open(stream, &sweep->keys);
	if (state_table_is_empty(&sweep->keys))
	{
		state_table_close(&sweep->keys);
		return false;
	}
	deferred_open(stream, &sweep->deferred);
	lease_open(stream, &sweep->leases);
	exception_open(stream, &sweep->exceptions);
	sweep->tables.stream = stream;
	sweep->tables.leases = &sweep->leases;
	sweep->tables.exceptions = &sweep->exceptions;
	return true;
}

static void
close_tables(Sweep *sweep)
{
	state_table_close(&sweep->exceptions);
	lease_close(&sweep->leases);
	state_table_close(&sweep->deferred);
	state_table_close(&sweep->keys);
}

/*
 * May the row of a key go?  Messages are looked at first: one that waits may have
 * been let wait since, but not as the first one without a new row.
 */
static bool
is_unused(Sweep *sweep, int64 group_id, const KeyLease *lease)
{
	bool		is_awaited = !deferred_delete_through(&sweep->deferred, group_id, lease->key,
													  sweep->tables.stream->purged_through, &sweep->deferred_left);

	return !is_awaited && !key_holder_is_known(&sweep->tables, group_id, lease, sweep->snapshot);
}

/* Look for rows that may go, from where the walk is on. */
static void
find_unused(Sweep *sweep, KeyWalk *walk, StateWalk *rows)
{
	KeyLease	lease;
	int64		group_id;
	bool		has_room = true;

	while (has_room)
	{
		MemoryContext old = MemoryContextSwitchTo(sweep->scratch);
		bool		found = key_lease_walk_next(rows, &group_id, &lease);
		bool		may_go = found && is_unused(sweep, group_id, &lease);

		MemoryContextSwitchTo(old);
		if (may_go)
		{
			UnusedKey  *unused = &sweep->unused[sweep->unused_count++];

			unused->group_id = group_id;
			unused->tid = lease.tid;
			unused->key = lease.has_deferred ? DatumGetTextPCopy(PointerGetDatum(lease.key)) : NULL;
			sweep->locked_count += lease.has_deferred ? 1 : 0;
		}
		else if (found)
			walk->kept_count++;
		MemoryContextReset(sweep->scratch);
		has_room = found && sweep->unused_count < STEP_ROWS && sweep->locked_count < STEP_LOCKED_ROWS;
	}
}

/* Keep claims of the group out, if none is open, and look at a row again. */
static bool
is_unused_under_lock(Sweep *sweep, const UnusedKey *unused)
{
	MemoryContext old;
	KeyLease	lease;
	bool		may_go;

	if (!group_lock_if_free(unused->group_id))
		return false;
	old = MemoryContextSwitchTo(sweep->scratch);
	UnregisterSnapshot(sweep->snapshot);
	sweep->snapshot = RegisterSnapshot(GetLatestSnapshot());
	may_go = key_lease_find(&sweep->keys, unused->group_id, unused->key, sweep->snapshot, &lease) &&
		ItemPointerEquals(&lease.tid, (ItemPointer) &unused->tid) &&
		is_unused(sweep, unused->group_id, &lease);
	MemoryContextSwitchTo(old);
	MemoryContextReset(sweep->scratch);
	return may_go;
}

/* Delete what was found. */
static void
delete_unused(Sweep *sweep, KeyWalk *walk)
{
	for (int i = 0; i < sweep->unused_count; i++)
	{
		UnusedKey  *unused = &sweep->unused[i];

		if ((unused->key == NULL || is_unused_under_lock(sweep, unused)) &&
			state_table_delete(&sweep->keys, &unused->tid, false) == TM_Ok)
			walk->removed_count++;
		else
			walk->kept_count++;
	}
}

/* End a walk over all keys. */
static void
end_walk(DutyMemory *memory, DutyStep *step)
{
	KeyWalk    *walk = &memory->key_leases;
	bool		is_worth_it = walk->removed_count > 0 &&
		walk->removed_count >= walk->kept_count / ENOUGH_PARTS;

	memory->key_leases_wait_us = is_worth_it ? FIRST_WAIT_US :
		Min(2 * Max(memory->key_leases_wait_us, FIRST_WAIT_US), LAST_WAIT_US);
	duty_walk_end(walk, memory->key_leases_wait_us, step);
	step->next = walk->begins_at;
}

/* Do a piece of a walk over all keys. */
static void
do_piece(Sweep *sweep, DutyMemory *memory, DutyStep *step)
{
	KeyWalk    *walk = &memory->key_leases;
	bool		is_clean = relaxed_commit_is_clean();
	int64		removed_count = walk->removed_count;
	text	   *key = NULL;
	StateWalk	rows;

	sweep->snapshot = RegisterSnapshot(GetLatestSnapshot());
	sweep->scratch = AllocSetContextCreate(CurrentMemoryContext, "sqlstreams key", ALLOCSET_DEFAULT_SIZES);
	sweep->deferred_left = STEP_ENTRIES;
	key_lease_walk_begin(&rows, &sweep->keys, sweep->snapshot, walk->group_id, walk->key, walk->version,
						 STEP_ENTRIES);
	find_unused(sweep, walk, &rows);
	delete_unused(sweep, walk);
	if (!rows.is_at_end)
		key = key_lease_walk_place(&rows, &walk->group_id, &walk->version);
	state_walk_end(&rows);
	UnregisterSnapshot(sweep->snapshot);
	if (walk->removed_count > removed_count || sweep->deferred_left < STEP_ENTRIES)
		step->done = "forgot keys that nobody uses";
	if (key != NULL)
		duty_walk_goes_on(memory, walk, key, step);
	else
		end_walk(memory, step);
	if (is_clean)
		relaxed_commit_allow();
}

/*
 * Is it time for a walk, or is one going on?  Who calls earlier does so because
 * the stream is in use, or was purged.
 */
static bool
is_due(const Stream *stream, DutyMemory *memory, DutyStep *step)
{
	KeyWalk    *walk = &memory->key_leases;

	if (walk->is_begun)
		return true;
	if (step->now < walk->begins_at && stream->purged_through == memory->key_leases_purged)
	{
		walk->begins_at = Min(walk->begins_at, step->now + FIRST_WAIT_US);
		memory->key_leases_wait_us = 0;
		step->next = walk->begins_at;
		return false;
	}
	duty_walk_begin(walk);
	memory->key_leases_purged = stream->purged_through;
	return true;
}

/* Look at some keys, and forget those that nobody uses. */
void
key_sweep_step(const Stream *stream, DutyMemory *memory, DutyStep *step)
{
	Sweep	   *sweep = palloc0(sizeof(Sweep));

	step->next = DT_NOEND;
	if (open_tables(sweep, stream))
	{
		if (is_due(stream, memory, step) && duty_may_lock_out(step))
			do_piece(sweep, memory, step);
		close_tables(sweep);
	}
}
