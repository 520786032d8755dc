/*
 * fence.h
 *		How far a stream's log is settled: up to which id everything is
 *		committed or gone for good.
 */
#ifndef SQLSTREAMS_FENCE_H
#define SQLSTREAMS_FENCE_H

#include "stream.h"

#include "access/transam.h"

/*
 * What a claim that met a hole leaves for the next one: no id up to "last" can
 * still commit once none of the holders is in progress.
 */
typedef struct FenceMemory
{
	int64		last;			/* 0: nothing remembered */
	int			holder_count;
	FullTransactionId *holders;
	uint64		system_identifier;	/* transaction ids mean nothing elsewhere */
	Oid			database;
} FenceMemory;

extern void fence_enter(const Stream *stream);
extern void fence_close(const Stream *stream);
extern bool fence_is_inside(const Stream *stream);
extern bool fence_memory_is_valid(const FenceMemory *memory);
extern bool fence_memory_has_ended(const FenceMemory *memory);
extern void fence_list_holders(const Stream *stream, FenceMemory *memory);
extern int64 fence_settled_head(const Stream *stream, int64 known_settled);

#endif							/* SQLSTREAMS_FENCE_H */
