/*
 * partition_maker.h
 *		Objects that producers need at once, made in a transaction of their own.
 */
#ifndef SQLSTREAMS_PARTITION_MAKER_H
#define SQLSTREAMS_PARTITION_MAKER_H

#include "storage.h"
#include "stream.h"

#include "utils/rel.h"

extern Relation partition_maker_open(const Stream *stream, int64 number, int64 last_number);
extern void partition_maker_make_feature(const Stream *stream, StorageFeature feature);
extern PGDLLEXPORT void sqlstreams_maker_main(Datum arg);

#endif							/* SQLSTREAMS_PARTITION_MAKER_H */
