/*
 * claim_fresh.c
 *		The messages that a group has not claimed before, from its cursor on, up
 *		to the first hole that cannot be passed (fence.c).
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "claim.h"
#include "fence.h"

/* The messages that were returned. */
typedef struct FreshMessages
{
	IdSet		keyed;			/* with exclusive or ordered keys */
	IdSet		others;
} FreshMessages;

/*
 * The hole after the cursor cannot be passed by what was known.  Find out who
 * may still fill it: if nobody can, move passable_to and say that it is worth
 * looking again, with a new snapshot.  If somebody can, remember who, unless an
 * earlier claim has done so: a hole waits only for those who were producing
 * when it was first seen.
 */
static bool
can_pass_hole_now(Claim *claim)
{
	FenceMemory *memory = &claim->cursor.fence;
	FenceMemory found = {.last = claim->last_id};

	if (fence_memory_is_valid(memory) && claim->cursor.claimed < memory->last)
	{
		if (fence_is_inside(&claim->stream) || !fence_memory_has_ended(memory))
			return false;
		claim->passable_to = memory->last;
		return true;
	}

	fence_list_holders(&claim->stream, &found);
	if (found.holder_count == 0)
	{
		claim->passable_to = claim->last_id;
		return true;
	}
	*memory = found;
	claim->cursor_changed = true;
	return false;
}

/*
 * Up to where to look for fresh messages at first: as far as there is room for,
 * if the ids have no holes.  An index scan without a near end reads whole pages
 * of the index.
 */
static int64
fresh_window_end(const Claim *claim)
{
	bool		wants_all = group_wants_all(&claim->group) && claim->cursor.claimed >= claim->group.head_id;
	int64		width = wants_all ? claim->messages_left : claim->scan_left;

	return Min(claim->last_id, claim->cursor.claimed + width);
}

/* Does the group get the row where the scan is? */
static bool
wants_row(const Claim *claim, LogScan *scan)
{
	Datum	   *row;
	bool	   *isnull;
	text	   *routing_key = NULL;
	bool		is_wanted;

	if (group_wants_all(&claim->group) && message_log_scan_id(scan) > claim->group.head_id)
		return true;
	message_log_scan_row(scan, &row, &isnull);
	if (!isnull[Anum_log_routing_key - 1])
		routing_key = DatumGetTextPP(row[Anum_log_routing_key - 1]);
	is_wanted = group_wants(&claim->group, message_log_scan_id(scan),
							DatumGetInt32(row[Anum_log_schema_version - 1]), routing_key);

	/* a claim can step over many messages with compressed keys */
	if (routing_key != NULL && routing_key != (text *) DatumGetPointer(row[Anum_log_routing_key - 1]))
		pfree(routing_key);
	return is_wanted;
}

/* Put a message where claims find it when it is due. */
static void
keep_for_later(Claim *claim, int64 message_id, TimestampTz due_at)
{
	Exception	exception = {
		.message_id = message_id,
		.status = EXCEPTION_READY,
		.due_at = due_at,
		.updated_at = claim->now
	};

	exception_insert_first(&claim->exceptions, claim->group.group_id, &exception);
}

/*
 * Keep the message where the scan is for later.  An ordered one has its key
 * meanwhile, or waits for it as if it were due.
 */
static void
keep_row_for_later(Claim *claim, LogScan *scan, TimestampTz deliver_at)
{
	int64		message_id = message_log_scan_id(scan);
	Exception	exception = {.message_id = message_id};

	if (claim_concurrency(claim, scan) == CONCURRENCY_ORDERED &&
		!claim_keys_reserve(claim, claim_message_key(scan), message_id))
		claim_defer(claim, scan, &exception);
	else
		keep_for_later(claim, message_id, deliver_at);
}

/* Do with the message where the scan is what is to be done. */
static void
take_row(Claim *claim, LogScan *scan, FreshMessages *returned)
{
	static const DeliveryCounts never = {0};
	int64		message_id = message_log_scan_id(scan);
	Exception	exception = {.message_id = message_id};
	TimestampTz deliver_at;
	bool		is_stepped_over = true;

	if (!wants_row(claim, scan))
		;
	else if (claim_is_superseded(claim, scan))
		claim_supersede(claim, message_id, 0);
	else if (claim_is_for_later(claim, scan, &deliver_at))
		keep_row_for_later(claim, scan, deliver_at);
	else if (!claim_take_key(claim, scan, false))
		claim_defer(claim, scan, &exception);
	else
	{
		claim_return_message(claim, scan, &never);
		id_set_append(claim->has_key ? &returned->keyed : &returned->others, message_id);
		is_stepped_over = false;
	}
	if (is_stepped_over)
	{
		claim->scan_left--;
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Return fresh messages as one snapshot shows them, moving the cursor, until
 * there is no more room, nothing is left, or a hole cannot be passed.  Says
 * whether it ended at such a hole.
 */
static bool
return_fresh_in_snapshot(Claim *claim, FreshMessages *returned)
{
	GroupCursor *cursor = &claim->cursor;
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	int64		window_end = fresh_window_end(claim);
	LogScan    *scan = message_log_scan_begin(&claim->stream, snapshot, cursor->claimed + 1, window_end);
	bool		ended_at_hole = false;

	while (claim_has_room(claim) && claim->scan_left > 0)
	{
		bool		has_row = message_log_scan_next(scan);
		int64		next_id;	/* where the hole ends that may lie before it */

		next_id = has_row ? message_log_scan_id(scan) : message_log_scan_searched_to(scan) + 1;
		if (next_id - 1 > cursor->claimed)
			cursor->claimed = Max(cursor->claimed, Min(next_id - 1, claim->passable_to));
		ended_at_hole = next_id - 1 > cursor->claimed;
		if (ended_at_hole)
			break;
		if (has_row)
		{
			take_row(claim, scan, returned);
			cursor->claimed = next_id;
		}
		else if (cursor->claimed < window_end || window_end == claim->last_id)
			break;
		else
		{
			window_end = fresh_window_end(claim);
			message_log_scan_seek(scan, cursor->claimed + 1, window_end);
		}
	}

	claim_close_heads(claim);
	message_log_scan_end(scan);
	UnregisterSnapshot(snapshot);
	return ended_at_hole;
}

/* Return fresh messages and move the cursor. */
void
claim_return_fresh(Claim *claim)
{
	GroupCursor *cursor = &claim->cursor;
	int64		claimed = cursor->claimed;
	FreshMessages returned;

	if (cursor->claimed >= claim->last_id || !claim_has_room(claim))
		return;

	id_set_init(&returned.keyed);
	id_set_init(&returned.others);
	while (return_fresh_in_snapshot(claim, &returned) && can_pass_hole_now(claim))
		;
	if (cursor->claimed != claimed)
	{
		claim->cursor_changed = true;
		if (cursor->fence.last <= cursor->claimed)
		{
			cursor->fence.last = 0;
			cursor->fence.holder_count = 0;
		}
	}
	claim_lease_messages(claim, &returned.others, 0, false, false);
	claim_lease_messages(claim, &returned.keyed, 0, false, true);
}

