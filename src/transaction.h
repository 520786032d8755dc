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
extern Datum transaction_ids_to_array(const FullTransactionId *ids, int count);
extern int	transaction_ids_from_array(Datum array, FullTransactionId **ids);

#endif							/* SQLSTREAMS_TRANSACTION_H */
