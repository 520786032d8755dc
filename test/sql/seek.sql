\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- The group reads messages 1 to 20; a few of its claims are open.
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 6), sqlstreams.create_group('s', 'g'), sqlstreams.create_group('s', 'other') $$, 'a stream and two groups');
SELECT sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 20) i)) \g /dev/null
SELECT is(claimed('s', 'other', 4), '1 2 3 4', 'the other group has a claim, too');
CREATE FUNCTION pg_temp.at(a_group text) RETURNS bigint LANGUAGE sql AS $$ SELECT claimed FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = a_group $$;

-- exactly one place
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g') $$, '22023', 'start_position', 'no place');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g', NULL, NULL, NULL) $$, '22023', 'start_position', 'NULL is none');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g', dry_run => true) $$, '22023', 'start_position', 'also for a dry run');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g', 'head', 5) $$, '22023', 'start_position', 'two places');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 5, start_time => now()) $$, '22023', 'start_position', 'another two');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g', 'beginning', 5, now()) $$, '22023', 'start_position', 'three');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g', 'middle') $$, '22023', 'start_position', 'an unknown position');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g', '') $$, '22023', 'start_position', 'an empty one');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 0) $$, '22023', 'start_id', 'id 0');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => -5) $$, '22023', 'start_id', 'id -5');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g', start_time => 'infinity') $$, '22023', 'start_time', 'an infinite time');
SELECT fails($$ SELECT * FROM sqlstreams.seek(NULL, 'g', 'head') $$, '22004', 'stream', 'no stream');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', NULL, 'head') $$, '22004', 'consumer_group', 'no group');
SELECT fails($$ SELECT * FROM sqlstreams.seek('nope', 'g', 'head') $$, 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'nope', 'head') $$, 'SS002', 'consumer group "nope"', 'an unknown group');
BEGIN READ ONLY;
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g', 'head') $$, '25006', 'seek', 'in a read-only transaction');
COMMIT;
SELECT is(pg_temp.at('g'), 0::bigint, 'none of them moved the group');

-- back, with claims before the window, across its edge, and inside
SELECT min(claim_id) AS before FROM sqlstreams.claim('s', 'g', 4, '1 hour') \gset
SELECT min(claim_id) AS across FROM sqlstreams.claim('s', 'g', 4, '1 hour') \gset
SELECT min(claim_id) AS inside FROM sqlstreams.claim('s', 'g', 4, '1 hour') \gset
SELECT min(claim_id) AS released FROM sqlstreams.claim('s', 'g', 2, '1 hour') \gset
SELECT min(claim_id) AS lapsed FROM sqlstreams.claim('s', 'g', 2, '1 microsecond') \gset
SELECT is(sqlstreams.ack('s', 'g', :across, '{5,8}'), 2::bigint, 'of the one across the edge two are done');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 7, dry_run => true) $$, $$ VALUES (16::bigint, 6::bigint, 10::bigint) $$, 'a dry run says what would be');
SELECT is(pg_temp.at('g'), 16::bigint, 'and moves nothing');
SELECT lives_ok(format('SELECT sqlstreams.extend(%L, %L, %s)', 's', 'g', :inside), 'nor drops a claim');
SELECT is(sqlstreams.release('s', 'g', :released), 2::bigint, 'two are released');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 7) $$, $$ VALUES (16::bigint, 6::bigint, 10::bigint) $$, 'back to 7');
SELECT is(pg_temp.at('g'), 6::bigint, 'the view shows it');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'g', :across), 'SS004', NULL, 'the holder of the claim across the edge has lost it');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :across, '{6}'), 'SS004', NULL, 'with the messages outside of the window');
SELECT fails(format('SELECT sqlstreams.extend(%L, %L, %s)', 's', 'g', :inside), 'SS004', NULL, 'the one inside, too');
SELECT is(sqlstreams.release('s', 'g', :inside), 0::bigint, 'which has nothing to hand back');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'g', :lapsed), 'SS004', NULL, 'and the one that had lapsed');
SELECT is(sqlstreams.ack('s', 'g', :before, '{1}'), 1::bigint, 'the claim before the window is still its holder''s');
SELECT results_eq($$ SELECT message_id, takeovers FROM sqlstreams.claim('s', 'g', 5, '1 hour') $$, $$ VALUES (6::bigint, 0), (7, 0), (8, 0), (9, 0), (10, 0) $$,
  'what was outside comes again, for nobody''s fault, then what is in the window, resolved or not');
