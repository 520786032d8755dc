\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- What users put on the log works as on any table: nothing is bypassed.
SELECT sqlstreams.create_stream('s', partition_size => 3) AS id \gset
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'g') $$, 'a group');
SELECT 'sqlstreams.message_log_' || :id AS log \gset
SELECT is(sqlstreams.produce('s', '{"n": 1}'), 1::bigint, 'one message before all');
CREATE TABLE tap.audit (seq serial, what text);

-- extra indexes
CREATE INDEX extra_routing ON :log (routing_key);
CREATE INDEX extra_expression ON :log ((payload ->> 'n'));
CREATE INDEX extra_partial ON :log (schema_version) WHERE schema_version > 1;
CREATE INDEX extra_hash ON :log USING hash (routing_key);
CREATE INDEX extra_gin ON :log USING gin (payload);
SELECT is((SELECT array_agg(id) FROM sqlstreams.produce_batch('s', ARRAY['{"n": 2}', '{"n": 3}', '{"n": 4}']::jsonb[], routing_keys => '{r2,r3,r4}', schema_version => 2) id), '{2,3,4}'::bigint[], 'a batch with extra indexes on the log');
SELECT is(sqlstreams.produce('s', '{"n": 5}', routing_key => 'r5', schema_version => 3), 5::bigint, 'and one more, in a partition made since');
SET enable_seqscan = off;
SELECT results_eq(format('SELECT id FROM %s WHERE routing_key = %L', :'log', 'r3'), '{3}'::bigint[], 'found by routing key');
SELECT results_eq(format('SELECT id FROM %s WHERE payload ->> %L = %L', :'log', 'n', '4'), '{4}'::bigint[], 'by an expression');
SELECT results_eq(format('SELECT id FROM %s WHERE schema_version > 1 ORDER BY schema_version, id', :'log'), '{2,3,4,5}'::bigint[], 'by the partial index');
SELECT results_eq(format('SELECT id FROM %s WHERE payload @> %L ORDER BY id', :'log', '{"n": 5}'), '{5}'::bigint[], 'by the GIN index');
DROP INDEX sqlstreams.extra_routing;
SELECT results_eq(format('SELECT id FROM %s WHERE routing_key = %L', :'log', 'r4'), '{4}'::bigint[], 'by the hash index alone');
RESET enable_seqscan;
DROP INDEX sqlstreams.extra_expression, sqlstreams.extra_partial, sqlstreams.extra_hash, sqlstreams.extra_gin;

-- indexes that fail
CREATE UNIQUE INDEX extra_unique ON :log (id, (payload ->> 'n'));
SELECT is(sqlstreams.produce('s', '{"n": 6}'), 6::bigint, 'a unique index that is not violated');
DROP INDEX sqlstreams.extra_unique;
CREATE INDEX extra_division ON :log ((10 / (payload ->> 'n')::int));
SELECT fails($$ SELECT sqlstreams.produce('s', '{"n": 0}') $$, '22012', NULL, 'an index expression that fails, fails the produce');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', ARRAY['{"n": 1}', '{"n": 0}']::jsonb[]) $$, '22012', NULL, 'and the batch');
DROP INDEX sqlstreams.extra_division;
SELECT is(claimed('s', 'g'), '{"n": 1} {"n": 2} {"n": 3} {"n": 4} {"n": 5} {"n": 6}', 'claim gets what was committed');

-- constraints
ALTER TABLE :log ADD CONSTRAINT positive CHECK ((payload ->> 'n')::int > 0);
SELECT fails($$ SELECT sqlstreams.produce('s', '{"n": -1}') $$, '23514', 'positive', 'a check constraint refuses a message');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', ARRAY['{"n": 1}', '{"n": -1}']::jsonb[]) $$, '23514', 'positive', 'and a batch');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', ARRAY['{"n": 7}', '{"n": 8}']::jsonb[])), 2::bigint, 'what it allows is stored');
ALTER TABLE :log DROP CONSTRAINT positive;
ALTER TABLE :log ADD CONSTRAINT routed CHECK (routing_key IS NOT NULL) NOT VALID;
SELECT fails($$ SELECT sqlstreams.produce('s', '{"n": 9}') $$, '23514', 'routed', 'one that is not valid for old rows counts for new ones');
ALTER TABLE :log DROP CONSTRAINT routed;
SELECT is(claimed('s', 'g'), '{"n": 7} {"n": 8}', 'claim gets what was allowed');

