/*
 * partition_seal.c
 *		The duty that finds out that nobody writes to a partition any more, and
 *		ends partitions by time.
 *
 * A partition is full when its last id was drawn.  Whoever drew an id of it is
 * inside of the fence until the end of the transaction (fence.c), so once those
 * who were inside after that have ended, nothing is added any more, and no
 * message is younger than that moment: the partition is sealed.  The steps have
 * an order: read the last id drawn, list who is inside, read the clock when they
 * have ended.
 *
 * A partition with a message older than partition_interval is ended by raising
 * the sequence to its last id.  Nobody draws from it after that, and the next
 * one, which is there before, has room for those who draw then.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "duration.h"
#include "fence.h"
#include "id_sequence.h"
#include "log_partition.h"
#include "message_log.h"
#include "partition.h"
#include "partition_hold.h"
#include "partition_seal.h"

/* When to try again to make the next partition. */
#define NEXT_PARTITION_RETRY_US USECS_PER_SEC

/* The other half of all ids is kept for messages. */
#define MAX_ID_ENDED_BY_TIME (PG_INT64_MAX / 2)

/* Write down what is known of a full partition; false when that is nothing new. */
static bool
seal_or_list(const Stream *stream, LogPartition *row, const FenceMemory *inside, bool *is_waiting)
{
	bool		is_listed = row->has_writers && row->writers_system == GetSystemIdentifier();
	FullTransactionId writer;

	if (!is_listed)
	{
		row->has_writers = true;
		row->writers = inside->holders;
		row->writer_count = inside->holder_count;
		row->writers_system = inside->system_identifier;
	}
	if (!partition_hold_find_writer(row, &writer))
		row->sealed_at = GetCurrentTimestamp();
	else
		*is_waiting = true;
	if (is_listed && row->sealed_at == 0)
		return false;
	log_partition_replace(stream->stream_id, row);
	return true;
}

/*
 * Seal the full partitions to which nobody writes any more, and list who may
 * write to the others.  The last id was read before.
 */
static void
seal_full(const Stream *stream, DutyMemory *memory, int looks, int64 last, DutyStep *step)
{
	FenceMemory inside = {.last = last};
	StreamPartition *partitions;
	LogPartition *rows;
	int			row_count = log_partition_list(stream->stream_id, NULL, &rows);
	int			count = partition_list(stream, &partitions);
	bool		is_waiting = false;

	for (int i = 0; i < count && partition_last_id(stream, partitions[i].number) <= last; i++)
	{
		LogPartition *row = log_partition_find(rows, row_count, partitions[i].number);

		if (row == NULL)
		{
			/* it has come with a dump; the next step sees the row */
			log_partition_add(stream->stream_id, partitions[i].number);
			duty_has_done(step, "found a partition");
			continue;
		}
		if (row->sealed_at != 0 || row->dropped_at != 0)
			continue;
		if (inside.holders == NULL)
			fence_list_holders(stream, &inside);
		if (seal_or_list(stream, row, &inside, &is_waiting))
			duty_has_done(step, "sealed a full partition");
	}
	if (is_waiting && step->done == NULL)
		memory->seal_looks = duty_look_again(step, looks, duty_patience_us(stream->retention_us));
}

/*
 * Set *created_at to the age of the first message of a range; false when there
 * is none.  Then *may_come says whether one may still appear that is older than
 * the look.
 */
static bool
find_first_message(const Stream *stream, int64 from_id, int64 to_id, TimestampTz *created_at, bool *may_come)
{
	FenceMemory inside = {.last = to_id};
	Snapshot	snapshot;
	bool		found;

	fence_list_holders(stream, &inside);
	*may_come = inside.holder_count > 0;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	found = message_log_find_created_at(stream, snapshot, from_id, to_id, created_at);
	UnregisterSnapshot(snapshot);
	return found;
}

/* Raise the sequence; the ids that are passed over do not make a stream fast. */
static void
raise_ids(const Stream *stream, DutyMemory *memory, int64 last, int64 target)
{
	(void) id_sequence_raise(stream, target);
	memory->older.last += target - last;
	memory->newer.last += target - last;
}

/* Let nothing more be drawn from a partition; "last" was drawn when we looked. */
static void
end_partition(const Stream *stream, DutyMemory *memory, int64 number, int64 last, DutyStep *step)
{
	if (!partition_exists(stream, number + 1))
	{
		if (!duty_may_lock_out(step))
			return;
		if (partition_create_if_free(stream, number + 1))
			duty_has_done(step, "made a partition");
		else
			duty_call_again_after(step, NEXT_PARTITION_RETRY_US);
	}
	else if (partition_is_being_made_here(stream))
	{
		/* others see it when this transaction has committed */
		duty_call_again_after(step, NEXT_PARTITION_RETRY_US);
	}
	else
	{
		raise_ids(stream, memory, last, partition_last_id(stream, number));
		duty_has_done(step, "ended a partition by time");
	}
}

/* End the partition of the last id if it is old enough. */
static void
end_by_time(const Stream *stream, DutyMemory *memory, int looks, int64 last, DutyStep *step)
{
	int64		number;
	int64		last_id;
	TimestampTz created_at;
	bool		may_come;

	if (stream->partition_interval_us == 0 || last == 0)
		return;
	number = partition_number(stream, last);
	last_id = partition_last_id(stream, number);
	if (last >= last_id || last_id > MAX_ID_ENDED_BY_TIME)
		return;

	if (!find_first_message(stream, partition_first_id(stream, number), last, &created_at, &may_come))
	{
		/* a message that is drawn from now on is not old enough before that */
		if (may_come)
			memory->seal_looks = duty_look_again(step, looks, duty_patience_us(stream->partition_interval_us));
		else
			duty_call_again_after(step, stream->partition_interval_us);
	}
	else if (duration_add(created_at, stream->partition_interval_us) > step->now)
		duty_call_again_at(step, duration_add(created_at, stream->partition_interval_us));
	else
		end_partition(stream, memory, number, last, step);
}

/* Seal what is full; then end what is old. */
void
partition_seal_step(const Stream *stream, DutyMemory *memory, DutyStep *step)
{
	int64		last;
	int			looks = memory->seal_looks;

	step->next = DT_NOEND;
	memory->seal_looks = 0;
	if (!id_sequence_last(stream->sequence_oid, &last))
		return;
	seal_full(stream, memory, looks, last, step);
	if (step->done == NULL)
		end_by_time(stream, memory, looks, last, step);
}
