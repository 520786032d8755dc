/*
 * key_purge.c
 *		What becomes of exclusive and ordered keys when messages are purged.
 *
 * A purged message has no key any more (key_holder.c).  Messages behind it that
 * wait for its key need a wake-up, as if it had been resolved.  It had the key
 * while it was open in a claim or, an ordered one, while it waited to be
 * delivered again: so these two are looked through, as they were before the purge
 * took any of them away.
 *
 * A claim may let a message wait behind such a one meanwhile.  As with those who
 * resolve (key_wakeup.c), one of the two sees the other:
 *
 *		purge									claim
 *		1 changes the stream's row				1 writes the key's row: messages wait
 *		2 does the key's row say so?			2 is the stream's row being changed, or
 *		  if so: leaves a wake-up				  was it since? if so: leaves a wake-up
 *
 * Purged messages that wait for a key themselves are passed over by claims.
 * Their rows are left to key_sweep.c: a transaction that purges may be long, and
 * claims would wait for it.
 */
#include "postgres.h"

#include "key_lease.h"
#include "key_purge.h"
#include "key_wakeup.h"

/* Leave wake-ups for the keys of claims that had purged messages. */
static void
wake_after_claims(OutcomeWriter *writer, int64 last, Snapshot before)
{
	LeaseTables tables;
	List	   *affected = NIL;
	ListCell   *cell;

	lease_open(writer->stream, &tables);
	foreach(cell, lease_load_group(&tables, writer->group->group_id, before))
	{
		LeaseSegment *segment = lfirst(cell);

		if (id_set_nth(&segment->members, 0) <= last)
			affected = lappend(affected, segment);
	}
	lease_close(&tables);
	key_wakeup_after_loss(writer, affected);
}

/* Leave wake-ups for the keys of purged messages that waited to be delivered again. */
static void
wake_after_exceptions(OutcomeWriter *writer, int64 last, Snapshot before)
{
	StateTable	table;
	ExceptionScan scan;
	Exception	exception;

	exception_open(writer->stream, &table);
	exception_scan_ids_begin(&scan, &table, writer->group->group_id, 0, before);
	while (exception_scan_next(&scan, &exception) && exception.message_id <= last)
	{
		if (exception.status == EXCEPTION_READY)
			key_wakeup_of_message(writer, 0, exception.message_id);
	}
	exception_scan_end(&scan);
	state_table_close(&table);
}

/*
 * Leave wake-ups for the keys of a group that messages up to "last" may have had.
 * This transaction has written that they are purged; the snapshot is one from
 * before it took any out of the group's claims and exceptions.
 */
void
key_purge_group(const Stream *stream, const ConsumerGroup *group, int64 last, Snapshot before)
{
	OutcomeWriter writer;
	StateTable	keys;
	bool		has_keys;

	key_lease_open(stream, &keys);
	has_keys = !state_table_is_empty(&keys);
	state_table_close(&keys);
	if (!has_keys)
		return;
	outcome_begin(&writer, stream, group, NULL);
	wake_after_claims(&writer, last, before);
	wake_after_exceptions(&writer, last, before);
	outcome_end(&writer);
}
