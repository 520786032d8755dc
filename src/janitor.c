/*
 * janitor.c
 *		What maintenance is due, and doing it.
 *
 * A janitor remembers for each stream when each duty (duty.h) is due next, in
 * the memory of its process: what is due follows from the tables, so after a
 * restart each stream is looked at once.  A stream of which nothing is due costs
 * nothing.  It is looked at again when the time of a duty has come, when its row
 * in sqlstreams.stream has changed, or when a producer asks for it.
 *
 * The janitor knows nothing of processes.  Its user (worker.c, maintain.c) gives
 * each step a transaction of its own and tells what came of it:
 *
 *		refresh -> pick -> do_step --committed--> pick -> ...
 *		                      |
 *		                      +--error, rolled back--> step_failed -> pick -> ...
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "lib/pairingheap.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "access.h"
#include "compaction_sweep.h"
#include "config.h"
#include "duty.h"
#include "errors.h"
#include "idempotency_rotation.h"
#include "janitor.h"
#include "key_sweep.h"
#include "partition_ahead.h"
#include "partition_seal.h"
#include "retention.h"
#include "storage.h"

/* How long a statement of a duty may wait for a lock. */
#define LOCK_TIMEOUT_MS "100"

/* How long a janitor that waits does so for a stream's name. */
#define NAME_TIMEOUT_MS "1000"

/*
 * How often the configuration is read although nobody tells of a change: a
 * restore writes it without telling.
 */
#define REFRESH_US			(10 * USECS_PER_SEC)

/* When to come back for a lock that was not free. */
#define LOCKED_RETRY_US		(1 * USECS_PER_SEC)

/* When to come back for a stream whose tables are not all there: a restore. */
#define INCOMPLETE_RETRY_US (10 * USECS_PER_SEC)

/* When to come back after an error: doubled each time, up to the second. */
#define FIRST_RETRY_US		(1 * USECS_PER_SEC)
#define LAST_RETRY_US		(60 * USECS_PER_SEC)

typedef struct Duty
{
	const char *name;
	DutyFunction function;
} Duty;

/* In the order in which they are called; the last one can have groups locked. */
static const Duty duties[] = {
	{"making partitions", partition_ahead_step},
	{"sealing partitions", partition_seal_step},
	{"dropping messages", retention_step},
	{"removing empty compaction heads", compaction_sweep_step},
	{"rotating idempotency keys", idempotency_rotation_step},
	{"forgetting unused keys", key_sweep_step}
};

#define DUTY_COUNT lengthof(duties)

/* A duty of a stream. */
typedef struct DutyState
{
	TimestampTz due;
	int			failures;		/* since it last succeeded */
	char	   *error;			/* what it failed with; NULL: it succeeded */
	TimestampTz error_at;
} DutyState;

/* What a janitor knows of a stream. */
typedef struct JanitorStream
{
	int64		stream_id;		/* hash key */
	pairingheap_node node;
	TimestampTz due;			/* the earliest of its duties */
	char		name[STREAM_NAME_MAX_BYTES + 1];
	TransactionId row_xmin;		/* these two: the version of its row in ... */
	ItemPointerData row_tid;	/* ... sqlstreams.stream */
	uint64		refresh;		/* the last one that met it */
	bool		is_complete;	/* all its tables have been seen */
	DutyState	duties[DUTY_COUNT];
	DutyMemory	memory;
} JanitorStream;

struct Janitor
{
	MemoryContext context;
	JanitorFilter filter;		/* NULL: all streams */
	bool		waits;			/* for streams that somebody is changing */
	bool		commits;		/* a transaction ends right after its step */
	bool		has_refused;	/* to do what needs that */
	HTAB	   *streams;
	pairingheap *heap;			/* of the streams, the first due on top */
	uint64		generation;		/* of the configuration that was read */
	TimestampTz refreshed_at;	/* when that was; 0: it is to be read again */
	uint64		refresh;		/* counts refreshes */
	TimestampTz now;			/* when the present step was picked */
	JanitorStream *picked;
	int			duty;			/* that is being done; DUTY_COUNT: none yet */
	uint64		skipped;		/* streams that the filter refused */
	char	   *error;			/* of the duty that failed last; NULL: none fails */
	TimestampTz error_at;
};

