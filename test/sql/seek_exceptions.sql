\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- seek, where there are exceptions: those of the window that it moves over are dropped, and what it goes back to is delivered again, once.
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours'), sqlstreams.create_group('s', 'other', initial_backoff => '2 hours') $$, 'a stream and two groups');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 16) i))), 16::bigint, 'sixteen messages');
SELECT is(sqlstreams.produce('s', '17', deliver_at => '2100-01-01Z'), 17::bigint, 'one for later');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', '{18,19,20}')), 3::bigint, 'three more');
-- the clock is moved, not waited for
SELECT format('UPDATE sqlstreams.exception_queue_%s SET due_at = (SELECT clock_timestamp()) WHERE status = ''r''', stream_id) AS make_due FROM sqlstreams.streams WHERE stream = 's' \gset
-- the exceptions of a group: id, status, attempts
CREATE FUNCTION pg_temp.state(a_group text DEFAULT 'g') RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(format('%s %s %s', message_id, status, attempts), ', ' ORDER BY message_id), '') FROM sqlstreams.exceptions('s', a_group, max_messages => 1000)
$$;
-- 2 and 9 dead; 3, 4, 5, 10, 11, 12 and 17 ready, 4 and 11 of them in flight with the fresh 18 and 19; the rest acked
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 16, '1 hour') \gset
SELECT is(sqlstreams.reject('s', 'g', :c, '{2,9}', 'dead'), 2::bigint, 'two dead');
SELECT is(sqlstreams.nack('s', 'g', :c, '{3,4,5,10,11,12}', 'x'), 0::bigint, 'six failed');
SELECT is(sqlstreams.ack('s', 'g', :c), 8::bigint, 'the others acked');
:make_due AND message_id IN (4, 11);
SELECT min(claim_id) AS c, string_agg(message_id::text, ' ' ORDER BY message_id) AS ids FROM sqlstreams.claim('s', 'g', 4, '1 hour') \gset
SELECT is(:'ids'::text, '4 11 18 19', 'two due ones claimed with two fresh ones');
SELECT is((SELECT sqlstreams.reject('s', 'other', min(claim_id)) FROM sqlstreams.claim('s', 'other', 12, '1 hour')), 12::bigint, 'the other group''s dead');
SELECT pg_temp.state() AS before \gset
SELECT is(:'before'::text, '2 dead 1, 3 ready 1, 4 inflight 1, 5 ready 1, 9 dead 1, 10 ready 1, 11 inflight 1, 12 ready 1, 17 ready 0', 'exceptions of every kind');

-- as if
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 8, dry_run => true) $$, $$ VALUES (19::bigint, 7::bigint, 12::bigint) $$, 'back to 8, as a dry run');
SELECT is(pg_temp.state(), :'before', 'changes nothing');
BEGIN;
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 8) $$, $$ VALUES (19::bigint, 7::bigint, 12::bigint) $$, 'in a transaction');
ROLLBACK;
SELECT is(pg_temp.state(), :'before', 'that is rolled back');
SELECT lives_ok(format('SELECT sqlstreams.extend(%L, %L, %s)', 's', 'g', :c), 'the claim is still its holder''s');
-- to where it is, and forward: all is behind it
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 20) $$, $$ VALUES (19::bigint, 19::bigint, 0::bigint) $$, 'to where it is');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 21) $$, $$ VALUES (19::bigint, 20::bigint, -1::bigint) $$, 'forward');
SELECT is(pg_temp.state(), :'before', 'keeps what is behind');
SELECT lives_ok(format('SELECT sqlstreams.extend(%L, %L, %s)', 's', 'g', :c), 'and the claim');

