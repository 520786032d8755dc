/*
 * resolve.c
 *		The SQL functions by which a holder speaks of its claim.
 */
#include "postgres.h"

#include "access/heaptoast.h"
#include "access/toast_compression.h"
#include "access/toast_internals.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "access.h"
#include "arguments.h"
#include "duration.h"
#include "group.h"
#include "resolution.h"

PG_FUNCTION_INFO_V1(sqlstreams_ack);
PG_FUNCTION_INFO_V1(sqlstreams_nack);
PG_FUNCTION_INFO_V1(sqlstreams_reject);
PG_FUNCTION_INFO_V1(sqlstreams_delay);
PG_FUNCTION_INFO_V1(sqlstreams_resolve);
PG_FUNCTION_INFO_V1(sqlstreams_release);
PG_FUNCTION_INFO_V1(sqlstreams_extend);

/* The arguments that all of these functions begin with. */
typedef struct ResolveCall
{
	Stream		stream;
	ConsumerGroup group;
	int64		claim_id;
} ResolveCall;

/* Read the stream and the group of the first two arguments. */
static void
read_group(FunctionCallInfo fcinfo, ResolveCall *call)
{
	char	   *stream_name = argument_get_name(fcinfo, 0, "stream");
	char	   *group_name = argument_get_name(fcinfo, 1, "consumer_group");

	stream_lookup(stream_name, &call->stream);
	access_check_consume(&call->stream);
	group_lookup(&call->stream, group_name, &call->group);
}

/* Read the stream, the group and the claim. */
static void
read_claim(FunctionCallInfo fcinfo, ResolveCall *call)
{
	read_group(fcinfo, call);
	if (PG_ARGISNULL(2))
		argument_raise_null("claim_id");
	call->claim_id = PG_GETARG_INT64(2);
}

/* One resolution for each id of an array argument, all the same. */
static Resolution *
read_message_ids(FunctionCallInfo fcinfo, int number, const Resolution *resolution, int *count)
{
	bool	   *isnull;
	Datum	   *ids = argument_get_array(fcinfo, number, "message_ids", INT8OID, &isnull, count);
	Resolution *named = palloc_extended(sizeof(Resolution) * Max(*count, 1), MCXT_ALLOC_HUGE);

	for (int i = 0; i < *count; i++)
	{
		argument_check_element("message_ids", isnull, i);
		named[i] = *resolution;
		named[i].message_id = DatumGetInt64(ids[i]);
	}
	return named;
}

/* Are two resolutions of one message the same? */
static bool
is_same(const Resolution *a, const Resolution *b)
{
	if (a->outcome != b->outcome || a->delay_us != b->delay_us ||
		(a->error == NULL) != (b->error == NULL))
		return false;
	return a->error == NULL ||
		(VARSIZE_ANY_EXHDR(a->error) == VARSIZE_ANY_EXHDR(b->error) &&
		 memcmp(VARDATA_ANY(a->error), VARDATA_ANY(b->error), VARSIZE_ANY_EXHDR(a->error)) == 0);
}

/*
 * Put resolutions in the order of their messages, each once; returns how many
 * there are.  Raises 22023 when one message is to get two.
 */
static int
sort_resolutions(Resolution *named, int count)
{
	int			kept = 0;

	qsort(named, count, sizeof(Resolution), id_compare);
	for (int i = 0; i < count; i++)
	{
		if (kept == 0 || named[i].message_id != named[kept - 1].message_id)
			named[kept++] = named[i];
		else if (!is_same(&named[i], &named[kept - 1]))
			argument_raise_invalid("message_ids", _("It must not name a message twice with different outcomes."));
	}
	return kept;
}

/*
 * Do what a resolution says to the messages of an array argument, or to all when
 * that is NULL.  Returns how many left the claim, -1 when it is gone.
 */
static int64
resolve_same(FunctionCallInfo fcinfo, ResolveCall *call, int ids_number,
			 const Resolution *resolution, int64 *dead_count)
{
	Resolution *named;
	int			count;

	if (PG_ARGISNULL(ids_number))
		return resolution_resolve(&call->stream, &call->group, call->claim_id, NULL, 0, resolution, dead_count);
	named = read_message_ids(fcinfo, ids_number, resolution, &count);
	count = sort_resolutions(named, count);
	return resolution_resolve(&call->stream, &call->group, call->claim_id, named, count, NULL, dead_count);
}

/* As resolve_same; raises SS004 when the claim is gone. */
static int64
resolve_held(FunctionCallInfo fcinfo, ResolveCall *call, int ids_number,
			 const Resolution *resolution, int64 *dead_count)
{
	int64		count = resolve_same(fcinfo, call, ids_number, resolution, dead_count);

	if (count < 0)
		resolution_raise_lost(&call->group, call->claim_id);
	return count;
}