CREATE TABLE tap.allowed (version int PRIMARY KEY);
INSERT INTO tap.allowed VALUES (1), (2), (3);
ALTER TABLE :log ADD CONSTRAINT allowed FOREIGN KEY (schema_version) REFERENCES tap.allowed;
SELECT fails($$ SELECT sqlstreams.produce('s', '1', schema_version => 4) $$, '23503', 'allowed', 'a foreign key refuses a message');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', schema_version => 4) $$, '23503', 'allowed', 'and a batch');
ALTER TABLE :log DROP CONSTRAINT allowed;
DROP TABLE tap.allowed;

-- row triggers
CREATE FUNCTION tap.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO tap.audit (what) SELECT concat_ws(' ', TG_WHEN, TG_LEVEL, TG_OP, CASE WHEN TG_LEVEL = 'ROW' THEN NEW.payload ->> 'n' END, TG_ARGV[0]);
  RETURN NEW;
END $$;
CREATE TRIGGER before_row BEFORE INSERT ON :log FOR EACH ROW EXECUTE FUNCTION tap.note();
CREATE TRIGGER after_row AFTER INSERT ON :log FOR EACH ROW EXECUTE FUNCTION tap.note();
CREATE TRIGGER when_row AFTER INSERT ON :log FOR EACH ROW WHEN (NEW.routing_key = 'loud') EXECUTE FUNCTION tap.note('loud');
SELECT lives_ok($$ SELECT sqlstreams.produce('s', '{"n": 10}') $$, 'produce with row triggers');
SELECT lives_ok($$ SELECT sqlstreams.produce_batch('s', ARRAY['{"n": 11}', '{"n": 12}', '{"n": 13}']::jsonb[], routing_keys => '{NULL,loud,NULL}') $$, 'produce_batch with row triggers, over partitions');
SELECT results_eq($$ SELECT what FROM tap.audit ORDER BY what COLLATE "C" $$,
  ARRAY['AFTER ROW INSERT 10', 'AFTER ROW INSERT 11', 'AFTER ROW INSERT 12', 'AFTER ROW INSERT 12 loud', 'AFTER ROW INSERT 13', 'BEFORE ROW INSERT 10', 'BEFORE ROW INSERT 11', 'BEFORE ROW INSERT 12', 'BEFORE ROW INSERT 13'],
  'every one fired once');
SELECT is((SELECT string_agg(split_part(what, ' ', 4), ' ' ORDER BY seq) FROM tap.audit WHERE what LIKE 'BEFORE%'), '10 11 12 13', 'in the order of the ids');
SELECT is((SELECT string_agg(split_part(what, ' ', 4), ' ' ORDER BY seq) FROM tap.audit WHERE what LIKE 'AFTER%'), '10 11 12 12 13', 'before and after');
SELECT lives_ok($$ SELECT sqlstreams.produce_bytes('s', '\x00') $$, 'produce_bytes too');
SELECT is((SELECT count(*) FROM tap.audit), 11::bigint, 'fires them');
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'g', 10)), 5::bigint, 'claim gets them all');
DROP TRIGGER before_row ON :log;
DROP TRIGGER after_row ON :log;
DROP TRIGGER when_row ON :log;
TRUNCATE tap.audit;

-- a trigger that changes the row
CREATE FUNCTION tap.stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.payload := NEW.payload || '{"stamped": true}';
  RETURN NEW;
