\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT sqlstreams.create_stream('s', partition_size => 4) AS id \gset
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'g') $$, 'a group');

-- ids
SELECT is(sqlstreams.produce('s', '{"a": 1}'), 1::bigint, 'the first message has id 1; untyped literals resolve');
SELECT is(sqlstreams.produce('s', '{"a": 2}'), 2::bigint, 'the next one 2');
SELECT is(sqlstreams.produce(stream => 's', payload => '{"a": 3}'), 3::bigint, 'arguments by name');
SELECT is((SELECT array_agg(sqlstreams.produce('s', to_jsonb(i)) ORDER BY i) FROM generate_series(4, 11) i), '{4,5,6,7,8,9,10,11}'::bigint[],
  'ids go on rising across partitions');
SELECT is(claimed('s', 'g'), '{"a": 1} {"a": 2} {"a": 3} 4 5 6 7 8 9 10 11', 'and all arrive in order');

-- what is stored
SELECT results_eq($$ SELECT message_id, payload, message_key, routing_key, headers, schema_version, compaction_rank, deliver_at, options, body FROM sqlstreams.peek('s', 1, 1) $$,
  $$ VALUES (1::bigint, '{"a": 1}'::jsonb, NULL::text, NULL::text, NULL::jsonb, 1, NULL::bigint, NULL::timestamptz, NULL::jsonb, NULL::bytea) $$, 'a message that says nothing');
SELECT is(sqlstreams.produce('s', '"full"', message_key => 'mk', routing_key => 'rk', compaction => false, compaction_rank => 0, concurrency => 'parallel',
    idempotency_key => 'ik', schema_version => 2147483647, deliver_at => '2001-01-01', headers => '{"h": [1, null]}', options => '{"timeout": "5s"}'), 12::bigint, 'every argument');
SELECT results_eq($$ SELECT message_id, payload, message_key, routing_key, headers, schema_version, compaction_rank, options, body FROM sqlstreams.peek('s', 12) $$,
  $$ VALUES (12::bigint, '"full"'::jsonb, 'mk', 'rk', '{"h": [1, null]}'::jsonb, 2147483647, NULL::bigint, '{"timeout": "5s"}'::jsonb, NULL::bytea) $$, 'is stored');
SELECT results_eq($$ SELECT message_id, payload, message_key, routing_key, headers, schema_version, compaction_rank, attempts, delays, takeovers, concurrency, (options ->> 'timeout')::interval, body FROM sqlstreams.claim('s', 'g') $$,
  $$ VALUES (12::bigint, '"full"'::jsonb, 'mk', 'rk', '{"h": [1, null]}'::jsonb, 2147483647, NULL::bigint, 0, 0, 0, 'parallel', '30 s'::interval, NULL::bytea) $$, 'and claimed, with the group''s timeout: it allows no other');
SELECT is(sqlstreams.produce('s', 'null'), 13::bigint, 'JSON null is a payload');
SELECT ok((SELECT payload = 'null'::jsonb AND body IS NULL FROM sqlstreams.claim('s', 'g')), 'and arrives as one');
SELECT is(sqlstreams.produce('s', '1', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), 14::bigint, 'NULL for an argument with a default is the default');
SELECT is(sqlstreams.produce('s', '1', message_key => '', routing_key => '', idempotency_key => ''), 15::bigint, 'an empty key is none');
SELECT is(sqlstreams.produce('s', '1', message_key => '', routing_key => '', idempotency_key => ''), 16::bigint, 'also the second time');
SELECT results_eq($$ SELECT message_id, message_key, routing_key, schema_version FROM sqlstreams.peek('s', 14) $$,
  $$ VALUES (14::bigint, NULL::text, NULL::text, 1), (15, NULL, NULL, 1), (16, NULL, NULL, 1) $$, 'they are stored as NULL');
