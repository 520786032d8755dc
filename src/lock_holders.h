/*
 * lock_holders.h
 *		Who holds a lock on a relation to the end of its transaction.
 */
#ifndef SQLSTREAMS_LOCK_HOLDERS_H
#define SQLSTREAMS_LOCK_HOLDERS_H

#include "postgres.h"

#include "access/transam.h"

extern void lock_holders_join(Oid relation);
extern bool lock_holders_include_me(Oid relation);
extern int	lock_holders_list(Oid relation, FullTransactionId **holders);
extern bool lock_holders_have_ended(const FullTransactionId *holders, int count);

#endif							/* SQLSTREAMS_LOCK_HOLDERS_H */
