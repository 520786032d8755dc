/*
 * key_holder.c
 *		Which message has a key.
 */
#include "postgres.h"

#include "key_holder.h"

/* Does an ordered message wait to be delivered again? */
static bool
is_unresolved(const KeyHolderTables *tables, int64 group_id, int64 message_id, Snapshot snapshot)
{
	Exception	exception;

	return exception_find(tables->exceptions, group_id, message_id, snapshot, &exception) &&
		(exception.status == EXCEPTION_READY || exception.status == EXCEPTION_INFLIGHT);
}

/*
 * The first message that has a key, of those to which it was given last; 0 when
 * the key is free.  They have it while they are open in their claim; ordered ones
 * also while they wait to be delivered again.  *is_open says which it is.
 */
int64
key_holder_find(const KeyHolderTables *tables, int64 group_id, const KeyLease *lease,
				Snapshot snapshot, bool *is_open)
{
	bool		has_claim = lease->holder_count > 0 && lease_exists(tables->leases, lease->claim_id, snapshot);

	*is_open = false;
	for (int i = 0; i < lease->holder_count; i++)
	{
		int64		holder = lease->holders[i];

		if (holder <= tables->stream->purged_through)
			continue;
		*is_open = has_claim && !lease_is_resolved(tables->leases, lease->claim_id, holder, snapshot);
		if (*is_open || (lease->is_ordered && is_unresolved(tables, group_id, holder, snapshot)))
			return holder;
	}
	return 0;
}
