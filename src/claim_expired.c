/*
 * claim_expired.c
 *		What a claim makes of expired leases.
 *
 * Fresh messages whose lease was lost are delivered again, in id order, with
 * all of their claim if it fits.  A claim that was lost once too often is split,
 * and exceptions go back to where they came from (outcome.c).
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "claim.h"
#include "key_wakeup.h"
#include "lease_take.h"
#include "outcome.h"

/* A segment that is being taken over. */
typedef struct TakenSegment
{
	LeaseSegment *segment;
	int64		merged_to;		/* its members after this are not looked at */
} TakenSegment;

/* What was returned of messages that were taken over as often, with keys or without. */
typedef struct Returned
{
	int32		takeovers;
	LeaseKeys	keys;
	IdSet		members;
} Returned;

/* A message of one. */
typedef struct TakenMessage
{
	int64		id;
	TakenSegment *owner;
} TakenMessage;

/*
 * Write down that leases were lost, and leave those segments whose messages
 * can be delivered again as they are: the messages of the others become
 * exceptions.
 */
static List *
lose_leases(Claim *claim, List *segments)
{
	OutcomeWriter writer;
	List	   *kept = NIL;
	ListCell   *cell;

	outcome_begin(&writer, &claim->stream, &claim->group, &claim->cursor);
	foreach(cell, segments)
	{
		LeaseSegment *segment = lfirst(cell);

		id_set_remove_through(&segment->members, claim->stream.purged_through);
		if (!segment->has_exceptions && lease_is_spent(segment, claim->group.max_reclaims))
			outcome_write_all(&writer, segment, OUTCOME_SPLIT);
		else if (!segment->is_released)
			outcome_write_all(&writer, segment, OUTCOME_EXPIRED);
		if (segment->has_exceptions || lease_is_spent(segment, claim->group.max_reclaims))
			continue;
		segment->takeovers += segment->is_released ? 0 : 1;
		kept = lappend(kept, segment);
	}
	claim->has_charged |= writer.has_charged;
	key_wakeup_after_loss(&writer, segments);
	outcome_end(&writer);

	/* what has become ready is due for this claim */
	CommandCounterIncrement();
	claim->now = GetCurrentTimestamp();
	return kept;
}

/* Prepare to take over segments. */
static TakenSegment *
prepare_taken(List *segments)
{
	TakenSegment *taken = palloc(sizeof(TakenSegment) * Max(list_length(segments), 1));

	for (int i = 0; i < list_length(segments); i++)
	{
		taken[i].segment = list_nth(segments, i);
		taken[i].merged_to = PG_INT64_MAX;
	}
	return taken;
}

/*
 * The messages of the segments that may be returned, by id: of each segment no
 * more than there is room for.
 */
static TakenMessage *
merge_taken(Claim *claim, TakenSegment *taken, int taken_count, int64 *count)
{
	int64		capacity = 0;
	TakenMessage *messages;

	for (int i = 0; i < taken_count; i++)
		capacity += Min(id_set_count(&taken[i].segment->members), claim->messages_left);
	messages = palloc_extended(sizeof(TakenMessage) * Max(capacity, 1), MCXT_ALLOC_HUGE);

	*count = 0;
	for (int i = 0; i < taken_count; i++)
	{
		const IdSet *members = &taken[i].segment->members;
		int64		left = Min(id_set_count(members), claim->messages_left);

		if (left < id_set_count(members))
			taken[i].merged_to = id_set_nth(members, left - 1);
		for (int run = 0; run < members->run_count; run++)
		{
			for (int64 n = 0; n < members->runs[run].count && left > 0; n++, left--)
			{
				messages[*count].id = members->runs[run].first + n;
				messages[(*count)++].owner = &taken[i];
			}
		}
	}
	qsort(messages, *count, sizeof(TakenMessage), id_compare);
	return messages;
}

/* The messages returned that are like those of a segment, in a list of these. */
static Returned *
find_returned(List **list, const LeaseSegment *segment)
{
	Returned   *returned;
	ListCell   *cell;

	foreach(cell, *list)
	{
		returned = lfirst(cell);
		if (returned->takeovers == segment->takeovers && returned->keys == segment->keys)
			return returned;
	}
	returned = palloc(sizeof(Returned));
	returned->takeovers = segment->takeovers;
	returned->keys = segment->keys;
	id_set_init(&returned->members);
	*list = lappend(*list, returned);
	return returned;
}