/*
 * An error text, or NULL.  A long one is compressed here, and not again for each
 * message and table that it is stored with.
 */
static text *
read_error(FunctionCallInfo fcinfo, int number)
{
	text	   *error;
	Datum		compressed = (Datum) 0;

	if (PG_ARGISNULL(number))
		return NULL;
	error = PG_GETARG_TEXT_P(number);
	if (VARSIZE(error) > TOAST_TUPLE_TARGET)
		compressed = toast_compress_datum(PointerGetDatum(error), default_toast_compression);
	return compressed != (Datum) 0 ? (text *) DatumGetPointer(compressed) : error;
}

/* ack(stream, consumer_group, claim_id, message_ids): the work is done. */
Datum
sqlstreams_ack(PG_FUNCTION_ARGS)
{
	ResolveCall call;
	Resolution	resolution = {.outcome = OUTCOME_ACK};
	int64		dead_count;

	PreventCommandIfReadOnly("sqlstreams.ack()");
	read_group(fcinfo, &call);
	if (PG_ARGISNULL(2))
		PG_RETURN_INT64(0);
	call.claim_id = PG_GETARG_INT64(2);
	PG_RETURN_INT64(resolve_held(fcinfo, &call, 3, &resolution, &dead_count));
}

/* nack(stream, consumer_group, claim_id, message_ids, error, retry_in): it failed. */
Datum
sqlstreams_nack(PG_FUNCTION_ARGS)
{
	ResolveCall call;
	Resolution	resolution = {.outcome = OUTCOME_NACK};
	int64		dead_count;

	PreventCommandIfReadOnly("sqlstreams.nack()");
	read_claim(fcinfo, &call);
	resolution.error = read_error(fcinfo, 4);
	resolution.delay_us = PG_ARGISNULL(5) ? OUTCOME_BACKOFF :
		duration_check_wait("retry_in", PG_GETARG_INTERVAL_P(5));
	(void) resolve_held(fcinfo, &call, 3, &resolution, &dead_count);
	PG_RETURN_INT64(dead_count);
}

/* reject(stream, consumer_group, claim_id, message_ids, error): never again. */
Datum
sqlstreams_reject(PG_FUNCTION_ARGS)
{
	ResolveCall call;
	Resolution	resolution = {.outcome = OUTCOME_REJECT};
	int64		dead_count;

	PreventCommandIfReadOnly("sqlstreams.reject()");
	read_claim(fcinfo, &call);
	resolution.error = read_error(fcinfo, 4);
	(void) resolve_held(fcinfo, &call, 3, &resolution, &dead_count);
	PG_RETURN_INT64(dead_count);
}

/* delay(stream, consumer_group, claim_id, message_ids, delay, reason): not now. */
Datum
sqlstreams_delay(PG_FUNCTION_ARGS)
{
	ResolveCall call;
	Resolution	resolution = {.outcome = OUTCOME_DELAY};
	int64		dead_count;

	PreventCommandIfReadOnly("sqlstreams.delay()");
	read_claim(fcinfo, &call);
	if (PG_ARGISNULL(3))
		argument_raise_null("message_ids");
	if (PG_ARGISNULL(4))
		argument_raise_null("delay");
	resolution.delay_us = duration_check_wait("delay", PG_GETARG_INTERVAL_P(4));
	resolution.error = read_error(fcinfo, 5);
	(void) resolve_held(fcinfo, &call, 3, &resolution, &dead_count);
	PG_RETURN_INT64(dead_count);
}

/* The outcome of this name.  Raises 22023. */
static Outcome
read_outcome(Datum value)
{
	char	   *name = TextDatumGetCString(value);

	if (strcmp(name, "ack") == 0)
		return OUTCOME_ACK;
	if (strcmp(name, "nack") == 0)
		return OUTCOME_NACK;
	if (strcmp(name, "reject") == 0)
		return OUTCOME_REJECT;
	if (strcmp(name, "delay") != 0)
		argument_raise_invalid("outcomes", _("Each must be \"ack\", \"nack\", \"reject\" or \"delay\"."));
	return OUTCOME_DELAY;
}

/* Raise 22023 unless an array argument is as long as message_ids. */
static void
check_length(const char *argument, int length, int count)
{
	if (length != count)
		argument_raise_invalid(argument, psprintf(_("It has %d elements, message_ids has %d."), length, count));
}

/* Set the outcomes, argument 4. */
static void
read_outcomes(FunctionCallInfo fcinfo, Resolution *named, int count)
{
	bool	   *isnull;
	int			length;
	Datum	   *outcomes = argument_get_array(fcinfo, 4, "outcomes", TEXTOID, &isnull, &length);

	check_length("outcomes", length, count);
	for (int i = 0; i < count; i++)
	{
		argument_check_element("outcomes", isnull, i);
		named[i].outcome = read_outcome(outcomes[i]);
	}
}