static int
compare_due(const pairingheap_node *a, const pairingheap_node *b, void *arg)
{
	TimestampTz x = pairingheap_const_container(JanitorStream, node, a)->due;
	TimestampTz y = pairingheap_const_container(JanitorStream, node, b)->due;

	/* the heap has the greatest on top */
	return (x < y) - (x > y);
}

/*
 * Make a janitor that knows of no stream yet, in a context below the current
 * one.  One that waits gives whoever has the stream's name locked some time.  One
 * that does not commit leaves out what others would wait for.
 */
Janitor *
janitor_create(JanitorFilter filter, bool waits, bool commits)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "sqlstreams janitor", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Janitor    *janitor = palloc0(sizeof(Janitor));
	HASHCTL		ctl;

	janitor->context = context;
	janitor->filter = filter;
	janitor->waits = waits;
	janitor->commits = commits;
	janitor->duty = DUTY_COUNT;
	ctl.keysize = sizeof(int64);
	ctl.entrysize = sizeof(JanitorStream);
	ctl.hcxt = context;
	janitor->streams = hash_create("sqlstreams janitor", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	janitor->heap = pairingheap_allocate(compare_due, NULL);
	MemoryContextSwitchTo(old);
	return janitor;
}

/* Put a stream where it belongs in the heap, by its duties. */
static void
reorder(Janitor *janitor, JanitorStream *entry)
{
	pairingheap_remove(janitor->heap, &entry->node);
	entry->due = DT_NOEND;
	for (int i = 0; i < DUTY_COUNT; i++)
		entry->due = Min(entry->due, entry->duties[i].due);
	pairingheap_add(janitor->heap, &entry->node);
}

/* Let all duties of a stream be due at a time, but for those that fail. */
static void
set_due(Janitor *janitor, JanitorStream *entry, TimestampTz due)
{
	for (int i = 0; i < DUTY_COUNT; i++)
	{
		if (entry->duties[i].failures == 0)
			entry->duties[i].due = due;
	}
	reorder(janitor, entry);
}

/* Take in the stream's row if it is another version than the one known. */
static void
refresh_stream(Janitor *janitor, HeapTuple tuple, TupleDesc desc)
{
	bool		isnull;
	bool		found;
	int64		stream_id = DatumGetInt64(heap_getattr(tuple, Anum_stream_id, desc, &isnull));
	JanitorStream *entry = hash_search(janitor->streams, &stream_id, HASH_ENTER, &found);
	TransactionId xmin = HeapTupleHeaderGetRawXmin(tuple->t_data);

	if (!found)
	{
		memset((char *) entry + sizeof(int64), 0, sizeof(JanitorStream) - sizeof(int64));
		entry->memory.context = janitor->context;
		pairingheap_add(janitor->heap, &entry->node);
	}
	entry->refresh = janitor->refresh;
	if (found && entry->row_xmin == xmin && ItemPointerEquals(&entry->row_tid, &tuple->t_self))
		return;
	entry->row_xmin = xmin;
	entry->row_tid = tuple->t_self;
	entry->is_complete = false;
	strlcpy(entry->name, TextDatumGetCString(heap_getattr(tuple, Anum_stream_name, desc, &isnull)),
			sizeof(entry->name));
	set_due(janitor, entry, DT_NOBEGIN);
}

/* Forget what failed, or find another duty that still does. */
static void
find_error(Janitor *janitor)
{
	HASH_SEQ_STATUS status;
	JanitorStream *entry;

	janitor->error = NULL;
	hash_seq_init(&status, janitor->streams);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		for (int i = 0; i < DUTY_COUNT; i++)
		{
			if (entry->duties[i].error != NULL &&
				(janitor->error == NULL || entry->duties[i].error_at > janitor->error_at))
			{
				janitor->error = entry->duties[i].error;
				janitor->error_at = entry->duties[i].error_at;
			}
		}
	}
}

/* Forget the error of a duty. */
static void
clear_error(DutyState *state)
{
	if (state->error != NULL)
		pfree(state->error);
	state->error = NULL;
	state->failures = 0;
}

/* Forget a stream that was dropped. */
static void
forget_stream(Janitor *janitor, JanitorStream *entry)
{
	for (int i = 0; i < DUTY_COUNT; i++)
		clear_error(&entry->duties[i]);
	duty_memory_free(&entry->memory);
	pairingheap_remove(janitor->heap, &entry->node);
	(void) hash_search(janitor->streams, &entry->stream_id, HASH_REMOVE, NULL);
}

