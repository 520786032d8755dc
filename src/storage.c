/*
 * storage.c
 *		A stream's tables: what they look like, making and dropping them.
 *
 * The tables lie in the extension's schema but are no members of the
 * extension: they belong to the stream's owner, are dumped like any table, and
 * keep DROP EXTENSION from succeeding while there are streams.  They are made
 * by the role that owns the extension's objects, because nobody else may
 * create anything in that schema, and then handed over.
 *
 * The tables of a feature are made when it is first used.  The log's partitions
 * are made by partition.c.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/pg_index.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "access.h"
#include "storage.h"

/*
 * Rows of these tables live for a moment and their newest version is what a
 * scan meets first, so that truncating the end of a table would only get in the
 * way of those who write it; a vacuum is due by the number of dead rows alone.
 */
#define STATE_TABLE_SETTINGS \
	"vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000"

/*
 * Keys are only inserted and go with their table, so that a vacuum because of
 * insertions would be in vain.
 */
#define IDEMPOTENCY_TABLE_BODY \
	"(idempotency_key text COLLATE pg_catalog.\"C\" PRIMARY KEY," \
	" created_at timestamptz NOT NULL)" \
	" WITH (" STATE_TABLE_SETTINGS ", autovacuum_vacuum_insert_threshold = -1)"

#define COMPACTION_KEY_TABLE_BODY \
	"(message_key text COLLATE pg_catalog.\"C\" PRIMARY KEY) WITH (" STATE_TABLE_SETTINGS ")"

#define COMPACTION_HEAD_TABLE_BODY \
	"(message_key text COLLATE pg_catalog.\"C\"," \
	" message_id bigint," \
	" schema_version integer NOT NULL," \
	" compaction_rank bigint NOT NULL," \
	" PRIMARY KEY (message_key, message_id)) WITH (" STATE_TABLE_SETTINGS ")"

/* Run one utility command.  The caller acts as the role that it needs. */
void
storage_execute(const char *sql)
{
	int			result;

	SPI_connect();
	result = SPI_execute(sql, false, 0);
	if (result != SPI_OK_UTILITY)
		elog(ERROR, "could not execute \"%s\": %s", sql, SPI_result_code_string(result));
	SPI_finish();
}

/*
 * Take away what the default privileges of the role that made a table gave to
 * others.
 */
static void
revoke_default_privileges(const char *name)
{
	uint64		count;
	char	  **commands;
	MemoryContext context = CurrentMemoryContext;
	MemoryContext old;

	SPI_connect();
	if (SPI_execute(psprintf("SELECT DISTINCT pg_catalog.format('REVOKE ALL ON sqlstreams.%s FROM %%s CASCADE',"
							 " CASE WHEN a.grantee OPERATOR(pg_catalog.=) 0 THEN 'PUBLIC'"
							 " ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END)"
							 " FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a"
							 " WHERE c.oid OPERATOR(pg_catalog.=) 'sqlstreams.%s'::pg_catalog.regclass"
							 " AND a.grantee OPERATOR(pg_catalog.<>) c.relowner", name, name),
					false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not read the privileges on \"%s\"", name);
	count = SPI_processed;
	old = MemoryContextSwitchTo(context);
	commands = palloc(sizeof(char *) * Max(count, 1));
	for (uint64 i = 0; i < count; i++)
		commands[i] = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1);
	MemoryContextSwitchTo(old);
	SPI_finish();

	for (uint64 i = 0; i < count; i++)
		storage_execute(commands[i]);
}

/*
 * Hand a table or sequence, which the caller has just made as the extension, to
 * its owner, with no privileges for anybody else.
 */
void
storage_hand_to_owner(const char *kind, const char *name, Oid owner)
{
	storage_execute(psprintf("ALTER %s sqlstreams.%s OWNER TO %s", kind, name,
							 quote_identifier(GetUserNameFromId(owner, false))));
	revoke_default_privileges(name);
}

/* Make a table of this name and hand it to its owner. */
static void
create_named_table(const char *name, const char *body, Oid owner)
{
	storage_execute(psprintf("CREATE TABLE sqlstreams.%s %s", name, body));
	storage_hand_to_owner("TABLE", name, owner);
}

/* Make a table and hand it to its owner. */
static void
create_table(const char *kind, int64 stream_id, const char *body, Oid owner)
{
	create_named_table(psprintf("%s_" INT64_FORMAT, kind, stream_id), body, owner);
}

