/*
 * relaxed_commit.h
 *		A claim that is its own transaction need not wait for its WAL.
 */
#ifndef SQLSTREAMS_RELAXED_COMMIT_H
#define SQLSTREAMS_RELAXED_COMMIT_H

#include "postgres.h"

extern void relaxed_commit_init(void);
extern bool relaxed_commit_is_clean(void);
extern void relaxed_commit_allow(void);

#endif							/* SQLSTREAMS_RELAXED_COMMIT_H */
