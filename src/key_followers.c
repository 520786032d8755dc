/*
 * key_followers.c
 *		Later messages of a key in one claim, when an earlier one has failed.
 *
 * A claim with max_per_key carries several messages of a key, to be run one after
 * the other.  When one of them is nacked or delayed, those behind it that are not
 * resolved before go back to wait for the key, also those that the same call
 * names.  The rows of the keys are left alone, for only claims write these: a
 * wake-up for the key says that there is more than its row tells.
 */
#include "postgres.h"

#include "utils/snapmgr.h"

#include "deferred.h"
#include "key_followers.h"
#include "key_lease.h"

/* The looking for followers. */
typedef struct Followers
{
	List	   *segments;		/* of the claim */
	const Resolution *others;	/* what those of them get that are not named */
	Resolution *named;			/* as they were given, changed */
	int64		named_count;
	Resolution *added;
	int64		added_count;
} Followers;

/* Let the holders of a key behind the first that fails wait for it; says whether any does. */
static bool
add_of_key(Followers *followers, const KeyLease *lease)
{
	bool		has_failed = false;
	bool		has_followers = false;

	for (int i = 0; i < lease->holder_count; i++)
	{
		int64		holder = lease->holders[i];
		Resolution *named = bsearch(&holder, followers->named, followers->named_count,
									sizeof(Resolution), id_compare);
		const Resolution *resolution = named;
		Resolution	deferred = {
			.message_id = holder,
			.outcome = OUTCOME_DEFERRED,
			.key = lease->key,
			.is_added = named == NULL
		};

		if (named == NULL && followers->others != NULL && lease_find_segment(followers->segments, holder) >= 0)
			resolution = followers->others;
		has_followers |= has_failed;
		if (!has_failed)
			has_failed = resolution != NULL &&
				(resolution->outcome == OUTCOME_NACK || resolution->outcome == OUTCOME_DELAY);
		else if (named != NULL)
			*named = deferred;
		else
			followers->added[followers->added_count++] = deferred;
	}
	return has_followers;
}

/*
 * The resolutions that are named, by id, with those of messages that have to wait
 * behind one that fails.  others: what the other messages of the segments get;
 * NULL if they stay.
 */
const Resolution *
key_followers_add(OutcomeWriter *writer, int64 claim_id, List *segments, const Resolution *others,
				  const Resolution *named, int64 *named_count)
{
	Followers	followers = {.segments = segments, .others = others, .named_count = *named_count};
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	StateTable	keys;
	List	   *leases;
	ListCell   *cell;
	int64		holder_count = 0;

	key_lease_open(writer->stream, &keys);
	leases = key_lease_list_of_claim(&keys, writer->group->group_id, claim_id, false, snapshot);
	state_table_close(&keys);
	UnregisterSnapshot(snapshot);

	foreach(cell, leases)
		holder_count += ((KeyLease *) lfirst(cell))->holder_count;
	followers.named = palloc_extended(sizeof(Resolution) * Max(*named_count + holder_count, 1), MCXT_ALLOC_HUGE);
	if (*named_count > 0)
		memcpy(followers.named, named, sizeof(Resolution) * *named_count);
	followers.added = followers.named + *named_count;
	foreach(cell, leases)
	{
		KeyLease   *lease = lfirst(cell);

		/* before the failed message is, so that it is met first */
		if (add_of_key(&followers, lease))
			outcome_wake(writer, 0, lease->key, true);
	}
	*named_count += followers.added_count;
	qsort(followers.named, *named_count, sizeof(Resolution), id_compare);
	return followers.named;
}

/* Let a message, which has become an exception, wait for its key. */
void
key_followers_defer(OutcomeWriter *writer, text *key, int64 message_id)
{
	StateTable	table;

	deferred_open(writer->stream, &table);
	deferred_insert(&table, writer->group->group_id, key, message_id);
	state_table_close(&table);
}
