\echo Use "CREATE EXTENSION sqlstreams" to load this file. \quit

--
-- The schema.  It is a member of the extension, so a schema of this name that
-- somebody planted makes CREATE EXTENSION fail instead of being adopted.
--
CREATE SCHEMA sqlstreams;
COMMENT ON SCHEMA sqlstreams IS 'sqlstreams: streams, consumer groups and message delivery';
REVOKE ALL ON SCHEMA sqlstreams FROM PUBLIC;
GRANT USAGE ON SCHEMA sqlstreams TO PUBLIC;

--
-- Configuration.  Read by C code by column number: src/stream.c and src/group.c.
-- A stream's messages and its groups' state live in tables of their own, named
-- by the stream's id (src/storage.c), which belong to the stream's owner.
--
CREATE SEQUENCE sqlstreams.stream_id_seq;
CREATE SEQUENCE sqlstreams.group_id_seq;

CREATE TABLE sqlstreams.stream (
    stream_id                 bigint PRIMARY KEY,
    stream_name               text COLLATE pg_catalog."C" NOT NULL UNIQUE,
    partition_size            bigint NOT NULL,
    partition_interval        interval,
    retention                 interval,
    allow_drop_past_committed boolean NOT NULL,
    idempotency_key_ttl       interval NOT NULL,
    empty_compaction_head_ttl interval NOT NULL,
    delivery_log              text NOT NULL,
    message_defaults          jsonb,
    purged_through            bigint NOT NULL DEFAULT 0,
    maintenance_suspended     boolean NOT NULL DEFAULT false,
    idempotency_generation    bigint NOT NULL DEFAULT 1,
    idempotency_phase         text NOT NULL DEFAULT 'one',
    idempotency_since         timestamptz,
    idempotency_announced_by  xid8,
    idempotency_waits_for     xid8[],
    idempotency_waits_system  bigint,
    purged_at                 timestamptz
);
COMMENT ON TABLE sqlstreams.stream IS 'the streams and their settings; change them with alter_stream';

CREATE TABLE sqlstreams.log_partition (
    stream_id    bigint,
    number       bigint,
    created_at   timestamptz NOT NULL,
    waits_for    xid8[],
    waits_system bigint,
    sealed_at    timestamptz,
    dropped_at   timestamptz,
    PRIMARY KEY (stream_id, number)
);
COMMENT ON TABLE sqlstreams.log_partition IS 'what maintenance knows of the partitions of the streams'' logs; see view partitions';

CREATE TABLE sqlstreams.consumer_group (
    group_id             bigint PRIMARY KEY,
    stream_id            bigint NOT NULL,
    group_name           text COLLATE pg_catalog."C" NOT NULL,
    timeout              interval NOT NULL,
    max_reclaims         bigint NOT NULL,
    bindings             text[],
    schema_version       integer,
    concurrency          text,
    concurrency_override text,
    max_retries          bigint NOT NULL,
    max_delays           bigint NOT NULL,
    base_delay           interval NOT NULL,
    max_delay            interval NOT NULL,
    exponent             bigint NOT NULL,
    initial_backoff      interval NOT NULL,
    message_min          jsonb,
    message_max          jsonb,
    start_id             bigint NOT NULL,
    head_id              bigint NOT NULL,
    head_missing_from    bigint,
    head_missing         bytea,
    UNIQUE (stream_id, group_name)
);
COMMENT ON TABLE sqlstreams.consumer_group IS 'the consumer groups and their settings; change them with alter_group';

