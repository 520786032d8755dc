/*
 * compaction_sweep.c
 *		The duty that removes compaction heads whose messages are gone.
 *
 * A head is empty when its message was dropped.  It is kept as long as the stream
 * says, for what is produced meanwhile must be newer to become the head, and then
 * removed with its key, unless the log has another compacted message of the key
 * (compaction.c says why).
 *
 * Which heads are empty nobody knows but by looking at all, so one walk goes over
 * all keys some time after partitions were dropped, for all of them at once.  Their
 * rows of log_partition stay until it has come to its end: they say, also after a
 * restart, that a walk is due.
 *
 * A key that somebody has just then stays, and so do the rows: another walk
 * follows.  Producers wait for the keys that a step removes until it commits; it
 * takes them, looks for their messages and removes them as its last work.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compaction.h"
#include "compaction_sweep.h"
#include "duration.h"
#include "log_partition.h"
#include "message_log_keys.h"
#include "relaxed_commit.h"

/* How many entries of the index one step looks at, keys that are gone included. */
#define STEP_ENTRIES	10000

/* How many keys it takes at once ... */
#define STEP_KEYS		1000

/* ... less when there are many partitions in which to look for messages. */
#define STEP_LOOKS		2000

/* When to look again for a table that is to be dropped. */
#define TABLE_RETRY_US	(60 * USECS_PER_SEC)

/* A step. */
typedef struct Sweep
{
	const Stream *stream;
	TimestampTz before;			/* heads go whose messages were dropped before */
	StreamPartition *partitions;
	int			partition_count;
	LogPartition *rows;
	int			row_count;
	CompactionEditor *editor;	/* NULL: nothing was ever compacted */
	SearchedKey keys[STEP_KEYS];	/* that may go */
	int			key_count;
	int			max_keys;
	bool		has_missed;		/* a key that somebody had */
} Sweep;

