/*
 * inspect.h
 *		What the functions behind the views have in common.
 */
#ifndef SQLSTREAMS_INSPECT_H
#define SQLSTREAMS_INSPECT_H

#include "stream.h"

#include "executor/spi.h"
#include "fmgr.h"

extern ReturnSetInfo *inspect_begin(FunctionCallInfo fcinfo);
extern void inspect_end(void);
extern SPITupleTable *inspect_query(const char *sql, int argument_count, Oid *types,
									Datum *values, uint64 *count);
extern bool inspect_enter_stream(const char *name, Stream *stream);
extern void inspect_leave_stream(const Stream *stream);
extern int64 inspect_table_bytes(Oid oid);
extern bool inspect_read_heads(const Stream *stream, int64 *last, int64 *settled);

#endif							/* SQLSTREAMS_INSPECT_H */
