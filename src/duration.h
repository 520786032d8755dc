/*
 * duration.h
 *		Intervals as durations: a day is 24 hours, a month 30 days.
 */
#ifndef SQLSTREAMS_DURATION_H
#define SQLSTREAMS_DURATION_H

#include "postgres.h"

#include "datatype/timestamp.h"

extern int64 duration_from_interval(const Interval *interval);
extern int64 duration_check(const char *argument, const Interval *interval, bool zero_allowed);
extern int64 duration_check_wait(const char *argument, const Interval *interval);
extern TimestampTz duration_add(TimestampTz when, int64 duration_us);

#endif							/* SQLSTREAMS_DURATION_H */
