\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 4), sqlstreams.create_group('s', 'g') $$, 'a stream and a group');

SELECT results_eq($$ SELECT * FROM sqlstreams.produce_batch('s', ARRAY['10', '20', '30']::jsonb[]) $$, '{1,2,3}'::bigint[], 'one id per payload, in input order');
SELECT results_eq($$ SELECT id, n FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(4, 25) i)) WITH ORDINALITY b (id, n) $$,
  $$ SELECT i + 3::bigint, i::bigint FROM generate_series(1, 22) i $$, 'a batch over many partitions');
SELECT is(claimed('s', 'g'), '10 20 30 ' || (SELECT string_agg(i::text, ' ' ORDER BY i) FROM generate_series(4, 25) i), 'all arrive in order');
SELECT results_eq($$ SELECT sqlstreams.produce_batch('s', '{1,2}') $$, '{26,27}'::bigint[], 'an untyped literal, and in the select list');

-- every argument
SELECT results_eq($$ SELECT * FROM sqlstreams.produce_batch('s', '{1,2,3}', message_keys => '{a,NULL,""}', routing_keys => '{NULL,r,""}', compaction => false,
    compaction_ranks => '{0,NULL,0}', concurrency => 'parallel', idempotency_keys => '{i,NULL,""}', schema_version => 3, deliver_at => '2001-01-01',
    headers => ARRAY['{"n": 1}', NULL, '{}']::jsonb[], options => '{"timeout": "1s"}') $$, '{28,29,30}'::bigint[], 'every argument');
SELECT results_eq($$ SELECT message_id, payload, message_key, routing_key, headers, schema_version, compaction_rank, options FROM sqlstreams.peek('s', 28) $$,
  $$ VALUES (28::bigint, '1'::jsonb, 'a'::text, NULL::text, '{"n": 1}'::jsonb, 3, NULL::bigint, '{"timeout": "1s"}'::jsonb),
            (29, '2', NULL, 'r', NULL, 3, NULL, '{"timeout": "1s"}'), (30, '3', NULL, NULL, '{}', 3, NULL, '{"timeout": "1s"}') $$, 'each element goes with its payload');
SELECT results_eq($$ SELECT sqlstreams.produce_batch('s', '{1}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) $$, '{31}'::bigint[], 'NULL is the default of each');

-- shapes
SELECT is_empty($$ SELECT * FROM sqlstreams.produce_batch('s', '{}') $$, 'an empty batch returns nothing');
SELECT is_empty($$ SELECT * FROM sqlstreams.produce_batch('s', '{}', message_keys => '{}', headers => '{}') $$, 'also with empty arrays beside it');
SELECT results_eq($$ SELECT sqlstreams.produce_batch('s', '[0:1]={1,2}', message_keys => '[5:6]={a,b}') $$, '{32,33}'::bigint[], 'where an array begins to count does not matter');
SELECT results_eq($$ SELECT message_key FROM sqlstreams.peek('s', 32) $$, '{a,b}'::text[], 'its elements go by position');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', NULL) $$, '22004', 'payloads', 'NULL payloads');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', ARRAY['1', NULL]::jsonb[]) $$, '22004', 'payloads', 'a NULL payload');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{{1,2},{3,4}}') $$, '22023', 'payloads', 'two-dimensional payloads');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', message_keys => '{a}') $$, '22023', 'message_keys', 'too few message keys');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', message_keys => '{a,b,c}') $$, '22023', 'message_keys', 'too many message keys');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', message_keys => '{}') $$, '22023', 'message_keys', 'empty message keys');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{}', message_keys => '{a}') $$, '22023', 'message_keys', 'message keys for no payload');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', message_keys => '{{a,b}}') $$, '22023', 'message_keys', 'two-dimensional message keys');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', routing_keys => '{a}') $$, '22023', 'routing_keys', 'too few routing keys');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', routing_keys => '{{a,b}}') $$, '22023', 'routing_keys', 'two-dimensional routing keys');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', idempotency_keys => '{a}') $$, '22023', 'idempotency_keys', 'too few idempotency keys');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', idempotency_keys => '{{a,b}}') $$, '22023', 'idempotency_keys', 'two-dimensional idempotency keys');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', compaction_ranks => '{0}') $$, '22023', 'compaction_ranks', 'too few compaction ranks');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', compaction_ranks => '{{0,0}}') $$, '22023', 'compaction_ranks', 'two-dimensional compaction ranks');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', headers => ARRAY['{}']::jsonb[]) $$, '22023', 'headers', 'too few headers');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', headers => ARRAY[['{}', '{}']]::jsonb[]) $$, '22023', 'headers', 'two-dimensional headers');

