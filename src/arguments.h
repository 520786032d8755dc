/*
 * arguments.h
 *		Checking the arguments of the SQL functions.
 */
#ifndef SQLSTREAMS_ARGUMENTS_H
#define SQLSTREAMS_ARGUMENTS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "fmgr.h"

#include "compat.h"

/* A message, routing or idempotency key may have this many bytes. */
#define KEY_MAX_BYTES 1024

/* A batch or a claim may have this many messages. */
#define BATCH_MAX_MESSAGES 100000

pg_noreturn extern void argument_raise_null(const char *argument);
pg_noreturn extern void argument_raise_invalid(const char *argument, const char *detail);
extern char *argument_get_name(FunctionCallInfo fcinfo, int number, const char *argument);
extern int64 argument_get_integer(FunctionCallInfo fcinfo, int number, const char *argument,
								  int64 minimum, int64 maximum);
extern int64 argument_get_integer_or(FunctionCallInfo fcinfo, int number, const char *argument,
									 int64 minimum, int64 maximum, int64 default_value);
extern int64 argument_get_duration_or(FunctionCallInfo fcinfo, int number, const char *argument,
									  int64 default_value);
extern Datum *argument_get_array(FunctionCallInfo fcinfo, int number, const char *argument, Oid type,
								 bool **isnull, int *count);
extern void argument_check_element(const char *argument, const bool *isnull, int element);
extern text *argument_check_key(text *key, const char *argument);

#endif							/* SQLSTREAMS_ARGUMENTS_H */
