/*
 * id_sequence.h
 *		Draws message ids and reads how far they were drawn.
 */
#ifndef SQLSTREAMS_ID_SEQUENCE_H
#define SQLSTREAMS_ID_SEQUENCE_H

#include "stream.h"

extern bool id_sequence_draw(const Stream *stream, int64 count, int64 *first);
extern bool id_sequence_raise(const Stream *stream, int64 target);
extern bool id_sequence_last(Oid sequence_oid, int64 *last);

#endif							/* SQLSTREAMS_ID_SEQUENCE_H */
