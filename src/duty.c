/*
 * duty.c
 *		When a duty wants to be called again, and where a walk over keys goes on.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "duration.h"
#include "duty.h"

/* The first of several looks at something that others hold comes after this. */
#define FIRST_LOOK_US (100 * 1000)

/* What is too late by a tenth is looked at as often as that, within limits. */
#define PATIENCE_PARTS 10
#define MIN_PATIENCE_US USECS_PER_SEC
#define MAX_PATIENCE_US (60 * USECS_PER_SEC)

/* A walk over keys takes no more than one of so many parts of the time. */
#define WALK_PARTS 10

/* Call again at a time, or earlier if that was asked for. */
void
duty_call_again_at(DutyStep *step, TimestampTz when)
{
	step->next = Min(step->next, when);
}

/* Call again after so long, or earlier if that was asked for. */
void
duty_call_again_after(DutyStep *step, int64 delay_us)
{
	duty_call_again_at(step, duration_add(step->now, delay_us));
}

/*
 * May the step take locks that others would wait for until the end of the
 * transaction?  If not it is to be done some other time.
 */
bool
duty_may_lock_out(DutyStep *step)
{
	if (!step->commits)
	{
		step->is_refused = true;
		duty_call_again_after(step, MIN_PATIENCE_US);
	}
	return step->commits;
}

/* The step has written something: what follows from it is for the next one. */
void
duty_has_done(DutyStep *step, const char *done)
{
	step->done = done;
	step->next = step->now;
}

/*
 * Look again at what others hold, less and less often; returns how many looks
 * in a row that makes.
 */
int
duty_look_again(DutyStep *step, int looks, int64 longest_us)
{
	int64		delay_us = FIRST_LOOK_US;

	for (int i = 0; i < looks && delay_us < longest_us; i++)
		delay_us *= 2;
	duty_call_again_after(step, Min(delay_us, longest_us));
	return looks + 1;
}

/* How late something may come that is due after a duration (0: none). */
int64
duty_patience_us(int64 duration_us)
{
	if (duration_us == 0)
		return MAX_PATIENCE_US;
	return Min(Max(duration_us / PATIENCE_PARTS, MIN_PATIENCE_US), MAX_PATIENCE_US);
}

/* Go to the start of a walk over keys. */
static void
reset_walk(KeyWalk *walk)
{
	if (walk->key != NULL)
		pfree(walk->key);
	memset(walk, 0, sizeof(KeyWalk));
}

/* Begin a walk over keys. */
void
duty_walk_begin(KeyWalk *walk)
{
	reset_walk(walk);
	walk->is_begun = true;
}

/* A step of a walk is at its end: the next one goes on after a key. */
void
duty_walk_goes_on(DutyMemory *memory, KeyWalk *walk, const text *key, DutyStep *step)
{
	MemoryContext old = MemoryContextSwitchTo(memory->context);
	text	   *copy = DatumGetTextPCopy(PointerGetDatum(key));

	MemoryContextSwitchTo(old);
	if (walk->key != NULL)
		pfree(walk->key);
	walk->key = copy;
	walk->spent_us += GetCurrentTimestamp() - step->now;
	step->next = step->now;
}

/* A walk is at its end: the next one begins after some time, and not too soon. */
void
duty_walk_end(KeyWalk *walk, int64 wait_us, const DutyStep *step)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		spent_us = walk->spent_us + (now - step->now);

	reset_walk(walk);
	walk->begins_at = now + Max(wait_us, WALK_PARTS * spent_us);
}

/* A step may have been rolled back: the walk that must not miss anything has. */
void
duty_memory_missed(DutyMemory *memory)
{
	memory->heads.has_missed = true;
}

/* Free what the memory points to. */
void
duty_memory_free(DutyMemory *memory)
{
	reset_walk(&memory->heads);
	reset_walk(&memory->key_leases);
}
