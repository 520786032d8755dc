/*
 * errors.h
 *		The SQLSTATEs of the interface that PostgreSQL does not have, by name.
 *
 * Users see these in API errors and may match them, so they never change.
 */
#ifndef SQLSTREAMS_ERRORS_H
#define SQLSTREAMS_ERRORS_H

#include "utils/elog.h"

#define ERRCODE_STREAM_NOT_FOUND			MAKE_SQLSTATE('S','S','0','0','1')
#define ERRCODE_GROUP_NOT_FOUND				MAKE_SQLSTATE('S','S','0','0','2')
#define ERRCODE_STREAM_OR_GROUP_EXISTS		MAKE_SQLSTATE('S','S','0','0','3')
#define ERRCODE_LEASE_LOST					MAKE_SQLSTATE('S','S','0','0','4')
#define ERRCODE_PARTITION_CREATION_BEHIND	MAKE_SQLSTATE('S','S','0','0','5')
#define ERRCODE_PARTITION_LOCK_TIMEOUT		MAKE_SQLSTATE('S','S','0','0','6')
#define ERRCODE_MAINTENANCE_UNAVAILABLE		MAKE_SQLSTATE('S','S','0','0','7')

#endif							/* SQLSTREAMS_ERRORS_H */
