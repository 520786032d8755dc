/*
 * idempotency.h
 *		Idempotency keys: which messages of a produce are duplicates.
 */
#ifndef SQLSTREAMS_IDEMPOTENCY_H
#define SQLSTREAMS_IDEMPOTENCY_H

#include "stream.h"

/* A key and the place of its message in the batch. */
typedef struct IdempotencyKey
{
	text	   *key;
	int			message;
	bool		is_duplicate;	/* set by idempotency_claim_keys */
} IdempotencyKey;

typedef enum IdempotencyResult
{
	IDEMPOTENCY_DONE,
	IDEMPOTENCY_NO_TABLE,		/* the table has to be made first */
	IDEMPOTENCY_OUTDATED		/* the stream has changed */
} IdempotencyResult;

extern IdempotencyResult idempotency_claim_keys(const Stream *stream, IdempotencyKey *keys, int count);

#endif							/* SQLSTREAMS_IDEMPOTENCY_H */
