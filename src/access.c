/*
 * access.c
 *		Who may do what with a stream, and acting as somebody else.
 *
 * Rights are plain PostgreSQL privileges on the stream's tables, so that they
 * are dumped, shown by psql and given with GRANT.  Each check first raises an
 * error if the log is missing, lest a user learns of its oid.
 *
 *		produce		INSERT on column payload of the log
 *		read		SELECT on the log
 *		consume		UPDATE on the group cursors
 *		owner		ownership of the log
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "access.h"
#include "message_log.h"

/* Raise 42501 for a privilege that the current role lacks. */
static void
raise_denied(const Stream *stream, const char *privilege)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for stream \"%s\"", stream->name),
			 errdetail("Privilege \"%s\" is needed.", privilege)));
}

static bool
can_produce(const Stream *stream, Oid role)
{
	return pg_class_aclcheck(stream->log_oid, role, ACL_INSERT) == ACLCHECK_OK ||
		pg_attribute_aclcheck(stream->log_oid, Anum_log_payload, role, ACL_INSERT) == ACLCHECK_OK;
}

static bool
can_read(const Stream *stream, Oid role)
{
	return pg_class_aclcheck(stream->log_oid, role, ACL_SELECT) == ACLCHECK_OK;
}

static bool
is_owner(const Stream *stream, Oid role)
{
	Oid			owner = access_relation_owner(stream->log_oid);

	return OidIsValid(owner) && has_privs_of_role(role, owner);
}

/*
 * The cursors may still belong to a former owner of the stream, whose rights
 * these would be.
 */
static bool
can_consume(const Stream *stream, Oid role)
{
	Oid			owner = access_relation_owner(stream->cursor_oid);

	return is_owner(stream, role) ||
		(OidIsValid(owner) && owner == access_relation_owner(stream->log_oid) &&
		 pg_class_aclcheck(stream->cursor_oid, role, ACL_UPDATE) == ACLCHECK_OK);
}

/* Raise 42501 unless the current role may produce to the stream. */
void
access_check_produce(const Stream *stream)
{
	(void) access_stream_owner(stream);
	if (!can_produce(stream, GetUserId()))
		raise_denied(stream, "produce");
}

/*
 * Raise 42501 unless the current role may consume from the stream.  A stream
 * without a group has no cursors yet; then only the owner may.
 */
void
access_check_consume(const Stream *stream)
{
	(void) access_stream_owner(stream);
	if (!can_consume(stream, GetUserId()))
		raise_denied(stream, "consume");
}

/* Raise 42501 unless the current role may read the stream's messages. */
void
access_check_read(const Stream *stream)
{
	(void) access_stream_owner(stream);
	if (!can_read(stream, GetUserId()))
		raise_denied(stream, "read");
}

/*
 * Find a stream that the current role may read, by name, and keep it from being
 * dropped until the transaction ends.
 */
void
access_open_to_read(const char *name, Stream *stream)
{
	int64		locked_stream = 0;

	for (;;)
	{
		stream_lookup(name, stream);
		access_check_read(stream);
		if (stream->stream_id == locked_stream)
			return;
		LockRelationOid(stream->log_oid, AccessShareLock);
		if (stream_is_current(stream))
			return;
		locked_stream = stream->stream_id;
	}
}

/* Raise 42501 unless the current role owns the stream. */
void
access_check_owner(const Stream *stream)
{
	(void) access_stream_owner(stream);
	if (!is_owner(stream, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of stream \"%s\"", stream->name)));
}

/*
 * Raise 42501 unless the current role may drop what is left of a stream without
 * a log: the owner is not known any more.
 */
void
access_check_drop_incomplete(const Stream *stream)
{
	if (!superuser() && !has_privs_of_role(GetUserId(), access_relation_owner(stream->cursor_oid)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to drop stream \"%s\"", stream->name),
				 errdetail("Its message log is missing, so that its owner is not known.")));
}

/* Has the current role any right on the stream? */
bool
access_is_visible(const Stream *stream)
{
	Oid			role = GetUserId();

	if (!OidIsValid(access_relation_owner(stream->log_oid)))
		return false;
	return can_consume(stream, role) || can_produce(stream, role) || can_read(stream, role);
}

/* The owner of a relation, or InvalidOid when it does not exist any more. */
Oid
access_relation_owner(Oid relation)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Oid			owner;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	owner = ((Form_pg_class) GETSTRUCT(tuple))->relowner;
	ReleaseSysCache(tuple);
	return owner;
}

/*
 * The owner of the stream's log, which is the stream's owner.  Raises SS001
 * when the stream was dropped meanwhile, 55000 when its log is missing.
 */
Oid
access_stream_owner(const Stream *stream)
{
	Oid			owner = access_relation_owner(stream->log_oid);

	if (!OidIsValid(owner))
		stream_raise_table_missing(stream);
	return owner;
}

/* Set a setting until access_restore. */
static void
set_safely(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

static void
become(Oid role, int context, AccessState *saved)
{
	GetUserIdAndSecContext(&saved->userid, &saved->security_context);
	SetUserIdAndSecContext(role, saved->security_context | context);
	saved->guc_nest_level = NewGUCNestLevel();
	saved->creating_extension = creating_extension;
	set_safely("search_path", "pg_catalog, pg_temp");

	/* the caller must not say where and how they are stored */
	set_safely("default_tablespace", "");
	set_safely("default_table_access_method", "heap");
}

/*
 * Go on as the role that owns the extension's objects, to make and change the
 * tables that users have no right to.  Nothing that a user defined may run
 * before access_restore.  An error restores by itself.
 */
void
access_become_extension(AccessState *saved)
{
	become(BOOTSTRAP_SUPERUSERID, SECURITY_LOCAL_USERID_CHANGE, saved);

	/* what is made while another extension is created is not a part of that */
	creating_extension = false;
}

/* Go on as a stream's owner, unable to do what would outlast the operation. */
void
access_become_owner(Oid owner, AccessState *saved)
{
	become(owner, SECURITY_LOCAL_USERID_CHANGE | SECURITY_RESTRICTED_OPERATION, saved);
}

/* Undo access_become_extension or access_become_owner. */
void
access_restore(const AccessState *saved)
{
	creating_extension = saved->creating_extension;
	AtEOXact_GUC(false, saved->guc_nest_level);
	SetUserIdAndSecContext(saved->userid, saved->security_context);
}
