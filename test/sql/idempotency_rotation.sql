\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Idempotency keys go with their tables: what there is in each phase, when the next one comes, and that a key protects for its TTL
-- whatever is stored. What open producers have to do with it is in test/specs/idempotency-rotation.spec.
SELECT sqlstreams.create_stream('s', idempotency_key_ttl => '1 hour') AS id \gset
SELECT sqlstreams.create_stream('t') \g /dev/null
CREATE TABLE tap.of_stream AS SELECT :id AS id;
CREATE FUNCTION tap.state() RETURNS text LANGUAGE sql AS $$
  SELECT concat_ws(' ', idempotency_phase, (
      SELECT string_agg(replace(relname, 'idempotency_key_' || id || '_', ''), ' ' ORDER BY relname)
        FROM pg_class WHERE relname ~ ('^idempotency_key_' || id || '_\d+$')))
    FROM sqlstreams.stream, tap.of_stream WHERE stream_id = id
$$;
-- the time passes for the stream and for what is stored
CREATE PROCEDURE tap.elapse(t interval) LANGUAGE plpgsql AS $$
DECLARE
  key_table text;
BEGIN
  UPDATE sqlstreams.stream SET idempotency_since = idempotency_since - t FROM tap.of_stream WHERE stream_id = id;
  FOR key_table IN SELECT relname FROM pg_class, tap.of_stream WHERE relname ~ ('^idempotency_key_' || id || '_\d+$') LOOP
    EXECUTE format('UPDATE sqlstreams.%I SET created_at = created_at - %L::interval', key_table, t);
  END LOOP;
END $$;
CREATE FUNCTION tap.produced(k text) RETURNS boolean LANGUAGE sql AS $$ SELECT sqlstreams.produce('s', '1', idempotency_key => k) > 0 $$;

-- nothing to do
CALL sqlstreams.maintain();
SELECT is(state(), 'one', 'no table before the first key');
SELECT is((SELECT idempotency_since FROM sqlstreams.stream WHERE stream_id = :id), NULL, 'and nothing is written');
SELECT is(produced('a'), true, 'the first key');
CALL sqlstreams.maintain();
SELECT is(state(), 'one 1', 'has its table');
SELECT ok((SELECT idempotency_since > clock_timestamp() - interval '1 minute' FROM sqlstreams.stream WHERE stream_id = :id), 'whose time has begun');
CALL elapse('59 minutes');
CALL sqlstreams.maintain();
SELECT is(state(), 'one 1', 'and is not over');
SELECT is(produced('b'), true, 'another key');

-- the next table
CALL elapse('1 minute');
CALL sqlstreams.maintain();
SELECT is(state(), 'probe 1 2', 'after a TTL there is another table');
SELECT is(produced('a'), true, 'a key whose time is over can be used again');
SELECT is(produced('a'), false, 'once');
SELECT is(produced('b'), false, 'one whose time is not protects');
SELECT results_eq($$ SELECT id > 0 FROM sqlstreams.produce_batch('s', '{1,2,3,4,5}', idempotency_keys => '{c,b,a,c,d}') id $$, '{t,f,f,f,t}'::boolean[],
  'a batch looks into both tables and itself');
BEGIN;
SELECT is(produced('e'), true, 'a key in a transaction');
SELECT is(produced('e'), false, 'which knows it');
ROLLBACK;
SELECT is(produced('e'), true, 'rolled back it is free');
CALL elapse('58 minutes');
SELECT is(produced('b'), false, 'shortly before its end a key in the old table protects');
CALL elapse('1 minute');
SELECT is(produced('b'), true, 'and after it does not, though it is still stored');
SELECT is(produced('b'), false, 'but where it is now');

-- the TTL changes
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('s', idempotency_key_ttl => '2 hours') $$, 'a longer TTL');
CALL sqlstreams.maintain();
SELECT is(state(), 'probe 1 2', 'keeps the old table for longer');
CALL elapse('1 hour 30 seconds');
CALL sqlstreams.maintain();
SELECT is(state(), 'probe 1 2', 'until two hours after the new one was announced');
SELECT is(produced('d'), false, 'what is stored protects for longer');
CALL elapse('30 seconds');
CALL sqlstreams.maintain();
SELECT is(state(), 'probe 2 3', 'then it goes, and the next rotation begins with it');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('s', idempotency_key_ttl => '1 millisecond') $$, 'a TTL of nearly nothing');
DO $$ DECLARE began timestamptz := clock_timestamp(); BEGIN WHILE clock_timestamp() - began < '5 milliseconds' LOOP NULL; END LOOP; END $$;
SELECT is(produced('d'), true, 'holds at once for what is stored');
CALL sqlstreams.maintain();
SELECT is(state(), 'one 3', 'old keys go at once, but a table takes keys for five seconds at least');
CALL elapse('5 seconds');
CALL sqlstreams.maintain();
CALL elapse('1 second');
CALL sqlstreams.maintain();
SELECT is(state(), 'one 4', 'and then it goes, too');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('s', idempotency_key_ttl => '1 hour') $$, 'the TTL as it was');

