/*
 * exception_group.c
 *		What is done to many exceptions of a group at once.
 *
 * However many there are, they are looked at one by one and only the one at
 * hand is kept in memory.
 *
 * Two calls that take dead messages wait for each other at the first that both
 * want, and what one of them took the other does not count.  Both go by due
 * time, whatever they choose by, so that they cannot wait for each other in a
 * circle.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "exception_group.h"

/* One pass over exceptions of a group, with a snapshot of now. */
typedef struct Pass
{
	const Stream *stream;
	int64		group_id;
	StateTable	table;
	Snapshot	snapshot;
	MemoryContext found;		/* what the exception found last points to */
	MemoryContext scratch;		/* for writing one exception */
} Pass;

/* Begin a pass, which sees what the running command did before. */
static void
begin_pass(Pass *pass, const Stream *stream, int64 group_id)
{
	CommandCounterIncrement();
	pass->stream = stream;
	pass->group_id = group_id;
	exception_open(stream, &pass->table);
	pass->snapshot = RegisterSnapshot(GetLatestSnapshot());
	pass->found = AllocSetContextCreate(CurrentMemoryContext, "sqlstreams exception found",
										ALLOCSET_SMALL_SIZES);
	pass->scratch = AllocSetContextCreate(CurrentMemoryContext, "sqlstreams exceptions of a group",
										  ALLOCSET_DEFAULT_SIZES);
}

static void
end_pass(Pass *pass)
{
	MemoryContextDelete(pass->scratch);
	MemoryContextDelete(pass->found);
	UnregisterSnapshot(pass->snapshot);
	state_table_close(&pass->table);
}

/*
 * Delete an exception and, if not_before is given, insert it again as ready at
 * once (exception_insert_ready).  False when it could not be deleted.
 */
static bool
replace(Pass *pass, Exception *exception, bool wait, const TimestampTz *not_before)
{
	MemoryContext old = MemoryContextSwitchTo(pass->scratch);
	bool		is_deleted = exception_delete(&pass->table, exception, wait);

	if (is_deleted && not_before != NULL)
		exception_insert_ready(&pass->table, pass->group_id, exception, 0, *not_before);
	MemoryContextSwitchTo(old);
	MemoryContextReset(pass->scratch);
	return is_deleted;
}

/* Is it a dead message that is meant?  Purged ones are none. */
static bool
is_chosen(const Pass *pass, const Exception *exception, const DeadChoice *choice)
{
	MemoryContext old;
	bool		is_like;

	if (exception->status != EXCEPTION_DEAD || exception->message_id <= pass->stream->purged_through)
		return false;
	if (choice->error_like == NULL)
		return true;
	if (exception->last_error == NULL)
		return false;

	/* a long error is decompressed */
	old = MemoryContextSwitchTo(pass->scratch);
	is_like = DatumGetBool(DirectFunctionCall2Coll(textlike, C_COLLATION_OID,
												   PointerGetDatum(exception->last_error),
												   PointerGetDatum(choice->error_like)));
	MemoryContextSwitchTo(old);
	MemoryContextReset(pass->scratch);
	return is_like;
}

/* Take a dead message out, and put it back as one that never failed. */
static int64
take_dead(Pass *pass, Exception *exception, const TimestampTz *not_before)
{
	exception->attempts = 0;
	exception->delays = 0;
	exception->takeovers = 0;
	exception->is_suspect = false;
	return replace(pass, exception, true, not_before) ? 1 : 0;
}

/*
 * Find the exception of a message if it is dead and meant.  What it points to is
 * valid until the next call.
 */
static bool
find_chosen(Pass *pass, int64 message_id, const DeadChoice *choice, Exception *exception)
{
	MemoryContext old = MemoryContextSwitchTo(pass->found);
	bool		is_found;

	CHECK_FOR_INTERRUPTS();
	MemoryContextReset(pass->found);
	is_found = exception_find(&pass->table, pass->group_id, message_id, pass->snapshot, exception) &&
		is_chosen(pass, exception, choice);
	MemoryContextSwitchTo(old);
	return is_found;
}

/* Order as the index on the due time does. */
static int
compare_due(const void *a, const void *b)
{
	const DueException *x = a;
	const DueException *y = b;

	if (x->due_at != y->due_at)
		return x->due_at > y->due_at ? 1 : -1;
	return (x->message_id > y->message_id) - (x->message_id < y->message_id);
}

/* The messages that are chosen by their ids, by due time. */
static DueException *
find_chosen_ids(Pass *pass, const DeadChoice *choice, int *count)
{
	DueException *chosen = palloc_extended(sizeof(DueException) * Max(choice->id_count, 1), MCXT_ALLOC_HUGE);

	*count = 0;
	for (int i = 0; i < choice->id_count; i++)
	{
		Exception	exception;

		if (find_chosen(pass, choice->ids[i], choice, &exception))
		{
			chosen[*count].message_id = exception.message_id;
			chosen[(*count)++].due_at = exception.due_at;
		}
	}
	qsort(chosen, *count, sizeof(DueException), compare_due);
	return chosen;
}

/* Take dead messages that are chosen by their ids; returns how many. */
static int64
take_chosen_ids(Pass *pass, const DeadChoice *choice, const TimestampTz *not_before)
{
	int			chosen_count;
	DueException *chosen = find_chosen_ids(pass, choice, &chosen_count);
	int64		count = 0;

	for (int i = 0; i < chosen_count; i++)
	{
		Exception	exception;

		if (find_chosen(pass, chosen[i].message_id, choice, &exception))
			count += take_dead(pass, &exception, not_before);
	}
	return count;
}

