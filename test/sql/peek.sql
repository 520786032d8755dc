\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'g') $$, 'a stream and a group');
SELECT is_empty($$ SELECT * FROM sqlstreams.peek('s') $$, 'peek at nothing');
SELECT is_empty($$ SELECT * FROM sqlstreams.key_messages('s', 'k1') $$, 'key_messages of nothing');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 20) i), message_keys => (SELECT array_agg('k' || i % 3 ORDER BY i) FROM generate_series(1, 20) i))), 20::bigint, 'twenty messages');
BEGIN;
SELECT is(sqlstreams.produce('s', '21'), 21::bigint, 'a hole');
ROLLBACK;
SELECT is(sqlstreams.produce('s', '22', message_key => 'K1'), 22::bigint, 'and one behind it');

SELECT results_eq($$ SELECT message_id FROM sqlstreams.peek('s') $$, $$ SELECT generate_series(1, 10)::bigint $$, 'the ten oldest');
SELECT results_eq($$ SELECT message_id FROM sqlstreams.peek('s', 14, 3) $$, '{14,15,16}'::bigint[], 'from an id on');
SELECT results_eq($$ SELECT message_id FROM sqlstreams.peek('s', 20) $$, '{20,22}'::bigint[], 'over a hole');
SELECT results_eq($$ SELECT message_id FROM sqlstreams.peek('s', 21, 1) $$, '{22}'::bigint[], 'from inside a hole');
SELECT is_empty($$ SELECT * FROM sqlstreams.peek('s', 23) $$, 'from beyond the end');
SELECT is_empty($$ SELECT * FROM sqlstreams.peek('s', 9223372036854775807) $$, 'from far beyond the end');
SELECT results_eq($$ SELECT message_id FROM sqlstreams.peek('s', NULL, 2) $$, '{1,2}'::bigint[], 'from_id NULL is the oldest');
SELECT is((SELECT count(*) FROM sqlstreams.peek('s', max_messages => 100000)), 21::bigint, 'all');
SELECT is(claimed('s', 'g', 3), '1 2 3', 'nothing was claimed by it');
SELECT results_eq($$ SELECT message_id FROM sqlstreams.peek('s', 1, 4) $$, '{1,2,3,4}'::bigint[], 'what is claimed is still there');
SELECT fails($$ SELECT * FROM sqlstreams.peek('s', 1, NULL) $$, '22004', 'max_messages', 'max_messages NULL never means all');
SELECT fails($$ SELECT * FROM sqlstreams.peek('s', 1, 0) $$, '22023', 'max_messages', 'max_messages 0');
SELECT fails($$ SELECT * FROM sqlstreams.peek('s', 1, -1) $$, '22023', 'max_messages', 'max_messages -1');
SELECT fails($$ SELECT * FROM sqlstreams.peek('s', 1, 100001) $$, '22023', 'max_messages', 'max_messages 100,001');
SELECT fails($$ SELECT * FROM sqlstreams.peek('s', 1, 2147483647) $$, '22023', 'max_messages', 'max_messages 2^31-1');
SELECT fails($$ SELECT * FROM sqlstreams.peek(NULL) $$, '22004', 'stream', 'a NULL stream');
SELECT fails($$ SELECT * FROM sqlstreams.peek('nope') $$, 'SS001', 'stream "nope"', 'an unknown stream');

SELECT results_eq($$ SELECT message_id FROM sqlstreams.key_messages('s', 'k1') $$, '{19,16,13,10,7,4,1}'::bigint[], 'a key''s messages, newest first');
SELECT results_eq($$ SELECT message_id FROM sqlstreams.key_messages('s', 'k1', 2) $$, '{19,16}'::bigint[], 'as many as asked for');
SELECT results_eq($$ SELECT message_id, payload, message_key, compaction_rank FROM sqlstreams.key_messages('s', 'K1') $$, $$ VALUES (22::bigint, '22'::jsonb, 'K1', NULL::bigint) $$, 'case counts');
SELECT is_empty($$ SELECT * FROM sqlstreams.key_messages('s', 'k') $$, 'a key that is only a beginning');
SELECT is_empty($$ SELECT * FROM sqlstreams.key_messages('s', '') $$, 'the empty key is none');
SELECT fails($$ SELECT * FROM sqlstreams.key_messages('s', NULL) $$, '22004', 'message_key', 'a NULL key');
SELECT fails($$ SELECT * FROM sqlstreams.key_messages('s', 'k1', NULL) $$, '22004', 'max_messages', 'max_messages NULL');
SELECT fails($$ SELECT * FROM sqlstreams.key_messages('s', 'k1', 0) $$, '22023', 'max_messages', 'max_messages 0');
SELECT fails($$ SELECT * FROM sqlstreams.key_messages('s', 'k1', -1) $$, '22023', 'max_messages', 'max_messages -1');
SELECT fails($$ SELECT * FROM sqlstreams.key_messages('s', 'k1', 2147483647) $$, '22023', 'max_messages', 'max_messages 2^31-1');
SELECT fails($$ SELECT * FROM sqlstreams.key_messages(NULL, 'k1') $$, '22004', 'stream', 'a NULL stream');
SELECT fails($$ SELECT * FROM sqlstreams.key_messages('nope', 'k1') $$, 'SS001', 'stream "nope"', 'an unknown stream');

-- reading needs no right to write
BEGIN READ ONLY;
SELECT is((SELECT count(*) FROM sqlstreams.peek('s')), 10::bigint, 'peek in a read-only transaction');
SELECT is((SELECT count(*) FROM sqlstreams.key_messages('s', 'k1')), 7::bigint, 'key_messages too');
COMMIT;

SELECT sqlstreams.drop_stream('s') \g /dev/null
SELECT * FROM finish();