SELECT is(claimed('s', 'g'), '11 12 13 14 15 16 17 18 19 20', 'once each: neither lapsed nor released ones come twice');
SELECT is(claimed('s', 'g'), '', 'and no more');
SELECT results_eq($$ SELECT claimed, committed, backlog, leased FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = 'g' $$, $$ VALUES (20::bigint, 1::bigint, 0::bigint, 18::bigint) $$, 'the view counts each once');

-- forward: what was claimed before stays
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', 'beginning') $$, $$ VALUES (20::bigint, 0::bigint, 20::bigint) $$, 'back to the beginning');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'g', :before), 'SS004', NULL, 'the last claim is lost');
SELECT is_empty($$ SELECT FROM sqlstreams.leases WHERE stream = 's' AND consumer_group = 'g' $$, 'no lease is left');
SELECT min(claim_id) AS before FROM sqlstreams.claim('s', 'g', 3, '1 hour') \gset
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 10, dry_run => true) $$, $$ VALUES (3::bigint, 9::bigint, -6::bigint) $$, 'forward, as a dry run');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 10) $$, $$ VALUES (3::bigint, 9::bigint, -6::bigint) $$, 'forward');
SELECT is(sqlstreams.ack('s', 'g', :before), 3::bigint, 'what was claimed before is still its holder''s');
SELECT is(claimed('s', 'g', 2), '10 11', 'and it goes on there');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 12) $$, $$ VALUES (11::bigint, 11::bigint, 0::bigint) $$, 'to where it is');
SELECT is(claimed('s', 'g', 2), '12 13', 'changes nothing');
SELECT is((SELECT count(*) FROM sqlstreams.leases WHERE stream = 's' AND consumer_group = 'g'), 2::bigint, 'nor drops a claim');

-- to the head
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', 'head') $$, $$ VALUES (13::bigint, 20::bigint, -7::bigint) $$, 'to the head');
SELECT is(claimed('s', 'g'), '', 'nothing is left');
SELECT sqlstreams.produce('s', '21') \g /dev/null
SELECT is(claimed('s', 'g'), '21', 'but what comes');
SELECT is((SELECT count(*) FROM sqlstreams.leases WHERE stream = 's' AND consumer_group = 'g'), 3::bigint, 'the claims before are open');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', 'head') $$, $$ VALUES (21::bigint, 21::bigint, 0::bigint) $$, 'to the head where it is');
-- beyond it
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 24) $$, $$ VALUES (21::bigint, 23::bigint, -2::bigint) $$, 'beyond the head');
SELECT sqlstreams.produce_batch('s', '{22,23,24,25}') \g /dev/null
SELECT is(claimed('s', 'g'), '24 25', 'it waits for that id');
SELECT results_eq($$ SELECT claimed_after FROM sqlstreams.seek('s', 'g', start_id => 1000) $$, $$ VALUES (999::bigint) $$, 'far beyond the head');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', 'head') $$, $$ VALUES (999::bigint, 25::bigint, 974::bigint) $$, 'and to the head again');
SELECT sqlstreams.produce('s', '26') \g /dev/null
SELECT is(claimed('s', 'g'), '26', 'loses nothing');

-- back from the head: a group that began there gets all of it
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'head', start_position => 'head') $$, 'a group at the head');
SELECT is(claimed('s', 'head'), '', 'has nothing');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'head', start_id => 24) $$, $$ VALUES (26::bigint, 23::bigint, 3::bigint) $$, 'moved back');
SELECT is(claimed('s', 'head'), '24 25 26', 'it gets what was before the head');

-- by time
SELECT format('UPDATE sqlstreams.message_log_%s SET created_at = timestamptz ''2020-01-01 00:00:00Z'' + interval ''1 minute'' * id', stream_id) FROM sqlstreams.streams WHERE stream = 's' \gexec
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_time => '2020-01-01 00:24:00Z', dry_run => true) $$, $$ VALUES (26::bigint, 23::bigint, 3::bigint) $$, 'to a time, as a dry run');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_time => '2020-01-01 00:24:00Z') $$, $$ VALUES (26::bigint, 23::bigint, 3::bigint) $$, 'to a time');
SELECT is(claimed('s', 'g'), '24 25 26', 'from the message of that time');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_time => '2020-01-01 00:23:01Z') $$, $$ VALUES (26::bigint, 23::bigint, 3::bigint) $$, 'to a time between two');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_time => '2000-01-01') $$, $$ VALUES (23::bigint, 0::bigint, 23::bigint) $$, 'before all of them');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_time => clock_timestamp() + '1 hour') $$, $$ VALUES (0::bigint, 26::bigint, -26::bigint) $$, 'after all of them');
SELECT is(claimed('s', 'g'), '', 'nothing');

