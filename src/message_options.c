/*
 * message_options.c
 *		The options that a message is delivered with.
 *
 * A group bounds what a message may ask for by message_min and message_max,
 * which are its own values unless set: what a message gets is the group's.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "message_options.h"

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
push_integer(JsonbParseState **state, const char *key, Datum integer)
{
	JsonbValue	value;

	push_key(state, key);
	value.type = jbvNumeric;
	value.val.numeric = int64_to_numeric(DatumGetInt64(integer));
	pushJsonbValue(state, WJB_VALUE, &value);
}

static void
push_interval(JsonbParseState **state, const char *key, Datum interval)
{
	JsonbValue	value;
	int			style = IntervalStyle;

	/* the same text for every session */
	IntervalStyle = INTSTYLE_POSTGRES;
	push_key(state, key);
	value.type = jbvString;
	value.val.string.val = DatumGetCString(DirectFunctionCall1(interval_out, interval));
	IntervalStyle = style;
	value.val.string.len = strlen(value.val.string.val);
	pushJsonbValue(state, WJB_VALUE, &value);
}

/* A group's settings in the shape of a message's options, as jsonb. */
Datum
message_options_of_group(Datum timeout, Datum max_retries, Datum max_delays,
						 Datum base_delay, Datum max_delay, Datum exponent)
{
	JsonbParseState *state = NULL;
	JsonbValue *result;

	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_interval(&state, "timeout", timeout);
	push_key(&state, "retry");
	pushJsonbValue(&state, WJB_BEGIN_OBJECT, NULL);
	push_integer(&state, "max_retries", max_retries);
	push_integer(&state, "max_delays", max_delays);
	push_interval(&state, "base_delay", base_delay);
	push_interval(&state, "max_delay", max_delay);
	push_integer(&state, "exponent", exponent);
	pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	result = pushJsonbValue(&state, WJB_END_OBJECT, NULL);
	return JsonbPGetDatum(JsonbValueToJsonb(result));
}