SELECT pg_catalog.pg_extension_config_dump('sqlstreams.stream', '');
SELECT pg_catalog.pg_extension_config_dump('sqlstreams.consumer_group', '');
SELECT pg_catalog.pg_extension_config_dump('sqlstreams.log_partition', 'WHERE sealed_at IS NOT NULL');
SELECT pg_catalog.pg_extension_config_dump('sqlstreams.stream_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('sqlstreams.group_id_seq', '');

--
-- Row types
--
CREATE TYPE sqlstreams.claimed_message AS (
    claim_id         bigint,
    message_id       bigint,
    payload          jsonb,
    message_key      text,
    routing_key      text,
    headers          jsonb,
    schema_version   integer,
    compaction_rank  bigint,
    created_at       timestamptz,
    deliver_at       timestamptz,
    attempts         integer,
    delays           integer,
    takeovers        integer,
    concurrency      text,
    options          jsonb,
    lease_expires_at timestamptz,
    body             bytea
);
COMMENT ON TYPE sqlstreams.claimed_message IS 'a message as claim and pop return it; options and concurrency are effective';

CREATE TYPE sqlstreams.stored_message AS (
    message_id      bigint,
    payload         jsonb,
    message_key     text,
    routing_key     text,
    headers         jsonb,
    schema_version  integer,
    compaction_rank bigint,
    created_at      timestamptz,
    deliver_at      timestamptz,
    options         jsonb,
    body            bytea
);
COMMENT ON TYPE sqlstreams.stored_message IS 'a message as it stands in the log; compaction_rank is NULL when it is not compacted';

--
-- Streams
--
CREATE FUNCTION sqlstreams.create_stream(
    stream                    text,
    partition_size            bigint   DEFAULT 1000000,
    partition_interval        interval DEFAULT NULL,
    retention                 interval DEFAULT NULL,
    allow_drop_past_committed boolean  DEFAULT false,
    idempotency_key_ttl       interval DEFAULT '24 hours',
    empty_compaction_head_ttl interval DEFAULT '1 hour',
    delivery_log              text     DEFAULT 'failures',
    message_defaults          jsonb    DEFAULT NULL,
    if_not_exists             boolean  DEFAULT false
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_create_stream';
COMMENT ON FUNCTION sqlstreams.create_stream(text, bigint, interval, interval, boolean, interval, interval, text, jsonb, boolean) IS
'creates a stream that the current role owns and returns its id. partition_size: message ids per partition (>= 2, fixed for life). partition_interval: a new partition at least this often while messages come; NULL: a quarter of retention, or never. retention: how long messages are kept at least; NULL: for ever. allow_drop_past_committed: retention also drops what a group has not resolved. empty_compaction_head_ttl: how long a key is known after its newest version was dropped. idempotency_key_ttl: how long an idempotency key protects. delivery_log: off, failures or all. message_defaults: what a message that does not say asks for. if_not_exists: an existing stream is left as it is. Errors: SS003 it exists, 22023 a bad value, 42501 no right to create streams';
REVOKE ALL ON FUNCTION sqlstreams.create_stream(text, bigint, interval, interval, boolean, interval, interval, text, jsonb, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sqlstreams.create_stream(text, bigint, interval, interval, boolean, interval, interval, text, jsonb, boolean) TO @extowner@ WITH GRANT OPTION;

CREATE FUNCTION sqlstreams.alter_stream(
    stream                    text,
    partition_interval        interval DEFAULT NULL,
    retention                 interval DEFAULT NULL,
    allow_drop_past_committed boolean  DEFAULT NULL,
    idempotency_key_ttl       interval DEFAULT NULL,
    empty_compaction_head_ttl interval DEFAULT NULL,
    delivery_log              text     DEFAULT NULL,
    message_defaults          jsonb    DEFAULT NULL,
    reset                     text[]   DEFAULT NULL
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_alter_stream';
COMMENT ON FUNCTION sqlstreams.alter_stream(text, interval, interval, boolean, interval, interval, text, jsonb, text[]) IS
'changes settings of a stream; NULL leaves one as it is, reset names those to put back to their default (retention: for ever). Errors: SS001 no such stream, 22023 a bad value, 42501 not the owner';

CREATE FUNCTION sqlstreams.rename_stream(stream text, new_name text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_rename_stream';
COMMENT ON FUNCTION sqlstreams.rename_stream(text, text) IS
'gives a stream another name; its id, messages and groups stay. Errors: SS001 no such stream, SS003 the new name is taken, 22023 a bad name, 42501 not the owner';

CREATE FUNCTION sqlstreams.drop_stream(stream text, if_exists boolean DEFAULT false) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_drop_stream';
COMMENT ON FUNCTION sqlstreams.drop_stream(text, boolean) IS
'drops a stream with its messages and groups, after open producers and claims have ended; true when it did, false when there was none and if_exists is set. Errors: SS001 no such stream, 42501 not the owner';

CREATE FUNCTION sqlstreams.purge_stream(stream text) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_purge_stream';
COMMENT ON FUNCTION sqlstreams.purge_stream(text) IS
'drops every message up to the settled head without waiting and returns how many ids that were; claims on them are lost (SS004), exceptions go, what open producers commit later stays. Errors: SS001 no such stream, 42501 not the owner';

CREATE FUNCTION sqlstreams.suspend_maintenance(stream text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_suspend_maintenance';
COMMENT ON FUNCTION sqlstreams.suspend_maintenance(text) IS
'keeps maintenance away from a stream, also in a crash and after it, until resume_maintenance: no partition is made ahead or dropped, nothing expires. Waits for a step that is running. Producers, claims and purge_stream go on. Errors: SS001 no such stream, 42501 not the owner';

CREATE FUNCTION sqlstreams.resume_maintenance(stream text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_resume_maintenance';
COMMENT ON FUNCTION sqlstreams.resume_maintenance(text) IS
'ends suspend_maintenance; what is due is done then. Errors: SS001 no such stream, 42501 not the owner';

--
-- Consumer groups
--
CREATE FUNCTION sqlstreams.create_group(
    stream               text,
    consumer_group       text,
    start_position       text        DEFAULT NULL,
    start_id             bigint      DEFAULT NULL,
    start_time           timestamptz DEFAULT NULL,
    bindings             text[]      DEFAULT NULL,
    schema_version       bigint      DEFAULT NULL,
    concurrency          text        DEFAULT NULL,
    concurrency_override text        DEFAULT NULL,
    timeout              interval    DEFAULT '30 seconds',
    max_retries          bigint      DEFAULT 3,
    max_delays           bigint      DEFAULT 0,
    base_delay           interval    DEFAULT '1 second',
    max_delay            interval    DEFAULT '5 minutes',
    exponent             bigint      DEFAULT 2,
    initial_backoff      interval    DEFAULT '5 seconds',
    message_min          jsonb       DEFAULT NULL,
    message_max          jsonb       DEFAULT NULL,
    max_reclaims         bigint      DEFAULT 3,
    if_not_exists        boolean     DEFAULT false
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_create_group';
COMMENT ON FUNCTION sqlstreams.create_group(text, text, text, bigint, timestamptz, text[], bigint, text, text, interval, bigint, bigint, interval, interval, bigint, interval, jsonb, jsonb, bigint, boolean) IS
'creates a consumer group on a stream and returns its id. start_id: the first message id to read; without a start it reads from the beginning. timeout: how long one message may run, the basis of the lease. message_min, message_max: bounds on what a message may ask. concurrency: for messages with a key that ask for none: parallel, exclusive (one of a key at a time) or ordered (one after the other); concurrency_override replaces what they ask. Errors: SS001 no such stream, SS003 it exists, 22023 a bad value or bounds that cross, 42501 not the owner';

CREATE FUNCTION sqlstreams.alter_group(
    stream               text,
    consumer_group       text,
    bindings             text[]   DEFAULT NULL,
    schema_version       bigint   DEFAULT NULL,
    concurrency          text     DEFAULT NULL,
    concurrency_override text     DEFAULT NULL,
    timeout              interval DEFAULT NULL,
    max_retries          bigint   DEFAULT NULL,
    max_delays           bigint   DEFAULT NULL,
    base_delay           interval DEFAULT NULL,
    max_delay            interval DEFAULT NULL,
    exponent             bigint   DEFAULT NULL,
    initial_backoff      interval DEFAULT NULL,
    message_min          jsonb    DEFAULT NULL,
    message_max          jsonb    DEFAULT NULL,
    max_reclaims         bigint   DEFAULT NULL,
    reset                text[]   DEFAULT NULL
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_alter_group';
COMMENT ON FUNCTION sqlstreams.alter_group(text, text, text[], bigint, text, text, interval, bigint, bigint, interval, interval, bigint, interval, jsonb, jsonb, bigint, text[]) IS
'changes settings of a consumer group; NULL leaves one as it is, reset names those to put back to their default. Errors: SS001, SS002 no such stream or group, 22023 a bad value or bounds that cross, 42501 not the owner';

CREATE FUNCTION sqlstreams.drop_group(stream text, consumer_group text, if_exists boolean DEFAULT false) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_drop_group';
COMMENT ON FUNCTION sqlstreams.drop_group(text, text, boolean) IS
'drops a consumer group with its cursor, claims and exceptions; true when it did, false when there was none and if_exists is set. Errors: SS001, SS002 no such stream or group, 42501 not the owner';

CREATE FUNCTION sqlstreams.seek(
    stream         text,
    consumer_group text,
    start_position text        DEFAULT NULL,
    start_id       bigint      DEFAULT NULL,
    start_time     timestamptz DEFAULT NULL,
    dry_run        boolean     DEFAULT false,
    OUT claimed_before bigint,
    OUT claimed_after  bigint,
    OUT messages       bigint
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_seek';
COMMENT ON FUNCTION sqlstreams.seek(text, text, text, bigint, timestamptz, boolean) IS
'moves a consumer group to a position (beginning, head), a message id or a time, of which one must be given; claims on messages in between are dropped (SS004), and exceptions of these go, but for dead ones when it moves forward. dry_run: only says where it would be. messages: ids to be delivered again, negative: skipped. Errors: SS001, SS002 no such stream or group, 22023 a bad value or an id that the stream keeps no more, 42501 not the owner';

--
-- Produce
--
CREATE FUNCTION sqlstreams.produce(
    stream          text,
    payload         jsonb,
    message_key     text        DEFAULT NULL,
    routing_key     text        DEFAULT NULL,
    compaction      boolean     DEFAULT false,
    compaction_rank bigint      DEFAULT 0,
    concurrency     text        DEFAULT NULL,
    idempotency_key text        DEFAULT NULL,
    schema_version  bigint      DEFAULT 1,
    deliver_at      timestamptz DEFAULT NULL,
    headers         jsonb       DEFAULT NULL,
    options         jsonb       DEFAULT NULL
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_produce';
COMMENT ON FUNCTION sqlstreams.produce(text, jsonb, text, text, boolean, bigint, text, text, bigint, timestamptz, jsonb, jsonb) IS
'appends a message to a stream as part of the current transaction and returns its id, or 0 when its idempotency key was used within the TTL. compaction: only the newest version of the message key, by schema_version, compaction_rank and id, is delivered. concurrency: parallel, exclusive or ordered with others of its key. deliver_at: not before that time. Keys: up to 1024 bytes. Errors: SS001 no such stream, SS005, SS006 no partition for the id, 22004 NULL payload, 22023 a bad value, 54000 a key that is too long, 42501 no right to produce';

CREATE FUNCTION sqlstreams.produce_batch(
    stream           text,
    payloads         jsonb[],
    message_keys     text[]      DEFAULT NULL,
    routing_keys     text[]      DEFAULT NULL,
    compaction       boolean     DEFAULT false,
    compaction_ranks bigint[]    DEFAULT NULL,
    concurrency      text        DEFAULT NULL,
    idempotency_keys text[]      DEFAULT NULL,
    schema_version   bigint      DEFAULT 1,
    deliver_at       timestamptz DEFAULT NULL,
    headers          jsonb[]     DEFAULT NULL,
    options          jsonb       DEFAULT NULL
) RETURNS SETOF bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_produce_batch';
COMMENT ON FUNCTION sqlstreams.produce_batch(text, jsonb[], text[], text[], boolean, bigint[], text, text[], bigint, timestamptz, jsonb[], jsonb) IS
'appends up to 100000 messages and returns their ids in input order, 0 for a duplicate. Each array is NULL or as long as payloads. Errors as produce; 54000 also for a longer batch';

CREATE FUNCTION sqlstreams.produce_bytes(
    stream          text,
    body            bytea,
    message_key     text        DEFAULT NULL,
    routing_key     text        DEFAULT NULL,
    compaction      boolean     DEFAULT false,
    compaction_rank bigint      DEFAULT 0,
    concurrency     text        DEFAULT NULL,
    idempotency_key text        DEFAULT NULL,
    schema_version  bigint      DEFAULT 1,
    deliver_at      timestamptz DEFAULT NULL,
    headers         jsonb       DEFAULT NULL,
    options         jsonb       DEFAULT NULL
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_produce_bytes';
COMMENT ON FUNCTION sqlstreams.produce_bytes(text, bytea, text, text, boolean, bigint, text, text, bigint, timestamptz, jsonb, jsonb) IS
'as produce, for a body in any format, which is stored as it is; payload is then NULL. Errors as produce';

CREATE FUNCTION sqlstreams.produce_bytes_batch(
    stream           text,
    bodies           bytea[],
    message_keys     text[]      DEFAULT NULL,
    routing_keys     text[]      DEFAULT NULL,
    compaction       boolean     DEFAULT false,
    compaction_ranks bigint[]    DEFAULT NULL,
    concurrency      text        DEFAULT NULL,
    idempotency_keys text[]      DEFAULT NULL,
    schema_version   bigint      DEFAULT 1,
    deliver_at       timestamptz DEFAULT NULL,
    headers          jsonb[]     DEFAULT NULL,
    options          jsonb       DEFAULT NULL
) RETURNS SETOF bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_produce_bytes_batch';
COMMENT ON FUNCTION sqlstreams.produce_bytes_batch(text, bytea[], text[], text[], boolean, bigint[], text, text[], bigint, timestamptz, jsonb[], jsonb) IS
'as produce_batch, for bodies in any format. Errors as produce_batch';

--
-- Consume
--
CREATE FUNCTION sqlstreams.claim(
    stream         text,
    consumer_group text,
    max_messages   bigint   DEFAULT 1,
    lease          interval DEFAULT NULL,
    consumer       text     DEFAULT NULL,
    max_per_key    bigint   DEFAULT 1,
    max_bytes      bigint   DEFAULT NULL,
    ack            bigint   DEFAULT NULL
) RETURNS SETOF sqlstreams.claimed_message
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_claim';
COMMENT ON FUNCTION sqlstreams.claim(text, text, bigint, interval, text, bigint, bigint, bigint) IS
'leases up to max_messages (1 .. 100000) messages of a consumer group to the caller. lease: NULL is the longest timeout of the messages plus 15 seconds. max_per_key: how many messages of one exclusive or ordered key, to be run one after the other; a nack or delay of one puts those behind it back. consumer: a label, NULL is application_name. max_bytes: stop after the message that reaches it. ack: a claim of this group to ack first. Call it in FROM, in a transaction of its own. Errors: SS001, SS002 no such stream or group, SS004 the claim to ack is lost, 22004, 22023 a bad value, 42501 no right to consume';

CREATE FUNCTION sqlstreams.pop(stream text, consumer_group text, max_messages bigint DEFAULT 1)
RETURNS SETOF sqlstreams.claimed_message
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_pop';
COMMENT ON FUNCTION sqlstreams.pop(text, text, bigint) IS
'claims and acks up to max_messages messages at once: delivered at most once. claim_id and lease_expires_at are NULL. Those of an exclusive or ordered key come in the order of their ids, any number of them. Errors as claim';

CREATE FUNCTION sqlstreams.ack(stream text, consumer_group text, claim_id bigint, message_ids bigint[] DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_ack';
COMMENT ON FUNCTION sqlstreams.ack(text, text, bigint, bigint[]) IS
'marks a claim''s messages as done, all that are open or those given, as part of the current transaction; returns how many. A NULL claim_id returns 0. Errors: SS004 the claim or a message is unknown, resolved or taken over: drop the work; SS001, SS002, 22004 a NULL message id, 42501 no right to consume';

CREATE FUNCTION sqlstreams.nack(
    stream         text,
    consumer_group text,
    claim_id       bigint,
    message_ids    bigint[] DEFAULT NULL,
    error          text     DEFAULT NULL,
    retry_in       interval DEFAULT NULL
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_nack';
COMMENT ON FUNCTION sqlstreams.nack(text, text, bigint, bigint[], text, interval) IS
'says that messages of a claim failed, all that are open or those given: they come again after the group''s backoff, or after retry_in, until their retries are spent and they are dead; returns how many are now dead. error: kept with the message. Where the claim has later messages of the same exclusive or ordered key, these go back and wait for it. Errors: SS004 the claim or a message is unknown, resolved or taken over; SS001, SS002, 22004, 22023, 42501 no right to consume';

CREATE FUNCTION sqlstreams.reject(
    stream         text,
    consumer_group text,
    claim_id       bigint,
    message_ids    bigint[] DEFAULT NULL,
    error          text     DEFAULT NULL
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_reject';
COMMENT ON FUNCTION sqlstreams.reject(text, text, bigint, bigint[], text) IS
'makes messages of a claim dead at once, all that are open or those given; returns how many. Errors as nack';

CREATE FUNCTION sqlstreams.delay(
    stream         text,
    consumer_group text,
    claim_id       bigint,
    message_ids    bigint[],
    delay          interval,
    reason         text     DEFAULT NULL
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_delay';
COMMENT ON FUNCTION sqlstreams.delay(text, text, bigint, bigint[], interval, text) IS
'puts messages of a claim off for a while, which is no failure: they come again after delay, or are dead beyond the group''s max_delays (0: no limit); returns how many are now dead. Errors as nack';

CREATE FUNCTION sqlstreams.resolve(
    stream         text,
    consumer_group text,
    claim_id       bigint,
    message_ids    bigint[],
    outcomes       text[],
    errors         text[]     DEFAULT NULL,
    delays         interval[] DEFAULT NULL,
    others         text       DEFAULT 'keep'
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_resolve';
COMMENT ON FUNCTION sqlstreams.resolve(text, text, bigint, bigint[], text[], text[], interval[], text) IS
'resolves messages of a claim with an outcome each: ack, nack, reject or delay. errors, delays: NULL or one for each message; the delay of a nack is its retry_in. others: what becomes of the claim''s other messages: keep, ack or release. Returns how many left the claim. Errors as nack';

CREATE FUNCTION sqlstreams.release(stream text, consumer_group text, claim_id bigint, message_ids bigint[] DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_release';
COMMENT ON FUNCTION sqlstreams.release(text, text, bigint, bigint[]) IS
'hands a claim''s messages back at once, all that are open or those given, without counting anything; returns how many, 0 for a claim that is gone. Errors: SS004 a message is not open in the claim; SS001, SS002, 22004 a NULL message id, 42501 no right to consume';

CREATE FUNCTION sqlstreams.extend(stream text, consumer_group text, claim_id bigint, lease interval DEFAULT NULL) RETURNS timestamptz
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_extend';
COMMENT ON FUNCTION sqlstreams.extend(text, text, bigint, interval) IS
'makes a claim''s lease end lease from now (NULL: as long as it was made for), never earlier than before, and returns its end; while another transaction is resolving the claim it returns the present end. Call it in a transaction of its own. Errors: SS004 the claim is lost; SS001, SS002, 22004, 22023, 42501';

--
-- What did not go well
--
CREATE FUNCTION sqlstreams.exceptions(
    stream         text,
    consumer_group text   DEFAULT NULL,
    status         text   DEFAULT NULL,
    after_id       bigint DEFAULT NULL,
    max_messages   bigint DEFAULT 100
) RETURNS TABLE (
    consumer_group text,
    message_id     bigint,
    status         text,
    message_key    text,
    concurrency    text,
    attempts       integer,
    delays         integer,
    takeovers      integer,
    can_run_after  timestamptz,
    last_error     text,
    blocked_by     bigint,
    claim_id       bigint,
    payload        jsonb,
    body           bytea,
    routing_key    text,
    headers        jsonb,
    created_at     timestamptz,
    updated_at     timestamptz
)
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_exceptions';
COMMENT ON FUNCTION sqlstreams.exceptions(text, text, text, bigint, bigint) IS
'messages that a group (NULL: each) has to come back to or has given up, by message id and group. status: ready, inflight (in an open claim), deferred (waits for its key) or dead; NULL is all. A page has the first max_messages (1 .. 100000) of messages after after_id, and more only so far that its last message is there for every group: the next page begins after its last message_id. can_run_after: NULL for dead ones; blocked_by: the message that the key waits for; created_at: of the message. Errors: SS001, SS002, 22004, 22023 a bad value, 42501 no right to consume';

CREATE FUNCTION sqlstreams.redrive(
    stream         text,
    consumer_group text,
    message_ids    bigint[] DEFAULT NULL,
    error_like     text     DEFAULT NULL
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_redrive';
COMMENT ON FUNCTION sqlstreams.redrive(text, text, bigint[], text) IS
'makes dead messages of a group ready, due at once and with all of their retries and delays; returns how many. message_ids: only these, passing over what is not dead; error_like: only those whose last error matches this LIKE pattern; without either all that are dead. Errors: SS001, SS002, 22004 a NULL message id, 22025 a bad pattern, 42501 no right to consume';

CREATE FUNCTION sqlstreams.discard(
    stream         text,
    consumer_group text,
    message_ids    bigint[] DEFAULT NULL,
    error_like     text     DEFAULT NULL
) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_discard';
COMMENT ON FUNCTION sqlstreams.discard(text, text, bigint[], text) IS
'forgets dead messages of a group, chosen as in redrive, and returns how many. Errors: 22023 neither message_ids nor error_like is given; else as redrive';

CREATE FUNCTION sqlstreams.deliveries(
    stream         text,
    consumer_group text   DEFAULT NULL,
    message_id     bigint DEFAULT NULL,
    max_messages   bigint DEFAULT 100
) RETURNS TABLE (
    consumer_group text,
    message_id     bigint,
    attempt        integer,
    outcome        text,
    error          text,
    consumer       text,
    claim_id       bigint,
    started_at     timestamptz,
    ended_at       timestamptz
)
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_deliveries';
COMMENT ON FUNCTION sqlstreams.deliveries(text, text, bigint, bigint) IS
'the last max_messages (1 .. 100000) deliveries that the stream''s delivery_log has recorded, of a group or all, of a message or all, newest first. attempt: 1 and the failures before it; outcome: ack, nack, reject, delay, release, expired (the lease was lost), split (it was lost once too often), deferred (its key was not free) or superseded (by a newer version of its key). Errors: SS001, SS002, 22004, 22023, 42501 no right to consume';

--
-- Reading without claiming
--
CREATE FUNCTION sqlstreams.peek(stream text, from_id bigint DEFAULT NULL, max_messages bigint DEFAULT 10)
RETURNS SETOF sqlstreams.stored_message
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_peek';
COMMENT ON FUNCTION sqlstreams.peek(text, bigint, bigint) IS
'the first max_messages (1 .. 100000) committed messages from from_id on (NULL: the oldest), in id order; claims nothing. Errors: SS001, 22004, 22023, 42501 no right to read';

CREATE FUNCTION sqlstreams.key_messages(stream text, message_key text, max_messages bigint DEFAULT 10)
RETURNS SETOF sqlstreams.stored_message
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_key_messages';
COMMENT ON FUNCTION sqlstreams.key_messages(text, text, bigint) IS
'the messages of a message key, newest first. Errors: SS001, 22004, 22023, 42501 no right to read';

CREATE FUNCTION sqlstreams.compaction_head(stream text, message_key text)
RETURNS SETOF sqlstreams.stored_message
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_compaction_head';
COMMENT ON FUNCTION sqlstreams.compaction_head(text, text) IS
'the newest version of a message key, of those produced with compaction: the one with the greatest schema_version, compaction_rank and message_id; no row when there is none, or it was dropped from the log. Errors: SS001, 22004, 54000, 0A000 the log has row-level security policies, 42501 no right to read';

CREATE FUNCTION sqlstreams.compaction_heads(stream text, after_key text DEFAULT NULL, max_keys bigint DEFAULT 1000)
RETURNS SETOF sqlstreams.stored_message
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_compaction_heads';
COMMENT ON FUNCTION sqlstreams.compaction_heads(text, text, bigint) IS
'the newest versions of at most max_keys (1 .. 100000) message keys, in the byte order of the keys, from the first key after after_key on (NULL: from the first of all); fewer rows than max_keys: there are no more. Errors: SS001, 22004, 22023, 54000, 0A000 the log has row-level security policies, 42501 no right to read';

CREATE FUNCTION sqlstreams.lock_compaction_head(stream text, message_key text)
RETURNS SETOF sqlstreams.stored_message
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_lock_compaction_head';
COMMENT ON FUNCTION sqlstreams.lock_compaction_head(text, text) IS
'as compaction_head, after locking the key until the transaction ends, also where there is no newest version: other transactions that produce it with compaction or lock it wait. Lock, read, produce the next version, commit: no update is lost, at any isolation level. Errors: SS001, SS005, SS006, 22004, 22023, 54000, 0A000 the log has row-level security policies, 25006, 42501 no right to produce or to read';

--
-- Views.  The functions behind them return the streams that the current role
-- may use, and are not meant to be called by themselves.
--
CREATE FUNCTION sqlstreams.list_streams(
    OUT stream text, OUT stream_id bigint, OUT owner name, OUT messages_head bigint, OUT settled_head bigint,
    OUT partitions bigint, OUT oldest_message_at timestamptz, OUT newest_message_at timestamptz, OUT bytes bigint,
    OUT retention interval, OUT partition_size bigint, OUT partition_interval interval, OUT idempotency_key_ttl interval,
    OUT delivery_log text, OUT message_defaults jsonb, OUT maintenance_suspended boolean
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_list_streams';
COMMENT ON FUNCTION sqlstreams.list_streams() IS 'what view streams shows';

CREATE FUNCTION sqlstreams.list_consumer_groups(
    OUT stream text, OUT consumer_group text, OUT group_id bigint, OUT claimed bigint, OUT committed bigint,
    OUT settled_head bigint, OUT head bigint, OUT backlog bigint, OUT leased bigint, OUT ready bigint, OUT inflight bigint,
    OUT deferred bigint, OUT dead bigint, OUT oldest_unclaimed_at timestamptz, OUT oldest_unresolved_at timestamptz,
    OUT next_due_at timestamptz, OUT last_claim_at timestamptz, OUT last_resolved_at timestamptz, OUT claim_held_by integer,
    OUT held_back_by_pids integer[], OUT held_back_by_prepared text[], OUT held_back_since timestamptz,
    OUT bindings text[], OUT schema_version integer, OUT settings jsonb, OUT superseded bigint
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_list_consumer_groups';
COMMENT ON FUNCTION sqlstreams.list_consumer_groups() IS 'what view consumer_groups shows';

CREATE FUNCTION sqlstreams.list_partitions(
    OUT stream text, OUT partition name, OUT from_id bigint, OUT to_id bigint, OUT bytes bigint, OUT created_at timestamptz,
    OUT sealed_at timestamptz, OUT state text, OUT held_by text
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_list_partitions';
COMMENT ON FUNCTION sqlstreams.list_partitions() IS 'what view partitions shows';

CREATE FUNCTION sqlstreams.list_leases(
    OUT stream text, OUT consumer_group text, OUT claim_id bigint, OUT consumer text, OUT messages bigint,
    OUT unresolved bigint, OUT claimed_at timestamptz, OUT expires_at timestamptz, OUT takeovers integer
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_list_leases';
COMMENT ON FUNCTION sqlstreams.list_leases() IS 'what view leases shows';

CREATE FUNCTION sqlstreams.list_workers(
    OUT database name, OUT pid integer, OUT state text, OUT started_at timestamptz, OUT last_turn timestamptz,
    OUT next_turn timestamptz, OUT error text, OUT error_at timestamptz, OUT last_action text)
RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_list_workers';
COMMENT ON FUNCTION sqlstreams.list_workers() IS 'what view workers shows';
CREATE VIEW sqlstreams.streams AS SELECT * FROM sqlstreams.list_streams();
COMMENT ON VIEW sqlstreams.streams IS
'the streams that the current role may use. messages_head: the highest id handed out, or passed over when a partition was ended by time; settled_head: every id up to it is committed or gone for good; bytes: of the log with indexes; partition_interval: NULL is a quarter of the retention, or never';
CREATE VIEW sqlstreams.consumer_groups AS SELECT * FROM sqlstreams.list_consumer_groups();
COMMENT ON VIEW sqlstreams.consumer_groups IS
'the consumer groups of those streams and how far they are. claimed: every id up to it was handed out; committed: every id up to it is resolved or an exception; backlog: ids between claimed and settled_head, an upper bound on messages; leased: open messages of claims; ready, inflight, deferred, dead: exceptions, each counted up to 10000; oldest_unresolved_at: of the oldest message that is neither resolved nor dead; next_due_at: when the first ready exception is due; claim_held_by: the process whose open transaction makes other claims wait, 0 for a prepared transaction; held_back_by_*: the producers that the next hole waits for; superseded: messages that were not delivered because a newer version of their key had come';
CREATE VIEW sqlstreams.partitions AS SELECT * FROM sqlstreams.list_partitions();
COMMENT ON VIEW sqlstreams.partitions IS
'the partitions of those streams'' logs. to_id: the last id that fits; state: open (ids are handed out from it, or will be), full (no id is left), sealed (nobody writes to it any more), expired (the retention is over), purged (its messages are gone, its table is not); sealed_at: no message in it is younger; held_by: what keeps a full, expired or purged one from getting on: an open producer, what a consumer group needs, what depends on it, who has it locked, suspended maintenance; NULL also while nobody does maintenance';
CREATE VIEW sqlstreams.leases AS SELECT * FROM sqlstreams.list_leases();
COMMENT ON VIEW sqlstreams.leases IS 'the open claims of those streams'' groups; unresolved: messages of which the holder has said nothing yet';
CREATE VIEW sqlstreams.workers AS SELECT * FROM sqlstreams.list_workers();
COMMENT ON VIEW sqlstreams.workers IS
'the background workers of all databases. state: waiting (for a free slot; after a start of the server also databases that were not looked at yet), starting, idle or working; last_turn: when it last looked for work; next_turn: when it will at the latest; last_action: the last thing it did; error: of the maintenance that fails now, shown to the owner of the database and members of pg_read_all_stats; error_at: when it failed last';
GRANT SELECT ON sqlstreams.streams, sqlstreams.consumer_groups, sqlstreams.partitions, sqlstreams.leases, sqlstreams.workers TO PUBLIC;

--
-- Maintenance
--
CREATE PROCEDURE sqlstreams.maintain()
LANGUAGE c AS 'MODULE_PATHNAME', 'sqlstreams_maintain';
COMMENT ON PROCEDURE sqlstreams.maintain() IS
'does now what maintenance is due, and returns when it is done: for those who have no worker, or do not want to wait for it. Of the streams of roles that the current role is a member of; the owner of the database, of all streams. Commits after each step. Inside of a transaction block or a function it cannot commit, and so neither makes nor drops tables (a notice says so). What fails is a warning. Errors: 25006 a standby or a read-only transaction';

CREATE FUNCTION sqlstreams.start_worker() RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'sqlstreams_start_worker';
COMMENT ON FUNCTION sqlstreams.start_worker() IS
'starts the background worker of this database: true when it started one, false when one was running. Needed by nobody who produces or claims, which start it as well. Errors: SS007 it could not be started (the hint says which setting), 25006 a standby';

-- the first use: a worker is started once this is committed
SELECT FROM sqlstreams.workers;
