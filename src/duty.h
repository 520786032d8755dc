/*
 * duty.h
 *		What maintenance asks of each of its duties.
 *
 * A duty is one kind of work on one stream: making partitions ahead, dropping
 * old ones, ...  It is a function that does one bounded step in the current
 * transaction and says when it wants to be called again.  The janitor calls it
 * (janitor.c); the duty knows nothing of processes and of other streams.
 *
 * When a duty is called a transaction and an active snapshot are open, the
 * stream's name is locked (config.c), the stream was looked up after that, its
 * tables are there and its maintenance is not suspended.  The current role is
 * the stream's owner in a security-restricted operation; a duty that must do
 * more goes on as the extension for just that (access.c).
 *
 * A duty never waits: a lock that is not free is tried again later.  Statements
 * that lock by themselves run with a short lock_timeout; what that raises is
 * tried again later, too.  Any other error ends the transaction; the janitor
 * calls the duty again, later and later.
 *
 * Everything that must outlast a process is in tables.  What a step announces
 * for other sessions holds only once it is committed, so the step that relies
 * on it is another one, in a later transaction.
 */
#ifndef SQLSTREAMS_DUTY_H
#define SQLSTREAMS_DUTY_H

#include "stream.h"

/* How far a stream's ids were at some time. */
typedef struct IdSample
{
	TimestampTz at;				/* 0: no sample */
	int64		last;
} IdSample;

/* A walk over the rows of a table of keys, which takes many steps. */
typedef struct KeyWalk
{
	TimestampTz begins_at;		/* the next walk, not earlier; 0: any time */
	bool		is_begun;
	int64		spent_us;		/* on it so far */
	int64		kept_count;		/* rows that it has passed ... */
	int64		removed_count;	/* ... and removed */
	bool		has_missed;		/* something that others had, or that failed */
	text	   *key;			/* where it goes on, in the memory's context; NULL:
								 * at the start */
	int64		group_id;		/* these two: of a walk over the keys of groups */
	int64		version;
} KeyWalk;

/* What the duties keep of a stream between steps, and can do without. */
typedef struct DutyMemory
{
	IdSample	older;			/* one to two minutes old: gives the rate */
	IdSample	newer;
	int			seal_looks;		/* in a row at what open producers hold */
	int			drop_looks;		/* in a row at tables that somebody has locked */
	MemoryContext context;		/* of what lives on between steps */
	KeyWalk		heads;			/* over compaction_key_<id> */
	TimestampTz heads_before;	/* that walk is for what was dropped until then */
	TimestampTz heads_purged_at;	/* purged_at that the last one took in */
	KeyWalk		key_leases;		/* over message_key_lease_<id> */
	int64		key_leases_wait_us;	/* until the next of these */
	int64		key_leases_purged;	/* purged_through when it began */
} DutyMemory;

/* One step of a duty. */
typedef struct DutyStep
{
	TimestampTz now;			/* the clock when the step began */
	bool		commits;		/* the transaction ends right after the step */
	bool		is_refused;		/* set by the duty: it has more to do where the
								 * transaction ends after the step */
	const char *done;			/* set by the duty: what it has written, a
								 * constant like "made a partition"; NULL: nothing */
	TimestampTz next;			/* set by the duty: when to call it again; up to
								 * now: at once, in a new transaction; DT_NOEND:
								 * when the stream is changed or asks for it */
} DutyStep;

typedef void (*DutyFunction) (const Stream *stream, DutyMemory *memory, DutyStep *step);

extern void duty_call_again_at(DutyStep *step, TimestampTz when);
extern void duty_call_again_after(DutyStep *step, int64 delay_us);
extern bool duty_may_lock_out(DutyStep *step);
extern void duty_has_done(DutyStep *step, const char *done);
extern int duty_look_again(DutyStep *step, int looks, int64 longest_us);
extern int64 duty_patience_us(int64 duration_us);

extern void duty_walk_begin(KeyWalk *walk);
extern void duty_walk_goes_on(DutyMemory *memory, KeyWalk *walk, const text *key, DutyStep *step);
extern void duty_walk_end(KeyWalk *walk, int64 wait_us, const DutyStep *step);
extern void duty_memory_missed(DutyMemory *memory);
extern void duty_memory_free(DutyMemory *memory);

#endif							/* SQLSTREAMS_DUTY_H */
