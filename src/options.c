/*
 * options.c
 *		What a message may ask for: the "options" of produce, the
 *		message_defaults of a stream.
 *
 * The known keys stand in tables of rules; one walk over the object holds each
 * of its members against them.  Errors name the argument and the path of the
 * key, as in "options.retry.base_delay", and never show a value.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/numeric.h"

#include "arguments.h"
#include "concurrency.h"
#include "duration.h"
#include "message_options.h"
#include "options.h"
#include "stream.h"

typedef enum OptionKind
{
	OPTION_DURATION,			/* a string that PostgreSQL reads as an interval */
	OPTION_INTEGER,				/* a number without a fraction, up to 2^31 - 1 */
	OPTION_CONCURRENCY,			/* parallel, exclusive or ordered */
	OPTION_OBJECT				/* an object with rules of its own */
} OptionKind;

typedef struct OptionRule
{
	const char *key;
	OptionKind	kind;
	int64		minimum;		/* of an OPTION_INTEGER */
	const struct OptionRules *members;	/* of an OPTION_OBJECT */
} OptionRule;

typedef struct OptionRules
{
	const char *known;			/* the keys, for the hint */
	int			count;
	const OptionRule *rules;
} OptionRules;

static const OptionRule retry_rules[] = {
	{"max_retries", OPTION_INTEGER, 0, NULL},
	{"max_delays", OPTION_INTEGER, 0, NULL},
	{"base_delay", OPTION_DURATION, 0, NULL},
	{"max_delay", OPTION_DURATION, 0, NULL},
	{"exponent", OPTION_INTEGER, 1, NULL}
};

static const OptionRules retry = {
	"max_retries, max_delays, base_delay, max_delay, exponent",
	lengthof(retry_rules), retry_rules
};

static const OptionRule message_rules[] = {
	{"timeout", OPTION_DURATION, 0, NULL},
	{"retry", OPTION_OBJECT, 0, &retry}
};

static const OptionRules message_options = {
	"timeout, retry (with max_retries, max_delays, base_delay, max_delay, exponent)", lengthof(message_rules), message_rules
};

static const OptionRule default_rules[] = {
	{"concurrency", OPTION_CONCURRENCY, 0, NULL},
	{"timeout", OPTION_DURATION, 0, NULL},
	{"retry", OPTION_OBJECT, 0, &retry}
};

static const OptionRules message_defaults = {
	"concurrency, timeout, retry (with max_retries, max_delays, base_delay, max_delay, exponent)", lengthof(default_rules), default_rules
};

static void check_object(const char *path, JsonbContainer *object, const OptionRules *known);

/* Raise 22023 unless the value is a string with an interval longer than zero. */
static void
check_duration(const char *path, const JsonbValue *value)
{
	Interval	interval;

	if (!message_options_parse_interval(value, &interval))
		argument_raise_invalid(path, _("It must be a string with a finite interval, such as \"30s\"."));
	(void) duration_check(path, &interval, false);
}

/* Raise 22023 unless the value is an integer from "minimum" to 2^31 - 1. */
static void
check_integer(const char *path, const JsonbValue *value, int64 minimum)
{
	Datum		number;
	bool		is_good = false;

	if (value->type == jbvNumeric)
	{
		number = NumericGetDatum(value->val.numeric);
		is_good =
			DatumGetBool(DirectFunctionCall2(numeric_ge, number,
											 NumericGetDatum(int64_to_numeric(minimum)))) &&
			DatumGetBool(DirectFunctionCall2(numeric_le, number,
											 NumericGetDatum(int64_to_numeric(PG_INT32_MAX)))) &&
			DatumGetBool(DirectFunctionCall2(numeric_eq, number,
											 DirectFunctionCall2(numeric_trunc, number, Int32GetDatum(0))));
	}
	if (!is_good)
		argument_raise_invalid(path, psprintf(_("It must be an integer between %lld and %d."),
											  (long long) minimum, PG_INT32_MAX));
}

/* Is the JSON value this string? */
static bool
is_string(const JsonbValue *value, const char *string)
{
	return value->type == jbvString &&
		value->val.string.len == strlen(string) &&
		memcmp(value->val.string.val, string, value->val.string.len) == 0;
}

/* Raise 22023 unless the value is the name of a concurrency policy. */
static void
check_concurrency(const char *path, const JsonbValue *value)
{
	Concurrency concurrency;

	if (value->type != jbvString ||
		!concurrency_parse(value->val.string.val, value->val.string.len, &concurrency))
		argument_raise_invalid(path, _("It must be \"parallel\", \"exclusive\" or \"ordered\"."));
}

/* Hold one member of an object against its rule; raises 22023. */
static void
check_member(const char *path, const JsonbValue *value, const OptionRule *rule)
{
	switch (rule->kind)
	{
		case OPTION_DURATION:
			check_duration(path, value);
			break;
		case OPTION_INTEGER:
			check_integer(path, value, rule->minimum);
			break;
		case OPTION_CONCURRENCY:
			check_concurrency(path, value);
			break;
		case OPTION_OBJECT:
			if (value->type != jbvBinary || !JsonContainerIsObject(value->val.binary.data))
				argument_raise_invalid(path, _("It must be an object."));
			check_object(path, value->val.binary.data, rule->members);
			break;
	}
}

/* The rule for a key; raises 22023 when the key is not known. */
static const OptionRule *
find_rule(const char *path, const JsonbValue *key, const OptionRules *known)
{
	for (int i = 0; i < known->count; i++)
		if (is_string(key, known->rules[i].key))
			return &known->rules[i];

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized key \"%s\" in argument \"%s\"",
					stream_clip_name(pnstrdup(key->val.string.val, key->val.string.len)), path),
			 errhint("The keys are %s.", known->known)));
	return NULL;				/* keep the compiler quiet */
}

/* Raise 22023 unless each member of the object at a path is known and good. */
static void
check_object(const char *path, JsonbContainer *object, const OptionRules *known)
{
	JsonbIterator *iterator = JsonbIteratorInit(object);
	JsonbIteratorToken token;
	JsonbValue	item;
	const OptionRule *rule = NULL;

	while ((token = JsonbIteratorNext(&iterator, &item, true)) != WJB_DONE)
	{
		if (token == WJB_KEY)
			rule = find_rule(path, &item, known);
		else if (token == WJB_VALUE)
			check_member(psprintf("%s.%s", path, rule->key), &item, rule);
	}
}

/* Raise 22023 unless the argument is an object of known options with good values. */
static void
check_argument(const char *argument, Jsonb *value, const OptionRules *known)
{
	if (!JB_ROOT_IS_OBJECT(value))
		argument_raise_invalid(argument, _("It must be a JSON object."));
	check_object(argument, &value->root, known);
}

/*
 * Check the options of a produce, or another argument of that shape.  Raises
 * 22023 naming the argument and the key unless each option is known and good.
 */
void
options_check(const char *argument, Jsonb *options)
{
	check_argument(argument, options, &message_options);
}

/* Check a stream's message_defaults.  Raises 22023 as options_check does. */
void
options_check_message_defaults(Jsonb *defaults)
{
	check_argument("message_defaults", defaults, &message_defaults);
}
