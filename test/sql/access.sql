\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Who may do what.
CREATE ROLE regress_sqlstreams_owner;
CREATE ROLE regress_sqlstreams_member IN ROLE regress_sqlstreams_owner;
CREATE ROLE regress_sqlstreams_user;
GRANT USAGE ON SCHEMA tap TO PUBLIC;
CREATE FUNCTION tap.denied(role_name text, statement text, about text, description text) RETURNS text LANGUAGE sql AS $$
  SELECT fails(format('SET LOCAL ROLE %I; %s', role_name, statement), '42501', about, description)
$$;
CREATE FUNCTION tap.allowed(role_name text, statement text, description text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE problem text;
BEGIN
  BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role_name);
    EXECUTE statement;
    SET LOCAL ROLE NONE;
  EXCEPTION WHEN OTHERS THEN problem := SQLERRM;
  END;
  RETURN ok(problem IS NULL, description) || coalesce(E'\n' || diag(problem), '');
END $$;

-- creating streams is granted like any function
SELECT denied('regress_sqlstreams_owner', $$ SELECT sqlstreams.create_stream('s') $$, 'create_stream', 'not everybody may create streams');
GRANT EXECUTE ON FUNCTION sqlstreams.create_stream TO regress_sqlstreams_owner;
SELECT allowed('regress_sqlstreams_owner', $$ SELECT sqlstreams.create_stream('s', partition_size => 2) $$, 'whoever was granted it may');
SELECT stream_id AS id FROM sqlstreams.streams \gset
SELECT is((SELECT owner::text FROM sqlstreams.streams), 'regress_sqlstreams_owner', 'and owns the stream');
SELECT allowed('regress_sqlstreams_owner', $$ SELECT sqlstreams.create_group('s', 'g') $$, 'create_group');
SELECT allowed('regress_sqlstreams_owner', $$ SELECT sqlstreams.produce('s', '1', idempotency_key => 'k') $$, 'produce');
SELECT allowed('regress_sqlstreams_owner', $$ SELECT sqlstreams.produce_batch('s', '{2,3,4,5,6,7,8}') $$, 'produce_batch, over partitions that are made for it');
SELECT is((SELECT string_agg(DISTINCT relowner::regrole::text, ' ') FROM pg_class WHERE relnamespace = 'sqlstreams'::regnamespace AND relname ~ ('^[a-z_]+_' || :id || '(_|$)')), 'regress_sqlstreams_owner', 'every table of it is the owner''s');
SELECT allowed('regress_sqlstreams_owner', $$ SELECT sqlstreams.ack('s', 'g', min(claim_id)) FROM sqlstreams.claim('s', 'g', 2) $$, 'claim and ack');
SELECT allowed('regress_sqlstreams_owner', $$ SELECT sqlstreams.extend('s', 'g', c), sqlstreams.release('s', 'g', c) FROM (SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 2)) q $$, 'extend and release');
SELECT allowed('regress_sqlstreams_owner', $$ SELECT * FROM sqlstreams.pop('s', 'g') $$, 'pop');
SELECT allowed('regress_sqlstreams_owner', $$ SELECT * FROM sqlstreams.peek('s') $$, 'peek');
SELECT allowed('regress_sqlstreams_owner', $$ SELECT * FROM sqlstreams.key_messages('s', 'k') $$, 'key_messages');
SELECT allowed('regress_sqlstreams_owner', $$ SELECT sqlstreams.alter_stream('s', delivery_log => 'off'), sqlstreams.alter_group('s', 'g', timeout => '1 s') $$, 'alter_stream and alter_group');
SELECT allowed('regress_sqlstreams_owner', $$ SELECT sqlstreams.rename_stream('s', 'r'), sqlstreams.rename_stream('r', 's') $$, 'rename_stream');
SELECT allowed('regress_sqlstreams_member', $$ SELECT sqlstreams.alter_group('s', 'g', timeout => '1 s') $$, 'a member of the owner is the owner');
SELECT allowed('regress_sqlstreams_member', $$ SELECT sqlstreams.produce('s', '9') $$, 'in everything');

