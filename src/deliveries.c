/*
 * deliveries.c
 *		The SQL function that shows the delivery log.
 */
#include "postgres.h"

#include "funcapi.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "access.h"
#include "arguments.h"
#include "config.h"
#include "delivery_log.h"
#include "group.h"

PG_FUNCTION_INFO_V1(sqlstreams_deliveries);

/* Columns of deliveries, from 0. */
enum
{
	SHOWN_GROUP,
	SHOWN_MESSAGE_ID,
	SHOWN_ATTEMPT,
	SHOWN_OUTCOME,
	SHOWN_ERROR,
	SHOWN_CONSUMER,
	SHOWN_CLAIM_ID,
	SHOWN_STARTED_AT,
	SHOWN_ENDED_AT,
	SHOWN_COLUMNS
};

/* A group whose deliveries are shown. */
typedef struct ShownGroup
{
	int64		group_id;
	Datum		name;			/* text */
} ShownGroup;

/* The groups whose deliveries are shown, by id. */
typedef struct ShownGroups
{
	ShownGroup *groups;
	int			count;
} ShownGroups;

static int
compare_groups(const void *a, const void *b)
{
	int64		x = ((const ShownGroup *) a)->group_id;
	int64		y = ((const ShownGroup *) b)->group_id;

	return (x > y) - (x < y);
}

/* Fill the groups: the one of this name, or all when that is NULL.  Raises SS002. */
static void
list_groups(const Stream *stream, const char *name, ShownGroups *shown)
{
	List	   *groups = NIL;
	ListCell   *cell;
	ConsumerGroup group;

	if (name != NULL)
	{
		group_lookup(stream, name, &group);
		shown->groups = palloc(sizeof(ShownGroup));
		shown->groups[0].group_id = group.group_id;
		shown->groups[0].name = CStringGetTextDatum(group.name);
		shown->count = 1;
		return;
	}
	groups = config_list_groups(stream, GetActiveSnapshot());
	shown->groups = palloc(sizeof(ShownGroup) * Max(list_length(groups), 1));
	shown->count = 0;
	foreach(cell, groups)
	{
		ConfigGroup *listed = lfirst(cell);

		shown->groups[shown->count].group_id = listed->group_id;
		shown->groups[shown->count++].name = CStringGetTextDatum(listed->name);
	}
	qsort(shown->groups, shown->count, sizeof(ShownGroup), compare_groups);
}

/* The group of a delivery, or NULL when it is not shown. */
static const ShownGroup *
find_group(const ShownGroups *shown, int64 group_id)
{
	ShownGroup	key = {.group_id = group_id};

	return bsearch(&key, shown->groups, shown->count, sizeof(ShownGroup), compare_groups);
}

/* Add a delivery to the result. */
static void
put_delivery(ReturnSetInfo *result, const ShownGroup *group, const StoredDelivery *delivery)
{
	Datum		values[SHOWN_COLUMNS];
	bool		nulls[SHOWN_COLUMNS] = {false};

	values[SHOWN_GROUP] = group->name;
	values[SHOWN_MESSAGE_ID] = Int64GetDatum(delivery->message_id);
	values[SHOWN_ATTEMPT] = Int32GetDatum(delivery->attempt);
	values[SHOWN_OUTCOME] = PointerGetDatum(delivery->outcome);
	values[SHOWN_ERROR] = PointerGetDatum(delivery->error);
	nulls[SHOWN_ERROR] = delivery->error == NULL;
	values[SHOWN_CONSUMER] = PointerGetDatum(delivery->consumer);
	nulls[SHOWN_CONSUMER] = delivery->consumer == NULL;
	values[SHOWN_CLAIM_ID] = Int64GetDatum(delivery->claim_id);
	values[SHOWN_STARTED_AT] = TimestampTzGetDatum(delivery->started_at);
	values[SHOWN_ENDED_AT] = TimestampTzGetDatum(delivery->ended_at);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/* Return deliveries of the groups that are shown, of messages that are not purged. */
static void
put_deliveries(ReturnSetInfo *result, const Stream *stream, const ShownGroups *shown,
			   const int64 *message_id, int64 max_messages)
{
	DeliveryScan scan;
	StoredDelivery delivery;
	int64		count = 0;

	delivery_log_scan_begin(&scan, stream, message_id, GetActiveSnapshot());
	while (count < max_messages && delivery_log_scan_next(&scan, &delivery))
	{
		const ShownGroup *group = find_group(shown, delivery.group_id);

		if (group == NULL || delivery.message_id <= stream->purged_through)
			continue;
		put_delivery(result, group, &delivery);
		count++;
	}
	delivery_log_scan_end(&scan);
}

/*
 * deliveries(stream, consumer_group, message_id, max_messages): the delivery log,
 * newest first
 */
Datum
sqlstreams_deliveries(PG_FUNCTION_ARGS)
{
	Stream		stream;
	ShownGroups shown;
	char	   *stream_name = argument_get_name(fcinfo, 0, "stream");
	char	   *group_name = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	int64		message_id = PG_ARGISNULL(2) ? 0 : PG_GETARG_INT64(2);
	int64		max_messages = argument_get_integer(fcinfo, 3, "max_messages", 1, BATCH_MAX_MESSAGES);

	stream_lookup(stream_name, &stream);
	access_check_consume(&stream);
	list_groups(&stream, group_name, &shown);

	/* the log is made with the first group */
	InitMaterializedSRF(fcinfo, 0);
	if (OidIsValid(stream.delivery_log_oid))
		put_deliveries((ReturnSetInfo *) fcinfo->resultinfo, &stream, &shown,
					   PG_ARGISNULL(2) ? NULL : &message_id, max_messages);
	return (Datum) 0;
}
