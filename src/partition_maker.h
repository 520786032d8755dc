/*
 * partition_maker.h
 *		Objects that producers need at once, made in a transaction of their own.
 */
#ifndef SQLSTREAMS_PARTITION_MAKER_H
#define SQLSTREAMS_PARTITION_MAKER_H

#include "stream.h"

#include "utils/rel.h"

extern Relation partition_maker_open(const Stream *stream, int64 number, int64 last_number);
extern void partition_maker_make_idempotency_table(const Stream *stream);
extern PGDLLEXPORT void sqlstreams_maker_main(Datum arg);

#endif							/* SQLSTREAMS_PARTITION_MAKER_H */