/* Set the errors, argument 5. */
static void
read_errors(FunctionCallInfo fcinfo, Resolution *named, int count)
{
	bool	   *isnull;
	int			length;
	Datum	   *errors;

	if (PG_ARGISNULL(5))
		return;
	errors = argument_get_array(fcinfo, 5, "errors", TEXTOID, &isnull, &length);
	check_length("errors", length, count);
	for (int i = 0; i < count; i++)
	{
		if (!isnull[i])
			named[i].error = DatumGetTextPP(errors[i]);
	}
}

/* Set the delays, argument 6, which are also the time to a retry. */
static void
read_delays(FunctionCallInfo fcinfo, Resolution *named, int count)
{
	bool	   *isnull = NULL;
	int			length;
	Datum	   *delays = NULL;

	if (!PG_ARGISNULL(6))
	{
		delays = argument_get_array(fcinfo, 6, "delays", INTERVALOID, &isnull, &length);
		check_length("delays", length, count);
	}
	for (int i = 0; i < count; i++)
	{
		named[i].delay_us = OUTCOME_BACKOFF;
		if (delays != NULL && !isnull[i])
			named[i].delay_us = duration_check_wait("delays", DatumGetIntervalP(delays[i]));
		else if (named[i].outcome == OUTCOME_DELAY)
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("element %d of argument \"%s\" must not be null", i + 1, "delays"),
					 errdetail("The outcome of its message is \"delay\".")));
	}
}

/* What argument 7 says of the other messages; false when they stay.  Raises 22023. */
static bool
read_others(FunctionCallInfo fcinfo, Resolution *others)
{
	char	   *name = PG_ARGISNULL(7) ? "keep" : text_to_cstring(PG_GETARG_TEXT_PP(7));

	if (strcmp(name, "keep") == 0)
		return false;
	if (strcmp(name, "ack") == 0)
		others->outcome = OUTCOME_ACK;
	else if (strcmp(name, "release") == 0)
		others->outcome = OUTCOME_RELEASE;
	else
		argument_raise_invalid("others", _("It must be \"keep\", \"ack\" or \"release\"."));
	return true;
}

/*
 * resolve(stream, consumer_group, claim_id, message_ids, outcomes, errors, delays,
 * others): messages of a claim with an outcome each
 */
Datum
sqlstreams_resolve(PG_FUNCTION_ARGS)
{
	ResolveCall call;
	Resolution	none = {.outcome = OUTCOME_ACK};
	Resolution	others = {.outcome = OUTCOME_ACK};
	Resolution *named;
	int			count;
	int64		resolved;
	int64		dead_count;
	bool		has_others;

	PreventCommandIfReadOnly("sqlstreams.resolve()");
	read_claim(fcinfo, &call);
	if (PG_ARGISNULL(3))
		argument_raise_null("message_ids");
	if (PG_ARGISNULL(4))
		argument_raise_null("outcomes");
	named = read_message_ids(fcinfo, 3, &none, &count);
	read_outcomes(fcinfo, named, count);
	read_errors(fcinfo, named, count);
	read_delays(fcinfo, named, count);
	has_others = read_others(fcinfo, &others);
	count = sort_resolutions(named, count);

	resolved = resolution_resolve(&call.stream, &call.group, call.claim_id, named, count,
								  has_others ? &others : NULL, &dead_count);
	if (resolved < 0)
		resolution_raise_lost(&call.group, call.claim_id);
	PG_RETURN_INT64(resolved);
}

/* release(stream, consumer_group, claim_id, message_ids): hand back. */
Datum
sqlstreams_release(PG_FUNCTION_ARGS)
{
	ResolveCall call;
	Resolution	resolution = {.outcome = OUTCOME_RELEASE};
	int64		count;
	int64		dead_count;

	PreventCommandIfReadOnly("sqlstreams.release()");
	read_claim(fcinfo, &call);
	count = resolve_same(fcinfo, &call, 3, &resolution, &dead_count);
	PG_RETURN_INT64(Max(count, 0));
}

/* extend(stream, consumer_group, claim_id, lease): go on holding. */
Datum
sqlstreams_extend(PG_FUNCTION_ARGS)
{
	ResolveCall call;
	int64		lease_us;

	PreventCommandIfReadOnly("sqlstreams.extend()");
	read_claim(fcinfo, &call);
	lease_us = argument_get_duration_or(fcinfo, 3, "lease", 0);
	PG_RETURN_TIMESTAMPTZ(resolution_extend(&call.stream, &call.group, call.claim_id, lease_us));
}