/* Take dead messages that are not chosen by their ids; returns how many. */
static int64
take_chosen(Pass *pass, const DeadChoice *choice, const TimestampTz *not_before)
{
	ExceptionScan scan;
	Exception	exception;
	int64		count = 0;

	exception_scan_begin(&scan, &pass->table, pass->group_id, EXCEPTION_DEAD, pass->snapshot);
	while (exception_scan_next(&scan, &exception))
	{
		if (is_chosen(pass, &exception, choice))
			count += take_dead(pass, &exception, not_before);
	}
	exception_scan_end(&scan);
	return count;
}

/*
 * Make dead messages ready, due at once, as if they had never failed but for
 * their last error; returns how many this call did.
 */
int64
exception_group_redrive(const Stream *stream, int64 group_id, const DeadChoice *choice)
{
	Pass		pass;
	TimestampTz not_before;
	int64		count;

	begin_pass(&pass, stream, group_id);
	not_before = cursor_read_due_from(stream, group_id, pass.snapshot);
	if (choice->has_ids)
		count = take_chosen_ids(&pass, choice, &not_before);
	else
		count = take_chosen(&pass, choice, &not_before);
	end_pass(&pass);
	return count;
}

/* Forget dead messages; returns how many this call did. */
int64
exception_group_discard(const Stream *stream, int64 group_id, const DeadChoice *choice)
{
	Pass		pass;
	int64		count;

	begin_pass(&pass, stream, group_id);
	if (choice->has_ids)
		count = take_chosen_ids(&pass, choice, NULL);
	else
		count = take_chosen(&pass, choice, NULL);
	end_pass(&pass);
	return count;
}

/* Does an open transaction change exceptions after an id, up to another? */
bool
exception_group_is_busy(const Stream *stream, int64 group_id, int64 after_id, int64 to_id)
{
	StateTable	table;
	bool		is_busy;

	exception_open(stream, &table);
	is_busy = exception_has_writers(&table, group_id, after_id, to_id);
	state_table_close(&table);
	return is_busy;
}

/* Wait for open transactions that change exceptions after an id, up to another. */
void
exception_group_wait(const Stream *stream, int64 group_id, int64 after_id, int64 to_id)
{
	StateTable	table;

	exception_open(stream, &table);
	exception_wait_for_writers(&table, group_id, after_id, to_id);
	state_table_close(&table);
}

/* Which exceptions of messages are meant, by their status. */
typedef enum StatusChoice
{
	STATUS_ANY,
	STATUS_DEAD,
	STATUS_NOT_DEAD
} StatusChoice;

/*
 * Delete a group's exceptions of messages after an id, up to another, with a
 * status that is meant, as long as *rows_left.  Says whether all of them could be
 * that are meant, and with STATUS_DEAD whether there was nothing else.
 */
static bool
delete_in_pass(Pass *pass, int64 after_id, int64 to_id, StatusChoice choice, bool wait, int64 *rows_left)
{
	ExceptionScan scan;
	Exception	exception;
	bool		is_complete = true;

	exception_scan_ids_begin(&scan, &pass->table, pass->group_id, after_id, pass->snapshot);
	while (*rows_left > 0 && exception_scan_next(&scan, &exception) && exception.message_id <= to_id)
	{
		bool		is_dead = exception.status == EXCEPTION_DEAD;

		if (choice == STATUS_ANY || is_dead == (choice == STATUS_DEAD))
		{
			if (replace(pass, &exception, wait, NULL))
				(*rows_left)--;
			else
				is_complete = false;
		}
		else if (choice == STATUS_DEAD)
			is_complete = false;
	}
	exception_scan_end(&scan);
	return is_complete;
}

/*
 * Delete a group's exceptions of messages after an id, up to another, those of
 * dead ones if delete_dead; waits for who is changing them.  The caller holds
 * the group's lock, and no claim has such a message.
 */
void
exception_group_delete(const Stream *stream, int64 group_id, int64 after_id, int64 to_id, bool delete_dead)
{
	bool		is_complete;
	int64		rows_left = PG_INT64_MAX;

	/* what could not be deleted was replaced, and is found by the next pass */
	do
	{
		Pass		pass;

		begin_pass(&pass, stream, group_id);
		is_complete = delete_in_pass(&pass, after_id, to_id, delete_dead ? STATUS_ANY : STATUS_NOT_DEAD, true, &rows_left);
		end_pass(&pass);
	} while (!is_complete);
}

/*
 * Delete a group's exceptions of messages after an id, up to another, but for
 * those that an open transaction is changing, all or only the dead ones, as long
 * as *rows_left.  Says whether none was met that stays.  Wake-ups have negative
 * ids.
 */
bool
exception_group_delete_free(const Stream *stream, int64 group_id, int64 after_id, int64 to_id,
							bool dead_only, int64 *rows_left)
{
	Pass		pass;
	bool		is_complete;

	begin_pass(&pass, stream, group_id);
	is_complete = delete_in_pass(&pass, after_id, to_id, dead_only ? STATUS_DEAD : STATUS_ANY, false, rows_left);
	end_pass(&pass);
	return is_complete;
}

/*
 * Make the parked exceptions ready, due at once.  The caller holds the group's
 * lock.
 */
void
exception_group_unpark(const Stream *stream, int64 group_id)
{
	Pass		pass;
	ExceptionScan scan;
	Exception	exception;
	TimestampTz not_before;

	begin_pass(&pass, stream, group_id);
	not_before = cursor_read_due_from(stream, group_id, pass.snapshot);
	exception_scan_begin(&scan, &pass.table, group_id, EXCEPTION_PARKED, pass.snapshot);
	while (exception_scan_next(&scan, &exception))
		(void) replace(&pass, &exception, true, &not_before);
	exception_scan_end(&scan);
	end_pass(&pass);
}