END $$;
CREATE TRIGGER stamp BEFORE INSERT ON :log FOR EACH ROW EXECUTE FUNCTION tap.stamp();
SELECT lives_ok($$ SELECT sqlstreams.produce('s', '{"n": 20}') $$, 'a trigger that changes the row');
SELECT lives_ok($$ SELECT sqlstreams.produce_batch('s', ARRAY['{"n": 21}', '{"n": 22}']::jsonb[]) $$, 'of a batch too');
SELECT is(claimed('s', 'g'), '{"n": 20, "stamped": true} {"n": 21, "stamped": true} {"n": 22, "stamped": true}', 'is obeyed');
DROP TRIGGER stamp ON :log;

-- a trigger that refuses the row, and one that drops it
CREATE FUNCTION tap.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = 'P0001'; END $$;
CREATE TRIGGER refuse AFTER INSERT ON :log FOR EACH ROW WHEN (NEW.payload ->> 'n' = '30') EXECUTE FUNCTION tap.refuse();
SELECT fails($$ SELECT sqlstreams.produce('s', '{"n": 30}') $$, 'P0001', 'not this one', 'a trigger that raises');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', ARRAY['{"n": 31}', '{"n": 30}']::jsonb[]) $$, 'P0001', 'not this one', 'also in a batch');
SELECT lives_ok($$ SELECT sqlstreams.produce('s', '{"n": 32}') $$, 'others pass');
SELECT is(claimed('s', 'g'), '{"n": 32}', 'and are claimed');
DROP TRIGGER refuse ON :log;
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON :log DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION tap.note('deferred');
BEGIN;
SELECT lives_ok($$ SELECT sqlstreams.produce('s', '{"n": 33}') $$, 'a deferred trigger');
SELECT is_empty($$ SELECT what FROM tap.audit $$, 'waits');
COMMIT;
SELECT results_eq($$ SELECT what FROM tap.audit $$, ARRAY['AFTER ROW INSERT 33 deferred'], 'for the commit');
DROP TRIGGER deferred ON :log;
TRUNCATE tap.audit;

-- triggers for each statement are refused, not bypassed
CREATE TRIGGER before_statement BEFORE INSERT ON :log FOR EACH STATEMENT EXECUTE FUNCTION tap.note();
SELECT fails($$ SELECT sqlstreams.produce('s', '{"n": 40}') $$, '0A000', 'stream "s"', 'produce with a statement trigger');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', ARRAY['{"n": 41}', '{"n": 42}']::jsonb[]) $$, '0A000', 'stream "s"', 'produce_batch with a statement trigger');
DROP TRIGGER before_statement ON :log;
CREATE FUNCTION tap.count_new() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO tap.audit (what) SELECT count(*) FROM fresh; RETURN NULL; END $$;
CREATE TRIGGER transition AFTER INSERT ON :log REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION tap.count_new();
SELECT fails($$ SELECT sqlstreams.produce_batch('s', ARRAY['{"n": 43}', '{"n": 44}']::jsonb[]) $$, '0A000', 'stream "s"', 'and with a transition table');
DROP TRIGGER transition ON :log;
SELECT lives_ok($$ SELECT sqlstreams.produce('s', '{"n": 45}') $$, 'without it there is nothing to refuse');
SELECT is_empty($$ SELECT what FROM tap.audit $$, 'none has fired');
SELECT is(claimed('s', 'g'), '{"n": 33} {"n": 45}', 'claim gets what was stored');

-- a trigger on one partition only
SELECT sqlstreams.produce('s', '{"n": 46}') FROM sqlstreams.streams, generate_series(1, 3 + (4 - messages_head % 3) % 3) \g /dev/null
SELECT sqlstreams.pop('s', 'g', 100) \g /dev/null
SELECT 'sqlstreams.' || partition AS leaf FROM sqlstreams.partitions, sqlstreams.streams WHERE messages_head BETWEEN from_id AND to_id \gset
CREATE TRIGGER leaf AFTER INSERT ON :leaf FOR EACH ROW EXECUTE FUNCTION tap.note('leaf');
SELECT lives_ok($$ SELECT sqlstreams.produce_batch('s', ARRAY['{"n": 47}', '{"n": 48}', '{"n": 49}']::jsonb[]) $$, 'a trigger on the partition that two more ids fit in');
SELECT results_eq($$ SELECT what FROM tap.audit ORDER BY seq $$, ARRAY['AFTER ROW INSERT 47 leaf', 'AFTER ROW INSERT 48 leaf'], 'fires for those two');
TRUNCATE tap.audit;

