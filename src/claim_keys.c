/*
 * claim_keys.c
 *		To which messages a claim gives the keys of its group.
 *
 * A message with an exclusive or ordered key is delivered if the key is free, or
 * if this claim has it and may carry more of it.  Otherwise it is deferred: it
 * becomes an exception that waits for its key.  What is known of a key is read
 * once a claim, changed in memory, and written at its end.
 *
 * Who resolves a holder wakes the next claim if messages wait for its key
 * (key_wakeup.c).  It looks for them after it has resolved, and a claim that
 * lets the first message wait looks at the holder again after it has written so:
 * one of the two sees the other.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "claim.h"
#include "deferred.h"
#include "key_holder.h"
#include "worker_registry.h"

/* What a claim knows of a key. */
struct KeyState
{
	const text *key;			/* hash key */
	KeyLease	lease;
	bool		has_row;		/* the lease was read from the table */
	bool		is_changed;
	bool		has_new_deferred;	/* the row does not say yet that messages wait */
	bool		needs_wakeup;	/* messages wait for it although it is free */
	int64		given_count;	/* messages that this claim carries of it */
	int64		blocker;		/* the message that has it; 0: it is free */
	bool		is_blocker_open;	/* in a claim */
};

/* The keys that a claim has met. */
struct ClaimKeys
{
	MemoryContext context;
	Snapshot	snapshot;
	StateTable	leases;
	bool		has_leases;		/* false: no key was ever given */
	StateTable	deferred;
	HTAB	   *states;
};

static uint32
hash_key(const void *key, Size size)
{
	const text *value = *(const text *const *) key;

	return hash_bytes((const unsigned char *) VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value));
}

static int
match_key(const void *a, const void *b, Size size)
{
	const text *x = *(const text *const *) a;
	const text *y = *(const text *const *) b;

	if (VARSIZE_ANY_EXHDR(x) != VARSIZE_ANY_EXHDR(y))
		return 1;
	return memcmp(VARDATA_ANY(x), VARDATA_ANY(y), VARSIZE_ANY_EXHDR(x));
}

