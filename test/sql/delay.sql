\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours', base_delay => '1 hour', max_delay => '1 day'), sqlstreams.create_group('s', 'h', max_delays => 2) $$,
  'a stream and two groups');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 40) i))), 40::bigint, 'forty messages');
-- the clock is moved, not waited for
SELECT format('UPDATE sqlstreams.exception_queue_%s SET due_at = (SELECT clock_timestamp()) WHERE status = ''r''', stream_id) AS make_due,
       format('UPDATE sqlstreams.group_cursor_%1$s SET lease_scan_from = ''-infinity''; UPDATE sqlstreams.claim_lease_%1$s SET expires_at = (SELECT clock_timestamp())', stream_id) AS expire FROM sqlstreams.streams WHERE stream = 's' \gset
-- the ready exceptions of a group that will ever be due: id, status, attempts, delays, takeovers, and when
CREATE FUNCTION pg_temp.state(a_group text) RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(format('%s %s %s/%s/%s in %s s', message_id, status, attempts, delays, takeovers, round(extract(epoch FROM can_run_after - updated_at))), ', ' ORDER BY message_id), '')
    FROM sqlstreams.exceptions('s', a_group, 'ready', max_messages => 1000) WHERE can_run_after < '100000-01-01'
$$;

-- one message, several
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 6, '1 hour') \gset
SELECT is(sqlstreams.delay('s', 'g', :c, '{2}', '10 minutes', 'the shop is closed'), 0::bigint, 'delay of one message');
SELECT is(pg_temp.state('g'), '2 ready 0/1/0 in 600 s', 'is no failure, and comes when it says');
SELECT is((SELECT messages || ' ' || unresolved FROM sqlstreams.leases), '6 5', 'the others are still the claim''s');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'g', :c, '{2}', '1 s'), 'SS004', NULL, 'not a second time');
SELECT is(sqlstreams.delay('s', 'g', :c, '{5,3,5}', '1 month 1 day'), 0::bigint, 'of several, by a month and a day; an id given twice counts once');
SELECT is(pg_temp.state('g'), format('2 ready 0/1/0 in 600 s, 3 ready 0/1/0 in %1$s s, 5 ready 0/1/0 in %1$s s', 31 * 86400), 'a month is 30 days, a day 24 hours');
SELECT is(sqlstreams.delay('s', 'g', :c, '{}', '1 s'), 0::bigint, 'of none');
SELECT is(sqlstreams.delay('s', 'g', :c, '{1}', '178000000 years'), 0::bigint, 'beyond every clock is no error');
SELECT ok((SELECT can_run_after > '200000-01-01' FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 1), 'but as late as there is');
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), 3::bigint, 'the cursor passes them');
SELECT is(sqlstreams.delay('s', 'g', :c, '{4,6}', '0'), 0::bigint, 'a delay of 0');
SELECT is_empty($$ SELECT FROM sqlstreams.leases $$, 'the claim is gone with its last message');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'g', :c, '{}', '1 s'), 'SS004', NULL, 'also for no ids');
SELECT results_eq($$ SELECT claimed, committed, ready, inflight, dead FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$, $$ VALUES (6::bigint, 6::bigint, 6::bigint, 0::bigint, 0::bigint) $$, 'the view counts them');
SELECT min(claim_id) AS c, string_agg(format('%s %s/%s/%s', message_id, attempts, delays, takeovers), ', ' ORDER BY message_id) AS ids FROM sqlstreams.claim('s', 'g', 4, '1 hour') \gset
SELECT is(:'ids'::text, '4 0/1/0, 6 0/1/0, 7 0/0/0, 8 0/0/0', 'what is due at once comes with the next claim');
:make_due AND message_id = 2;
SELECT is((SELECT string_agg(format('%s %s/%s/%s', message_id, attempts, delays, takeovers), ', ' ORDER BY message_id) FROM sqlstreams.claim('s', 'g', 2, '1 hour')), '2 0/1/0, 9 0/0/0', 'the others when they are due');

