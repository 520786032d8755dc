/*
 * message_options.c
 *		What a message asks for, and what it gets: its timeout, and how it is
 *		tried again.
 *
 * For each value: what the message says, else what the stream's
 * message_defaults say, else the group's own; then no less than the group's
 * lower bound and no more than the upper one.  The bounds are what message_min
 * and message_max say.  Where one of them says nothing about a value, the
 * group's own value is the bound, or the other bound if it lies beyond: so a
 * group without bounds gives every message its own values.
 *
 * A max_delays of 0 is no limit, so it counts as the greatest there is.
 */
#include "postgres.h"

#include "common/int.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "duration.h"
#include "message_options.h"

/* Any delay reaches any other within so many doublings. */
#define MAX_MULTIPLICATIONS 63

typedef enum OptionKey
{
	KEY_TIMEOUT,
	KEY_MAX_RETRIES,
	KEY_MAX_DELAYS,
	KEY_BASE_DELAY,
	KEY_MAX_DELAY,
	KEY_EXPONENT,
	KEY_COUNT
} OptionKey;

typedef struct OptionShape
{
	const char *name;
	const char *path;			/* from the root of the object */
	bool		is_in_retry;	/* a member of "retry" */
	bool		is_duration;	/* a string; else an integer */
	int64		minimum;
} OptionShape;

static const OptionShape shapes[KEY_COUNT] = {
	[KEY_TIMEOUT] = {"timeout", "timeout", false, true, 1},
	[KEY_MAX_RETRIES] = {"max_retries", "retry.max_retries", true, false, 0},
	[KEY_MAX_DELAYS] = {"max_delays", "retry.max_delays", true, false, 0},
	[KEY_BASE_DELAY] = {"base_delay", "retry.base_delay", true, true, 1},
	[KEY_MAX_DELAY] = {"max_delay", "retry.max_delay", true, true, 1},
	[KEY_EXPONENT] = {"exponent", "retry.exponent", true, false, 1}
};

/* One of the options, as it is written. */
static int64
get_value(const MessageOptions *options, OptionKey key)
{
	switch (key)
	{
		case KEY_TIMEOUT:
			return options->timeout_us;
		case KEY_MAX_RETRIES:
			return options->max_retries;
		case KEY_MAX_DELAYS:
			return options->max_delays;
		case KEY_BASE_DELAY:
			return options->base_delay_us;
		case KEY_MAX_DELAY:
			return options->max_delay_us;
		case KEY_EXPONENT:
			return options->exponent;
		case KEY_COUNT:
			break;
	}
	pg_unreachable();
}

static void
set_value(MessageOptions *options, OptionKey key, int64 value)
{
	switch (key)
	{
		case KEY_TIMEOUT:
			options->timeout_us = value;
			break;
		case KEY_MAX_RETRIES:
			options->max_retries = (int32) value;
			break;
		case KEY_MAX_DELAYS:
			options->max_delays = (int32) value;
			break;
		case KEY_BASE_DELAY:
			options->base_delay_us = value;
			break;
		case KEY_MAX_DELAY:
			options->max_delay_us = value;
			break;
		case KEY_EXPONENT:
			options->exponent = (int32) value;
			break;
		case KEY_COUNT:
			break;
	}
}

static bool
is_given(const AskedOptions *asked, OptionKey key)
{
	return (asked->given & (1 << key)) != 0;
}

/* Is one value of an option less than another? */
static bool
is_less(OptionKey key, int64 value, int64 other)
{
	if (key == KEY_MAX_DELAYS)
	{
		/* no limit is the greatest */
		if (value == 0)
			return false;
		if (other == 0)
			return true;
	}
	return value < other;
}

static int64
lesser(OptionKey key, int64 value, int64 other)
{
	return is_less(key, other, value) ? other : value;
}

static int64
greater(OptionKey key, int64 value, int64 other)
{
	return is_less(key, value, other) ? other : value;
}

/*
 * Read a JSON string as interval_in does, but return false instead of raising
 * an error when it is none.  It means the same in every session: the sign of
 * "-1 day 25:00" would else depend on the IntervalStyle.
 */
