/*
 * key_wakeup.h
 *		Telling the next claim that keys may have become free.
 */
#ifndef SQLSTREAMS_KEY_WAKEUP_H
#define SQLSTREAMS_KEY_WAKEUP_H

#include "outcome.h"

extern void key_wakeup_if_awaited(OutcomeWriter *writer, int64 claim_id);
extern void key_wakeup_of_message(OutcomeWriter *writer, int64 claim_id, int64 message_id);
extern void key_wakeup_of_group(OutcomeWriter *writer);
extern void key_wakeup_after_loss(OutcomeWriter *writer, List *segments);

#endif							/* SQLSTREAMS_KEY_WAKEUP_H */