-- delays and failures are counted apart, and delays have no limit unless the group says so
SELECT is(sqlstreams.nack('s', 'g', :c, '{4}', retry_in => '0'), 0::bigint, 'a failure after a delay');
SELECT is((SELECT sum(sqlstreams.delay('s', 'g', claim_id, ARRAY[message_id], '0')) FROM sqlstreams.claim('s', 'g', 2) WHERE message_id = 4), 0::numeric, 'a delay after that');
SELECT is(pg_temp.state('g'), format('3 ready 0/1/0 in %1$s s, 4 ready 1/2/0 in 0 s, 5 ready 0/1/0 in %1$s s', 31 * 86400), 'neither changes the other''s count');
SELECT is((SELECT sum(sqlstreams.nack('s', 'g', claim_id, ARRAY[message_id])) FROM sqlstreams.claim('s', 'g', 2) WHERE message_id = 4), 0::numeric, 'another failure');
SELECT results_eq($$ SELECT attempts, delays, can_run_after - updated_at FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 4 $$, $$ VALUES (2, 2, interval '1 hour') $$, 'is the second one: the backoff knows no delays');
SELECT is(sqlstreams.delay('s', 'g', :c, '{6}', '0'), 0::bigint, 'a second delay of another');
DO $$
BEGIN
  FOR i IN 1 .. 50 LOOP
    PERFORM sqlstreams.delay('s', 'g', claim_id, ARRAY[message_id], '0') FROM sqlstreams.claim('s', 'g', 2) WHERE message_id = 6;
  END LOOP;
END $$;
SELECT is((SELECT status || ' ' || attempts || '/' || delays FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 6), 'ready 0/52', 'and fifty more');

-- max_delays
SELECT is((SELECT sum(sqlstreams.delay('s', 'h', claim_id, ARRAY[message_id], '0', 'one')) FROM sqlstreams.claim('s', 'h')), 0::numeric, 'one delay');
SELECT is((SELECT sum(sqlstreams.delay('s', 'h', claim_id, ARRAY[message_id], '0', 'two')) FROM sqlstreams.claim('s', 'h', 2) WHERE message_id = 1), 0::numeric, 'two delays');
SELECT is((SELECT sum(sqlstreams.delay('s', 'h', claim_id, ARRAY[message_id], '0', 'three')) FROM sqlstreams.claim('s', 'h', 2) WHERE message_id = 1), 1::numeric, 'the third is one too many');
SELECT results_eq($$ SELECT message_id, status, attempts, delays FROM sqlstreams.exceptions('s', 'h') $$, $$ VALUES (1::bigint, 'dead', 0, 3) $$, 'dead by it');
SELECT is((SELECT string_agg(message_id::text, ' ' ORDER BY message_id) FROM sqlstreams.claim('s', 'h', 3, '1 hour')), '4 5 6', 'it does not come again');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'h', max_delays => 1) $$, 'one delay only');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'h', 3, '1 hour') \gset
SELECT is(sqlstreams.delay('s', 'h', :c, '{7,8,9}', '0'), 0::bigint, 'three delayed');
SELECT is((SELECT sum(sqlstreams.delay('s', 'h', claim_id, ARRAY[message_id], '1 hour')) FROM sqlstreams.claim('s', 'h', 6) WHERE message_id < 10), 3::numeric, 'and dead, three at once');

-- what cannot be delayed; nothing changes by it
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'e'), sqlstreams.create_stream('t'), sqlstreams.create_group('t', 'e') $$, 'another group');
SELECT min(claim_id) AS other FROM sqlstreams.claim('s', 'e', 2, '1 hour') \gset
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'e', 5, '1 hour') \gset
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'e', :c, '{3}', v), '22023', 'delay', 'a delay of ' || v) FROM unnest(ARRAY['-1 second', '1 day -25 hours', '-178000000 years']) WITH ORDINALITY u (v, n) ORDER BY n;
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'e', :c, '{3}', 'infinity'),
  CASE WHEN current_setting('server_version_num')::int >= 170000 THEN '22023' ELSE '22007' END, NULL, 'a delay of infinity');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, NULL)', 's', 'e', :c, '{3}'), '22004', 'delay', 'a NULL delay');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, NULL, %L)', 's', 'e', :c, '1 s'), '22004', 'message_ids', 'NULL ids');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'e', :c, '{3,NULL}', '1 s'), '22004', 'message_ids', 'a NULL id');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'e', :c, '{{3},{4}}', '1 s'), '22023', 'message_ids', 'a two-dimensional array');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'e', :c, '{3,8}', '1 s'), 'SS004', NULL, 'a message that nobody has');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'e', :c, '{3,2}', '1 s'), 'SS004', NULL, 'another claim''s message');
