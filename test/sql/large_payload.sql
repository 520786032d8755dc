\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s'), sqlstreams.create_group('s', 'g') $$, 'a stream and a group');
SELECT is(sqlstreams.produce('s', to_jsonb(repeat('0123456789', 10 * 1024 * 1024))), 1::bigint, 'a payload of 100 MB');
SELECT is(sqlstreams.produce_bytes('s', decode(repeat('00ff', 5 * 1024 * 1024), 'hex')), 2::bigint, 'a body of 10 MB');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', ARRAY['1', to_jsonb(repeat('0123456789', 1024 * 1024)), '2'])), 3::bigint, 'a batch with one of 10 MB');
SELECT is(sqlstreams.produce('s', '"small"'), 6::bigint, 'a small one behind them');
SELECT results_eq($$ SELECT message_id, length(payload #>> '{}'), right(payload #>> '{}', 12), length(body) FROM sqlstreams.claim('s', 'g', 10, '1 hour', max_bytes => 100000000) $$,
  $$ VALUES (1::bigint, 104857600, '890123456789', NULL::int) $$, 'max_bytes stops after the large one, which is what was sent');
SELECT results_eq($$ SELECT message_id, length(body), body = decode(repeat('00ff', 5 * 1024 * 1024), 'hex') FROM sqlstreams.claim('s', 'g', 1, '1 hour') $$, $$ VALUES (2::bigint, 10485760, true) $$, 'so is the body');
SELECT results_eq($$ SELECT message_id, length(payload::text) FROM sqlstreams.claim('s', 'g', 10, '1 hour') $$, $$ VALUES (3::bigint, 1), (4, 10485762), (5, 1), (6, 7) $$, 'and the rest');
SELECT is((SELECT sum(length(payload::text)) FROM sqlstreams.peek('s', 3)), 10485771::bigint, 'peek shows the same');

SELECT sqlstreams.drop_stream('s') \g /dev/null
SELECT * FROM finish();