/*
 * Take in what has changed in the configuration.  A changed stream is due at
 * once.
 */
void
janitor_refresh(Janitor *janitor)
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	HASH_SEQ_STATUS status;
	JanitorStream *entry;
	TimestampTz now = GetCurrentTimestamp();

	/* the lock takes in what others changed */
	stream_watch_configuration();
	rel = table_open(stream_config_table_oid("stream"), AccessShareLock);
	if (janitor->generation == stream_cache_generation() &&
		now < janitor->refreshed_at + REFRESH_US)
	{
		table_close(rel, AccessShareLock);
		return;
	}
	janitor->generation = stream_cache_generation();
	janitor->refreshed_at = now;
	janitor->refresh++;
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		refresh_stream(janitor, tuple, RelationGetDescr(rel));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);

	hash_seq_init(&status, janitor->streams);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->refresh != janitor->refresh)
			forget_stream(janitor, entry);
	}
	if (janitor->error != NULL)
		find_error(janitor);
}

/*
 * Let a stream be looked at now: a producer asked for it.  One that is not known
 * may have come with a dump.
 */
void
janitor_notify(Janitor *janitor, int64 stream_id)
{
	JanitorStream *entry = hash_search(janitor->streams, &stream_id, HASH_FIND, NULL);

	if (entry != NULL)
		set_due(janitor, entry, DT_NOBEGIN);
	else
		janitor->refreshed_at = 0;
}

/* Let every stream be looked at now. */
void
janitor_notify_all(Janitor *janitor)
{
	HASH_SEQ_STATUS status;
	JanitorStream *entry;

	hash_seq_init(&status, janitor->streams);
	while ((entry = hash_seq_search(&status)) != NULL)
		set_due(janitor, entry, DT_NOBEGIN);
}

/* When something is due next; DT_NOEND when nothing is. */
TimestampTz
janitor_next_due(Janitor *janitor)
{
	if (pairingheap_is_empty(janitor->heap))
		return DT_NOEND;
	return pairingheap_container(JanitorStream, node, pairingheap_first(janitor->heap))->due;
}

/*
 * Choose a stream of which something is due at a time; false when there is
 * none.  A duty that has more to do at once is due again at that same time.
 */
bool
janitor_pick(Janitor *janitor, TimestampTz now)
{
	if (janitor_next_due(janitor) > now)
		return false;
	janitor->picked = pairingheap_container(JanitorStream, node, pairingheap_first(janitor->heap));
	janitor->duty = DUTY_COUNT;
	janitor->now = now;
	return true;
}

/* Put the picked stream off. */
static const char *
put_off(Janitor *janitor, TimestampTz until)
{
	for (int i = 0; i < DUTY_COUNT; i++)
		janitor->picked->duties[i].due = Max(janitor->picked->duties[i].due, until);
	reorder(janitor, janitor->picked);
	return NULL;
}

/*
 * Call the duties of the picked stream that are due, up to the first that
 * writes something; returns what that was.
 */
static const char *
call_duties(Janitor *janitor, const Stream *stream)
{
	JanitorStream *entry = janitor->picked;
	DutyStep	step = {0};

	for (janitor->duty = 0; janitor->duty < DUTY_COUNT; janitor->duty++)
	{
		DutyState  *state = &entry->duties[janitor->duty];

		if (state->due > janitor->now)
			continue;
		step.now = GetCurrentTimestamp();
		step.commits = janitor->commits;
		step.next = DT_NOEND;
		duties[janitor->duty].function(stream, &entry->memory, &step);
		janitor->has_refused |= step.is_refused;
		state->due = step.next <= step.now ? janitor->now : step.next;
		if (state->failures > 0 && step.done == NULL)
		{
			ereport(LOG,
					(errmsg("maintenance of stream \"%s\" goes on: %s",
							stream->name, duties[janitor->duty].name)));
			clear_error(state);
			find_error(janitor);
		}
		if (step.done != NULL)
			break;
	}

	/* what one duty has done may be what another waits for */
	if (step.done != NULL)
		set_due(janitor, entry, janitor->now);
	else
		reorder(janitor, entry);
	return step.done;
}