-- extra columns: plain, with a default, generated
ALTER TABLE :log ADD COLUMN note text DEFAULT 'none', ADD COLUMN n int GENERATED ALWAYS AS ((payload ->> 'n')::int) STORED, ADD COLUMN made timestamptz DEFAULT clock_timestamp();
SELECT is(sqlstreams.produce('s', '{"n": 50}') > 0, true, 'produce with extra columns');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', ARRAY['{"n": 51}', '{"n": 52}', '{"n": 53}']::jsonb[])), 3::bigint, 'produce_batch too, over partitions');
SELECT results_eq(format('SELECT n, note, made IS NOT NULL FROM %s WHERE n >= 50 ORDER BY id', :'log'), $$ VALUES (50, 'none', true), (51, 'none', true), (52, 'none', true), (53, 'none', true) $$, 'they are filled');
SELECT is(claimed('s', 'g'), '{"n": 47} {"n": 48} {"n": 49} {"n": 50} {"n": 51} {"n": 52} {"n": 53}', 'claim does not mind');
ALTER TABLE :log DROP COLUMN note, DROP COLUMN n, DROP COLUMN made;
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', ARRAY['{"n": 54}', '{"n": 55}', '{"n": 56}', '{"n": 57}']::jsonb[])), 4::bigint, 'dropped again: partitions with and without the dropped columns');
SELECT is(claimed('s', 'g'), '{"n": 54} {"n": 55} {"n": 56} {"n": 57}', 'claim reads both');

-- a publication
SET client_min_messages = error;
CREATE PUBLICATION everything FOR TABLE :log;
SET client_min_messages = warning;
SELECT lives_ok($$ SELECT sqlstreams.produce('s', '{"n": 58}') $$, 'a log that is published');
SELECT lives_ok($$ SELECT sqlstreams.produce_batch('s', ARRAY['{"n": 59}', '{"n": 60}']::jsonb[]) $$, 'takes batches too');
SELECT is(claimed('s', 'g'), '{"n": 58} {"n": 59} {"n": 60}', 'is claimed from');
DROP PUBLICATION everything;

-- row-level security is refused, not bypassed, unless the role is not subject to it
ALTER TABLE :log ENABLE ROW LEVEL SECURITY;
CREATE POLICY small ON :log USING (true) WITH CHECK ((payload ->> 'n')::int < 10);
CREATE ROLE regress_sqlstreams_user;
GRANT USAGE ON SCHEMA tap TO regress_sqlstreams_user;
GRANT INSERT (payload) ON :log TO regress_sqlstreams_user;
SELECT fails($$ SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.produce('s', '{"n": 1}') $$, '0A000', 'row-level security', 'produce to a log with a policy');
SELECT fails($$ SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.produce_batch('s', ARRAY['{"n": 1}', '{"n": 2}']::jsonb[]) $$, '0A000', 'row-level security', 'produce_batch to a log with a policy');
ALTER TABLE :log DISABLE ROW LEVEL SECURITY;
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'g', 100)), 0::bigint, 'nothing was stored');
SELECT lives_ok($$ SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.produce('s', '{"n": 61}') $$, 'without row-level security it is');
RESET ROLE;
SELECT is(claimed('s', 'g'), '{"n": 61}', 'and claimed');
SELECT sqlstreams.drop_stream('s') \g /dev/null
DROP OWNED BY regress_sqlstreams_user;
DROP ROLE regress_sqlstreams_user;

DROP TABLE tap.audit;
DROP FUNCTION tap.note, tap.stamp, tap.refuse, tap.count_new;
SELECT * FROM finish();
