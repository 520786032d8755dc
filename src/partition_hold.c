/*
 * partition_hold.c
 *		Why a partition is still there.
 *
 * The duties that seal and drop partitions ask here whether they may, and view
 * "partitions" shows the answer, so that the two cannot differ.
 *
 * A group needs every message that it has not claimed, the messages of its claims
 * that are not resolved, and those of its exceptions that are not dead.  All of
 * that is read with one snapshot: claiming, resolving and taking over move a
 * message from one to the other in one transaction.  A group without a cursor and
 * a cursor without a group, as there are while a dump is being restored, need
 * everything.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_depend.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/procarray.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "config.h"
#include "cursor.h"
#include "duration.h"
#include "exception.h"
#include "lease.h"
#include "message_log.h"
#include "partition_hold.h"
#include "transaction.h"

/*
 * Find a transaction that may still write to a full partition, among those that
 * were listed; false when all have ended.
 */
bool
partition_hold_find_writer(const LogPartition *row, FullTransactionId *writer)
{
	for (int i = 0; i < row->writer_count; i++)
	{
		*writer = row->writers[i];
		if (transaction_is_in_progress(*writer))
			return true;
	}
	return false;
}

/* Who may still write to a full partition, in words; NULL when nobody is known to. */
char *
partition_hold_by_writers(const LogPartition *row)
{
	FullTransactionId writer;
	int			pid;

	if (!row->has_writers || row->writers_system != GetSystemIdentifier() ||
		!partition_hold_find_writer(row, &writer))
		return NULL;
	pid = BackendXidGetPid(XidFromFullTransactionId(writer));
	if (pid != 0)
		return psprintf("an open producer: process %d", pid);
	return psprintf("an open producer: prepared transaction %u", XidFromFullTransactionId(writer));
}

/* Note that a group needs a message, unless a lower one is needed already. */
static bool
needs_lower(GroupHold *hold, int64 id)
{
	if (id >= hold->from_id)
		return false;
	hold->from_id = id;
	return true;
}

/* The first message of a range of ids that a snapshot shows, or 0. */
static int64
find_first_message(const Stream *stream, int64 from_id, int64 to_id, Snapshot snapshot)
{
	LogScan    *scan = message_log_scan_begin(stream, snapshot, from_id, to_id);
	int64		result = message_log_scan_next(scan) ? message_log_scan_id(scan) : 0;

	message_log_scan_end(scan);
	return result;
}

/*
 * Add what a group has not claimed.  Nobody needs ids without a message, which
 * come of partitions that were ended by time: all are settled here.
 */
static void
add_unclaimed(const Stream *stream, const ConfigGroup *group, int64 claimed, int64 to_id,
			  Snapshot snapshot, GroupHold *hold)
{
	int64		first;

	if (claimed >= to_id || claimed + 1 >= hold->from_id)
		return;
	first = find_first_message(stream, claimed + 1, to_id, snapshot);
	if (first != 0 && needs_lower(hold, first))
		hold->reason = psprintf("consumer group \"%s\" has not claimed message %lld", group->name,
								(long long) first);
}

/* Add what the claims of a group hold. */
static void
add_claims(const Stream *stream, const ConfigGroup *group, LeaseTables *tables, Snapshot snapshot,
		   GroupHold *hold)
{
	ListCell   *cell;

	foreach(cell, lease_load_group(tables, group->group_id, snapshot))
	{
		LeaseSegment *segment = lfirst(cell);

		CHECK_FOR_INTERRUPTS();
		if (id_set_nth(&segment->members, 0) >= hold->from_id)
			continue;
		lease_subtract_resolved(tables, segment, snapshot);
		id_set_remove_through(&segment->members, stream->purged_through);
		if (id_set_count(&segment->members) > 0 && needs_lower(hold, id_set_nth(&segment->members, 0)))
			hold->reason = psprintf("consumer group \"%s\": message %lld is in an open claim", group->name,
									(long long) hold->from_id);
	}
}

/*
 * Add the messages to which a group has to come back, or may have to: somebody is
 * redriving them.
 */
