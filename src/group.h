/*
 * group.h
 *		A consumer group's definition, cached by each backend.
 */
#ifndef SQLSTREAMS_GROUP_H
#define SQLSTREAMS_GROUP_H

#include "id_set.h"
#include "message_options.h"
#include "routing.h"
#include "stream.h"

typedef struct ConsumerGroup
{
	char		name[STREAM_NAME_MAX_BYTES + 1];
	int64		group_id;
	int64		stream_id;
	uint64		generation;		/* of the cache when this was read */
	int32		schema_version; /* the only one that the group gets; 0: all */
	Concurrency concurrency;	/* for messages that ask for none */
	Concurrency concurrency_override;	/* for all messages with a key */
	int32		max_reclaims;	/* so often a lost claim is taken over whole */
	AskedOptions message_min;
	AskedOptions message_max;
	OptionsPolicy policy;		/* what messages get */
	Datum		options;		/* jsonb: what those get that ask for nothing */
	Routing		routing;
	int64		head_id;		/* up to it, the group gets only ... */
	IdSet		missing;		/* ... these: it began at the head */
	MemoryContext context;		/* of what these three point to: they last
								 * until the group is looked up again */
} ConsumerGroup;

/* Column numbers of sqlstreams.consumer_group. */
#define Anum_group_id					1
#define Anum_group_stream_id			2
#define Anum_group_name					3
#define Anum_group_timeout				4
#define Anum_group_max_reclaims			5
#define Anum_group_bindings				6
#define Anum_group_schema_version		7
#define Anum_group_concurrency			8
#define Anum_group_concurrency_override 9
#define Anum_group_max_retries			10
#define Anum_group_max_delays			11
#define Anum_group_base_delay			12
#define Anum_group_max_delay			13
#define Anum_group_exponent				14
#define Anum_group_initial_backoff		15
#define Anum_group_message_min			16
#define Anum_group_message_max			17
#define Anum_group_start_id				18
#define Anum_group_head_id				19
#define Anum_group_head_missing_from	20
#define Anum_group_head_missing			21

extern void group_init(void);
extern void group_lookup(const Stream *stream, const char *name, ConsumerGroup *group);
extern bool group_lookup_if_exists(const Stream *stream, const char *name, ConsumerGroup *group);
extern bool group_wants_all(const ConsumerGroup *group);
extern bool group_wants(const ConsumerGroup *group, int64 message_id, int32 schema_version,
						const text *routing_key);
extern Concurrency group_concurrency(const ConsumerGroup *group, Concurrency asked);
extern void group_lock(const ConsumerGroup *group);
extern bool group_lock_if_free(int64 group_id);
extern void group_unlock(const ConsumerGroup *group);

#endif							/* SQLSTREAMS_GROUP_H */
