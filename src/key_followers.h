/*
 * key_followers.h
 *		Later messages of a key in one claim, when an earlier one has failed.
 */
#ifndef SQLSTREAMS_KEY_FOLLOWERS_H
#define SQLSTREAMS_KEY_FOLLOWERS_H

#include "outcome.h"

extern const Resolution *key_followers_add(OutcomeWriter *writer, int64 claim_id, List *segments,
										   const Resolution *others, const Resolution *named,
										   int64 *named_count);
extern void key_followers_defer(OutcomeWriter *writer, text *key, int64 message_id);

#endif							/* SQLSTREAMS_KEY_FOLLOWERS_H */