SELECT fails($$ SELECT sqlstreams.delay('s', 'e', NULL, '{3}', '1 s') $$, '22004', 'claim_id', 'a NULL claim');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'e', v, '{3}', '1 s'), 'SS004', NULL, 'claim ' || v) FROM unnest(ARRAY[0, -1, 9223372036854775807, 12345]) WITH ORDINALITY u (v, n) ORDER BY n;
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'g', :c, '{3}', '1 s'), 'SS004', NULL, 'another group''s claim');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 't', 'e', :c, '{3}', '1 s'), 'SS004', NULL, 'another stream''s');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 'nope', 'e', :c, '{3}', '1 s'), 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'nope', :c, '{3}', '1 s'), 'SS002', 'consumer group "nope"', 'an unknown group');
SELECT fails(format('SELECT sqlstreams.delay(NULL, %L, %s, %L, %L)', 'e', :c, '{3}', '1 s'), '22004', 'stream', 'a NULL stream');
SELECT fails(format('SELECT sqlstreams.delay(%L, NULL, %s, %L, %L)', 's', :c, '{3}', '1 s'), '22004', 'consumer_group', 'a NULL group');
BEGIN READ ONLY;
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'e', :c, '{3}', '1 s'), '25006', 'delay', 'in a read-only transaction');
COMMIT;
SELECT is_empty($$ SELECT FROM sqlstreams.exceptions('s', 'e') $$, 'no exception came of all this');
SELECT is((SELECT string_agg(unresolved::text, ' ' ORDER BY unresolved) FROM sqlstreams.leases WHERE stream = 's' AND consumer_group = 'e'), '2 5', 'and the claims are whole');

-- transactions
BEGIN;
SELECT is(sqlstreams.delay('s', 'e', :c, '{3}', '1 hour'), 0::bigint, 'delayed in a transaction');
SAVEPOINT a;
SELECT is(sqlstreams.delay('s', 'e', :c, '{4}', '1 hour'), 0::bigint, 'and in a savepoint');
ROLLBACK TO a;
SELECT is(pg_temp.state('e'), '3 ready 0/1/0 in 3600 s', 'rolled back with it');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'e', :c, '{3}', '1 s'), 'SS004', NULL, 'the other one stays');
ROLLBACK;
SELECT is(pg_temp.state('e'), '', 'rolled back, nothing was');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT is(sqlstreams.delay('s', 'e', :c, '{3}', '1 hour'), 0::bigint, 'at REPEATABLE READ');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT is(sqlstreams.delay('s', 'e', :c, '{4}', '1 hour'), 0::bigint, 'at SERIALIZABLE');
COMMIT;
SELECT is(pg_temp.state('e'), '3 ready 0/1/0 in 3600 s, 4 ready 0/1/0 in 3600 s', 'both last');

-- after the lease's end
:expire WHERE claim_id = :c;
SELECT is(sqlstreams.delay('s', 'e', :c, '{5}', '1 hour'), 0::bigint, 'an expired claim that nobody took over is still its holder''s');
SELECT min(claim_id) AS taken, string_agg(message_id || ' ' || takeovers, ', ' ORDER BY message_id) AS ids FROM sqlstreams.claim('s', 'e', 2, '1 hour') \gset
SELECT is(:'ids'::text, '6 1, 7 1', 'what is open in it is taken over');
SELECT fails(format('SELECT sqlstreams.delay(%L, %L, %s, %L, %L)', 's', 'e', :c, '{6}', '1 s'), 'SS004', NULL, 'then its holder has lost it');
SELECT is(sqlstreams.delay('s', 'e', :taken, '{6,7}', '1 hour'), 0::bigint, 'the new one delays');
SELECT is(pg_temp.state('e'), '3 ready 0/1/0 in 3600 s, 4 ready 0/1/0 in 3600 s, 5 ready 0/1/0 in 3600 s, 6 ready 0/1/1 in 3600 s, 7 ready 0/1/1 in 3600 s', 'the take-over stays counted');

-- a long reason
SELECT is(sqlstreams.delay('s', 'e', :other, '{1}', '1 hour', repeat('x', 1048576)), 0::bigint, 'a reason of 1 MB');
SELECT is((SELECT length(error) FROM sqlstreams.deliveries('s', 'e', 1)), 1048576, 'is kept whole in the delivery log');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
