/*
 * settled_head.h
 *		How far a stream is settled, by what its groups have found out.
 */
#ifndef SQLSTREAMS_SETTLED_HEAD_H
#define SQLSTREAMS_SETTLED_HEAD_H

#include "stream.h"

extern bool settled_head_find(const Stream *stream, int64 *settled);

#endif							/* SQLSTREAMS_SETTLED_HEAD_H */
