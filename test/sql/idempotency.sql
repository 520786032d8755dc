\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 4), sqlstreams.create_group('s', 'g'), sqlstreams.create_stream('t') $$, 'two streams');

SELECT is(sqlstreams.produce('s', '1', idempotency_key => 'k'), 1::bigint, 'the first of a key is stored');
SELECT is(sqlstreams.produce('s', '1', idempotency_key => 'k'), 0::bigint, 'the second is not');
SELECT is(sqlstreams.produce('s', '"another payload"', message_key => 'm', idempotency_key => 'k'), 0::bigint, 'no payload is compared');
SELECT is(sqlstreams.produce('s', '2', idempotency_key => 'K'), 2::bigint, 'another key is another key; a duplicate uses up no id');
SELECT is(sqlstreams.produce('s', '3', idempotency_key => 'k '), 3::bigint, 'every byte counts');
SELECT is(sqlstreams.produce('t', '1', idempotency_key => 'k'), 1::bigint, 'keys are the stream''s own');
SELECT is(claimed('s', 'g'), '1 2 3', 'no duplicate arrives');
SELECT is(sqlstreams.produce('s', '4', idempotency_key => repeat('x', 1023) || 'a'), 4::bigint, 'a long key');
SELECT is(sqlstreams.produce('s', '5', idempotency_key => repeat('x', 1023) || 'b'), 5::bigint, 'differing in its last byte');
SELECT is(sqlstreams.produce('s', '5', idempotency_key => repeat('x', 1023) || 'b'), 0::bigint, 'known too');
SELECT is(sqlstreams.produce('s', '6', idempotency_key => U&'\00E9'), 6::bigint, 'a composed character');
SELECT is(sqlstreams.produce('s', '7', idempotency_key => U&'e\0301'), 7::bigint, 'is not its decomposed form');

-- in one batch
SELECT results_eq($$ SELECT * FROM sqlstreams.produce_batch('s', '{8,9,10,11,12}', idempotency_keys => '{b,k,b,NULL,c}') $$, '{8,0,0,9,10}'::bigint[],
  'a batch knows the keys before it and in it');
SELECT results_eq($$ SELECT * FROM sqlstreams.produce_batch('s', '{1,2}', idempotency_keys => '{b,c}') $$, '{0,0}'::bigint[], 'a batch of duplicates');
SELECT is(claimed('s', 'g'), '4 5 6 7 8 11 12', 'the first of each arrived');

-- in one transaction and one statement
BEGIN;
SELECT is(sqlstreams.produce('s', '13', idempotency_key => 'tx'), 11::bigint, 'in a transaction');
SELECT is(sqlstreams.produce('s', '13', idempotency_key => 'tx'), 0::bigint, 'which knows its own key');
COMMIT;
SELECT is(sqlstreams.produce('s', '13', idempotency_key => 'tx'), 0::bigint, 'as others do after it');
SELECT results_eq($$ SELECT sqlstreams.produce('s', to_jsonb(i), idempotency_key => 'stmt') FROM generate_series(1, 3) i $$, '{12,0,0}'::bigint[], 'in one statement');

-- rolled back
BEGIN;
SELECT is(sqlstreams.produce('s', '"lost"', idempotency_key => 'again'), 13::bigint, 'to be rolled back');
ROLLBACK;
SELECT is(sqlstreams.produce('s', '14', idempotency_key => 'again'), 14::bigint, 'a rolled back key is free');
BEGIN;
SAVEPOINT a;
SELECT is(sqlstreams.produce('s', '"lost"', idempotency_key => 'sp'), 15::bigint, 'in a savepoint');
ROLLBACK TO a;
SELECT is(sqlstreams.produce('s', '16', idempotency_key => 'sp'), 16::bigint, 'a key goes with its savepoint');
SAVEPOINT b;
SELECT is(sqlstreams.produce('s', '16', idempotency_key => 'sp'), 0::bigint, 'and is known in the next one');
COMMIT;
SELECT is(sqlstreams.produce('s', '16', idempotency_key => 'sp'), 0::bigint, 'and after the commit');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', idempotency_key => 'bad', schema_version => 0) $$, '22023', 'schema_version', 'a refused produce');
SELECT is(sqlstreams.produce('s', '17', idempotency_key => 'bad'), 17::bigint, 'leaves its key free');