/* The name of a generation's table of idempotency keys. */
static char *
idempotency_table_name(int64 stream_id, int64 generation)
{
	return psprintf("idempotency_key_" INT64_FORMAT "_" INT64_FORMAT, stream_id, generation);
}

/*
 * Make the log, without partitions, and the sequence of a new stream; returns
 * the log.
 */
Oid
storage_create_stream(int64 stream_id, Oid owner)
{
	AccessState saved;

	access_become_extension(&saved);
	create_table("message_log", stream_id,
				 "(id bigint NOT NULL,"
				 " created_at timestamptz NOT NULL,"
				 " deliver_at timestamptz,"
				 " compaction_rank bigint,"
				 " schema_version integer NOT NULL,"
				 " concurrency \"char\","
				 " message_key text COLLATE pg_catalog.\"C\","
				 " routing_key text COLLATE pg_catalog.\"C\","
				 " headers jsonb,"
				 " options jsonb,"
				 " payload jsonb,"
				 " body bytea,"
				 " PRIMARY KEY (id)) PARTITION BY RANGE (id)", owner);
	storage_execute(psprintf("CREATE INDEX ON sqlstreams.message_log_" INT64_FORMAT
							 " (message_key, id) WHERE message_key IS NOT NULL", stream_id));

	/* not owned by the column: TRUNCATE ... RESTART IDENTITY would set ids back */
	storage_execute(psprintf("CREATE SEQUENCE sqlstreams.message_id_" INT64_FORMAT, stream_id));
	storage_hand_to_owner("SEQUENCE", psprintf("message_id_" INT64_FORMAT, stream_id), owner);
	access_restore(&saved);
	return get_relname_relid(psprintf("message_log_" INT64_FORMAT, stream_id), stream_schema_oid());
}

/* Make the tables of what did not go well: exceptions and the delivery log. */
static void
create_failure_tables(int64 stream_id, Oid owner)
{
	create_table("exception_queue", stream_id,
				 "(group_id bigint,"
				 " message_id bigint,"
				 " status \"char\" NOT NULL,"
				 " due_at timestamptz NOT NULL,"
				 " attempts integer NOT NULL,"
				 " delays integer NOT NULL,"
				 " takeovers integer NOT NULL,"
				 " suspect boolean NOT NULL,"
				 " claim_id bigint,"
				 " last_error text,"
				 " updated_at timestamptz NOT NULL,"
				 " version bigint,"
				 " PRIMARY KEY (group_id, message_id, version)) WITH (" STATE_TABLE_SETTINGS ")", owner);
	storage_execute(psprintf("CREATE INDEX exception_queue_" INT64_FORMAT "_due_at_idx ON sqlstreams.exception_queue_" INT64_FORMAT
							 " (group_id, status, due_at, message_id)", stream_id, stream_id));
	create_table("delivery_log", stream_id,
				 "(group_id bigint,"
				 " message_id bigint,"
				 " claim_id bigint,"
				 " attempt integer NOT NULL,"
				 " outcome text NOT NULL,"
				 " error text,"
				 " consumer text,"
				 " started_at timestamptz NOT NULL,"
				 " ended_at timestamptz,"
				 " PRIMARY KEY (ended_at, group_id, message_id, claim_id))", owner);
	storage_execute(psprintf("CREATE INDEX delivery_log_" INT64_FORMAT "_message_id_idx ON sqlstreams.delivery_log_" INT64_FORMAT
							 " (message_id, ended_at)", stream_id, stream_id));
}

/* Make the tables for exclusive and ordered keys. */
static void
create_key_tables(int64 stream_id, Oid owner)
{
	create_table("message_key_lease", stream_id,
				 "(group_id bigint,"
				 " message_key text COLLATE pg_catalog.\"C\","
				 " version bigint,"
				 " claim_id bigint NOT NULL,"
				 " ordered boolean NOT NULL,"
				 " holders bigint[] NOT NULL,"
				 " deferred boolean NOT NULL,"
				 " deferred_from bigint NOT NULL,"
				 " PRIMARY KEY (group_id, message_key, version)) WITH (" STATE_TABLE_SETTINGS ")", owner);
	storage_execute(psprintf("CREATE INDEX message_key_lease_" INT64_FORMAT "_claim_id_idx ON sqlstreams.message_key_lease_" INT64_FORMAT
							 " (claim_id, deferred)", stream_id, stream_id));
	create_table("deferred_message", stream_id,
				 "(group_id bigint,"
				 " message_key text COLLATE pg_catalog.\"C\","
				 " message_id bigint,"
				 " PRIMARY KEY (group_id, message_key, message_id)) WITH (" STATE_TABLE_SETTINGS ")", owner);
}

