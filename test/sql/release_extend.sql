\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'g'), sqlstreams.create_group('s', 'h') $$, 'a stream and two groups');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 20) i))), 20::bigint, 'twenty messages');

-- release
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 3) \gset
SELECT is(sqlstreams.release('s', 'g', :c), 3::bigint, 'release says how many it hands back');
SELECT is(sqlstreams.release('s', 'g', :c), 0::bigint, 'of a claim that is gone it hands back nothing');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'its holder holds nothing any more');
SELECT is((SELECT sum(leased) FROM sqlstreams.consumer_groups), 0::numeric, 'nothing is leased');
SELECT results_eq($$ SELECT message_id, attempts, delays, takeovers FROM sqlstreams.claim('s', 'g', 5) $$,
  $$ VALUES (1::bigint, 0, 0, 0), (2, 0, 0, 0), (3, 0, 0, 0), (4, 0, 0, 0), (5, 0, 0, 0) $$, 'they come first, at once, and nothing was counted');
SELECT min(claim_id) AS c FROM sqlstreams.leases \gset
SELECT is(sqlstreams.ack('s', 'g', :c, '{1,2}'), 2::bigint, 'two are acked');
SELECT is(sqlstreams.release('s', 'g', :c, '{4,4}'), 1::bigint, 'release by id; an id given twice counts once');
SELECT fails(format('SELECT sqlstreams.release(%L, %L, %s, %L)', 's', 'g', :c, '{3,1}'), 'SS004', NULL, 'not what was acked');
SELECT fails(format('SELECT sqlstreams.release(%L, %L, %s, %L)', 's', 'g', :c, '{3,4}'), 'SS004', NULL, 'nor what was released');
SELECT fails(format('SELECT sqlstreams.release(%L, %L, %s, %L)', 's', 'g', :c, '{3,6}'), 'SS004', NULL, 'nor what is not in the claim');
SELECT fails(format('SELECT sqlstreams.release(%L, %L, %s, %L)', 's', 'g', :c, '{3,NULL}'), '22004', 'message_ids', 'a NULL id');
SELECT fails(format('SELECT sqlstreams.release(%L, %L, %s, %L)', 's', 'g', :c, '{{3},{5}}'), '22023', 'message_ids', 'a two-dimensional array');
SELECT is(sqlstreams.release('s', 'g', :c, '{}'), 0::bigint, 'no ids');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('s', 'g', 2)), '{4,6}'::bigint[], 'the released one comes before fresh ones');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :c, '{4}'), 'SS004', NULL, 'it is not in the old claim any more');
SELECT is(sqlstreams.ack('s', 'g', :c), 2::bigint, 'the rest of which stays');
SELECT is(sqlstreams.release('s', 'g', :c, '{3}'), 0::bigint, 'release by id of a claim that is gone');
SELECT is(sqlstreams.release('s', 'g', 0), 0::bigint, 'release of claim 0');
SELECT is(sqlstreams.release('s', 'g', -1), 0::bigint, 'of claim -1');
SELECT fails($$ SELECT sqlstreams.release('s', 'g', NULL) $$, '22004', 'claim_id', 'of a NULL claim');
SELECT fails($$ SELECT sqlstreams.release('s', 'nope', 1) $$, 'SS002', 'consumer group "nope"', 'of an unknown group');
SELECT fails($$ SELECT sqlstreams.release('nope', 'g', 1) $$, 'SS001', 'stream "nope"', 'of an unknown stream');
SELECT min(claim_id) AS c FROM sqlstreams.leases \gset
SELECT is(sqlstreams.release('s', 'h', :c), 0::bigint, 'another group''s claim is not touched');
SELECT is((SELECT unresolved FROM sqlstreams.leases), 2::bigint, 'it is as it was');
BEGIN;
SELECT is(sqlstreams.release('s', 'g', :c), 2::bigint, 'release in a transaction');
SELECT is(claimed('s', 'g', 2), '4 6', 'claimed again inside it');
ROLLBACK;
SELECT is(sqlstreams.ack('s', 'g', :c), 2::bigint, 'rolled back: the claim is still there');
BEGIN READ ONLY;
SELECT fails($$ SELECT sqlstreams.release('s', 'g', 1) $$, '25006', 'release', 'in a read-only transaction');
SELECT fails($$ SELECT sqlstreams.extend('s', 'g', 1) $$, '25006', 'extend', 'extend too');
COMMIT;
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 2, '1 millisecond') \gset
SELECT wait_for_expiry('s', 'g') \g /dev/null
SELECT is(sqlstreams.release('s', 'g', :c), 2::bigint, 'an expired claim can be released');
SELECT results_eq($$ SELECT message_id, takeovers FROM sqlstreams.claim('s', 'g', 2, '1 millisecond') $$, $$ VALUES (7::bigint, 0), (8, 0) $$, 'which counts nothing');
SELECT wait_for_expiry('s', 'g') \g /dev/null
SELECT results_eq($$ SELECT message_id, takeovers FROM sqlstreams.claim('s', 'g', 2, '1 hour', consumer => 'third') $$, $$ VALUES (7::bigint, 1), (8, 1) $$, 'a take-over does');
SELECT min(claim_id) AS c FROM sqlstreams.leases \gset
SELECT is(sqlstreams.release('s', 'g', :c), 2::bigint, 'released after a take-over');
SELECT results_eq($$ SELECT message_id, takeovers FROM sqlstreams.claim('s', 'g', 2, '1 hour') $$, $$ VALUES (7::bigint, 1), (8, 1) $$, 'the count of take-overs stays');

