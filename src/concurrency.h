/*
 * concurrency.h
 *		Whether messages of one key may be processed at the same time.
 */
#ifndef SQLSTREAMS_CONCURRENCY_H
#define SQLSTREAMS_CONCURRENCY_H

#include "postgres.h"

#include "utils/jsonb.h"

/* Stored as these letters. */
typedef enum Concurrency
{
	CONCURRENCY_UNSET = 0,		/* somebody else decides */
	CONCURRENCY_PARALLEL = 'p',
	CONCURRENCY_EXCLUSIVE = 'e',	/* one at a time */
	CONCURRENCY_ORDERED = 'o'	/* one after the other, in the order of ids */
} Concurrency;

extern bool concurrency_parse(const char *name, int length, Concurrency *concurrency);
extern Concurrency concurrency_read(Jsonb *object);
extern const char *concurrency_name(Concurrency concurrency);
extern Concurrency concurrency_first(Concurrency a, Concurrency b);

#endif							/* SQLSTREAMS_CONCURRENCY_H */