-- an idle stream
CALL elapse('3 days');
CALL sqlstreams.maintain();
SELECT is(state(), 'one 4', 'an empty table stays');
SELECT is(produced('f'), true, 'until a key comes');
CALL sqlstreams.maintain();
SELECT is(state(), 'probe 4 5', 'then it takes its turn');
SELECT is(produced('f'), false, 'the key protects');
CALL elapse('59 minutes');
SELECT is(produced('f'), false, 'for its time');

-- what else is done to a stream
SELECT lives_ok($$ SELECT sqlstreams.purge_stream('s') $$, 'purge_stream');
SELECT is(produced('f'), false, 'keys stay when messages go');
SELECT is(produced('g'), true, 'a key in the new table');
CREATE ROLE regress_sqlstreams_owner;
SELECT format('ALTER TABLE sqlstreams.message_log_%s OWNER TO regress_sqlstreams_owner', :id) \gexec
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('s', idempotency_key_ttl => '1 hour') $$, 'the stream has a new owner');
SELECT is((SELECT string_agg(DISTINCT relowner::regrole::text, ' ') FROM pg_class WHERE relname ~ ('^idempotency_key_' || :id || '_\d+$')),
  'regress_sqlstreams_owner', 'who has both tables');
CALL elapse('1 minute');
CALL sqlstreams.maintain();
SELECT is(state(), 'probe 5 6', 'maintenance goes on');
SELECT is((SELECT string_agg(DISTINCT relowner::regrole::text, ' ') FROM pg_class WHERE relname ~ ('^idempotency_key_' || :id || '_\d+$')),
  'regress_sqlstreams_owner', 'with tables of the owner''s');
SELECT format('ALTER TABLE sqlstreams.idempotency_key_%s_5 DROP CONSTRAINT idempotency_key_%1$s_5_pkey', :id) \gexec
SELECT fails($$ SELECT produced('g') $$, '55000', 'idempotency_key_', 'a table without its primary key is not looked into');
SELECT format('DROP TABLE sqlstreams.idempotency_key_%s_5', :id) \gexec
SELECT is(produced('g'), true, 'an old table dropped by hand has no keys');
CALL sqlstreams.maintain();
SELECT is(state(), 'one 6', 'maintenance takes it as it is');
SELECT format('ALTER TABLE sqlstreams.idempotency_key_%s_6 DROP CONSTRAINT idempotency_key_%1$s_6_pkey', :id) \gexec
SELECT fails($$ SELECT produced('g') $$, '55000', 'idempotency_key_', 'a table without its primary key is not filled');
SELECT format('DROP TABLE sqlstreams.idempotency_key_%s_6', :id) \gexec
CALL sqlstreams.maintain();
SELECT is(produced('g'), true, 'nor has the only one, which is made again');
SELECT is(produced('g'), false, 'for the next key');
CALL elapse('1 hour');
CALL sqlstreams.maintain();
SELECT is(state(), 'probe 6 7', 'and rotates');
SELECT is(sqlstreams.drop_stream('s'), true, 'drop_stream');
SELECT is((SELECT count(*) FROM pg_class WHERE relname ~ ('^idempotency_key_' || :id || '_')), 0::bigint, 'takes all tables of keys along');

-- in a transaction, and rolled back
SELECT sqlstreams.create_stream('s', idempotency_key_ttl => '1 hour') AS id \gset
UPDATE tap.of_stream SET id = :id;
SELECT is(produced('a'), true, 'a stream with a key');
CALL sqlstreams.maintain();
CALL elapse('1 hour');
BEGIN;
CALL sqlstreams.maintain();
SELECT is(state(), 'both 1 2', 'a transaction gets to the phase that it announces');
SELECT is(produced('b'), true, 'and writes both tables');
CALL sqlstreams.maintain();
SELECT is(state(), 'both 1 2', 'no further');
SELECT is(produced('b'), false, 'the key is known');
ROLLBACK;
SELECT is(state(), 'one 1', 'rolled back nothing has happened');
SELECT is(produced('b'), true, 'for producers neither');
BEGIN;
CALL sqlstreams.maintain();
COMMIT;
BEGIN;
SELECT is(produced('c'), true, 'a producer');
CALL sqlstreams.maintain();
SELECT is(state(), 'both 1 2', 'does not get past itself');
COMMIT;
CALL sqlstreams.maintain();
SELECT is(state(), 'probe 1 2', 'but others do');
SELECT is(produced('a'), true, 'the key that is over');
SELECT is(produced('b'), false, 'the one in the old table');
SELECT is(produced('c'), false, 'the one in both');

SELECT is(sqlstreams.drop_stream(stream), true, 'clean up') FROM sqlstreams.streams;
DROP ROLE regress_sqlstreams_owner;
DROP PROCEDURE tap.elapse;
DROP FUNCTION tap.state, tap.produced;
DROP TABLE tap.of_stream;
SELECT * FROM finish();
