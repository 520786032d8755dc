/*
 * worker_registry.h
 *		Which database has a worker, and what is asked of it: shared memory.
 */
#ifndef SQLSTREAMS_WORKER_REGISTRY_H
#define SQLSTREAMS_WORKER_REGISTRY_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/latch.h"

#define WORKER_ERROR_MAX_BYTES	512
#define WORKER_ACTION_MAX_BYTES 128
#define WORKER_MAX_REQUESTS		32

typedef enum WorkerState
{
	WORKER_ABSENT,				/* the database was found without the extension */
	WORKER_WAITING,				/* none runs; one is to be started */
	WORKER_STARTING,
	WORKER_IDLE,
	WORKER_WORKING
} WorkerState;

/* A database.  All of it is protected by the registry's lock. */
typedef struct WorkerEntry
{
	Oid			database;		/* InvalidOid: the entry is free */
	WorkerState state;
	pid_t		pid;			/* of the worker; 0: none */
	Latch	   *latch;			/* of the worker; NULL: none */
	bool		should_leave;	/* others need its slot */
	bool		is_wanted;		/* somebody asked for the worker since it started */
	TimestampTz state_since;
	TimestampTz started_at;		/* these seven: of the worker that runs, or ran
								 * last; 0 and empty: none */
	TimestampTz last_turn;
	TimestampTz next_turn;		/* at the latest */
	TimestampTz next_due;		/* when something is due; DT_NOEND: nothing */
	char		action[WORKER_ACTION_MAX_BYTES];	/* the last thing it did */
	TimestampTz error_at;
	char		error[WORKER_ERROR_MAX_BYTES];	/* of now; empty: none */
	bool		all_requested;	/* every stream is to be looked at */
	int			request_count;
	int64		requests[WORKER_MAX_REQUESTS];	/* streams to be looked at */
} WorkerEntry;

/* What a worker takes from its entry. */
typedef struct WorkerRequests
{
	bool		all;
	int			count;
	int64		stream_ids[WORKER_MAX_REQUESTS];
} WorkerRequests;

extern void worker_registry_init(void);
extern bool worker_registry_is_preloaded(void);
extern bool worker_registry_is_there(void);

/* for those who use streams */
extern bool worker_registry_seems_running(Oid database);
extern bool worker_registry_is_running(Oid database);
extern bool worker_registry_has_taken_turn(Oid database);
extern void worker_registry_request(int64 stream_id);
extern bool worker_registry_want(Oid database);
extern bool worker_registry_begin_start(Oid database);
extern void worker_registry_end_start(Oid database);
extern WorkerEntry *worker_registry_copy(int *count);

/* for the worker of a database */
extern bool worker_registry_enter(Oid database);
extern bool worker_registry_leave(WorkerState state);
extern bool worker_registry_should_leave(void);
extern void worker_registry_take_requests(WorkerRequests *requests);
extern void worker_registry_report_state(WorkerState state);
extern void worker_registry_report_turn(TimestampTz now, TimestampTz next_turn, TimestampTz next_due);
extern void worker_registry_report_action(const char *action);
extern void worker_registry_report_error(const char *error, TimestampTz at);

/* for the launcher */
extern void worker_registry_enter_launcher(void);
extern void worker_registry_leave_launcher(void);
extern bool worker_registry_add(Oid database);
extern void worker_registry_forget(Oid database);
extern void worker_registry_ask_to_leave(Oid database);
extern void worker_registry_retry(Oid database);

#endif							/* SQLSTREAMS_WORKER_REGISTRY_H */