bool
message_options_parse_interval(const JsonbValue *value, Interval *interval)
{
	struct pg_itm_in parsed = {0};
	char	   *string;
	char	   *field[MAXDATEFIELDS];
	int			field_type[MAXDATEFIELDS];
	char		work_buffer[256];
	int			field_count;
	int			kind;
	int			result;
	int			style = IntervalStyle;

	if (value->type != jbvString)
		return false;
	string = pnstrdup(value->val.string.val, value->val.string.len);
	IntervalStyle = INTSTYLE_POSTGRES;
	result = ParseDateTime(string, work_buffer, sizeof(work_buffer),
						   field, field_type, MAXDATEFIELDS, &field_count);
	if (result == 0)
		result = DecodeInterval(field, field_type, field_count,
								INTERVAL_FULL_RANGE, &kind, &parsed);
	if (result == DTERR_BAD_FORMAT)
		result = DecodeISO8601Interval(string, &kind, &parsed);
	IntervalStyle = style;
	pfree(string);

	/* "infinity" has another kind, where the server knows it at all */
	return result == 0 && kind == DTK_DELTA && itmin2interval(&parsed, interval) == 0;
}

/* Read one of the options from its JSON value; false when that is no good. */
static bool
read_value(const JsonbValue *json, OptionKey key, int64 *value)
{
	if (shapes[key].is_duration)
	{
		Interval	interval;

		if (!message_options_parse_interval(json, &interval))
			return false;
		*value = duration_from_interval(&interval);
		return *value >= shapes[key].minimum && *value < END_TIMESTAMP;
	}
	else
	{
		bool		failed = false;

		if (json->type != jbvNumeric)
			return false;
		*value = numeric_int4_opt_error(json->val.numeric, &failed);
		return !failed && *value >= shapes[key].minimum;
	}
}

/* The object at "retry", or NULL. */
static JsonbContainer *
find_retry(Jsonb *options)
{
	JsonbValue	value;

	if (getKeyJsonValueFromContainer(&options->root, "retry", strlen("retry"), &value) == NULL ||
		value.type != jbvBinary || !JsonContainerIsObject(value.val.binary.data))
		return NULL;
	return value.val.binary.data;
}

/*
 * Read options that were checked when they were written (options.c).  Never
 * raises an error, since a claim must not fail for what one message asks for:
 * what cannot be read is not given.  Other keys mean nothing here.
 */
void
message_options_read(Jsonb *options, AskedOptions *asked)
{
	JsonbContainer *retry;

	memset(asked, 0, sizeof(AskedOptions));
	if (!JB_ROOT_IS_OBJECT(options))
		return;
	retry = find_retry(options);
	for (OptionKey key = 0; key < KEY_COUNT; key++)
	{
		JsonbContainer *object = shapes[key].is_in_retry ? retry : &options->root;
		const char *name = shapes[key].name;
		JsonbValue	json;
		int64		value;

		if (object == NULL ||
			getKeyJsonValueFromContainer(object, name, strlen(name), &json) == NULL ||
			!read_value(&json, key, &value))
			continue;
		set_value(&asked->values, key, value);
		asked->given |= 1 << key;
	}
}

/* Raise 22023 if a group's message_min asks for more than its message_max. */
void
message_options_check_bounds(const AskedOptions *lower, const AskedOptions *upper)
{
	for (OptionKey key = 0; key < KEY_COUNT; key++)
		if (is_given(lower, key) && is_given(upper, key) &&
			is_less(key, get_value(&upper->values, key), get_value(&lower->values, key)))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("argument \"message_min.%s\" must not be greater than \"message_max.%s\"",
							shapes[key].path, shapes[key].path),
					 key == KEY_MAX_DELAYS ?
					 errdetail("A value of 0 is no limit, which is greater than any other.") : 0));
}

/* Put together what a group gives from its own values and its two bounds. */
void
message_options_make_policy(const MessageOptions *own, const AskedOptions *lower,
							const AskedOptions *upper, int64 initial_backoff_us,
							OptionsPolicy *policy)
{
	policy->initial_backoff_us = initial_backoff_us;
	policy->is_fixed = true;
	for (OptionKey key = 0; key < KEY_COUNT; key++)
	{
		int64		value = get_value(own, key);
		int64		least = value;
		int64		most = value;

		if (is_given(lower, key))
		{
			least = get_value(&lower->values, key);
			most = greater(key, value, least);
		}
		if (is_given(upper, key))
		{
			most = get_value(&upper->values, key);
			if (!is_given(lower, key))
				least = lesser(key, value, most);
		}
		set_value(&policy->lower, key, least);
		set_value(&policy->upper, key, most);
		set_value(&policy->own, key, lesser(key, greater(key, value, least), most));
		policy->is_fixed &= least == most;
	}
}

