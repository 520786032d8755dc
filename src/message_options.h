/*
 * message_options.h
 *		The options that a message is delivered with: pure, no tables.
 */
#ifndef SQLSTREAMS_MESSAGE_OPTIONS_H
#define SQLSTREAMS_MESSAGE_OPTIONS_H

#include "postgres.h"

extern Datum message_options_of_group(Datum timeout, Datum max_retries, Datum max_delays,
									  Datum base_delay, Datum max_delay, Datum exponent);

#endif							/* SQLSTREAMS_MESSAGE_OPTIONS_H */
