\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- What an administrator or an owner does to the tables of a stream.
SELECT sqlstreams.create_stream('s', partition_size => 10) AS id \gset
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'g') $$, 'a group');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 100) i))), 100::bigint, 'a hundred messages');
SELECT 'sqlstreams.message_log_' || :id AS log, 'sqlstreams.group_cursor_' || :id AS cursor,
       'sqlstreams.claim_lease_' || :id AS lease, 'sqlstreams.claim_resolved_' || :id AS resolved,
       'sqlstreams.message_id_' || :id AS sequence \gset

-- state tables: indexes may come and go, what would be bypassed is refused
CREATE INDEX extra ON :lease (group_id);
REINDEX TABLE CONCURRENTLY :lease;
SELECT is(claimed('s', 'g', 2), '1 2', 'claim goes on with another index on the leases');
CREATE INDEX extra_expression ON :lease ((claim_id + 1));
SELECT fails($$ SELECT sqlstreams.claim('s', 'g') $$, '55000', 'claim_lease_', 'not with one on an expression');
DROP INDEX sqlstreams.extra, sqlstreams.extra_expression;
ALTER TABLE :lease ADD COLUMN extra int;
SELECT fails($$ SELECT sqlstreams.claim('s', 'g') $$, '55000', 'claim_lease_', 'nor with another column');
SELECT is((SELECT claimed FROM sqlstreams.consumer_groups), 2::bigint, 'the views still show the group');
ALTER TABLE :lease DROP COLUMN extra;
SELECT is(claimed('s', 'g', 2), '3 4', 'after the column has gone claim goes on');
CREATE FUNCTION tap.keep_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
CREATE TRIGGER extra BEFORE INSERT ON :cursor FOR EACH ROW EXECUTE FUNCTION tap.keep_row();
SELECT fails($$ SELECT sqlstreams.claim('s', 'g') $$, '55000', 'group_cursor_', 'a trigger on the cursors is refused');
SELECT is((SELECT count(*) FROM sqlstreams.streams), 1::bigint, 'and does not break the views');
DROP TRIGGER extra ON :cursor;
SELECT is(claimed('s', 'g', 2), '5 6', 'without it claim goes on at once');

-- a column that its owner wants to be filled
SELECT sqlstreams.create_stream('n') AS n_id \gset
SELECT format('ALTER TABLE sqlstreams.message_log_%s ALTER COLUMN message_key SET NOT NULL', :n_id) \gexec
SELECT fails($$ SELECT sqlstreams.produce('n', '1') $$, '23502', 'message_key', 'NOT NULL on a column holds for produce');
SELECT fails($$ SELECT sqlstreams.produce_batch('n', '{1,2}') $$, '23502', 'message_key', 'and for a batch');
SELECT ok(sqlstreams.produce('n', '1', message_key => 'k') > 0, 'a message with a key is stored');
SELECT is(sqlstreams.drop_stream('n'), true, 'clean up');

-- a partition dropped by hand takes nothing else with it
SELECT lives_ok($$ SELECT sqlstreams.drop_group('s', 'g'), sqlstreams.create_group('s', 'g') $$, 'from the beginning');
SELECT is(claimed('s', 'g', 40, '30 ms'), (SELECT string_agg(i::text, ' ') FROM generate_series(1, 40) i), 'a claim of forty');
SELECT is(claimed('s', 'g', 5, '1 ms'), '41 42 43 44 45', 'and one of five that ends before it');
SELECT format('DROP TABLE %s_0', :'log') \gexec
SELECT wait_for_expiry('s', 'g');
SELECT is(claimed('s', 'g', 10) || ' ' || claimed('s', 'g', 100), '41 42 43 44 45 46 47 48 49 50 ' || (SELECT string_agg(i::text, ' ') FROM generate_series(11, 100) i WHERE i NOT BETWEEN 41 AND 50), 'nothing but the dropped partition is missing');

-- claims that are taken over become one segment, also when there were many
SELECT lives_ok($$ SELECT sqlstreams.drop_group('s', 'g'), sqlstreams.create_group('s', 'g') $$, 'again');
DO $$ BEGIN FOR i IN 1..50 LOOP PERFORM sqlstreams.claim('s', 'g', 1, '1 s'); END LOOP; END $$;
SELECT wait_for_expiry('s', 'g');
SELECT lives_ok($$ SELECT sqlstreams.claim('s', 'g', 100, '1 ms') $$, 'all of them are taken over');
SELECT ok((SELECT count(*) FROM :lease) <= 3, 'few rows hold the leases');
SELECT wait_for_expiry('s', 'g');
SELECT is((SELECT count(DISTINCT message_id) FROM sqlstreams.claim('s', 'g', 100)), 90::bigint, 'and taken over again, each message once');