/* Deliver the message where the scan is once more, if it still is to be. */
static void
return_again(Claim *claim, LogScan *scan, const LeaseSegment *segment, List **returned)
{
	int64		message_id = message_log_scan_id(scan);
	DeliveryCounts counts = {.takeovers = segment->takeovers};
	Exception	exception = {.message_id = message_id, .takeovers = segment->takeovers};

	if (claim_is_superseded(claim, scan))
		claim_supersede(claim, message_id, 0);
	else if (segment->keys != LEASE_KEYS_NONE && !claim_take_key(claim, scan, true))
		claim_defer(claim, scan, &exception);
	else
	{
		claim_return_message(claim, scan, &counts);
		id_set_append(&find_returned(returned, segment)->members, message_id);
	}
}

/*
 * Return messages that were taken over, as long as there is room; says up to
 * which id this is done.  Messages that have left the log are passed over.
 */
static int64
return_taken(Claim *claim, const TakenMessage *messages, int64 count, Snapshot snapshot, List **returned)
{
	LogScan    *scan = NULL;
	int64		done_to = 0;

	for (int64 first = 0, last; first < count && claim_has_room(claim); first = last + 1)
	{
		for (last = first; last + 1 < count && messages[last + 1].id == messages[last].id + 1;)
			last++;
		done_to = messages[last].id;
		if (scan == NULL)
			scan = message_log_scan_begin(&claim->stream, snapshot, messages[first].id, done_to);
		else
			message_log_scan_seek(scan, messages[first].id, done_to);
		while (claim_has_room(claim) && message_log_scan_next(scan))
		{
			int64		id = message_log_scan_id(scan);

			return_again(claim, scan, messages[first + (id - messages[first].id)].owner->segment, returned);
			if (!claim_has_room(claim))
				done_to = id;
		}
	}
	claim_close_heads(claim);
	if (scan != NULL)
		message_log_scan_end(scan);
	return done_to;
}

/* Let the messages of a segment wait for their keys. */
static void
defer_segment(Claim *claim, const LeaseSegment *segment, Snapshot snapshot)
{
	const IdSet *members = &segment->members;
	LogScan    *scan = message_log_scan_begin(&claim->stream, snapshot, members->runs[0].first,
											  members->runs[0].first);

	for (int i = 0; i < members->run_count; i++)
	{
		message_log_scan_seek(scan, members->runs[i].first, members->runs[i].first + members->runs[i].count - 1);
		while (message_log_scan_next(scan))
		{
			Exception	exception = {.message_id = message_log_scan_id(scan), .takeovers = segment->takeovers};

			claim_defer(claim, scan, &exception);
			CHECK_FOR_INTERRUPTS();
		}
	}
	message_log_scan_end(scan);
}

/*
 * Put back messages for which there was no room.  Those with keys wait for these,
 * so that an ordered key stays theirs.
 */
static void
put_back(Claim *claim, LeaseSegment *segment, Snapshot snapshot)
{
	if (segment->keys == LEASE_KEYS_NONE)
		lease_put_back(&claim->leases, claim->group.group_id, &claim->cursor, segment);
	else
		defer_segment(claim, segment, snapshot);
}

/*
 * Take over expired leases: return as many of their messages as there is room
 * for, in id order, and put the rest back.
 */
void
claim_return_expired(Claim *claim)
{
	List	   *segments = lease_take_expired(&claim->leases, claim->group.group_id, &claim->cursor,
											  &claim->cursor_changed, claim->now,
											  claim->cursor.claimed >= claim->last_id,
											  claim->group.max_reclaims, claim->messages_left);
	TakenSegment *taken;
	TakenMessage *messages;
	Snapshot	snapshot;
	int64		count;
	int64		done_to;
	List	   *returned = NIL;
	ListCell   *cell;

	if (segments == NIL)
		return;
	claim->cursor_changed = true;
	segments = lose_leases(claim, segments);
	taken = prepare_taken(segments);
	messages = merge_taken(claim, taken, list_length(segments), &count);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	done_to = return_taken(claim, messages, count, snapshot, &returned);

	foreach(cell, returned)
		claim_lease_messages(claim, &((Returned *) lfirst(cell))->members,
							 ((Returned *) lfirst(cell))->takeovers, false,
							 ((Returned *) lfirst(cell))->keys != LEASE_KEYS_NONE);
	for (int i = 0; i < list_length(segments); i++)
	{
		LeaseSegment *segment = taken[i].segment;

		id_set_remove_through(&segment->members, Min(done_to, taken[i].merged_to));
		if (segment->members.run_count > 0)
			put_back(claim, segment, snapshot);
	}
	UnregisterSnapshot(snapshot);
}
