/*
 * routing.h
 *		Which messages a consumer group's bindings match: pure, no tables.
 */
#ifndef SQLSTREAMS_ROUTING_H
#define SQLSTREAMS_ROUTING_H

#include "postgres.h"

#include "utils/array.h"

/* A pattern that routing keys are compared with. */
typedef struct RoutingPattern
{
	int			length;
	char	   *text;			/* not terminated */
} RoutingPattern;

/* The patterns of a group; none match every message. */
typedef struct Routing
{
	int			count;
	RoutingPattern *patterns;
} Routing;

extern void routing_compile(Routing *routing, ArrayType *bindings);
extern bool routing_matches(const Routing *routing, const text *routing_key);

#endif							/* SQLSTREAMS_ROUTING_H */