SELECT is(sqlstreams.produce('s', '{"snowman": "\u2603", "quote": "''\"$$", "big": 123456789012345678901234567890.5}'), 17::bigint, 'a payload with everything in it');
SELECT ok((SELECT payload ->> 'snowman' = U&'\2603' AND payload ->> 'quote' = '''"$$' AND payload ->> 'big' = '123456789012345678901234567890.5' FROM sqlstreams.peek('s', 17)),
  'comes back as it was');

-- created_at is the clock, not the transaction's start
BEGIN;
SELECT now() AS began \gset
DO $$ BEGIN WHILE clock_timestamp() - now() < '20 milliseconds' LOOP NULL; END LOOP; END $$;
SELECT is(sqlstreams.produce('s', '1'), 18::bigint, 'late in a transaction');
SELECT ok((SELECT created_at >= :'began'::timestamptz + '20 milliseconds' AND created_at <= clock_timestamp() FROM sqlstreams.peek('s', 18)), 'created_at is the clock');
COMMIT;
SELECT ok((SELECT bool_and(a.created_at <= b.created_at) FROM sqlstreams.peek('s', 1, 100) a, sqlstreams.peek('s', 1, 100) b WHERE a.message_id < b.message_id), 'which rises with the ids here');

-- transactions
BEGIN;
SELECT is(sqlstreams.produce('s', '"rolled back"'), 19::bigint, 'a message');
SELECT is((SELECT count(*) FROM sqlstreams.peek('s', 19)), 1::bigint, 'its own transaction sees it');
ROLLBACK;
SELECT is((SELECT count(*) FROM sqlstreams.peek('s', 19)), 0::bigint, 'rolled back with it');
BEGIN;
SELECT is(sqlstreams.produce('s', '"kept"'), 20::bigint, 'ids are not handed out twice');
SAVEPOINT a;
SELECT is(sqlstreams.produce('s', '"dropped"'), 21::bigint, 'in a savepoint');
ROLLBACK TO a;
SELECT is(sqlstreams.produce('s', '"kept too"'), 22::bigint, 'after it');
COMMIT;
SELECT is((SELECT string_agg(payload::text, ' ') FROM sqlstreams.peek('s', 19)), '"kept" "kept too"', 'a savepoint takes its messages with it');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT is(sqlstreams.produce('s', '23'), 23::bigint, 'at REPEATABLE READ');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT is(sqlstreams.produce('s', '24'), 24::bigint, 'at SERIALIZABLE');
COMMIT;
BEGIN READ ONLY;
SELECT fails($$ SELECT sqlstreams.produce('s', '1') $$, '25006', 'produce', 'in a read-only transaction');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1}') $$, '25006', 'produce_batch', 'produce_batch too');
SELECT fails($$ SELECT sqlstreams.produce_bytes('s', '\x00') $$, '25006', 'produce_bytes', 'produce_bytes too');
SELECT fails($$ SELECT sqlstreams.produce_bytes_batch('s', '{"\\x00"}') $$, '25006', 'produce_bytes_batch', 'produce_bytes_batch too');
COMMIT;

-- keys at the limit
SELECT is(sqlstreams.produce('s', '1', message_key => repeat('k', 1024), routing_key => repeat('r', 1024), idempotency_key => repeat('i', 1024)), 25::bigint, 'keys of 1,024 bytes');
SELECT is(sqlstreams.produce('s', '1', message_key => repeat(U&'\00E9', 512)), 26::bigint, 'bytes, not characters, are counted: 512 of two bytes');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', message_key => repeat('k', 1025)) $$, '54000', 'message_key', 'a message key of 1,025 bytes');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', message_key => repeat(U&'\00E9', 513)) $$, '54000', 'message_key', 'a message key of 513 two-byte characters');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', routing_key => repeat('k', 1025)) $$, '54000', 'routing_key', 'a routing key of 1,025 bytes');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', idempotency_key => repeat('k', 1025)) $$, '54000', 'idempotency_key', 'an idempotency key of 1,025 bytes');

-- what is refused
SELECT fails($$ SELECT sqlstreams.produce('s', NULL) $$, '22004', 'payload', 'a NULL payload');
SELECT fails($$ SELECT sqlstreams.produce(NULL, '1') $$, '22004', 'stream', 'a NULL stream');
SELECT fails($$ SELECT sqlstreams.produce('nope', '1') $$, 'SS001', 'stream "nope"', 'an unknown stream');
SELECT is_empty($$ SELECT FROM sqlstreams.streams WHERE stream = 'nope' $$, 'which is not created by it');
SELECT fails($$ SELECT sqlstreams.produce('s', '{') $$, '22P02', NULL, 'a payload that is not JSON');
SELECT fails($$ SELECT sqlstreams.produce('s', '"\u0000"') $$, '22P05', NULL, 'a payload that jsonb cannot hold');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', schema_version => 0) $$, '22023', 'schema_version', 'schema_version 0');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', schema_version => -1) $$, '22023', 'schema_version', 'schema_version -1');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', schema_version => 2147483648) $$, '22023', 'schema_version', 'schema_version 2^31');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', headers => '[]') $$, '22023', 'headers', 'headers that are an array');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', headers => 'null') $$, '22023', 'headers', 'headers that are JSON null');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', headers => '"h"') $$, '22023', 'headers', 'headers that are a string');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '[]') $$, '22023', 'options', 'options that are an array');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '1') $$, '22023', 'options', 'options that are a number');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"nope": 1}') $$, '22023', 'nope', 'an unknown option');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"timeout": "soon"}') $$, '22023', 'timeout', 'a timeout that is no interval');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"timeout": 5}') $$, '22023', 'timeout', 'a timeout that is a number');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"timeout": "0s"}') $$, '22023', 'timeout', 'a timeout of 0');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"timeout": "-1s"}') $$, '22023', 'timeout', 'a negative timeout');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"timeout": "178000000 years"}') $$, '22023', 'timeout', 'a timeout that no clock reaches');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"retry": 3}') $$, '22023', 'retry', 'retry that is no object');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"retry": {"nope": 3}}') $$, '22023', 'nope', 'an unknown retry option');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"retry": {"max_retries": -1}}') $$, '22023', 'max_retries', 'max_retries -1');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"retry": {"max_retries": "3"}}') $$, '22023', 'max_retries', 'max_retries that is a string');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"retry": {"max_delays": -1}}') $$, '22023', 'max_delays', 'max_delays -1');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"retry": {"base_delay": "0"}}') $$, '22023', 'base_delay', 'base_delay 0');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"retry": {"max_delay": "-1s"}}') $$, '22023', 'max_delay', 'a negative max_delay');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"retry": {"exponent": 0}}') $$, '22023', 'exponent', 'exponent 0');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', concurrency => 'serial') $$, '22023', 'concurrency', 'an unknown concurrency');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', concurrency => '') $$, '22023', 'concurrency', 'an empty concurrency');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', concurrency => 'exclusive') $$, '22023', 'message_key', 'exclusive without a message key');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', concurrency => 'ordered') $$, '22023', 'message_key', 'ordered without a message key');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', concurrency => 'ordered', message_key => '') $$, '22023', 'message_key', 'ordered with an empty one');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', compaction => true) $$, '22023', 'message_key', 'compaction without a message key');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', compaction_rank => 1) $$, '22023', 'compaction_rank', 'compaction_rank without compaction');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', compaction_rank => -1, message_key => 'k') $$, '22023', 'compaction_rank', 'also with a key');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', 'k', compaction => true, concurrency => 'ordered') $$, '22023', 'concurrency', 'compaction with ordered');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', 'k', compaction => true, deliver_at => now() + '1 hour') $$, '22023', 'deliver_at', 'compaction with deliver_at in the future');

-- a raw INSERT cannot forge an id
SELECT fails(format('INSERT INTO sqlstreams.message_log_%s (payload) VALUES (%L)', :id, '1'), '23514', NULL, 'an INSERT without an id finds no partition');

-- none of the refused ones left anything behind
SELECT is(sqlstreams.produce('s', '"last"'), 27::bigint, 'no refused call used up an id');
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'g', 100)), 12::bigint, 'and what was committed since is all there');

SELECT sqlstreams.drop_stream('s') \g /dev/null
SELECT * FROM finish();
