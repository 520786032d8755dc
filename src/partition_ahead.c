/*
 * partition_ahead.c
 *		The duty that makes partitions before producers need them.
 *
 * Behind the partition of the next id there are two more, or as many as the
 * stream would fill within a minute at its present speed.  A stream to which
 * nothing was produced yet has only the partition that was made with it.
 *
 * The first id of each partition calls this duty (duty.h), so a slow stream
 * needs no clock.  The speed is seen over one to two minutes, and over the time
 * since the last sample, so that it rises at once and falls after a while.
 */
#include "postgres.h"

#include <math.h>

#include "utils/timestamp.h"

#include "id_sequence.h"
#include "partition.h"
#include "partition_ahead.h"

#define PARTITIONS_AHEAD 2
#define MAX_PARTITIONS_AHEAD 100

/* Partitions for so long are there. */
#define TIME_AHEAD_US (60 * USECS_PER_SEC)

/* How old a sample gets before it is followed by another. */
#define SAMPLE_US (60 * USECS_PER_SEC)

/* A time over which a speed says something. */
#define MIN_SAMPLE_US USECS_PER_SEC

/* How often to look at a stream whose speed matters. */
#define FAST_LOOK_US (2 * USECS_PER_SEC)

/* When to try again to lock the log. */
#define LOCK_RETRY_US USECS_PER_SEC

/* Remember how far the ids are now. */
static void
take_sample(DutyMemory *memory, int64 last, TimestampTz now)
{
	if (memory->newer.at != 0 && now - memory->newer.at < SAMPLE_US)
		return;
	memory->older = memory->newer;
	memory->newer.at = now;
	memory->newer.last = last;
}

/* How many ids the stream will need within the time ahead, by a sample. */
static double
ids_needed(const IdSample *sample, int64 last, TimestampTz now)
{
	if (sample->at == 0 || now - sample->at < MIN_SAMPLE_US)
		return 0;
	return (double) (last - sample->last) / (now - sample->at) * TIME_AHEAD_US;
}

/* How many partitions there should be behind that of the next id. */
static int
partitions_ahead(const Stream *stream, const DutyMemory *memory, int64 last, TimestampTz now)
{
	double		ids = fmax(ids_needed(&memory->older, last, now), ids_needed(&memory->newer, last, now));
	double		partitions = ceil(ids / stream->partition_size);

	return (int) fmin(fmax(partitions, PARTITIONS_AHEAD), MAX_PARTITIONS_AHEAD);
}

/* Make the first partition that is missing, if any. */
void
partition_ahead_step(const Stream *stream, DutyMemory *memory, DutyStep *step)
{
	int64		last;
	int64		number;
	int64		end;
	int			ahead;

	step->next = DT_NOEND;
	if (!id_sequence_last(stream->sequence_oid, &last) || last == 0)
		return;

	take_sample(memory, last, step->now);
	ahead = partitions_ahead(stream, memory, last, step->now);
	number = partition_number(stream, last + 1);
	end = Min(number + ahead, partition_number(stream, PG_INT64_MAX - 1));
	for (; number <= end; number++)
	{
		if (partition_exists(stream, number))
			continue;
		if (!duty_may_lock_out(step))
			return;
		if (partition_create_if_free(stream, number))
			duty_has_done(step, "made a partition");
		else
			duty_call_again_after(step, LOCK_RETRY_US);
		return;
	}
	if (ahead > PARTITIONS_AHEAD)
		duty_call_again_after(step, FAST_LOOK_US);
}