-- the TTL
SELECT lives_ok($$ SELECT sqlstreams.create_stream('short', idempotency_key_ttl => '1 hour') $$, 'a stream with a TTL of its own');
SELECT is(sqlstreams.produce('short', '1', idempotency_key => 'k'), 1::bigint, 'a key');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('short', idempotency_key_ttl => '100 years') $$, 'the TTL can grow');
SELECT is(sqlstreams.produce('short', '1', idempotency_key => 'k'), 0::bigint, 'the key holds');

SELECT lives_ok($$ SELECT sqlstreams.alter_stream('short', idempotency_key_ttl => '1 millisecond') $$, 'and shrink');
DO $$ DECLARE began timestamptz := clock_timestamp(); BEGIN WHILE clock_timestamp() - began < '5 milliseconds' LOOP NULL; END LOOP; END $$;
SELECT is(sqlstreams.produce('short', '2', idempotency_key => 'k'), 2::bigint, 'after its TTL a key can be used again');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('short', idempotency_key_ttl => '1 hour') $$, 'and protects again');
SELECT results_eq($$ SELECT sqlstreams.produce_batch('short', '{3,4}', idempotency_keys => '{k,k}') $$, '{0,0}'::bigint[], 'from then on');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('short', idempotency_key_ttl => '1 millisecond') $$, 'short again');
DO $$ DECLARE began timestamptz := clock_timestamp(); BEGIN WHILE clock_timestamp() - began < '5 milliseconds' LOOP NULL; END LOOP; END $$;
SELECT results_eq($$ SELECT sqlstreams.produce_batch('short', '{3,4,5}', idempotency_keys => '{k,k,l}') $$, '{3,0,4}'::bigint[], 'a batch renews a key once');
BEGIN;
SELECT is(sqlstreams.produce('short', '6', idempotency_key => 'm'), 5::bigint, 'a key in an open transaction');
DO $$ DECLARE began timestamptz := clock_timestamp(); BEGIN WHILE clock_timestamp() - began < '5 milliseconds' LOOP NULL; END LOOP; END $$;
SELECT is(sqlstreams.produce('short', '7', idempotency_key => 'm'), 6::bigint, 'has its TTL too');
ROLLBACK;

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
-- a produce that stores nothing makes no producer: it holds no claim back
SELECT sqlstreams.create_stream('fence') AS fence_id \gset
SELECT ok(sqlstreams.produce('fence', '1', idempotency_key => 'k') > 0, 'a message with a key');
CREATE VIEW tap.fence_locks AS SELECT count(*) AS n FROM pg_locks l JOIN pg_class c ON c.reltype = l.relation
 WHERE l.locktype = 'relation' AND l.pid = pg_backend_pid() AND c.relname LIKE 'message\_log\_%' AND l.granted;
BEGIN;
SELECT is(sqlstreams.produce('fence', '1', idempotency_key => 'k'), 0::bigint, 'in a transaction, a duplicate');
SELECT is(array_agg(id), '{0,0}'::bigint[], 'and a batch of them') FROM sqlstreams.produce_batch('fence', '{1,2}', idempotency_keys => '{k,k}') id;
SELECT is(n, 0::bigint, 'it is not inside of the fence') FROM tap.fence_locks;
SELECT is(array_agg(id > 0), '{f,t}'::boolean[], 'a batch with one that is new') FROM sqlstreams.produce_batch('fence', '{1,2}', idempotency_keys => '{k,l}') id;
SELECT is(n, 1::bigint, 'now it is') FROM tap.fence_locks;
COMMIT;
DROP VIEW tap.fence_locks;
SELECT is(sqlstreams.drop_stream('fence'), true, 'clean up');
SELECT * FROM finish();
