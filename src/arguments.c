/*
 * arguments.c
 *		Checking the arguments of the SQL functions.
 *
 * The functions are not strict: NULL for an argument with a default means that
 * default, and for one without is an error.
 */
#include "postgres.h"

#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "arguments.h"
#include "compat.h"
#include "duration.h"

/* Raise 22004. */
void
argument_raise_null(const char *argument)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("argument \"%s\" must not be null", argument)));
}

/* Raise 22023 with a sentence that says what the argument may be. */
void
argument_raise_invalid(const char *argument, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for argument \"%s\"", argument),
			 errdetail_internal("%s", detail)));
}

/* The name of a stream or group.  Raises 22004. */
char *
argument_get_name(FunctionCallInfo fcinfo, int number, const char *argument)
{
	if (PG_ARGISNULL(number))
		argument_raise_null(argument);
	return text_to_cstring(PG_GETARG_TEXT_PP(number));
}

/* An integer without a default.  Raises 22004 and 22023. */
int64
argument_get_integer(FunctionCallInfo fcinfo, int number, const char *argument,
					 int64 minimum, int64 maximum)
{
	int64		value;

	if (PG_ARGISNULL(number))
		argument_raise_null(argument);
	value = PG_GETARG_INT64(number);
	if (value < minimum || value > maximum)
		argument_raise_invalid(argument,
							   psprintf(_("It must be between %lld and %lld."),
										(long long) minimum, (long long) maximum));
	return value;
}

/* An integer with a default.  Raises 22023. */
int64
argument_get_integer_or(FunctionCallInfo fcinfo, int number, const char *argument,
						int64 minimum, int64 maximum, int64 default_value)
{
	if (PG_ARGISNULL(number))
		return default_value;
	return argument_get_integer(fcinfo, number, argument, minimum, maximum);
}

/* A duration in microseconds, with a default.  Raises 22023. */
int64
argument_get_duration_or(FunctionCallInfo fcinfo, int number, const char *argument,
						 int64 default_value)
{
	if (PG_ARGISNULL(number))
		return default_value;
	return duration_check(argument, PG_GETARG_INTERVAL_P(number), false);
}

/* The elements of an array; *count becomes how many.  Raises 22023. */
Datum *
argument_get_array(FunctionCallInfo fcinfo, int number, const char *argument, Oid type,
				   bool **isnull, int *count)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(number);
	Datum	   *elements;
	int16		length;
	bool		by_value;
	char		align;

	if (ARR_NDIM(array) > 1)
		argument_raise_invalid(argument, _("It must have one dimension."));
	get_typlenbyvalalign(type, &length, &by_value, &align);
	deconstruct_array(array, type, length, by_value, align, &elements, isnull, count);
	return elements;
}

/* Raise 22004 for an element of an array that is NULL. */
void
argument_check_element(const char *argument, const bool *isnull, int element)
{
	if (isnull[element])
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("element %d of argument \"%s\" must not be null", element + 1, argument)));
}

/* A message, routing or idempotency key: NULL if it is empty.  Raises 54000. */
text *
argument_check_key(text *key, const char *argument)
{
	if (VARSIZE_ANY_EXHDR(key) == 0)
		return NULL;
	if (VARSIZE_ANY_EXHDR(key) > KEY_MAX_BYTES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("argument \"%s\" is too long", argument),
				 errdetail("A key has at most %d bytes.", KEY_MAX_BYTES)));
	return key;
}
