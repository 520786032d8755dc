\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 4), sqlstreams.create_group('s', 'g'), sqlstreams.create_group('s', 'h') $$, 'a stream and two groups');

SELECT is(sqlstreams.produce_bytes('s', '\x00ff00'), 1::bigint, 'bytes that are no text');
SELECT is(sqlstreams.produce_bytes('s', ''), 2::bigint, 'a body of no bytes is a body');
SELECT is(sqlstreams.produce('s', '"json"'), 3::bigint, 'beside a payload');
SELECT is(sqlstreams.produce_bytes('s', convert_to('{"a": 1}', 'UTF8'), 'mk', 'rk', false, 0, 'parallel', 'ik', 7, '2001-01-01', '{"h": 1}', '{"timeout": "5s"}'), 4::bigint, 'every argument');
SELECT results_eq($$ SELECT message_id, payload, body, message_key, routing_key, headers, schema_version, options FROM sqlstreams.peek('s') $$,
  $$ VALUES (1::bigint, NULL::jsonb, '\x00ff00'::bytea, NULL::text, NULL::text, NULL::jsonb, 1, NULL::jsonb), (2, NULL, '', NULL, NULL, NULL, 1, NULL),
            (3, '"json"', NULL, NULL, NULL, NULL, 1, NULL), (4, NULL, '{"a": 1}', 'mk', 'rk', '{"h": 1}', 7, '{"timeout": "5s"}') $$, 'stored as it is, payload NULL');
SELECT results_eq($$ SELECT message_id, payload, body FROM sqlstreams.claim('s', 'g', 10) $$,
  $$ VALUES (1::bigint, NULL::jsonb, '\x00ff00'::bytea), (2, NULL, ''), (3, '"json"', NULL), (4, NULL, '{"a": 1}') $$, 'claimed the same');
SELECT is(sqlstreams.produce_bytes('s', 'again', idempotency_key => 'ik'), 0::bigint, 'a duplicate');
SELECT is(sqlstreams.produce('s', '"again"', idempotency_key => 'ik'), 0::bigint, 'keys are the stream''s, not the format''s');
SELECT fails($$ SELECT sqlstreams.produce_bytes('s', NULL) $$, '22004', 'body', 'a NULL body');
SELECT fails($$ SELECT sqlstreams.produce_bytes(NULL, '') $$, '22004', 'stream', 'a NULL stream');
SELECT fails($$ SELECT sqlstreams.produce_bytes('nope', '') $$, 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails($$ SELECT sqlstreams.produce_bytes('s', '', compaction_rank => 1) $$, '22023', 'compaction_rank', 'the checks of produce');
SELECT fails($$ SELECT sqlstreams.produce_bytes('s', '', message_key => repeat('k', 1025)) $$, '54000', 'message_key', 'and its limits');

SELECT results_eq($$ SELECT * FROM sqlstreams.produce_bytes_batch('s', ARRAY['\x01', '', '\x03']::bytea[], message_keys => '{a,NULL,c}', idempotency_keys => '{ik,NULL,new}', headers => ARRAY[NULL, '{"n": 2}', NULL]::jsonb[]) $$,
  '{0,5,6}'::bigint[], 'a batch with a duplicate in it');
SELECT results_eq($$ SELECT message_id, payload, body, message_key, headers FROM sqlstreams.peek('s', 5) $$,
  $$ VALUES (5::bigint, NULL::jsonb, ''::bytea, NULL::text, '{"n": 2}'::jsonb), (6, NULL, '\x03', 'c', NULL) $$, 'each element goes with its body');
SELECT is_empty($$ SELECT * FROM sqlstreams.produce_bytes_batch('s', '{}') $$, 'an empty batch');
SELECT fails($$ SELECT sqlstreams.produce_bytes_batch('s', NULL) $$, '22004', 'bodies', 'NULL bodies');
SELECT fails($$ SELECT sqlstreams.produce_bytes_batch('s', ARRAY['', NULL]::bytea[]) $$, '22004', 'bodies', 'a NULL body');
SELECT fails($$ SELECT sqlstreams.produce_bytes_batch('s', ARRAY[['', ''], ['', '']]::bytea[]) $$, '22023', 'bodies', 'two-dimensional bodies');
SELECT fails($$ SELECT sqlstreams.produce_bytes_batch('s', ARRAY['', '']::bytea[], message_keys => '{a}') $$, '22023', 'message_keys', 'too few message keys');
SELECT fails($$ SELECT sqlstreams.produce_bytes_batch('s', array_fill(''::bytea, ARRAY[100001])) $$, '54000', '100001', '100,001 bodies');
SELECT results_eq($$ SELECT message_id, body FROM sqlstreams.claim('s', 'h', 10) WHERE body IS NOT NULL $$,
  $$ VALUES (1::bigint, '\x00ff00'::bytea), (2, ''), (4, '{"a": 1}'), (5, ''), (6, '\x03') $$, 'another group gets them all');

SELECT sqlstreams.drop_stream('s') \g /dev/null
SELECT * FROM finish();
