/*
 * resolve.c
 *		The SQL functions by which a holder speaks of its claim.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/timestamp.h"

#include "access.h"
#include "arguments.h"
#include "group.h"
#include "resolution.h"

PG_FUNCTION_INFO_V1(sqlstreams_ack);
PG_FUNCTION_INFO_V1(sqlstreams_release);
PG_FUNCTION_INFO_V1(sqlstreams_extend);

/* Find the stream and the group of the first two arguments. */
static void
read_group(FunctionCallInfo fcinfo, Stream *stream, ConsumerGroup *group)
{
	char	   *stream_name = argument_get_name(fcinfo, 0, "stream");
	char	   *group_name = argument_get_name(fcinfo, 1, "consumer_group");

	stream_lookup(stream_name, stream);
	access_check_consume(stream);
	group_lookup(stream, group_name, group);
}

static int
compare_ids(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return (x > y) - (x < y);
}

/* The ids of an array argument, rising, each once. */
static int64 *
read_message_ids(FunctionCallInfo fcinfo, int number, int64 *count)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(number);
	Datum	   *elements;
	bool	   *isnull;
	int			element_count;
	int64	   *ids;

	if (ARR_NDIM(array) > 1)
		argument_raise_invalid("message_ids", _("It must have one dimension."));
	deconstruct_array(array, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE,
					  &elements, &isnull, &element_count);
	ids = palloc_extended(sizeof(int64) * Max(element_count, 1), MCXT_ALLOC_HUGE);
	for (int i = 0; i < element_count; i++)
	{
		if (isnull[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("element %d of argument \"%s\" must not be null", i + 1, "message_ids")));
		ids[i] = DatumGetInt64(elements[i]);
	}
	qsort(ids, element_count, sizeof(int64), compare_ids);

	*count = 0;
	for (int i = 0; i < element_count; i++)
	{
		if (*count == 0 || ids[i] != ids[*count - 1])
			ids[(*count)++] = ids[i];
	}
	return ids;
}

/* ack(stream, consumer_group, claim_id, message_ids): the work is done. */
Datum
sqlstreams_ack(PG_FUNCTION_ARGS)
{
	Stream		stream;
	ConsumerGroup group;
	int64	   *ids;
	int64		count;

	PreventCommandIfReadOnly("sqlstreams.ack()");
	read_group(fcinfo, &stream, &group);
	if (PG_ARGISNULL(2))
		PG_RETURN_INT64(0);
	if (PG_ARGISNULL(3))
		PG_RETURN_INT64(resolution_ack(&stream, &group, PG_GETARG_INT64(2)));
	ids = read_message_ids(fcinfo, 3, &count);
	PG_RETURN_INT64(resolution_ack_messages(&stream, &group, PG_GETARG_INT64(2), ids, count));
}

/* release(stream, consumer_group, claim_id, message_ids): hand back. */
Datum
sqlstreams_release(PG_FUNCTION_ARGS)
{
	Stream		stream;
	ConsumerGroup group;
	int64	   *ids;
	int64		count;

	PreventCommandIfReadOnly("sqlstreams.release()");
	read_group(fcinfo, &stream, &group);
	if (PG_ARGISNULL(2))
		argument_raise_null("claim_id");
	if (PG_ARGISNULL(3))
		PG_RETURN_INT64(resolution_release(&stream, &group, PG_GETARG_INT64(2)));
	ids = read_message_ids(fcinfo, 3, &count);
	PG_RETURN_INT64(resolution_release_messages(&stream, &group, PG_GETARG_INT64(2), ids, count));
}

/* extend(stream, consumer_group, claim_id, lease): go on holding. */
Datum
sqlstreams_extend(PG_FUNCTION_ARGS)
{
	Stream		stream;
	ConsumerGroup group;
	int64		lease_us;

	PreventCommandIfReadOnly("sqlstreams.extend()");
	read_group(fcinfo, &stream, &group);
	if (PG_ARGISNULL(2))
		argument_raise_null("claim_id");
	lease_us = argument_get_duration_or(fcinfo, 3, "lease", false, 0);
	PG_RETURN_TIMESTAMPTZ(resolution_extend(&stream, &group, PG_GETARG_INT64(2), lease_us));
}