/* Make the tables that keep the state of a stream's groups. */
void
storage_create_group_tables(const Stream *stream)
{
	AccessState saved;
	Oid			owner = access_stream_owner(stream);

	access_become_extension(&saved);
	create_table("group_cursor", stream->stream_id,
				 "(group_id bigint,"
				 " version bigint,"
				 " claimed bigint NOT NULL,"
				 " lease_scan_from timestamptz NOT NULL,"
				 " recheck_at timestamptz NOT NULL,"
				 " stepped_over bigint[] NOT NULL,"
				 " fence_last bigint NOT NULL,"
				 " fence_holders xid8[] NOT NULL,"
				 " fence_system bigint NOT NULL,"
				 " fence_database oid NOT NULL,"
				 " last_claim_at timestamptz,"
				 " due_from timestamptz NOT NULL,"
				 " due_writers xid8[],"
				 " due_writers_from timestamptz[],"
				 " filled_by_due boolean NOT NULL,"
				 " superseded bigint NOT NULL,"
				 " PRIMARY KEY (group_id, version)) WITH (" STATE_TABLE_SETTINGS ")", owner);
	create_table("claim_lease", stream->stream_id,
				 "(group_id bigint NOT NULL,"
				 " claim_id bigint,"
				 " segment integer,"
				 " expires_at timestamptz NOT NULL,"
				 " claimed_at timestamptz NOT NULL,"
				 " lease_us bigint NOT NULL,"
				 " messages integer NOT NULL,"
				 " takeovers integer NOT NULL,"
				 " released boolean NOT NULL,"
				 " first_id bigint NOT NULL,"
				 " members bytea NOT NULL,"
				 " consumer text,"
				 " exceptions boolean NOT NULL,"
				 " keys \"char\" NOT NULL,"
				 " PRIMARY KEY (claim_id, segment)) WITH (" STATE_TABLE_SETTINGS ")", owner);
	storage_execute(psprintf("CREATE INDEX claim_lease_" INT64_FORMAT "_expires_at_idx ON sqlstreams.claim_lease_" INT64_FORMAT
							 " (group_id, expires_at, claim_id, segment)", stream->stream_id, stream->stream_id));
	create_table("claim_resolved", stream->stream_id,
				 "(claim_id bigint,"
				 " message_id bigint,"
				 " PRIMARY KEY (claim_id, message_id)) WITH (" STATE_TABLE_SETTINGS ")", owner);
	create_failure_tables(stream->stream_id, owner);
	create_key_tables(stream->stream_id, owner);
	access_restore(&saved);
}

/* Does the stream have this table? */
static bool
has_table(int64 stream_id, const char *kind)
{
	return OidIsValid(stream_table_oid(kind, stream_id));
}

/* Does the stream have all the tables of a feature? */
bool
storage_has_feature(const Stream *stream, StorageFeature feature)
{
	if (feature == STORAGE_IDEMPOTENCY)
		return OidIsValid(stream_numbered_table_oid("idempotency_key", stream->stream_id,
													stream->idempotency_generation));
	return has_table(stream->stream_id, "compaction_key") && has_table(stream->stream_id, "compaction_head");
}