-- extend
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'h', 3, '1 minute') \gset
SELECT expires_at AS ends FROM sqlstreams.leases WHERE consumer_group = 'h' \gset
SELECT ok(sqlstreams.extend('s', 'h', :c, '1 hour') - clock_timestamp() BETWEEN '59 minutes' AND '1 hour', 'extend: from the clock now');
SELECT ok((SELECT expires_at - clock_timestamp() BETWEEN '59 minutes' AND '1 hour' FROM sqlstreams.leases WHERE consumer_group = 'h'), 'the view shows it');
SELECT ok(sqlstreams.extend('s', 'h', :c, '1 second') - clock_timestamp() BETWEEN '59 minutes' AND '1 hour', 'it never shortens');
SELECT ok(sqlstreams.extend('s', 'h', :c) - clock_timestamp() BETWEEN '59 minutes' AND '1 hour', 'nor without a lease');
SELECT is(sqlstreams.ack('s', 'h', :c, '{2}'), 1::bigint, 'the claim_id stays, by message');
SELECT is(sqlstreams.extend('s', 'h', :c, '2 hours') > clock_timestamp() + '119 minutes', true, 'a claim that is partly acked');
SELECT is(sqlstreams.ack('s', 'h', :c), 2::bigint, 'and whole');
SELECT fails(format('SELECT sqlstreams.extend(%L, %L, %s)', 's', 'h', :c), 'SS004', NULL, 'a claim that is gone');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'h', 3, '10 seconds') \gset
SELECT ok(sqlstreams.extend('s', 'h', :c) - clock_timestamp() BETWEEN '9 seconds' AND '10 seconds', 'NULL is as long as it was made for');
SELECT fails(format('SELECT sqlstreams.extend(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'another group''s claim');
SELECT fails($$ SELECT sqlstreams.extend('s', 'h', 0) $$, 'SS004', NULL, 'claim 0');
SELECT fails($$ SELECT sqlstreams.extend('s', 'h', NULL) $$, '22004', 'claim_id', 'a NULL claim');
SELECT fails(format('SELECT sqlstreams.extend(%L, %L, %s, %L)', 's', 'h', :c, '0'), '22023', 'lease', 'a lease of 0');
SELECT fails(format('SELECT sqlstreams.extend(%L, %L, %s, %L)', 's', 'h', :c, '-1 second'), '22023', 'lease', 'a negative lease');
SELECT fails(format('SELECT sqlstreams.extend(%L, %L, %s, %L)', 's', 'h', :c, '178000000 years'), '22023', 'lease', 'a lease that no clock reaches');
SELECT fails($$ SELECT sqlstreams.extend('s', 'nope', 1) $$, 'SS002', 'consumer group "nope"', 'an unknown group');
SELECT fails($$ SELECT sqlstreams.extend('nope', 'g', 1) $$, 'SS001', 'stream "nope"', 'an unknown stream');
BEGIN;
SELECT ok(sqlstreams.extend('s', 'h', :c, '1 hour') > clock_timestamp() + '59 minutes', 'extend in a transaction');
ROLLBACK;
SELECT ok((SELECT expires_at < clock_timestamp() + '11 seconds' FROM sqlstreams.leases WHERE consumer_group = 'h'), 'rolled back with it');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'h', 3, '1 millisecond') \gset
DO $$ BEGIN WHILE EXISTS (SELECT FROM sqlstreams.leases WHERE consumer_group = 'h' AND claimed_at + '1 millisecond' >= expires_at AND expires_at >= clock_timestamp()) LOOP NULL; END LOOP; END $$;
SELECT ok(sqlstreams.extend('s', 'h', :c, '1 hour') > clock_timestamp() + '59 minutes', 'an expired claim that nobody took over can be extended');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('s', 'h', 2)), '{10,11}'::bigint[], 'and is not taken over then');
SELECT is(sqlstreams.ack('s', 'h', :c), 3::bigint, 'its holder acks');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