-- ids are not set back with the table
SELECT format('TRUNCATE %s RESTART IDENTITY', :'log') \gexec
SELECT is(sqlstreams.produce('s', '101'), 101::bigint, 'TRUNCATE ... RESTART IDENTITY of the log leaves the ids');

-- what the same statement produced is purged
SELECT is((SELECT sqlstreams.purge_stream('s') FROM sqlstreams.produce('s', '102')), 102::bigint, 'purge_stream after produce in one statement');

-- a key whose time is over within the statement
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('s', idempotency_key_ttl => '1 microsecond') $$, 'a very short time to live');
SELECT is((SELECT count(*) FROM (SELECT sqlstreams.produce('s', to_jsonb(i), idempotency_key => 'k') AS id FROM generate_series(1, 3) i) q WHERE id > 0), 3::bigint, 'a key can be used again in the same statement');

-- default privileges of the role that made the tables give nobody rights
CREATE ROLE regress_sqlstreams_other;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO regress_sqlstreams_other, PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO regress_sqlstreams_other;
SELECT sqlstreams.create_stream('d', partition_size => 2) AS other_id \gset
SELECT lives_ok($$ SELECT sqlstreams.create_group('d', 'g'), sqlstreams.produce('d', '1', idempotency_key => 'k') $$, 'a stream made under default privileges');
SELECT is((SELECT count(*) FROM pg_class, aclexplode(relacl) a WHERE relnamespace = 'sqlstreams'::regnamespace AND relname ~ ('_' || :other_id || '(_\d+)?$') AND a.grantee <> relowner), 0::bigint, 'nobody else has rights on its tables');
ALTER DEFAULT PRIVILEGES REVOKE ALL ON TABLES FROM regress_sqlstreams_other, PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON SEQUENCES FROM regress_sqlstreams_other;

-- another owner
SELECT 'sqlstreams.message_log_' || :other_id AS log, 'sqlstreams.group_cursor_' || :other_id AS cursor \gset
CREATE ROLE regress_sqlstreams_former;
GRANT CREATE ON SCHEMA sqlstreams TO regress_sqlstreams_former, regress_sqlstreams_other;
ALTER TABLE :cursor OWNER TO regress_sqlstreams_former;
ALTER TABLE :log OWNER TO regress_sqlstreams_other;
REVOKE CREATE ON SCHEMA sqlstreams FROM regress_sqlstreams_former, regress_sqlstreams_other;
GRANT USAGE ON SCHEMA tap TO PUBLIC;
SELECT fails($$ SET LOCAL ROLE regress_sqlstreams_former; SELECT sqlstreams.claim('d', 'g') $$, '42501', 'd', 'whoever owns the cursors only may not consume');
SELECT lives_ok($$ SET LOCAL ROLE regress_sqlstreams_other; SELECT sqlstreams.alter_stream('d') $$, 'alter_stream by the new owner');
SELECT is((SELECT string_agg(DISTINCT relowner::regrole::text, ' ') FROM pg_class WHERE relnamespace = 'sqlstreams'::regnamespace AND relkind IN ('r', 'p', 'S') AND relname ~ ('_' || :other_id || '(_\d+)?$')), 'regress_sqlstreams_other', 'hands all tables over');

-- a group whose cursor is gone, as in the middle of a restore
SELECT format('DELETE FROM sqlstreams.group_cursor_%s', :other_id) \gexec
SELECT fails($$ SELECT sqlstreams.claim('d', 'g') $$, '55000', 'has no cursor', 'claim says that the cursor is missing');
SELECT fails($$ SELECT sqlstreams.seek('d', 'g', start_id => 1) $$, '55000', 'has no cursor', 'so does seek');

-- tables that somebody has dropped
SELECT format('DROP TABLE sqlstreams.claim_resolved_%s', :other_id) \gexec
SELECT fails($$ SELECT sqlstreams.claim('d', 'g') $$, '55000', 'd', 'a missing table is said to be missing');
DROP TABLE :log;
SELECT fails($$ SELECT sqlstreams.produce('d', '1') $$, '55000', 'd', 'also the log');
SELECT is(sqlstreams.drop_stream('d'), true, 'and the stream can be dropped');
SELECT is((SELECT count(*) FROM pg_class WHERE relnamespace = 'sqlstreams'::regnamespace AND relname ~ ('_' || :other_id || '(_|$)')), 0::bigint, 'with what was left of it');

SELECT is(sqlstreams.drop_stream('s'), true, 'clean up');
DROP ROLE regress_sqlstreams_former, regress_sqlstreams_other;
DROP FUNCTION tap.keep_row();
SELECT * FROM finish();
