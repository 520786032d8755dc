/*
 * stream.h
 *		A stream's definition, cached by each backend.
 */
#ifndef SQLSTREAMS_STREAM_H
#define SQLSTREAMS_STREAM_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "utils/snapshot.h"

#include "compat.h"
#include "concurrency.h"
#include "message_options.h"

#define STREAM_NAME_MAX_BYTES 200

/* What the delivery log records: each value is the first letter of its name. */
typedef enum DeliveryLogMode
{
	DELIVERY_LOG_OFF = 'o',
	DELIVERY_LOG_FAILURES = 'f',
	DELIVERY_LOG_ALL = 'a'
} DeliveryLogMode;

/*
 * How producers use the tables of idempotency keys: each value is the first
 * letter of its name.  See idempotency.c and idempotency_rotation.c.
 */
typedef enum IdempotencyPhase
{
	IDEMPOTENCY_ONE = 'o',		/* there is only one table */
	IDEMPOTENCY_BOTH = 'b',		/* keys go into the old and into the new table */
	IDEMPOTENCY_PROBE = 'p'		/* keys are looked up in the old table and go
								 * into the new one */
} IdempotencyPhase;

/*
 * A copy of what the cache knows.  Callers keep it by value: a trigger that
 * runs inside a produce may refill the cache under its caller.
 */
typedef struct Stream
{
	char		name[STREAM_NAME_MAX_BYTES + 1];
	int64		stream_id;
	uint64		generation;		/* of the cache when this was read */
	int64		partition_size;
	int64		partition_interval_us;	/* as it applies; 0: never by time */
	int64		retention_us;	/* 0: for ever */
	bool		allow_drop_past_committed;
	int64		idempotency_key_ttl_us;
	int64		empty_compaction_head_ttl_us;
	int64		purged_through; /* ids up to this one are gone */
	TimestampTz purged_at;		/* the last of them since then; 0: none is */
	bool		maintenance_suspended;
	char		delivery_log;	/* a DeliveryLogMode */
	AskedOptions asked_options; /* what its message_defaults ask for */
	Concurrency concurrency;	/* as well */
	Oid			log_oid;		/* message_log_<id>, the partitioned table */
	Oid			sequence_oid;	/* message_id_<id> */
	Oid			fence_oid;		/* what producers lock: see fence.c */
	Oid			cursor_oid;		/* group_cursor_<id>; invalid before the first
								 * group, as are the next six */
	Oid			lease_oid;		/* claim_lease_<id> */
	Oid			resolved_oid;	/* claim_resolved_<id> */
	Oid			exception_oid;	/* exception_queue_<id> */
	Oid			delivery_log_oid;	/* delivery_log_<id> */
	Oid			key_lease_oid;	/* message_key_lease_<id> */
	Oid			deferred_oid;	/* deferred_message_<id> */
	int64		idempotency_generation; /* the number of the table of idempotency
										 * keys that is filled now */
	char		idempotency_phase;	/* an IdempotencyPhase */
	Oid			idempotency_oid;	/* idempotency_key_<id>_<generation>; invalid
									 * before the first key */
	Oid			idempotency_old_oid;	/* the one before; invalid in phase one */
	Oid			compaction_key_oid; /* compaction_key_<id>; invalid before the
									 * first compacted message, as is the next */
	Oid			compaction_head_oid;	/* compaction_head_<id> */
} Stream;

/* Column numbers of sqlstreams.stream. */
#define Anum_stream_id						1
#define Anum_stream_name					2
#define Anum_stream_partition_size			3
#define Anum_stream_partition_interval		4
#define Anum_stream_retention				5
#define Anum_stream_allow_drop_past_committed	6
#define Anum_stream_idempotency_key_ttl		7
#define Anum_stream_empty_compaction_head_ttl	8
#define Anum_stream_delivery_log			9
#define Anum_stream_message_defaults		10
#define Anum_stream_purged_through			11
#define Anum_stream_maintenance_suspended	12
#define Anum_stream_idempotency_generation	13
#define Anum_stream_idempotency_phase		14
#define Anum_stream_idempotency_since		15
#define Anum_stream_idempotency_announced_by	16
#define Anum_stream_idempotency_waits_for	17
#define Anum_stream_idempotency_waits_system	18
#define Anum_stream_purged_at				19
#define Natts_stream						19

extern void stream_init(void);
extern void stream_lookup(const char *name, Stream *stream);
extern bool stream_lookup_if_exists(const char *name, Stream *stream);
extern bool stream_lookup_any(const char *name, Stream *stream);
extern bool stream_lookup_complete(const char *name, Stream *stream);
extern bool stream_is_current(const Stream *stream);
extern void stream_watch_configuration(void);
extern bool stream_is_unchanged_for_sure(const Stream *stream);
extern void stream_invalidate_all(void);
extern uint64 stream_cache_generation(void);
extern Oid	stream_schema_oid(void);
extern Oid	stream_config_table_oid(const char *table);
extern Oid	stream_table_oid(const char *kind, int64 stream_id);
extern Oid	stream_numbered_table_oid(const char *kind, int64 stream_id, int64 number);
extern Oid	stream_find_relation(const char *name, Snapshot snapshot);
extern void stream_check_name(const char *argument, const char *name, bool is_stream);
extern const char *stream_clip_name(const char *name);
pg_noreturn extern void stream_raise_not_found(const char *name);
pg_noreturn extern void stream_raise_table_missing(const Stream *stream);

#endif							/* SQLSTREAMS_STREAM_H */
