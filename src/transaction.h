/*
 * transaction.h
 *		Remembering transactions by their full ids.
 */
#ifndef SQLSTREAMS_TRANSACTION_H
#define SQLSTREAMS_TRANSACTION_H

#include "postgres.h"

#include "access/transam.h"

extern FullTransactionId transaction_full_id(TransactionId xid);
extern bool transaction_is_in_progress(FullTransactionId id);

#endif							/* SQLSTREAMS_TRANSACTION_H */