-- nobody else may anything
SELECT denied('regress_sqlstreams_user', 'SELECT sqlstreams.' || call, about, 'another role: ' || split_part(call, '(', 1))
  FROM (VALUES (1, 'produce(''s'', ''1'')', 'stream "s"'), (2, 'produce_batch(''s'', ''{1}'')', 'stream "s"'), (3, 'produce_bytes(''s'', '''')', 'stream "s"'), (4, 'produce_bytes_batch(''s'', ''{1}'')', 'stream "s"'),
               (5, 'claim(''s'', ''g'')', 'stream "s"'), (6, 'ack(''s'', ''g'', 1)', 'stream "s"'), (7, 'release(''s'', ''g'', 1)', 'stream "s"'), (8, 'extend(''s'', ''g'', 1)', 'stream "s"'), (9, 'pop(''s'', ''g'')', 'stream "s"'),
               (10, 'peek(''s'')', 'stream "s"'), (11, 'key_messages(''s'', ''k'')', 'stream "s"'), (12, 'create_group(''s'', ''x'')', 'stream "s"'), (13, 'alter_group(''s'', ''g'', timeout => ''1 s'')', 'stream "s"'),
               (14, 'drop_group(''s'', ''g'')', 'stream "s"'), (15, 'alter_stream(''s'', delivery_log => ''off'')', 'stream "s"'), (16, 'rename_stream(''s'', ''x'')', 'stream "s"'), (17, 'purge_stream(''s'')', 'stream "s"'),
               (18, 'drop_stream(''s'')', 'stream "s"'), (19, 'drop_stream(''s'', true)', 'stream "s"'), (20, 'create_stream(''x'')', 'create_stream')) u (n, call, about) ORDER BY n;
SELECT denied('regress_sqlstreams_user', 'SELECT FROM sqlstreams.stream', 'stream', 'the configuration cannot be read');
SELECT denied('regress_sqlstreams_user', 'SELECT FROM sqlstreams.consumer_group', 'consumer_group', 'nor that of groups');
SELECT denied('regress_sqlstreams_user', 'CREATE TABLE sqlstreams.x ()', 'sqlstreams', 'nobody creates anything in the schema');
SELECT denied('regress_sqlstreams_owner', 'CREATE FUNCTION sqlstreams.produce(text, text) RETURNS int LANGUAGE sql AS ''SELECT 1''', 'sqlstreams', 'not even the owner of a stream');
SET ROLE regress_sqlstreams_user;
SELECT (SELECT count(*) FROM sqlstreams.streams) || ' ' || (SELECT count(*) FROM sqlstreams.consumer_groups) || ' ' || (SELECT count(*) FROM sqlstreams.partitions) || ' ' || (SELECT count(*) FROM sqlstreams.leases) AS seen \gset
RESET ROLE;
SELECT is(:'seen'::text, '0 0 0 0', 'the views show nothing of it');

-- each right alone, given with GRANT on the tables
SET ROLE regress_sqlstreams_owner;
GRANT INSERT (payload) ON sqlstreams.message_log_:id TO regress_sqlstreams_user;
RESET ROLE;
SELECT allowed('regress_sqlstreams_user', $$ SELECT sqlstreams.produce('s', '10', idempotency_key => 'k10'), sqlstreams.produce_batch('s', '{11,12,13}'), sqlstreams.produce_bytes('s', '') $$, 'INSERT on the payload allows to produce');
SELECT denied('regress_sqlstreams_user', $$ SELECT * FROM sqlstreams.claim('s', 'g') $$, 'stream "s"', 'but not to claim');
SELECT denied('regress_sqlstreams_user', $$ SELECT * FROM sqlstreams.peek('s') $$, 'stream "s"', 'nor to read');
SELECT denied('regress_sqlstreams_user', format('SELECT FROM sqlstreams.message_log_%s', :id), 'message_log', 'nor by other ways');
SELECT fails(format('SET LOCAL ROLE regress_sqlstreams_user; INSERT INTO sqlstreams.message_log_%s (id, payload) VALUES (1000, %L)', :id, '1'), '42501', NULL, 'nor to forge an id');
SET ROLE regress_sqlstreams_user;
SELECT string_agg(stream, ' ') AS seen FROM sqlstreams.streams \gset
RESET ROLE;
SELECT is(:'seen'::text, 's', 'the views show the stream now');
SET ROLE regress_sqlstreams_owner;
REVOKE INSERT (payload) ON sqlstreams.message_log_:id FROM regress_sqlstreams_user;
GRANT SELECT ON sqlstreams.message_log_:id TO regress_sqlstreams_user;
RESET ROLE;
SELECT denied('regress_sqlstreams_user', $$ SELECT sqlstreams.produce('s', '1') $$, 'stream "s"', 'what is revoked is gone');
SELECT allowed('regress_sqlstreams_user', $$ SELECT * FROM sqlstreams.peek('s'), sqlstreams.key_messages('s', 'k') $$, 'SELECT allows to read');
SELECT denied('regress_sqlstreams_user', $$ SELECT * FROM sqlstreams.claim('s', 'g') $$, 'stream "s"', 'but not to claim');
SET ROLE regress_sqlstreams_owner;
REVOKE SELECT ON sqlstreams.message_log_:id FROM regress_sqlstreams_user;
GRANT UPDATE ON sqlstreams.group_cursor_:id TO regress_sqlstreams_user;
RESET ROLE;
SELECT allowed('regress_sqlstreams_user', $$ SELECT sqlstreams.ack('s', 'g', min(claim_id)) FROM sqlstreams.claim('s', 'g', 2) $$, 'UPDATE on the cursors allows to consume');
SELECT allowed('regress_sqlstreams_user', $$ SELECT * FROM sqlstreams.pop('s', 'g') $$, 'all of it');
SELECT denied('regress_sqlstreams_user', $$ SELECT sqlstreams.produce('s', '1') $$, 'stream "s"', 'but not to produce');
SELECT denied('regress_sqlstreams_user', $$ SELECT sqlstreams.drop_group('s', 'g') $$, 'stream "s"', 'nor to change anything');

SELECT sqlstreams.drop_stream('s') \g /dev/null
DROP FUNCTION tap.denied, tap.allowed;
REVOKE USAGE ON SCHEMA tap FROM PUBLIC;
DROP OWNED BY regress_sqlstreams_owner, regress_sqlstreams_member, regress_sqlstreams_user;
DROP ROLE regress_sqlstreams_member, regress_sqlstreams_owner, regress_sqlstreams_user;
SELECT * FROM finish();
