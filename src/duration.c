/*
 * duration.c
 *		Intervals as durations: a day is 24 hours, a month 30 days.
 *
 * The calendar and the TimeZone never matter, so a lease is as long in the
 * night when the clocks change as in any other.
 */
#include "postgres.h"

#include "common/int.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "duration.h"

/*
 * The length of an interval in microseconds; one that does not fit ends at the
 * largest or smallest that does.
 */
int64
duration_from_interval(const Interval *interval)
{
	int64		days = (int64) interval->month * DAYS_PER_MONTH + interval->day;
	int64		result;

	if (pg_mul_s64_overflow(days, USECS_PER_DAY, &result) ||
		pg_add_s64_overflow(result, interval->time, &result))
		return days > 0 ? PG_INT64_MAX : PG_INT64_MIN;
	return result;
}

/*
 * The length of an interval that a user gave for an argument, in microseconds.
 * Raises 22023 for one that is negative, zero where that is not allowed,
 * infinite, or longer than a timestamp can be away.
 */
int64
duration_check(const char *argument, const Interval *interval, bool zero_allowed)
{
	int64		result = duration_from_interval(interval);

	if (result < 0 || (result == 0 && !zero_allowed))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for argument \"%s\"", argument),
				 zero_allowed ?
				 errdetail("It must not be negative.") :
				 errdetail("It must be longer than zero.")));
	if (result >= END_TIMESTAMP)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for argument \"%s\"", argument),
				 errdetail("It must be finite and shorter than the range of timestamps.")));
	return result;
}

/*
 * As duration_check, for the time to a message's next delivery: zero is allowed,
 * and one that is longer than a timestamp can be away ends there.
 */
int64
duration_check_wait(const char *argument, const Interval *interval)
{
	int64		result = duration_from_interval(interval);

	if (result < END_TIMESTAMP || COMPAT_INTERVAL_NOT_FINITE(interval))
		return duration_check(argument, interval, true);
	return END_TIMESTAMP - 1;
}

/* A time moved by a duration, ending at the last timestamp there is. */
TimestampTz
duration_add(TimestampTz when, int64 duration_us)
{
	TimestampTz result;

	if (pg_add_s64_overflow(when, duration_us, &result) || result >= END_TIMESTAMP)
		return END_TIMESTAMP - 1;
	return result;
}