/* Has the log a partition with this number? */
static bool
has_table(const Sweep *sweep, int64 number)
{
	int			low = 0;
	int			high = sweep->partition_count;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (sweep->partitions[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low < sweep->partition_count && sweep->partitions[low].number == number;
}

/* Is the table of a partition gone whose messages were dropped? */
static bool
is_gone(const Sweep *sweep, const LogPartition *row)
{
	return row->dropped_at != 0 && !has_table(sweep, row->number);
}

/*
 * Is a head to go?  A partition of which nothing is known, not even a table, went
 * long ago.  Of one that was purged in part the last purge counts.
 */
static bool
is_empty_head(const Sweep *sweep, int64 message_id)
{
	int64		number = partition_number(sweep->stream, message_id);
	LogPartition *row;
	TimestampTz dropped_at;

	if (message_id > sweep->stream->purged_through)
		return false;
	row = log_partition_find(sweep->rows, sweep->row_count, number);
	if (row == NULL && !has_table(sweep, number))
		return true;
	dropped_at = row != NULL && row->dropped_at != 0 ? row->dropped_at : sweep->stream->purged_at;
	return dropped_at != 0 && dropped_at <= sweep->before;
}

/* May a key go, as far as its head says?  One without a head was only locked. */
static bool
may_go(const Sweep *sweep, text *key)
{
	int64		message_id;

	return !compaction_editor_find(sweep->editor, key, &message_id) || is_empty_head(sweep, message_id);
}

/* Find keys that may go, from where the walk is on. */
static void
find_keys(Sweep *sweep, StateWalk *rows)
{
	while (sweep->key_count < sweep->max_keys && state_walk_next(rows) != NULL)
	{
		text	   *key = compaction_editor_key(rows);

		if (may_go(sweep, key))
			sweep->keys[sweep->key_count++].key = DatumGetTextPCopy(PointerGetDatum(key));
	}
}

/* Take the keys that were found, as far as nobody has them and they still may go. */
static void
take_keys(Sweep *sweep)
{
	int			taken_count = 0;

	for (int i = 0; i < sweep->key_count; i++)
	{
		text	   *key = sweep->keys[i].key;

		if (!compaction_editor_take(sweep->editor, key))
			sweep->has_missed = true;
		else if (may_go(sweep, key))
			sweep->keys[taken_count++].key = key;
	}
	sweep->key_count = taken_count;
}

/* Remove the keys that were taken and of which the log has no message; returns how many. */
static int64
remove_keys(Sweep *sweep)
{
	StreamPartition *partitions;
	int			partition_count;
	int64		count = 0;

	if (sweep->key_count == 0)
		return 0;

	/* whoever had one of the keys before may have made a partition */
	InvalidateCatalogSnapshot();
	partition_count = partition_list(sweep->stream, &partitions);
	message_log_find_compacted(sweep->stream, partitions, partition_count, sweep->keys, sweep->key_count);
	for (int i = 0; i < sweep->key_count; i++)
	{
		if (sweep->keys[i].is_found)
			continue;
		compaction_editor_remove(sweep->editor, sweep->keys[i].key);
		count++;
	}
	return count;
}

/* Forget dropped partitions, once nothing hangs on them any more. */
static void
forget_partitions(Sweep *sweep, TimestampTz before, DutyStep *step)
{
	for (int i = 0; i < sweep->row_count; i++)
	{
		if (!is_gone(sweep, &sweep->rows[i]) || sweep->rows[i].dropped_at > before)
			continue;
		log_partition_delete(&sweep->rows[i]);
		sweep->rows[i].dropped_at = 0;
		step->done = "forgot dropped partitions";
	}
}

/*
 * Has somebody purged a part of a partition, for which no walk was made yet?  No
 * row says so; after a restart there is one walk too many.
 */
static bool
has_purged_part(const Sweep *sweep, const DutyMemory *memory)
{
	const Stream *stream = sweep->stream;
	int64		number = partition_number(stream, stream->purged_through);

	return stream->purged_at != 0 && stream->purged_at != memory->heads_purged_at &&
		stream->purged_through < partition_last_id(stream, number) && has_table(sweep, number);
}

/* When a walk is due: DT_NOEND if never. */
static TimestampTz
find_due(const Sweep *sweep, const DutyMemory *memory)
{
	int64		ttl_us = sweep->stream->empty_compaction_head_ttl_us;
	TimestampTz first = has_purged_part(sweep, memory) ? sweep->stream->purged_at : DT_NOEND;

	for (int i = 0; i < sweep->row_count; i++)
	{
		if (is_gone(sweep, &sweep->rows[i]))
			first = Min(first, sweep->rows[i].dropped_at);
	}
	return first == DT_NOEND ? DT_NOEND : Max(duration_add(first, ttl_us), memory->heads.begins_at);
}

/* Is a partition waiting for its table to be dropped? */
static bool
has_purged_table(const Sweep *sweep)
{
	for (int i = 0; i < sweep->row_count; i++)
	{
		if (sweep->rows[i].dropped_at != 0 && has_table(sweep, sweep->rows[i].number))
			return true;
	}
	return false;
}

/* End the walk. */
static void
end_walk(Sweep *sweep, DutyMemory *memory, DutyStep *step)
{
	KeyWalk    *walk = &memory->heads;

	if (!walk->has_missed)
	{
		forget_partitions(sweep, sweep->before, step);
		if (sweep->stream->purged_at <= sweep->before)
			memory->heads_purged_at = sweep->stream->purged_at;
	}
	duty_walk_end(walk, duty_patience_us(sweep->stream->empty_compaction_head_ttl_us), step);
	duty_call_again_at(step, find_due(sweep, memory));
}

/* Do a piece of the walk. */
static void
do_piece(Sweep *sweep, DutyMemory *memory, DutyStep *step)
{
	KeyWalk    *walk = &memory->heads;
	bool		is_clean = relaxed_commit_is_clean();
	StateWalk	rows;
	text	   *key = NULL;

	compaction_editor_walk(sweep->editor, &rows, walk->key, STEP_ENTRIES);
	find_keys(sweep, &rows);
	if (!rows.is_at_end)
		key = DatumGetTextPCopy(PointerGetDatum(compaction_editor_key(&rows)));
	state_walk_end(&rows);
	take_keys(sweep);
	walk->has_missed |= sweep->has_missed;
	if (remove_keys(sweep) > 0)
		step->done = "removed empty compaction heads";
	if (key != NULL)
		duty_walk_goes_on(memory, walk, key, step);
	else
		end_walk(sweep, memory, step);
	if (is_clean)
		relaxed_commit_allow();
}

/* Begin a walk if one is due; says whether one is going on. */
static bool
is_walking(Sweep *sweep, DutyMemory *memory, DutyStep *step)
{
	KeyWalk    *walk = &memory->heads;

	if (!walk->is_begun)
	{
		TimestampTz due = find_due(sweep, memory);

		if (due > step->now)
		{
			duty_call_again_at(step, due);
			return false;
		}
		duty_walk_begin(walk);
		memory->heads_before = step->now - sweep->stream->empty_compaction_head_ttl_us;
	}
	sweep->before = memory->heads_before;
	sweep->max_keys = Max(Min(STEP_LOOKS / Max(sweep->partition_count, 1), STEP_KEYS), 1);
	return true;
}

/* Look at the stream's keys and its dropped partitions. */
static void
look(Sweep *sweep, DutyMemory *memory, DutyStep *step)
{
	const Stream *stream = sweep->stream;

	sweep->row_count = log_partition_list(stream->stream_id, NULL, &sweep->rows);
	sweep->partition_count = partition_list(stream, &sweep->partitions);
	if (has_purged_table(sweep))
		duty_call_again_after(step, TABLE_RETRY_US);
	if (!OidIsValid(stream->compaction_key_oid))
		forget_partitions(sweep, DT_NOEND, step);
	else if (is_walking(sweep, memory, step) && duty_may_lock_out(step))
	{
		sweep->editor = compaction_editor_open(stream);
		if (sweep->editor == NULL)
			return;
		do_piece(sweep, memory, step);
		compaction_editor_close(sweep->editor);
	}
}

/* Look at some keys, and remove those whose heads have been empty for long enough. */
void
compaction_sweep_step(const Stream *stream, DutyMemory *memory, DutyStep *step)
{
	Sweep	   *sweep = palloc0(sizeof(Sweep));

	sweep->stream = stream;
	step->next = DT_NOEND;
	look(sweep, memory, step);
}
