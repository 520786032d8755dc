/*
 * key_holder.c
 *		Which message has a key.
 */
#include "postgres.h"

#include "key_holder.h"

/* What has become of a message: the status of its exception, or 0. */
static char
find_status(const KeyHolderTables *tables, int64 group_id, int64 message_id, Snapshot snapshot)
{
	Exception	exception;

	if (!exception_find(tables->exceptions, group_id, message_id, snapshot, &exception))
		return 0;
	if (exception.last_error != NULL)
		pfree(exception.last_error);
	return (char) exception.status;
}

/*
 * Is anything known of a message to which a key was given last?  It is open in a
 * claim, or an exception of whatever status.
 */
bool
key_holder_is_known(const KeyHolderTables *tables, int64 group_id, const KeyLease *lease, Snapshot snapshot)
{
	bool		has_claim = lease->holder_count > 0 && lease_exists(tables->leases, lease->claim_id, snapshot);

	for (int i = 0; i < lease->holder_count; i++)
	{
		int64		holder = lease->holders[i];

		if (holder <= tables->stream->purged_through)
			continue;
		if (has_claim && !lease_is_resolved(tables->leases, lease->claim_id, holder, snapshot))
			return true;
		if (find_status(tables, group_id, holder, snapshot) != 0)
			return true;
	}
	return false;
}

/*
 * The first message that has a key, of those to which it was given last; 0 when
 * the key is free.  They have it while they are open in their claim, ordered ones
 * also while they wait to be delivered again: which of the two, says *is_open.
 * While one is open, those that wait do not get on.
 */
int64
key_holder_find(const KeyHolderTables *tables, int64 group_id, const KeyLease *lease,
				Snapshot snapshot, bool *is_open)
{
	*is_open = lease->holder_count > 0 && lease_exists(tables->leases, lease->claim_id, snapshot);
	for (int i = 0; *is_open && i < lease->holder_count; i++)
	{
		if (lease->holders[i] > tables->stream->purged_through &&
			!lease_is_resolved(tables->leases, lease->claim_id, lease->holders[i], snapshot))
			return lease->holders[i];
	}
	*is_open = false;
	for (int i = 0; lease->is_ordered && i < lease->holder_count; i++)
	{
		char		status = 0;

		if (lease->holders[i] > tables->stream->purged_through)
			status = find_status(tables, group_id, lease->holders[i], snapshot);
		if (status == EXCEPTION_READY || status == EXCEPTION_INFLIGHT)
			return lease->holders[i];

		/* it is the first of those that wait: holders behind it come later */
		if (status == EXCEPTION_DEFERRED)
			return 0;
	}
	return 0;
}
