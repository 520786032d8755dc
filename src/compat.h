/*
 * compat.h
 *		What differs between the supported server versions (15 to 18).
 *
 * The only file that looks at PG_VERSION_NUM.
 */
#ifndef SQLSTREAMS_COMPAT_H
#define SQLSTREAMS_COMPAT_H

#include "postgres.h"

#include "access/genam.h"
#include "catalog/pg_database.h"
#include "executor/executor.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "sqlstreams needs PostgreSQL 15 or later"
#endif

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 170000
#include "storage/procnumber.h"
#else
#include "storage/backendid.h"
#include "storage/sinvaladt.h"
#endif

/* Stands before a declaration, as from 18 on. */
#if PG_VERSION_NUM < 180000
#define pg_noreturn pg_attribute_noreturn()
#endif

/* Is an interval infinite?  There are none before 17. */
#if PG_VERSION_NUM >= 170000
#define COMPAT_INTERVAL_NOT_FINITE(interval) INTERVAL_NOT_FINITE(interval)
#else
#define COMPAT_INTERVAL_NOT_FINITE(interval) false
#endif

/* The file of a relation, as a WAL record of a sequence names it. */
#if PG_VERSION_NUM >= 160000
#define COMPAT_SET_SEQ_LOCATOR(record, rel) ((record).locator = (rel)->rd_locator)
#else
#define COMPAT_SET_SEQ_LOCATOR(record, rel) ((record).node = (rel)->rd_node)
#endif

#if PG_VERSION_NUM >= 180000
#define COMPAT_INDEX_BEGINSCAN(heap, index, snapshot, nkeys) \
	index_beginscan((heap), (index), (snapshot), NULL, (nkeys), 0)
#define COMPAT_PRIMARY_KEY_INDEX(rel) RelationGetPrimaryKeyIndex((rel), false)
#define COMPAT_EXEC_CHECK_INDEX_CONSTRAINTS(rri, slot, estate, conflict) \
	ExecCheckIndexConstraints((rri), (slot), (estate), (conflict), NULL, NIL)
#else
#define COMPAT_INDEX_BEGINSCAN(heap, index, snapshot, nkeys) \
	index_beginscan((heap), (index), (snapshot), (nkeys), 0)
#define COMPAT_PRIMARY_KEY_INDEX(rel) RelationGetPrimaryKeyIndex(rel)
#define COMPAT_EXEC_CHECK_INDEX_CONSTRAINTS(rri, slot, estate, conflict) \
	ExecCheckIndexConstraints((rri), (slot), (estate), (conflict), NIL)
#endif

/* Insert the index entries of a new row. */
static inline List *
compat_insert_index_tuples(ResultRelInfo *rri, TupleTableSlot *slot, EState *estate,
						   bool no_duplicate_error, bool *conflict)
{
#if PG_VERSION_NUM >= 160000
	return ExecInsertIndexTuples(rri, slot, estate, false, no_duplicate_error, conflict, NIL, false);
#else
	return ExecInsertIndexTuples(rri, slot, estate, false, no_duplicate_error, conflict, NIL);
#endif
}

/* Does this transaction hold the lock in exactly this mode? */
static inline bool
compat_lock_held_by_me(const LOCKTAG *tag, LOCKMODE mode)
{
#if PG_VERSION_NUM >= 170000
	return LockHeldByMe(tag, mode, false);
#else
	return LockHeldByMe(tag, mode);
#endif
}

/* The process that runs a virtual transaction, or NULL if it is not connected. */
static inline PGPROC *
compat_vxid_proc(const VirtualTransactionId *vxid)
{
#if PG_VERSION_NUM >= 170000
	return vxid->procNumber == INVALID_PROC_NUMBER ? NULL : ProcNumberGetProc(vxid->procNumber);
#else
	return vxid->backendId == InvalidBackendId ? NULL : BackendIdGetProc(vxid->backendId);
#endif
}

/* Does a role own a database, or may do what its owner may? */
static inline bool
compat_owns_database(Oid database, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(DatabaseRelationId, database, role);
#else
	return pg_database_ownercheck(database, role);
#endif
}

/* What a process of the extension waits for, as pg_stat_activity shows it. */
static inline uint32
compat_wait_event(void)
{
#if PG_VERSION_NUM >= 170000
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("SqlstreamsMain");
	return wait_event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

/* Let a background worker's transactions last as long as they need. */
static inline void
compat_set_no_transaction_timeout(void)
{
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_USERSET, PGC_S_OVERRIDE);
#endif
}

/* A generated column, stored or virtual. */
static inline bool
compat_has_generated_column(TupleDesc desc)
{
	if (desc->constr == NULL)
		return false;
#if PG_VERSION_NUM >= 180000
	if (desc->constr->has_generated_virtual)
		return true;
#endif
	return desc->constr->has_generated_stored;
}

#endif							/* SQLSTREAMS_COMPAT_H */
