/*
 * retention.c
 *		The duty that drops messages whose time is over.
 *
 * Messages go by whole partitions, the lowest first.  A partition is expired
 * when it was sealed (partition_seal.c) longer ago than the stream's retention:
 * none of its messages is younger than that.  If no group needs anything of it
 * (partition_hold.c), or the stream says that this does not matter:
 *
 *		dead exceptions are deleted, some in each step -> with the last of them
 *		the messages are gone (message_drop.c) -> what is left hanging on them
 *		goes -> the table is dropped when nobody has it locked
 *
 * Dead exceptions go first because a redrive can still bring their messages
 * back: it and this duty meet at the row.  The table is dropped in a transaction
 * of its own, with locks that are had at once or not at all: nobody waits behind
 * them for somebody who reads the partition.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "duration.h"
#include "id_sequence.h"
#include "log_partition.h"
#include "message_drop.h"
#include "partition.h"
#include "partition_hold.h"
#include "retention.h"

/* How many rows of what hangs on messages one transaction deletes. */
#define SWEEP_ROWS 10000

/* The partitions of a stream as a step finds them. */
typedef struct Partitions
{
	StreamPartition *list;
	int			count;
	LogPartition *rows;
	int			row_count;
} Partitions;

static void
read_partitions(const Stream *stream, Partitions *partitions)
{
	partitions->count = partition_list(stream, &partitions->list);
	partitions->row_count = log_partition_list(stream->stream_id, NULL, &partitions->rows);
}

/*
 * The last id of the partitions that are expired, 0 if none is.  Asks to be
 * called when the next one will be, at the earliest.
 */
static int64
find_expired(const Stream *stream, const Partitions *partitions, int64 last, DutyStep *step)
{
	int64		expired = 0;

	for (int i = 0; i < partitions->count; i++)
	{
		int64		number = partitions->list[i].number;
		LogPartition *row = log_partition_find(partitions->rows, partitions->row_count, number);

		if (partition_last_id(stream, number) <= stream->purged_through)
			continue;

		/* the first id of a partition calls the duties */
		if (partition_first_id(stream, number) > last)
			break;
		if (row == NULL || row->sealed_at == 0)
		{
			duty_call_again_after(step, stream->retention_us);
			break;
		}
		if (!partition_hold_is_expired(stream, row, step->now))
		{
			duty_call_again_at(step, duration_add(row->sealed_at, stream->retention_us));
			break;
		}
		expired = partition_last_id(stream, number);
	}
	return expired;
}

/* The last id of the partitions that end before an id; 0 if none does. */
static int64
last_id_before(const Stream *stream, const Partitions *partitions, int64 id)
{
	int64		result = 0;

	for (int i = 0; i < partitions->count; i++)
	{
		int64		last_id = partition_last_id(stream, partitions->list[i].number);

		if (last_id > stream->purged_through && last_id < id)
			result = last_id;
	}
	return result;
}

/*
 * Forget dead exceptions of messages that no group needs, up to an id, and with
 * the last of them the messages.
 */
static void
drop_unneeded(const Stream *stream, int64 last, DutyStep *step)
{
	MessageSweep sweep = {.rows_left = SWEEP_ROWS};

	message_drop_exceptions(stream, last, true, &sweep);
	if (sweep.rows_left > 0 && !sweep.is_busy)
	{
		message_drop_through(stream, last);
		duty_has_done(step, "dropped expired messages");
	}
	else if (sweep.rows_left < SWEEP_ROWS)
		duty_has_done(step, "forgot dead exceptions of expired messages");
	else
		duty_call_again_after(step, duty_patience_us(stream->retention_us));
}

/* Drop the messages that are expired, as far as they may go. */
static void
drop_expired(const Stream *stream, const Partitions *partitions, DutyStep *step)
{
	int64		last;
	int64		expired;
	int64		unneeded;
	Snapshot	snapshot;
	GroupHold	hold;

	if (stream->retention_us == 0 || !id_sequence_last(stream->sequence_oid, &last))
		return;
	expired = find_expired(stream, partitions, last, step);
	if (expired == 0)
		return;
	if (stream->allow_drop_past_committed)
	{
		message_drop_through(stream, expired);
		duty_has_done(step, "dropped expired messages");
		return;
	}
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	partition_hold_by_groups(stream, expired, snapshot, &hold);
	UnregisterSnapshot(snapshot);
	unneeded = Min(expired, last_id_before(stream, partitions, hold.from_id));
	if (unneeded < expired)
		duty_call_again_after(step, duty_patience_us(stream->retention_us));
	if (unneeded > 0)
		drop_unneeded(stream, unneeded, step);
}

/*
 * Drop the table of a partition whose messages are gone, if one can be had.  One
 * on which something depends comes last: trying it raises an error that tells.
 */
static void
drop_table(const Stream *stream, const Partitions *partitions, int looks, DutyMemory *memory, DutyStep *step)
{
	bool		is_locked = false;
	int64		needed = -1;

	for (int i = 0; i < partitions->count; i++)
	{
		int64		number = partitions->list[i].number;

		if (partition_last_id(stream, number) > stream->purged_through)
			break;
		if (partition_hold_by_dependent(partitions->list[i].oid) != NULL)
		{
			needed = number;
			continue;
		}
		if (!duty_may_lock_out(step))
			return;
		if (partition_drop_if_free(stream, number))
		{
			CommandCounterIncrement();
			duty_has_done(step, "dropped a partition");
			return;
		}
		is_locked = true;
	}
	if (is_locked)
		memory->drop_looks = duty_look_again(step, looks, duty_patience_us(stream->retention_us));
	else if (needed >= 0 && duty_may_lock_out(step) && !partition_drop_if_free(stream, needed))
		memory->drop_looks = duty_look_again(step, looks, duty_patience_us(stream->retention_us));
}

/* Forget some of what is left of messages that are gone. */
static void
sweep(const Stream *stream, DutyStep *step)
{
	MessageSweep sweep = {.rows_left = SWEEP_ROWS};

	if (stream->purged_through == 0)
		return;
	message_drop_exceptions(stream, stream->purged_through, false, &sweep);
	message_drop_deliveries(stream, stream->purged_through, &sweep);
	if (sweep.rows_left < SWEEP_ROWS)
		duty_has_done(step, "forgot what is left of dropped messages");
}

/* Drop messages; then what is left of them; then tables, whose users may be in the way. */
void
retention_step(const Stream *stream, DutyMemory *memory, DutyStep *step)
{
	Partitions	partitions;
	int			looks = memory->drop_looks;

	step->next = DT_NOEND;
	memory->drop_looks = 0;
	read_partitions(stream, &partitions);
	drop_expired(stream, &partitions, step);
	if (step->done == NULL)
		sweep(stream, step);
	if (step->done == NULL)
		drop_table(stream, &partitions, looks, memory, step);
}
