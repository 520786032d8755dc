/*
 * options.h
 *		What a message may ask for: the "options" of produce, the
 *		message_defaults of a stream.  Checking only; no tables.
 */
#ifndef SQLSTREAMS_OPTIONS_H
#define SQLSTREAMS_OPTIONS_H

#include "postgres.h"

#include "utils/jsonb.h"

/* Raises 22023 naming the argument unless it is an object of known options. */
extern void options_check(const char *argument, Jsonb *options);

/* As options_check, for message_defaults, which may also have "concurrency". */
extern void options_check_message_defaults(Jsonb *defaults);

#endif							/* SQLSTREAMS_OPTIONS_H */