/* What the claim has met so far, opened at the first key. */
static ClaimKeys *
open_keys(Claim *claim)
{
	HASHCTL		ctl;
	ClaimKeys  *keys = claim->keys;

	if (keys != NULL)
		return keys;
	keys = palloc0(sizeof(ClaimKeys));
	keys->context = AllocSetContextCreate(CurrentMemoryContext, "sqlstreams keys of a claim",
										  ALLOCSET_DEFAULT_SIZES);
	keys->snapshot = RegisterSnapshot(GetLatestSnapshot());
	key_lease_open(&claim->stream, &keys->leases);
	keys->has_leases = !state_table_is_empty(&keys->leases);
	deferred_open(&claim->stream, &keys->deferred);
	ctl.keysize = sizeof(text *);
	ctl.entrysize = sizeof(KeyState);
	ctl.hash = hash_key;
	ctl.match = match_key;
	ctl.hcxt = keys->context;
	keys->states = hash_create("sqlstreams keys of a claim", 256, &ctl,
							   HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
	claim->keys = keys;
	return keys;
}

/* Set which message has a key; none when it is free. */
static void
find_blocker(Claim *claim, KeyState *state)
{
	KeyHolderTables tables = {&claim->stream, &claim->leases, &claim->exceptions};

	state->blocker = key_holder_find(&tables, claim->group.group_id, &state->lease,
									 claim->keys->snapshot, &state->is_blocker_open);
}

/* What is known of a key, read when it is met first. */
static KeyState *
find_state(Claim *claim, const text *key)
{
	ClaimKeys  *keys = open_keys(claim);
	KeyState   *state = hash_search(keys->states, &key, HASH_FIND, NULL);
	MemoryContext old;
	KeyLease	lease = {0};
	bool		has_row;

	if (state != NULL)
		return state;
	old = MemoryContextSwitchTo(keys->context);
	has_row = keys->has_leases &&
		key_lease_find(&keys->leases, claim->group.group_id, key, keys->snapshot, &lease);
	if (!has_row)
		lease.key = DatumGetTextPCopy(PointerGetDatum(key));
	key = lease.key;
	state = hash_search(keys->states, &key, HASH_ENTER, NULL);
	memset(state, 0, sizeof(KeyState));
	state->key = key;
	state->lease = lease;
	state->has_row = has_row;

	/* those behind a failed one of a claim wait without the row saying so */
	if (lease.holder_count > 1)
	{
		state->lease.deferred_from = lease.has_deferred ? Min(lease.deferred_from, lease.holders[0]) : lease.holders[0];
		state->is_changed = !lease.has_deferred;
		state->lease.has_deferred = true;
	}
	find_blocker(claim, state);
	MemoryContextSwitchTo(old);
	return state;
}

/* Find the first message that waits for the key, of those that were not purged. */
static bool
find_first_deferred(Claim *claim, const KeyState *state, int64 *message_id, ItemPointer tid)
{
	return deferred_find_first(&claim->keys->deferred, claim->group.group_id, state->key,
							   Max(state->lease.deferred_from, claim->stream.purged_through + 1),
							   message_id, tid);
}

/* Does a message with a lower id wait for the key? */
static bool
has_deferred_before(Claim *claim, KeyState *state, int64 message_id)
{
	ItemPointerData tid;
	int64		first;

	if (!state->lease.has_deferred)
		return false;
	if (find_first_deferred(claim, state, &first, &tid))
		return first < message_id;
	state->lease.has_deferred = false;
	state->is_changed = true;
	return false;
}

/* May a message have a key of which this claim already carries some? */
static bool
may_follow(Claim *claim, KeyState *state, int64 message_id)
{
	return state->given_count < claim->max_per_key &&
		message_id > state->lease.holders[state->lease.holder_count - 1] &&
		!has_deferred_before(claim, state, message_id);
}

/*
 * Add a holder to those that this claim has given the key.  Their array is as
 * long as the next power of two.
 */
static void
add_holder(Claim *claim, KeyState *state, int64 message_id)
{
	KeyLease   *lease = &state->lease;
	int			count = lease->holder_count;

	if (count == 0)
		lease->holders = MemoryContextAlloc(claim->keys->context, sizeof(int64));
	else if ((count & (count - 1)) == 0)
		lease->holders = repalloc(lease->holders, sizeof(int64) * 2 * count);
	lease->holders[lease->holder_count++] = message_id;
}

/*
 * Former holders of an ordered key that wait to be delivered again, several
 * messages that came back from one claim, wait for the key behind a message.
 */
static void
defer_former_holders(Claim *claim, KeyState *state, int64 message_id)
{
	const KeyLease *lease = &state->lease;

	for (int i = 0; lease->is_ordered && i < lease->holder_count; i++)
	{
		Exception	exception;

		if (lease->holders[i] == message_id ||
			!exception_find(&claim->exceptions, claim->group.group_id, lease->holders[i],
							claim->keys->snapshot, &exception) ||
			exception.status != EXCEPTION_READY ||
			!exception_delete(&claim->exceptions, &exception, false))
			continue;
		exception.status = EXCEPTION_DEFERRED;
		exception.updated_at = claim->now;
		exception_insert(&claim->exceptions, claim->group.group_id, &exception);
		if (exception.last_error != NULL)
			pfree(exception.last_error);
		claim_keys_defer(claim, state->key, exception.message_id);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Give the key to a message as its only holder. */
static void
give_key(Claim *claim, KeyState *state, int64 message_id, bool is_ordered)
{
	KeyLease   *lease = &state->lease;

	defer_former_holders(claim, state, message_id);
	lease->claim_id = claim->claim_id;
	lease->is_ordered = is_ordered;
	lease->holder_count = 0;
	lease->holders = NULL;
	add_holder(claim, state, message_id);
	state->blocker = 0;
	state->needs_wakeup = false;
	state->is_changed = true;
}

/* Was the key given to a message last, beside others? */
static bool
is_holder(const KeyState *state, int64 message_id)
{
	for (int i = 0; i < state->lease.holder_count; i++)
	{
		if (state->lease.holders[i] == message_id)
			return true;
	}
	return false;
}

/*
 * May a message have its key?  Not if another has it, nor if an earlier one
 * waits for it.  The message that has it already, waiting to be tried again, goes
 * on, and so does an earlier one that was given the key with it and comes back.
 */
static bool
is_free_for(Claim *claim, KeyState *state, int64 message_id)
{
	if (state->blocker == message_id)
		return true;
	if (state->blocker != 0)
		return !state->is_blocker_open && message_id < state->blocker && is_holder(state, message_id);
	if (!has_deferred_before(claim, state, message_id))
		return true;
	state->needs_wakeup = true;
	return false;
}

/*
 * Give a message its key, if it is to be had; says whether it was.  The caller
 * delivers the message or defers it.
 */
bool
claim_keys_take(Claim *claim, const text *key, int64 message_id, Concurrency concurrency)
{
	KeyState   *state = find_state(claim, key);
	bool		is_ordered = concurrency == CONCURRENCY_ORDERED;

	if (state->given_count > 0)
	{
		if (!may_follow(claim, state, message_id))
			return false;
		add_holder(claim, state, message_id);
		state->lease.is_ordered |= is_ordered;
		claim->has_several_per_key = true;
	}
	else
	{
		if (!is_free_for(claim, state, message_id))
			return false;
		give_key(claim, state, message_id, is_ordered);
	}
	state->given_count++;
	return true;
}

/*
 * Give an ordered message, which is to be delivered later, its key meanwhile;
 * says whether it was to be had.
 */
bool
claim_keys_reserve(Claim *claim, const text *key, int64 message_id)
{
	KeyState   *state = find_state(claim, key);

	if (state->given_count > 0 || !is_free_for(claim, state, message_id))
		return false;
	give_key(claim, state, message_id, true);
	state->blocker = message_id;
	state->is_blocker_open = false;
	return true;
}

/* Forget one of several messages to which the key was given. */
static void
remove_holder(KeyState *state, int64 message_id)
{
	KeyLease   *lease = &state->lease;
	int			kept = 0;

	for (int i = 0; i < lease->holder_count; i++)
	{
		if (lease->holders[i] != message_id)
			lease->holders[kept++] = lease->holders[i];
	}
	lease->holder_count = kept;
	state->is_changed = true;
}

/*
 * Take its key from a message that is not to be delivered any more.  Returns the
 * key if others wait for it, NULL otherwise: also when another message that came
 * back from the same claim has an ordered key then, which is before those.
 */
KeyState *
claim_keys_drop(Claim *claim, const text *key, int64 message_id)
{
	KeyState   *state = find_state(claim, key);

	if (state->blocker != message_id)
		return NULL;
	state->blocker = 0;
	if (state->lease.holder_count > 1)
	{
		remove_holder(state, message_id);
		find_blocker(claim, state);
	}
	if (state->blocker != 0)
		return NULL;
	state->needs_wakeup = state->lease.has_deferred;
	return state->lease.has_deferred ? state : NULL;
}

/* Has a message its key, also if its policy does not ask for it any more? */
bool
claim_keys_has(Claim *claim, const text *key, int64 message_id)
{
	return find_state(claim, key)->blocker == message_id;
}

/* Let a message wait for its key. */
void
claim_keys_defer(Claim *claim, const text *key, int64 message_id)
{
	KeyState   *state = find_state(claim, key);
	KeyLease   *lease = &state->lease;

	deferred_insert(&claim->keys->deferred, claim->group.group_id, lease->key, message_id);
	if (state->blocker == 0 && state->given_count == 0)
		state->needs_wakeup = true;
	if (lease->has_deferred && lease->deferred_from <= message_id)
		return;
	state->has_new_deferred |= !lease->has_deferred;
	lease->deferred_from = lease->has_deferred ? Min(lease->deferred_from, message_id) : message_id;
	lease->has_deferred = true;
	state->is_changed = true;
}

/* Messages may wait for a key, from the first id on, without its row saying so. */
static KeyState *
find_unknown_deferred(Claim *claim, const text *key)
{
	KeyState   *state = find_state(claim, key);

	state->has_new_deferred |= !state->lease.has_deferred;
	state->lease.has_deferred = true;
	state->lease.deferred_from = 0;
	state->is_changed = true;
	return state;
}

/*
 * The keys that a wake-up is about: one, those of a claim for which messages
 * wait, or all such keys of the group.  A list of KeyState.
 */
List *
claim_keys_woken(Claim *claim, const Exception *wakeup)
{
	ClaimKeys  *keys = open_keys(claim);
	List	   *leases;
	List	   *states = NIL;
	ListCell   *cell;

	if (wakeup->last_error != NULL)
	{
		text	   *key = DatumGetTextPP(PointerGetDatum(wakeup->last_error));

		return list_make1(wakeup->attempts > 0 ? find_unknown_deferred(claim, key) : find_state(claim, key));
	}
	if (wakeup->claim_id == 0)
		leases = key_lease_list_of_group(&keys->leases, claim->group.group_id, keys->snapshot);
	else
		leases = key_lease_list_of_claim(&keys->leases, claim->group.group_id, wakeup->claim_id, true,
										 keys->snapshot);
	foreach(cell, leases)
		states = lappend(states, find_state(claim, ((KeyLease *) lfirst(cell))->key));
	return states;
}

/*
 * Take the next message that waits for the key, if it is to be had; false when
 * there is none.  The caller gives it the key, or defers it again.
 */
bool
claim_keys_next_deferred(Claim *claim, KeyState *state, int64 *message_id)
{
	ItemPointerData tid;

	if (!state->lease.has_deferred || state->blocker != 0 ||
		(state->given_count > 0 && state->given_count >= claim->max_per_key))
		return false;

	/* what this command has written only a later one can delete */
	CommandCounterIncrement();
	if (!find_first_deferred(claim, state, message_id, &tid))
	{
		state->lease.has_deferred = false;
		state->needs_wakeup = false;
		state->is_changed = true;
		return false;
	}
	if (state->given_count > 0 && *message_id < state->lease.holders[state->lease.holder_count - 1])
		return false;
	state->is_changed = true;
	deferred_delete(&claim->keys->deferred, &tid);
	state->lease.deferred_from = *message_id + 1;
	return true;
}

/*
 * Will nobody wake the next claim when the key becomes free?  That is so when
 * it is free already, or when its holder is being resolved or purged by a
 * transaction that may not have seen that messages wait.
 */
bool
claim_keys_is_unwatched(Claim *claim, const KeyState *state)
{
	if (!state->lease.has_deferred || state->given_count > 0)
		return false;
	if (state->blocker == 0)
		return true;
	if (state->is_blocker_open &&
		!lease_is_held_for_sure(&claim->leases, state->lease.claim_id, state->blocker))
		return true;
	return !stream_is_unchanged_for_sure(&claim->stream);
}

/* Let the next claim look at all keys of the group for which messages wait. */
void
claim_keys_wake_all(Claim *claim)
{
	if (open_keys(claim)->has_leases)
		exception_insert_wakeup(&claim->exceptions, claim->group.group_id, 0, NULL, false, claim->cursor.due_from);
}

const text *
claim_keys_key(const KeyState *state)
{
	return state->key;
}

/* May this claim carry more of the messages that wait for a key of which it has some? */
bool
claim_keys_may_follow(const Claim *claim, const KeyState *state)
{
	return state->lease.has_deferred && state->given_count > 0 && state->given_count < claim->max_per_key;
}

/* Is the key free, with messages waiting for it? */
bool
claim_keys_has_more(const KeyState *state)
{
	return state->lease.has_deferred && state->blocker == 0 && state->given_count == 0;
}

/* Write what has changed of a key. */
static void
write_state(Claim *claim, KeyState *state)
{
	if (claim->is_pop && state->given_count > 0)
		state->lease.holder_count = 0;
	if (state->has_row)
		key_lease_delete(&claim->keys->leases, &state->lease);
	key_lease_insert(&claim->keys->leases, claim->group.group_id, claim->cursor.version + 1, &state->lease);
	claim->cursor_changed = true;
}

/* Does the next claim have to look at a key, whatever happens meanwhile? */
static bool
needs_wakeup(Claim *claim, const KeyState *state)
{
	if (claim->is_pop && state->given_count > 0)
		return state->lease.has_deferred;
	return (state->needs_wakeup && state->given_count == 0) ||
		(state->has_new_deferred && claim_keys_is_unwatched(claim, state));
}

/* Write the keys that have changed, and wake-ups for those that need one. */
void
claim_keys_write(Claim *claim)
{
	ClaimKeys  *keys = claim->keys;
	HASH_SEQ_STATUS status;
	KeyState   *state;

	if (keys == NULL)
		return;
	hash_seq_init(&status, keys->states);
	while ((state = hash_seq_search(&status)) != NULL)
	{
		if (state->is_changed)
			write_state(claim, state);
		CHECK_FOR_INTERRUPTS();
	}
	hash_seq_init(&status, keys->states);
	while ((state = hash_seq_search(&status)) != NULL)
	{
		if (needs_wakeup(claim, state))
			exception_insert_wakeup(&claim->exceptions, claim->group.group_id, 0, state->lease.key, false,
									claim->cursor.due_from);
	}

	/* nothing is to be swept before the first key */
	if (!keys->has_leases)
		worker_registry_request(claim->stream.stream_id);
	state_table_close(&keys->deferred);
	state_table_close(&keys->leases);
	UnregisterSnapshot(keys->snapshot);
	MemoryContextDelete(keys->context);
	claim->keys = NULL;
}