/*
 * What a message gets.  "message" is NULL when it asks for nothing; "defaults"
 * are those of its stream.
 */
void
message_options_resolve(const OptionsPolicy *policy, const AskedOptions *message,
						const AskedOptions *defaults, MessageOptions *effective)
{
	*effective = policy->own;
	if (policy->is_fixed)
		return;
	for (OptionKey key = 0; key < KEY_COUNT; key++)
	{
		const AskedOptions *asked = message != NULL && is_given(message, key) ? message : defaults;
		int64		value;

		if (!is_given(asked, key))
			continue;
		value = greater(key, get_value(&asked->values, key), get_value(&policy->lower, key));
		set_value(effective, key, lesser(key, value, get_value(&policy->upper, key)));
	}
}

static void
push_key(JsonbParseState **state, const char *key)
{
	JsonbValue	value;

	value.type = jbvString;
	value.val.string.val = pstrdup(key);
	value.val.string.len = strlen(key);
	pushJsonbValue(state, WJB_KEY, &value);
}

static void
push_integer(JsonbParseState **state, int64 integer)
{
	JsonbValue	value;

	value.type = jbvNumeric;
	value.val.numeric = int64_to_numeric(integer);
	pushJsonbValue(state, WJB_VALUE, &value);
}

/* Hours, minutes and seconds: a number of days would depend on the calendar. */
static void
push_duration(JsonbParseState **state, int64 duration_us)
{
	Interval	interval = {.time = duration_us};
	JsonbValue	value;
	int			style = IntervalStyle;

	/* the same text for every session */
	IntervalStyle = INTSTYLE_POSTGRES;
	value.type = jbvString;
	value.val.string.val = DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(&interval)));
	IntervalStyle = style;
	value.val.string.len = strlen(value.val.string.val);
	pushJsonbValue(state, WJB_VALUE, &value);
}

static void
push_option(JsonbParseState **state, const MessageOptions *options, OptionKey key)
{
	push_key(state, shapes[key].name);
	if (shapes[key].is_duration)
		push_duration(state, get_value(options, key));
	else
		push_integer(state, get_value(options, key));
}

/* Options as jsonb, in the shape in which a message asks for them. */
Datum
message_options_make_jsonb(const MessageOptions *options)
{
	JsonbParseState *state = NULL;
	JsonbValue *result;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (OptionKey key = 0; key < KEY_COUNT; key++)
		if (!shapes[key].is_in_retry)
			push_option(&state, options, key);
	push_key(&state, "retry");
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	for (OptionKey key = 0; key < KEY_COUNT; key++)
		if (shapes[key].is_in_retry)
			push_option(&state, options, key);
	pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	result = pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	return JsonbPGetDatum(JsonbValueToJsonb(result));
}

/*
 * How long a message waits that has failed; "attempts" is at least 1, for the
 * failure that has just happened.  What would overflow is max_delay.
 */
int64
message_options_backoff_us(const OptionsPolicy *policy, const MessageOptions *options, int32 attempts)
{
	int64		delay_us = options->base_delay_us;

	if (attempts <= 1)
		return policy->initial_backoff_us;
	for (int i = Min(attempts - 2, MAX_MULTIPLICATIONS); i > 0; i--)
		if (delay_us >= options->max_delay_us ||
			pg_mul_s64_overflow(delay_us, options->exponent, &delay_us))
			return options->max_delay_us;
	return Min(delay_us, options->max_delay_us);
}

/* Was this failure the one after the last retry? */
bool
message_options_is_spent(const MessageOptions *options, int32 attempts)
{
	return attempts > options->max_retries;
}

/* Has a message been delayed more often than it may be? */
bool
message_options_is_delayed_out(const MessageOptions *options, int32 delays)
{
	return options->max_delays != 0 && delays > options->max_delays;
}