-- one bad element refuses the whole batch
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', headers => ARRAY['{}', '[]']::jsonb[]) $$, '22023', 'headers', 'headers that are no object');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', compaction_ranks => '{0,1}') $$, '22023', 'compaction_ranks', 'a rank without compaction');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', message_keys => '{a,NULL}', compaction => true) $$, '22023', 'message_key', 'compaction without a message key');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', message_keys => '{a,""}', concurrency => 'exclusive') $$, '22023', 'message_key', 'exclusive without a message key');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', concurrency => 'serial') $$, '22023', 'concurrency', 'an unknown concurrency');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', schema_version => 0) $$, '22023', 'schema_version', 'schema_version 0');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', options => '{"nope": 1}') $$, '22023', 'nope', 'an unknown option');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', message_keys => ARRAY['a', repeat('k', 1025)]) $$, '54000', 'message_key', 'a message key of 1,025 bytes');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', routing_keys => ARRAY['a', repeat('k', 1025)]) $$, '54000', 'routing_key', 'a routing key of 1,025 bytes');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', idempotency_keys => ARRAY['a', repeat('k', 1025)]) $$, '54000', 'idempotency_key', 'an idempotency key of 1,025 bytes');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', array_fill('1'::jsonb, ARRAY[100001])) $$, '54000', '100001', '100,001 payloads');
SELECT fails($$ SELECT sqlstreams.produce_batch(NULL, '{1}') $$, '22004', 'stream', 'a NULL stream');
SELECT fails($$ SELECT sqlstreams.produce_batch('nope', '{1}') $$, 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails($$ SELECT sqlstreams.produce_batch('nope', '{}') $$, 'SS001', 'stream "nope"', 'also for an empty batch');

-- transactions
BEGIN;
SELECT results_eq($$ SELECT sqlstreams.produce_batch('s', '{1,2}') $$, '{34,35}'::bigint[], 'no refused batch used up an id');
SAVEPOINT a;
SELECT results_eq($$ SELECT sqlstreams.produce_batch('s', '{3,4}') $$, '{36,37}'::bigint[], 'in a savepoint');
ROLLBACK TO a;
SELECT results_eq($$ SELECT sqlstreams.produce_batch('s', '{5,6}') $$, '{38,39}'::bigint[], 'after it');
COMMIT;
SELECT is((SELECT string_agg(payload::text, ' ') FROM sqlstreams.peek('s', 34)), '1 2 5 6', 'a savepoint takes its messages with it');
BEGIN;
SELECT is((SELECT array_agg(id) FROM sqlstreams.produce_batch('s', '{7,8}') id), '{40,41}'::bigint[], 'to be rolled back');
ROLLBACK;
SELECT is((SELECT count(*) FROM sqlstreams.peek('s', 40)), 0::bigint, 'as it is');
SELECT results_eq($$ SELECT id FROM sqlstreams.produce_batch('s', '{9,10,11}') id LIMIT 1 $$, '{42}'::bigint[], 'LIMIT hides rows');
SELECT is((SELECT string_agg(payload::text, ' ') FROM sqlstreams.peek('s', 40)), '9 10 11', 'but not messages');

-- the largest batch
SELECT lives_ok($$ SELECT sqlstreams.create_stream('wide'), sqlstreams.create_group('wide', 'g') $$, 'a wide stream');
SELECT results_eq($$ SELECT count(*), min(id), max(id), count(DISTINCT id) FROM sqlstreams.produce_batch('wide', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 100000) i)) id $$,
  $$ VALUES (100000::bigint, 1::bigint, 100000::bigint, 100000::bigint) $$, '100,000 payloads');
SELECT results_eq($$ SELECT count(*), bool_and(payload = to_jsonb(message_id)) FROM sqlstreams.claim('wide', 'g', 100000) $$, $$ VALUES (100000::bigint, true) $$, 'claimed at once');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