static void
add_exceptions(const Stream *stream, const ConfigGroup *group, StateTable *table, int64 to_id,
			   Snapshot snapshot, GroupHold *hold)
{
	int64		lowest = exception_find_unresolved(table, group->group_id, stream->purged_through,
												   Min(to_id, hold->from_id - 1), snapshot);

	if (lowest != 0 && needs_lower(hold, lowest))
		hold->reason = psprintf("consumer group \"%s\": the exception of message %lld is not resolved", group->name,
								(long long) lowest);
	if (lowest != 0 || hold->from_id <= to_id)
		return;
	lowest = exception_find_changing(table, group->group_id, stream->purged_through, to_id);
	if (lowest != 0 && needs_lower(hold, lowest))
		hold->reason = psprintf("consumer group \"%s\": an open transaction changes exceptions", group->name);
}

/* Add what a group needs. */
static void
add_group(const Stream *stream, const ConfigGroup *group, int64 to_id, Snapshot snapshot, GroupHold *hold)
{
	GroupCursor cursor;
	LeaseTables leases;
	StateTable	exceptions;

	if (!cursor_read(stream, group->group_id, snapshot, &cursor) ||
		!lease_open_to_read(stream, &leases))
	{
		if (needs_lower(hold, stream->purged_through + 1))
			hold->reason = psprintf("consumer group \"%s\" has no state", group->name);
		return;
	}
	add_unclaimed(stream, group, Max(cursor.claimed, stream->purged_through), to_id, snapshot, hold);
	add_claims(stream, group, &leases, snapshot, hold);
	lease_close(&leases);
	if (exception_open_to_read(stream, &exceptions))
	{
		add_exceptions(stream, group, &exceptions, to_id, snapshot, hold);
		state_table_close(&exceptions);
	}
	else if (needs_lower(hold, stream->purged_through + 1))
		hold->reason = psprintf("consumer group \"%s\" has no exceptions", group->name);
}

/*
 * Is there the cursor of a group that the configuration does not know (yet)?  A
 * parallel restore may load it before the configuration.
 */
static bool
has_unknown_group(const Stream *stream, List *groups, Snapshot snapshot)
{
	int64	   *ids = palloc(sizeof(int64) * (list_length(groups) + 1));
	int			count = 0;
	ListCell   *cell;

	foreach(cell, groups)
		ids[count++] = ((ConfigGroup *) lfirst(cell))->group_id;
	qsort(ids, count, sizeof(int64), id_compare);
	return cursor_exists_of_others(stream, ids, count, snapshot);
}

/* What the groups of a stream need of its messages up to an id. */
void
partition_hold_by_groups(const Stream *stream, int64 to_id, Snapshot snapshot, GroupHold *hold)
{
	List	   *groups = config_list_groups(stream, snapshot);
	ListCell   *cell;

	hold->from_id = PG_INT64_MAX;
	hold->reason = NULL;
	if (has_unknown_group(stream, groups, snapshot) && needs_lower(hold, stream->purged_through + 1))
		hold->reason = pstrdup("a consumer group is not there yet: a restore is running");
	foreach(cell, groups)
		add_group(stream, lfirst(cell), to_id, snapshot, hold);
}

/* Is the time over for which a partition's messages are kept? */
bool
partition_hold_is_expired(const Stream *stream, const LogPartition *row, TimestampTz now)
{
	return stream->retention_us > 0 && row->sealed_at != 0 &&
		duration_add(row->sealed_at, stream->retention_us) <= now;
}

/*
 * What somebody has made that depends on a partition's table, so that it cannot
 * be dropped, in words; NULL when there is nothing.
 */
char *
partition_hold_by_dependent(Oid partition)
{
	Relation	rel = table_open(DependRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	char	   *result = NULL;

	ScanKeyInit(&keys[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(RelationRelationId));
	ScanKeyInit(&keys[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(partition));
	scan = systable_beginscan(rel, DependReferenceIndexId, true, NULL, 2, keys);
	while (result == NULL && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);
		ObjectAddress object = {form->classid, form->objid, form->objsubid};
		char	   *description;

		if (form->deptype != DEPENDENCY_NORMAL)
			continue;
		description = getObjectDescription(&object, true);
		if (description != NULL)
			result = psprintf("%s depends on it", description);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return result;
}