/* Let statements wait for locks no longer than this, until the nest level ends. */
static void
set_lock_timeout(const char *timeout_ms)
{
	(void) set_config_option("lock_timeout", timeout_ms, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
}

/* Lock the name of the picked stream; false, or an error, when it is not free. */
static bool
lock_name(Janitor *janitor)
{
	int			guc_nest_level;

	if (!janitor->waits)
		return config_lock_name_if_free(janitor->picked->name);
	guc_nest_level = NewGUCNestLevel();
	set_lock_timeout(NAME_TIMEOUT_MS);
	config_lock_name(janitor->picked->name);
	AtEOXact_GUC(false, guc_nest_level);
	return true;
}

/*
 * Do what is due of the picked stream, or a part of it, in the current
 * transaction; returns what was written, NULL for nothing.  An error is to be
 * told with janitor_step_failed once it is rolled back.
 */
const char *
janitor_do_step(Janitor *janitor)
{
	JanitorStream *entry = janitor->picked;
	Stream		stream;
	AccessState saved;
	Oid			owner;
	const char *done;

	if (!lock_name(janitor))
		return put_off(janitor, GetCurrentTimestamp() + LOCKED_RETRY_US);
	if (!stream_lookup_complete(entry->name, &stream) || stream.stream_id != entry->stream_id ||
		(!entry->is_complete && !storage_is_complete(&stream)))
		return put_off(janitor, GetCurrentTimestamp() + INCOMPLETE_RETRY_US);
	entry->is_complete = true;
	if (stream.maintenance_suspended)
		return put_off(janitor, DT_NOEND);
	owner = access_stream_owner(&stream);
	if (janitor->filter != NULL && !janitor->filter(owner))
	{
		janitor->skipped++;
		return put_off(janitor, DT_NOEND);
	}

	access_become_owner(owner, &saved);
	set_lock_timeout(LOCK_TIMEOUT_MS);
	done = call_duties(janitor, &stream);
	access_restore(&saved);
	return done;
}

/* Remember and log an error of a duty, unless it is known. */
static void
note_error(Janitor *janitor, DutyState *state, const char *what, const ErrorData *error)
{
	char	   *text = psprintf("stream \"%s\": %s: %s", janitor->picked->name, what, error->message);

	if (state->error == NULL || strcmp(state->error, text) != 0)
	{
		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("maintenance of stream \"%s\" failed: %s: %s",
						janitor->picked->name, what, error->message),
				 error->detail ? errdetail_internal("%s", error->detail) : 0,
				 error->hint ? errhint("%s", error->hint) : errhint("It will be tried again.")));
		clear_error(state);
		state->error = MemoryContextStrdup(janitor->context, text);
	}
	state->error_at = GetCurrentTimestamp();
	janitor->error = state->error;
	janitor->error_at = state->error_at;
}

/*
 * The step raised an error, and its transaction was rolled back.  The duty is
 * due again later, the others of the stream at once.
 */
void
janitor_step_failed(Janitor *janitor, const ErrorData *error)
{
	JanitorStream *entry = janitor->picked;
	TimestampTz now = GetCurrentTimestamp();
	int			duty = janitor->duty < DUTY_COUNT ? janitor->duty : 0;
	DutyState  *state = &entry->duties[duty];
	int			failures = state->failures;

	duty_memory_missed(&entry->memory);

	/* the lookup failed, or the commit: none of the duties is to blame */
	if (janitor->duty >= DUTY_COUNT)
		(void) put_off(janitor, now + LOCKED_RETRY_US);

	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE || error->sqlerrcode == ERRCODE_PARTITION_LOCK_TIMEOUT)
		state->due = now + LOCKED_RETRY_US;
	else
	{
		note_error(janitor, state, janitor->duty < DUTY_COUNT ? duties[duty].name : "looking at it", error);
		state->failures = Min(failures + 1, 16);
		state->due = now + Min(FIRST_RETRY_US << failures, LAST_RETRY_US);
	}
	reorder(janitor, entry);
}

/* The error of the duty that failed last and has not succeeded since, or NULL. */
const char *
janitor_error(const Janitor *janitor, TimestampTz *at)
{
	*at = janitor->error_at;
	return janitor->error;
}

/* How many streams the filter refused. */
uint64
janitor_skipped_streams(const Janitor *janitor)
{
	return janitor->skipped;
}

/* Was something left out because the transaction goes on after the step? */
bool
janitor_has_refused(const Janitor *janitor)
{
	return janitor->has_refused;
}
