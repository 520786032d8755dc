/*
 * message_options.h
 *		What a message asks for, and what it gets: its timeout, and how it is
 *		tried again.  Pure, no tables.
 */
#ifndef SQLSTREAMS_MESSAGE_OPTIONS_H
#define SQLSTREAMS_MESSAGE_OPTIONS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

/* What a message gets. */
typedef struct MessageOptions
{
	int64		timeout_us;
	int32		max_retries;
	int32		max_delays;		/* 0: no limit */
	int64		base_delay_us;
	int64		max_delay_us;
	int32		exponent;
} MessageOptions;

/* What a message, a stream's message_defaults or a group's bound says. */
typedef struct AskedOptions
{
	MessageOptions values;
	uint8		given;			/* a bit for each value that is said */
} AskedOptions;

/* What a group gives. */
typedef struct OptionsPolicy
{
	MessageOptions own;			/* to a message that asks for nothing; within
								 * the bounds */
	MessageOptions lower;
	MessageOptions upper;
	int64		initial_backoff_us;
	bool		is_fixed;		/* the bounds leave no room: every message gets
								 * the group's own values */
} OptionsPolicy;

extern bool message_options_parse_interval(const JsonbValue *value, Interval *interval);
extern void message_options_read(Jsonb *options, AskedOptions *asked);
extern void message_options_check_bounds(const AskedOptions *lower, const AskedOptions *upper);
extern void message_options_make_policy(const MessageOptions *own, const AskedOptions *lower,
										const AskedOptions *upper, int64 initial_backoff_us,
										OptionsPolicy *policy);
extern void message_options_resolve(const OptionsPolicy *policy, const AskedOptions *message,
									const AskedOptions *defaults, MessageOptions *effective);
extern Datum message_options_make_jsonb(const MessageOptions *options);
extern int64 message_options_backoff_us(const OptionsPolicy *policy, const MessageOptions *options,
										int32 attempts);
extern bool message_options_is_spent(const MessageOptions *options, int32 attempts);
extern bool message_options_is_delayed_out(const MessageOptions *options, int32 delays);

#endif							/* SQLSTREAMS_MESSAGE_OPTIONS_H */
