\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'g'), sqlstreams.create_group('s', 'h') $$, 'a stream and two groups');
SELECT is_empty($$ SELECT * FROM sqlstreams.pop('s', 'g') $$, 'nothing to pop');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 20) i), message_keys => (SELECT array_agg('k' || i ORDER BY i) FROM generate_series(1, 20) i))), 20::bigint, 'twenty messages');

SELECT results_eq($$ SELECT message_id, payload, message_key, attempts, delays, takeovers, concurrency, claim_id, lease_expires_at FROM sqlstreams.pop('s', 'g') $$,
  $$ VALUES (1::bigint, '1'::jsonb, 'k1', 0, 0, 0, 'parallel', NULL::bigint, NULL::timestamptz) $$, 'pop takes one message, and there is nothing to hold');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.pop('s', 'g', 8)), '{2,3,4,5,6,7,8,9}'::bigint[], 'or as many as it says, in order');
SELECT is_empty($$ SELECT * FROM sqlstreams.leases $$, 'no lease');
SELECT results_eq($$ SELECT claimed, committed, backlog, leased FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$, $$ VALUES (9::bigint, 9::bigint, 11::bigint, 0::bigint) $$, 'all resolved');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.pop('s', 'h', 2)), '{1,2}'::bigint[], 'another group is not touched');
BEGIN;
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.pop('s', 'g', 2)), '{10,11}'::bigint[], 'popped in a transaction');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.pop('s', 'g', 2)), '{12,13}'::bigint[], 'and on');
ROLLBACK;
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.pop('s', 'g')), '{10}'::bigint[], 'rolled back, they come again');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 3, '1 millisecond') \gset
SELECT is(sqlstreams.ack('s', 'g', :c, '{12}'), 1::bigint, 'a claim, partly acked, whose lease ends');
SELECT wait_for_expiry('s', 'g') \g /dev/null
SELECT results_eq($$ SELECT message_id, takeovers FROM sqlstreams.pop('s', 'g', 3) $$, $$ VALUES (11::bigint, 1), (13, 1), (14, 0) $$, 'pop takes it over, and on to fresh ones');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'its holder has lost it');
SELECT is((SELECT count(*) FROM sqlstreams.pop('s', 'g', 100000)), 6::bigint, 'the rest');
SELECT is_empty($$ SELECT * FROM sqlstreams.leases $$, 'no lease');

SELECT fails($$ SELECT * FROM sqlstreams.pop('s', 'g', NULL) $$, '22004', 'max_messages', 'max_messages NULL');
SELECT fails($$ SELECT * FROM sqlstreams.pop('s', 'g', 0) $$, '22023', 'max_messages', 'max_messages 0');
SELECT fails($$ SELECT * FROM sqlstreams.pop('s', 'g', -1) $$, '22023', 'max_messages', 'max_messages -1');
SELECT fails($$ SELECT * FROM sqlstreams.pop('s', 'g', 100001) $$, '22023', 'max_messages', 'max_messages 100,001');
SELECT fails($$ SELECT * FROM sqlstreams.pop('s', 'g', 2147483647) $$, '22023', 'max_messages', 'max_messages 2^31-1');
SELECT fails($$ SELECT * FROM sqlstreams.pop(NULL, 'g') $$, '22004', 'stream', 'a NULL stream');
SELECT fails($$ SELECT * FROM sqlstreams.pop('s', NULL) $$, '22004', 'consumer_group', 'a NULL group');
SELECT fails($$ SELECT * FROM sqlstreams.pop('nope', 'g') $$, 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails($$ SELECT * FROM sqlstreams.pop('s', 'nope') $$, 'SS002', 'consumer group "nope"', 'an unknown group');
BEGIN READ ONLY;
SELECT fails($$ SELECT * FROM sqlstreams.pop('s', 'g') $$, '25006', 'pop', 'in a read-only transaction');
COMMIT;

SELECT sqlstreams.drop_stream('s') \g /dev/null
SELECT * FROM finish();
