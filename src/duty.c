/*
 * duty.c
 *		When a duty wants to be called again.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "duration.h"
#include "duty.h"

/* The first of several looks at something that others hold comes after this. */
#define FIRST_LOOK_US (100 * 1000)

/* What is too late by a tenth is looked at as often as that, within limits. */
#define PATIENCE_PARTS 10
#define MIN_PATIENCE_US USECS_PER_SEC
#define MAX_PATIENCE_US (60 * USECS_PER_SEC)

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