-- in a transaction, and in the one that claims
BEGIN;
SELECT min(claim_id) AS own FROM sqlstreams.claim('s', 'other', 3, '1 hour') \gset
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'other', start_id => 6) $$, $$ VALUES (7::bigint, 5::bigint, 2::bigint) $$, 'back over a claim of the same transaction');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'other', :own), 'SS004', NULL, 'drops it');
SELECT is(claimed('s', 'other', 4), '5 6 7 8', 'and the next claim sees it all');
ROLLBACK;
SELECT results_eq($$ SELECT claimed, leased FROM sqlstreams.consumer_groups WHERE consumer_group = 'other' $$, $$ VALUES (4::bigint, 4::bigint) $$, 'rolled back, none of it was');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'other', start_id => 2) $$, $$ VALUES (4::bigint, 1::bigint, 3::bigint) $$, 'at REPEATABLE READ');
SELECT is(claimed('s', 'other', 2), '1 2', 'the same');
COMMIT;
SELECT is(claimed('s', 'other', 2), '3 4', 'and it lasts');

-- with bindings: messages counts ids
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'bound', bindings => '{b}') $$, 'a group with bindings');
SELECT sqlstreams.produce_batch('s', '{27,28,29,30}', routing_keys => '{a,b,a,b}') \g /dev/null
SELECT is(claimed('s', 'bound'), '28 30', 'gets its messages');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'bound', start_id => 27) $$, $$ VALUES (30::bigint, 26::bigint, 4::bigint) $$, 'moved back');
SELECT is(claimed('s', 'bound'), '28 30', 'gets them again');

-- what the stream keeps no more
SELECT is(sqlstreams.purge_stream('s'), 30::bigint, 'purge_stream');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 30) $$, '22023', 'start_id', 'an id that is gone');
DO $$
DECLARE
  said text;
BEGIN
  PERFORM FROM sqlstreams.seek('s', 'g', start_id => 30);
EXCEPTION WHEN invalid_parameter_value THEN
  GET STACKED DIAGNOSTICS said = PG_EXCEPTION_DETAIL;
  PERFORM set_config('test.said', said, false);
END $$;
SELECT is(current_setting('test.said'), 'The oldest message id that the stream keeps is 31.', 'the error names the oldest');
SELECT fails($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 30, dry_run => true) $$, '22023', 'start_id', 'so does a dry run');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', 'beginning') $$, $$ VALUES (30::bigint, 30::bigint, 0::bigint) $$, 'the beginning is what is left');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_id => 31) $$, $$ VALUES (30::bigint, 30::bigint, 0::bigint) $$, 'the oldest may be said');
SELECT results_eq($$ SELECT * FROM sqlstreams.seek('s', 'g', start_time => '2000-01-01') $$, $$ VALUES (30::bigint, 30::bigint, 0::bigint) $$, 'a time long past is the beginning');
SELECT sqlstreams.produce('s', '31') \g /dev/null
SELECT is(claimed('s', 'g') || claimed('s', 'bound') || claimed('s', 'head'), '3131', 'all go on');

-- who may
BEGIN;
CREATE ROLE regress_sqlstreams_seek;
SELECT fails($$ SET LOCAL ROLE regress_sqlstreams_seek; SELECT * FROM sqlstreams.seek('s', 'g', 'head') $$, '42501', 'stream "s"', 'who does not own the stream may not move a group');
SELECT fails($$ SET LOCAL ROLE regress_sqlstreams_seek; SELECT * FROM sqlstreams.seek('s', 'g', 'head', dry_run => true) $$, '42501', 'stream "s"', 'nor ask');
GRANT ALL ON ALL TABLES IN SCHEMA sqlstreams TO regress_sqlstreams_seek;
SELECT fails($$ SET LOCAL ROLE regress_sqlstreams_seek; SELECT * FROM sqlstreams.seek('s', 'g', 'head') $$, '42501', 'stream "s"', 'whatever rights it has on the tables');
ROLLBACK;

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