/* Has a table its primary key?  Says yes of one that does not exist. */
static bool
has_primary_key(Oid table)
{
	Relation	rel;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	if (!OidIsValid(access_relation_owner(table)))
		return true;
	rel = table_open(IndexRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_index_indrelid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(table));
	scan = systable_beginscan(rel, IndexIndrelidIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_index index = (Form_pg_index) GETSTRUCT(tuple);

		found |= index->indisprimary && index->indisvalid;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/* Tables that a stream may have, the log but not its partitions. */
#define STREAM_TABLES 12

/* The oids of the stream's tables, invalid for those that it does not have. */
static void
list_tables(const Stream *stream, Oid tables[STREAM_TABLES])
{
	const Oid	list[STREAM_TABLES] = {
		stream->log_oid, stream->idempotency_old_oid, stream->idempotency_oid, stream->compaction_key_oid,
		stream->compaction_head_oid, stream->lease_oid, stream->resolved_oid, stream->exception_oid,
		stream->delivery_log_oid, stream->key_lease_oid, stream->deferred_oid, stream->cursor_oid
	};

	memcpy(tables, list, sizeof(list));
}

/*
 * Have all the tables of a stream that exist their primary keys?  A restore
 * makes these last: before that the stream is not to be touched.
 */
bool
storage_is_complete(const Stream *stream)
{
	Oid			tables[STREAM_TABLES];

	list_tables(stream, tables);
	for (int i = 0; i < STREAM_TABLES; i++)
	{
		if (!has_primary_key(tables[i]))
			return false;
	}
	return true;
}

/* Give a table of a stream to a role unless it has it already. */
void
storage_give_to(Oid table, Oid owner)
{
	AccessState saved;
	Oid			present = access_relation_owner(table);

	if (!OidIsValid(present) || present == owner)
		return;
	access_become_extension(&saved);
	storage_execute(psprintf("ALTER TABLE sqlstreams.%s OWNER TO %s",
							 quote_identifier(get_rel_name(table)),
							 quote_identifier(GetUserNameFromId(owner, false))));
	access_restore(&saved);
}

/* Give the stream's tables, but for its partitions, to a role. */
void
storage_give_tables_to(const Stream *stream, Oid owner)
{
	Oid			tables[STREAM_TABLES];

	list_tables(stream, tables);
	storage_give_to(stream->sequence_oid, owner);
	for (int i = 0; i < STREAM_TABLES; i++)
		storage_give_to(tables[i], owner);
}

/*
 * Make the tables of a feature that do not exist; none if the stream does not.
 * The generation is that of idempotency keys.
 */
void
storage_create_feature(int64 stream_id, Oid log_oid, StorageFeature feature, int64 generation)
{
	AccessState saved;
	Oid			owner;

	/* whoever has this lock before us may have made them, or dropped the log */
	LockRelationOid(log_oid, ShareUpdateExclusiveLock);
	owner = access_relation_owner(log_oid);
	if (!OidIsValid(owner))
		return;
	access_become_extension(&saved);
	if (feature == STORAGE_IDEMPOTENCY)
	{
		if (!OidIsValid(stream_numbered_table_oid("idempotency_key", stream_id, generation)))
			create_named_table(idempotency_table_name(stream_id, generation), IDEMPOTENCY_TABLE_BODY, owner);
	}
	else
	{
		if (!has_table(stream_id, "compaction_key"))
			create_table("compaction_key", stream_id, COMPACTION_KEY_TABLE_BODY, owner);
		if (!has_table(stream_id, "compaction_head"))
			create_table("compaction_head", stream_id, COMPACTION_HEAD_TABLE_BODY, owner);
	}
	access_restore(&saved);
	stream_invalidate_all();
}

/* Make the table for a generation of idempotency keys, which does not exist. */
void
storage_create_idempotency_table(const Stream *stream, int64 generation)
{
	AccessState saved;
	Oid			owner = access_stream_owner(stream);

	access_become_extension(&saved);
	create_named_table(idempotency_table_name(stream->stream_id, generation), IDEMPOTENCY_TABLE_BODY, owner);
	access_restore(&saved);
}

/* Drop the table for a generation of idempotency keys, which the caller has locked. */
void
storage_drop_idempotency_table(const Stream *stream, int64 generation)
{
	AccessState saved;

	access_become_extension(&saved);
	storage_execute(psprintf("DROP TABLE sqlstreams.%s", idempotency_table_name(stream->stream_id, generation)));
	access_restore(&saved);
}

/*
 * Drop all tables of a stream that is locked.  Those of the groups come in the
 * order in which claims lock them, the heads after the log as for who reads
 * both.
 */
void
storage_drop_stream(const Stream *stream)
{
	static const char *const tables[] = {
		"compaction_key", "claim_lease", "claim_resolved", "exception_queue", "delivery_log",
		"message_key_lease", "deferred_message", "group_cursor", "message_log", "compaction_head"
	};
	AccessState saved;

	for (int64 n = stream->idempotency_generation - 1; n <= stream->idempotency_generation; n++)
	{
		if (OidIsValid(stream_numbered_table_oid("idempotency_key", stream->stream_id, n)))
			storage_drop_idempotency_table(stream, n);
	}
	access_become_extension(&saved);
	for (int i = 0; i < lengthof(tables); i++)
	{
		if (has_table(stream->stream_id, tables[i]))
			storage_execute(psprintf("DROP TABLE sqlstreams.%s_" INT64_FORMAT, tables[i], stream->stream_id));
	}
	if (OidIsValid(stream->sequence_oid))
		storage_execute(psprintf("DROP SEQUENCE sqlstreams.message_id_" INT64_FORMAT, stream->stream_id));
	access_restore(&saved);
}
