/*
 * config.h
 *		Writing the configuration: the rows of sqlstreams.stream and
 *		sqlstreams.consumer_group, their settings and who waits for whom.
 */
#ifndef SQLSTREAMS_CONFIG_H
#define SQLSTREAMS_CONFIG_H

#include "stream.h"

#include "fmgr.h"
#include "nodes/pg_list.h"
#include "utils/array.h"
#include "utils/snapshot.h"

/* A setting of a stream or a group: an argument, and the column of that name. */
typedef struct ConfigSetting
{
	const char *name;
	Oid			type;			/* of the argument */
	const char *default_text;	/* NULL: the default is NULL */
	int64		minimum;		/* of a bigint; of an interval in microseconds, 0
								 * or 1 */
	int64		maximum;		/* of a bigint */
} ConfigSetting;

/* What a call says of a setting. */
typedef struct ConfigValue
{
	bool		is_given;		/* false: leave it as it is */
	bool		is_null;
	Datum		value;
} ConfigValue;

/* A group of a stream. */
typedef struct ConfigGroup
{
	int64		group_id;
	char	   *name;
	int64		start_id;		/* the first id that it reads */
} ConfigGroup;

extern void config_get_values(FunctionCallInfo fcinfo, int first,
							  const ConfigSetting *settings, int count, ConfigValue *values);
extern void config_check_values(const ConfigSetting *settings, int count, const ConfigValue *values);
extern void config_reset_values(ArrayType *names, const ConfigSetting *settings, int count, ConfigValue *values);
extern void config_set_defaults(const ConfigSetting *settings, int count, ConfigValue *values);

extern void config_lock_name(const char *stream_name);
extern bool config_lock_name_if_free(const char *stream_name);
extern void config_lock_stream(const char *stream_name, Stream *stream);

extern List *config_list_groups(const Stream *stream, Snapshot snapshot);
extern uint64 config_execute(const char *sql, int argument_count, Oid *types,
							 Datum *values, const char *nulls, int64 *first);
extern void config_update(const char *table, const char *key_column, int64 key,
						  const ConfigSetting *settings, int count, const ConfigValue *values);

#endif							/* SQLSTREAMS_CONFIG_H */
