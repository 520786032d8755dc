/*
 * key_wakeup.c
 *		Telling the next claim that keys may have become free.
 *
 * A key is free when its holder is not open any more.  Nobody looks for such
 * keys: who resolves a holder leaves a wake-up, a row among the exceptions that
 * are due, if messages wait for one of the keys of its claim.  It looks after it
 * has resolved, and sees what open claims have written.
 */
#include "postgres.h"

#include "utils/snapmgr.h"

#include "key_lease.h"
#include "key_wakeup.h"

/* Leave a wake-up if messages wait for keys that a claim has. */
void
key_wakeup_if_awaited(OutcomeWriter *writer, int64 claim_id)
{
	StateTable	keys;
	SnapshotData snapshot;
	bool		is_awaited;

	InitDirtySnapshot(snapshot);
	key_lease_open(writer->stream, &keys);
	is_awaited = key_lease_is_awaited(&keys, writer->group->group_id, claim_id, &snapshot);
	state_table_close(&keys);
	if (is_awaited)
		outcome_wake(writer, claim_id, NULL, false);
}

/*
 * Leave a wake-up if messages wait for the key of one that was delivered in a
 * claim (0: in none that is known).  When the message has left the log its key is
 * one of those of the claim.
 */
void
key_wakeup_of_message(OutcomeWriter *writer, int64 claim_id, int64 message_id)
{
	StateTable	keys;
	text	   *key;
	bool		is_awaited;

	if (!outcome_copy_key(writer, message_id, &key))
	{
		if (claim_id != 0)
			key_wakeup_if_awaited(writer, claim_id);
		return;
	}
	if (key == NULL)
		return;
	key_lease_open(writer->stream, &keys);
	is_awaited = key_lease_may_be_awaited(&keys, writer->group->group_id, key);
	state_table_close(&keys);
	if (is_awaited)
		outcome_wake(writer, 0, key, false);
	pfree(key);
}

/* Leave a wake-up for all keys of the group, if it has had any. */
void
key_wakeup_of_group(OutcomeWriter *writer)
{
	StateTable	keys;
	bool		has_keys;

	key_lease_open(writer->stream, &keys);
	has_keys = !state_table_is_empty(&keys);
	state_table_close(&keys);
	if (has_keys)
		outcome_wake(writer, 0, NULL, false);
}

/* Leave wake-ups for the keys of claims that were lost. */
void
key_wakeup_after_loss(OutcomeWriter *writer, List *segments)
{
	int64		claim_id = 0;
	ListCell   *cell;

	/* the segments of a claim come one after the other */
	foreach(cell, segments)
	{
		const LeaseSegment *segment = lfirst(cell);

		if (segment->keys == LEASE_KEYS_NONE || segment->claim_id == claim_id)
			continue;
		claim_id = segment->claim_id;
		key_wakeup_if_awaited(writer, claim_id);
	}
}