-- back
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 8) $$, $$ VALUES (20::bigint, 7::bigint, 13::bigint) $$, 'back to 8');
SELECT is(pg_temp.state(), '2 dead 1, 3 ready 1, 4 ready 1, 5 ready 1', 'what was in the window is no exception any more, dead or not; what was in flight before it is ready');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :c, '{4}'), 'SS004', NULL, 'the holder has lost the one outside of the window');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'g', :c, '{11}'), 'SS004', NULL, 'and the one inside');
SELECT is(pg_temp.state('other'), (SELECT string_agg(i || ' dead 1', ', ' ORDER BY i) FROM generate_series(1, 12) i), 'the other group is as it was');
SELECT results_eq($$ SELECT claimed, committed, leased, ready, inflight, dead FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$, $$ VALUES (7::bigint, 7::bigint, 0::bigint, 3::bigint, 0::bigint, 1::bigint) $$, 'the view shows it');
SELECT results_eq($$ SELECT message_id, attempts, takeovers FROM sqlstreams.claim('s', 'g', 100, '1 hour') ORDER BY message_id $$,
  $$ VALUES (4::bigint, 1, 0), (8, 0, 0), (9, 0, 0), (10, 0, 0), (11, 0, 0), (12, 0, 0), (13, 0, 0), (14, 0, 0), (15, 0, 0), (16, 0, 0), (18, 0, 0), (19, 0, 0), (20, 0, 0) $$, 'the one that was in flight comes at once, and each message of the window once, as a fresh one');
SELECT is(claimed('s', 'g'), '', 'and no more');
SELECT is(pg_temp.state(), '2 dead 1, 3 ready 1, 4 inflight 1, 5 ready 1, 17 ready 0', 'the one for later waits again');
SELECT is((SELECT sum(sqlstreams.ack('s', 'g', claim_id)) FROM sqlstreams.leases WHERE consumer_group = 'g'), 13::numeric, 'acked');
:make_due;
SELECT is(claimed('s', 'g'), '3 5 17', 'those before the window come when they are due');

-- to the beginning, with dead ones; they come again
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'other', 'beginning') $$, $$ VALUES (12::bigint, 0::bigint, 12::bigint) $$, 'to the beginning');
SELECT is(pg_temp.state('other'), '', 'nothing is dead any more');
SELECT is(claimed('s', 'other', 100), '1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 18 19 20', 'all of it comes, once');
SELECT is(sqlstreams.nack('s', 'other', claim_id, '{1,2,3}', retry_in => '0'), 0::bigint, 'three fail') FROM sqlstreams.leases WHERE consumer_group = 'other';
SELECT is(claimed('s', 'other'), '1 2 3', 'and come again');
SELECT is((SELECT sum(sqlstreams.nack('s', 'other', claim_id, retry_in => '0')) FROM sqlstreams.leases WHERE consumer_group = 'other'), 0::numeric, 'all of it fails');
SELECT is((SELECT ready FROM sqlstreams.consumer_groups WHERE consumer_group = 'other'), 20::bigint, 'all of it waits');
-- to the head
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'other', 'head') $$, $$ VALUES (20::bigint, 20::bigint, 0::bigint) $$, 'to the head, where it is');
SELECT is((SELECT ready FROM sqlstreams.consumer_groups WHERE consumer_group = 'other'), 20::bigint, 'what is behind it waits still');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'other', start_time => '2000-01-01') $$, $$ VALUES (20::bigint, 0::bigint, 20::bigint) $$, 'by time');
SELECT is(pg_temp.state('other'), '', 'the same');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'other', 'head') $$, $$ VALUES (0::bigint, 20::bigint, -20::bigint) $$, 'forward to the head');
SELECT is(claimed('s', 'other'), '', 'nothing comes');
SELECT is(pg_temp.state('other'), '', 'not even later');

-- a claim, a failure and a seek in one transaction
BEGIN;
SELECT results_eq($$ SELECT claimed_after FROM sqlstreams.seek('s', 'other', start_id => 15) $$, $$ VALUES (14::bigint) $$, 'back');
SELECT is((SELECT sum(sqlstreams.nack('s', 'other', claim_id, ARRAY[message_id], retry_in => '0')) FROM sqlstreams.claim('s', 'other', 3)), 0::numeric, 'three fail');
SELECT results_eq($$ SELECT claimed_after FROM sqlstreams.seek('s', 'other', start_id => 16) $$, $$ VALUES (15::bigint) $$, 'back again');
SELECT is(pg_temp.state('other'), '15 ready 1', 'those in the window are dropped');
SELECT is(claimed('s', 'other', 4), '15 16 18 19', 'and come as fresh ones');
COMMIT;

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
