/*
 * id_set.h
 *		Sets of message ids, and how they are stored: pure, no tables.
 */
#ifndef SQLSTREAMS_ID_SET_H
#define SQLSTREAMS_ID_SET_H

#include "postgres.h"

/* Consecutive ids. */
typedef struct IdRun
{
	int64		first;
	int64		count;
} IdRun;

/* Runs in rising order that neither touch nor overlap. */
typedef struct IdSet
{
	int			run_count;
	int			run_capacity;
	IdRun	   *runs;
} IdSet;

extern int	id_compare(const void *a, const void *b);
extern void id_set_init(IdSet *set);
extern void id_set_append(IdSet *set, int64 id);
extern void id_set_append_run(IdSet *set, int64 first, int64 count);
extern int64 id_set_count(const IdSet *set);
extern bool id_set_contains(const IdSet *set, int64 id);
extern int64 id_set_nth(const IdSet *set, int64 n);
extern void id_set_subtract(IdSet *set, const int64 *sorted_ids, int64 count);
extern void id_set_remove_through(IdSet *set, int64 last);
extern void id_set_remove_range(IdSet *set, int64 first, int64 last);
extern bytea *id_set_encode(const IdSet *set);
extern void id_set_decode(IdSet *set, int64 first_id, const bytea *encoded);

#endif							/* SQLSTREAMS_ID_SET_H */
