\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7, delivery_log => 'all'), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours', base_delay => '1 hour', max_delay => '1 day', max_delays => 1),
    sqlstreams.create_group('s', 'h', initial_backoff => '2 hours') $$, 'a stream and two groups');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 60) i))), 60::bigint, 'sixty messages');
-- the clock is moved, not waited for
SELECT format('UPDATE sqlstreams.exception_queue_%s SET due_at = (SELECT clock_timestamp()) WHERE status = ''r''', stream_id) AS make_due,
       format('UPDATE sqlstreams.group_cursor_%1$s SET lease_scan_from = ''-infinity''; UPDATE sqlstreams.claim_lease_%1$s SET expires_at = (SELECT clock_timestamp())', stream_id) AS expire FROM sqlstreams.streams WHERE stream = 's' \gset
-- the exceptions of a group: id, status, attempts, delays, takeovers, error
CREATE FUNCTION pg_temp.state(a_group text) RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(format('%s %s %s/%s/%s %s', message_id, status, attempts, delays, takeovers, coalesce(last_error, '-')), ', ' ORDER BY message_id), '')
    FROM sqlstreams.exceptions('s', a_group, max_messages => 1000)
$$;
-- what is open in each claim of a group, largest first
CREATE FUNCTION pg_temp.open(a_group text) RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(unresolved::text, ' ' ORDER BY unresolved DESC), '') FROM sqlstreams.leases WHERE stream = 's' AND consumer_group = a_group
$$;

-- every outcome in one call; the others are kept
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 8, '1 hour') \gset
SELECT is(sqlstreams.resolve('s', 'g', :c, '{5,2,3,4}', '{delay,ack,nack,reject}', '{later,NULL,broken,"no account"}', ARRAY['10 minutes', NULL, NULL, NULL]::interval[]), 4::bigint, 'resolve says how many left the claim');
SELECT is((SELECT string_agg(format('%s %s %s/%s', message_id, status, attempts, delays), ', ' ORDER BY message_id) FROM sqlstreams.exceptions('s', 'g')), '3 ready 1/0, 4 dead 1/0, 5 ready 0/1', 'each had its own outcome');
SELECT results_eq($$ SELECT message_id, last_error FROM sqlstreams.exceptions('s', 'g') WHERE attempts = 1 $$, $$ VALUES (3::bigint, 'broken'), (4, 'no account') $$, 'each its own error');
SELECT results_eq($$ SELECT message_id, can_run_after - updated_at FROM sqlstreams.exceptions('s', 'g', 'ready') $$, $$ VALUES (3::bigint, interval '2 hours'), (5, '10 minutes') $$, 'each its own time');
SELECT is(pg_temp.open('g'), '4', 'the others are still leased');
SELECT results_eq($$ SELECT claimed, committed, leased, ready, dead FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$, $$ VALUES (8::bigint, 0::bigint, 4::bigint, 2::bigint, 1::bigint) $$, 'the view counts them');
SELECT fails(format('SELECT sqlstreams.resolve(%L, %L, %s, %L, %L)', 's', 'g', :c, '{2,3,4,5}', '{ack,ack,ack,ack}'), 'SS004', NULL, 'not a second time');
SELECT fails(format('SELECT sqlstreams.resolve(%L, %L, %s, %L, %L)', 's', 'g', :c, '{1,2}', '{ack,ack}'), 'SS004', NULL, 'nor with one that is open');
SELECT is(sqlstreams.resolve('s', 'g', :c, '{1,6,1}', '{ack,ack,ack}'), 2::bigint, 'an id given twice counts once; neither errors nor delays are needed');
SELECT is(sqlstreams.resolve('s', 'g', :c, '{}', '{}'), 0::bigint, 'no ids, and the others kept: nothing');
SELECT is(sqlstreams.resolve('s', 'g', :c, '{}', '{}', others => NULL), 0::bigint, 'others NULL is keep');
SELECT is(pg_temp.open('g'), '2', 'two are left');
SELECT is(sqlstreams.resolve('s', 'g', :c, '{7,8}', '{nack,nack}', '{x,NULL}'), 2::bigint, 'the last ones');
SELECT is(pg_temp.open('g'), '', 'the claim is gone');
SELECT fails(format('SELECT sqlstreams.resolve(%L, %L, %s, %L, %L)', 's', 'g', :c, '{}', '{}'), 'SS004', NULL, 'and not there for no ids either');
SELECT fails(format('SELECT sqlstreams.resolve(%L, %L, %s, %L, %L, others => %L)', 's', 'g', :c, '{}', '{}', 'release'), 'SS004', NULL, 'nor to release the others');

-- the others acked
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 6, '1 hour') \gset
SELECT is(sqlstreams.resolve('s', 'g', :c, '{10,13}', '{nack,reject}', '{no,never}', others => 'ack'), 6::bigint, 'two have failed, the others are acked');
SELECT is(pg_temp.open('g'), '', 'nothing is left of the claim');
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), 14::bigint, 'all of it is resolved or an exception');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'g', after_id => 8)), '10 13', 'the two are');
SELECT fails(format('SELECT sqlstreams.resolve(%L, %L, %s, %L, %L, others => %L)', 's', 'g', :c, '{10,13}', '{nack,reject}', 'ack'), 'SS004', NULL, 'not a second time');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 3, '1 hour') \gset
SELECT is(sqlstreams.resolve('s', 'g', :c, '{}', '{}', others => 'ack'), 3::bigint, 'no ids: all are the others');

-- the others released
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 5, '1 hour') \gset
SELECT is(sqlstreams.resolve('s', 'g', :c, '{18,20}', '{ack,nack}', others => 'release'), 5::bigint, 'the others handed back: they have left the claim, too');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'its holder has nothing any more');
SELECT results_eq($$ SELECT message_id, attempts, delays, takeovers FROM sqlstreams.claim('s', 'g', 3, '1 hour') $$, $$ VALUES (19::bigint, 0, 0, 0), (21, 0, 0, 0), (22, 0, 0, 0) $$, 'they come at once, nothing counted');
SELECT min(claim_id) AS c FROM sqlstreams.leases WHERE stream = 's' AND consumer_group = 'g' AND messages = 3 \gset
SELECT is(sqlstreams.resolve('s', 'g', :c, '{}', '{}', others => 'release'), 3::bigint, 'all released');
SELECT is(claimed('s', 'g', 3), '19 21 22', 'and claimed again');
SELECT min(claim_id) AS c FROM sqlstreams.leases WHERE stream = 's' AND consumer_group = 'g' AND messages = 3 \gset
SELECT is(sqlstreams.resolve('s', 'g', :c, '{21,22,19}', '{ack,ack,ack}', others => 'release'), 3::bigint, 'where there are no others');

-- exceptions in the claim: fresh, due and released ones alike
:make_due;
SELECT min(claim_id) AS c, string_agg(message_id || ' ' || attempts || '/' || delays, ', ' ORDER BY message_id) AS ids FROM sqlstreams.claim('s', 'g', 12, '1 hour') \gset
SELECT is(:'ids'::text, '3 1/0, 5 0/1, 7 1/0, 8 1/0, 10 1/0, 20 1/0, 23 0/0, 24 0/0, 25 0/0, 26 0/0, 27 0/0, 28 0/0', 'six due, six fresh');
SELECT is(sqlstreams.resolve('s', 'g', :c, '{3,5,7,8,23,24,25,26}', '{ack,delay,nack,reject,ack,delay,nack,reject}', '{a,b,c,d,e,f,g,h}', array_fill(interval '1 hour', ARRAY[8])), 8::bigint, 'every outcome for each kind');
SELECT is((SELECT string_agg(format('%s %s %s/%s', message_id, status, attempts, delays), ', ' ORDER BY message_id) FROM sqlstreams.exceptions('s', 'g') WHERE message_id NOT IN (4, 13)),
  '5 dead 0/2, 7 ready 2/0, 8 dead 2/0, 10 inflight 1/0, 20 inflight 1/0, 24 ready 0/1, 25 ready 1/0, 26 dead 1/0', 'a delay too many is deadly here, too');
SELECT is(sqlstreams.resolve('s', 'g', :c, '{10}', '{nack}', others => 'release'), 4::bigint, 'the others released: a due one and fresh ones');
SELECT is((SELECT string_agg(format('%s %s %s/%s', message_id, status, attempts, delays), ', ' ORDER BY message_id) FROM sqlstreams.exceptions('s', 'g', 'ready') WHERE message_id IN (10, 20)), '10 ready 2/0, 20 ready 1/0', 'nothing counted');
SELECT is((SELECT string_agg(message_id || ' ' || attempts, ', ' ORDER BY message_id) FROM sqlstreams.claim('s', 'g', 4, '1 hour')), '20 1, 27 0, 28 0, 29 0', 'and claimable at once');
SELECT min(claim_id) AS c FROM sqlstreams.leases WHERE stream = 's' AND consumer_group = 'g' AND messages = 4 \gset
SELECT is(sqlstreams.resolve('s', 'g', :c, '{29}', '{nack}', others => 'ack'), 4::bigint, 'or acked');
SELECT is_empty($$ SELECT FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 20 $$, 'then it is done');
SELECT is((SELECT string_agg(outcome, ' ' ORDER BY outcome) FROM sqlstreams.deliveries('s', 'g', 20)), 'ack nack release', 'each delivery has its row in the log');

-- long texts
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 3, '1 hour') \gset
SELECT is(sqlstreams.resolve('s', 'g', :c, '{30,31,32}', '{nack,reject,delay}', array_fill(repeat('x', 1048576), ARRAY[3]), array_fill(interval '1 hour', ARRAY[3])), 3::bigint, 'three texts of 1 MB');
SELECT is((SELECT string_agg(length(last_error)::text, ' ' ORDER BY message_id) FROM sqlstreams.exceptions('s', 'g', after_id => 29) WHERE message_id < 32), '1048576 1048576', 'are kept whole');
SELECT is((SELECT string_agg(length(error)::text, ' ') FROM sqlstreams.deliveries('s', 'g') WHERE message_id BETWEEN 30 AND 32), '1048576 1048576 1048576', 'in the delivery log, too');

-- what is wrong with the arrays; nothing changes by it
SELECT min(claim_id) AS other FROM sqlstreams.claim('s', 'h', 2, '1 hour') \gset
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'h', 8, '1 hour') \gset
SELECT fails(format('SELECT sqlstreams.resolve(%L, %L, %s, %s)', 's', 'h', :c, args), state, about, description)
  FROM (VALUES (1, '22004', 'message_ids', 'NULL ids', $$NULL, '{ack}'$$),
               (2, '22004', 'outcomes', 'NULL outcomes', $$'{3}', NULL$$),
               (3, '22004', 'message_ids', 'a NULL id', $$'{3,NULL}', '{ack,ack}'$$),
               (4, '22004', 'outcomes', 'a NULL outcome', $$'{3,4}', '{ack,NULL}'$$),
               (5, '22023', 'outcomes', 'fewer outcomes than ids', $$'{3,4}', '{ack}'$$),
               (6, '22023', 'outcomes', 'more outcomes than ids', $$'{3}', '{ack,ack}'$$),
               (7, '22023', 'outcomes', 'outcomes for no ids', $$'{}', '{ack}'$$),
               (8, '22023', 'errors', 'fewer errors than ids', $$'{3,4}', '{nack,nack}', '{x}'$$),
               (9, '22023', 'errors', 'more errors than ids', $$'{3}', '{nack}', '{x,y}'$$),
               (10, '22023', 'delays', 'fewer delays than ids', $$'{3,4}', '{delay,delay}', NULL, '{1 s}'$$),
               (11, '22023', 'delays', 'more delays than ids', $$'{3}', '{delay}', NULL, '{1 s,1 s}'$$),
               (12, '22023', 'outcomes', 'an unknown outcome', $$'{3,4}', '{ack,done}'$$),
               (13, '22023', 'outcomes', 'an empty outcome', $$'{3}', '{""}'$$),
               (14, '22023', 'outcomes', 'an outcome in capitals', $$'{3}', '{ACK}'$$),
               (15, '22023', 'outcomes', 'release is no outcome', $$'{3}', '{release}'$$),
               (16, '22004', 'delays', 'a delay without delays', $$'{3}', '{delay}'$$),
               (17, '22004', 'delays', 'a delay of NULL', $$'{3,4}', '{delay,delay}', NULL, '{1 s,NULL}'$$),
               (18, '22023', 'delays', 'a negative delay', $$'{3,4}', '{delay,delay}', NULL, '{1 s,-1 s}'$$),
               (19, '22023', 'message_ids', 'two-dimensional ids', $$'{{3},{4}}', '{ack,ack}'$$),
               (20, '22023', 'outcomes', 'two-dimensional outcomes', $$'{3,4}', '{{ack},{ack}}'$$),
               (21, '22023', 'errors', 'two-dimensional errors', $$'{3,4}', '{ack,ack}', '{{x},{y}}'$$),
               (22, '22023', 'delays', 'two-dimensional delays', $$'{3,4}', '{ack,ack}', NULL, '{{1 s},{1 s}}'$$),
               (23, '22023', 'others', 'unknown others', $$'{3}', '{ack}', others => 'nack'$$),
               (24, '22023', 'others', 'empty others', $$'{3}', '{ack}', others => ''$$),
               (25, 'SS004', NULL, 'a message that nobody has', $$'{3,11}', '{ack,ack}'$$),
               (26, 'SS004', NULL, 'another claim''s message', $$'{3,2}', '{ack,ack}'$$),
               (27, 'SS004', NULL, 'another claim''s message, and the others', $$'{2}', '{ack}', others => 'ack'$$),
               (28, 'SS004', NULL, 'id 0', $$'{0}', '{nack}'$$)) u (n, state, about, description, args) ORDER BY n;
SELECT fails($$ SELECT sqlstreams.resolve('s', 'h', NULL, '{3}', '{ack}') $$, '22004', 'claim_id', 'a NULL claim');
SELECT fails(format('SELECT sqlstreams.resolve(%L, %L, %s, %L, %L)', 's', 'h', v, '{3}', '{ack}'), 'SS004', NULL, 'claim ' || v) FROM unnest(ARRAY[0, -1, 9223372036854775807, 12345]) WITH ORDINALITY u (v, n) ORDER BY n;
SELECT fails(format('SELECT sqlstreams.resolve(%L, %L, %s, %L, %L)', 's', 'g', :c, '{3}', '{ack}'), 'SS004', NULL, 'another group''s claim');
SELECT fails(format('SELECT sqlstreams.resolve(%L, %L, %s, %L, %L)', 'nope', 'h', :c, '{3}', '{ack}'), 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails(format('SELECT sqlstreams.resolve(%L, %L, %s, %L, %L)', 's', 'nope', :c, '{3}', '{ack}'), 'SS002', 'consumer group "nope"', 'an unknown group');
SELECT fails(format('SELECT sqlstreams.resolve(NULL, %L, %s, %L, %L)', 'h', :c, '{3}', '{ack}'), '22004', 'stream', 'a NULL stream');
SELECT fails(format('SELECT sqlstreams.resolve(%L, NULL, %s, %L, %L)', 's', :c, '{3}', '{ack}'), '22004', 'consumer_group', 'a NULL group');
BEGIN READ ONLY;
SELECT fails(format('SELECT sqlstreams.resolve(%L, %L, %s, %L, %L)', 's', 'h', :c, '{3}', '{ack}'), '25006', 'resolve', 'in a read-only transaction');
COMMIT;
SELECT is(pg_temp.state('h'), '', 'no exception came of all this');
SELECT is(pg_temp.open('h'), '8 2', 'and the claims are whole');

-- transactions
BEGIN;
SELECT is(sqlstreams.resolve('s', 'h', :c, '{3,4}', '{ack,nack}'), 2::bigint, 'in a transaction');
SAVEPOINT a;
SELECT is(sqlstreams.resolve('s', 'h', :c, '{5}', '{reject}', others => 'ack'), 6::bigint, 'the rest in a savepoint');
ROLLBACK TO a;
SELECT is(pg_temp.state('h') || pg_temp.open('h'), '4 ready 1/0/0 -6 2', 'rolled back with it');
ROLLBACK;
SELECT is(pg_temp.state('h') || pg_temp.open('h'), '8 2', 'rolled back, nothing was');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT is(sqlstreams.resolve('s', 'h', :c, '{3,4}', '{ack,nack}'), 2::bigint, 'at REPEATABLE READ');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT is(sqlstreams.resolve('s', 'h', :c, '{5,6}', '{ack,nack}'), 2::bigint, 'at SERIALIZABLE');
COMMIT;
SELECT is(pg_temp.state('h') || ' ' || pg_temp.open('h'), '4 ready 1/0/0 -, 6 ready 1/0/0 - 4 2', 'both last');
SELECT is((SELECT sqlstreams.resolve('s', 'h', min(claim_id), array_agg(message_id ORDER BY message_id), '{ack,nack,reject}') FROM sqlstreams.claim('s', 'h', 3)), 3::bigint, 'in the statement that made the claim');

-- after the lease's end
:expire WHERE claim_id = :c;
SELECT is(sqlstreams.resolve('s', 'h', :c, '{7}', '{nack}'), 1::bigint, 'an expired claim that nobody took over is still its holder''s');
SELECT min(claim_id) AS taken, string_agg(message_id || ' ' || takeovers, ', ' ORDER BY message_id) AS ids FROM sqlstreams.claim('s', 'h', 3, '1 hour') \gset
SELECT is(:'ids'::text, '8 1, 9 1, 10 1', 'what is open in it is taken over');
SELECT fails(format('SELECT sqlstreams.resolve(%L, %L, %s, %L, %L)', 's', 'h', :c, '{8}', '{ack}'), 'SS004', NULL, 'then its holder has lost it');
SELECT fails(format('SELECT sqlstreams.resolve(%L, %L, %s, %L, %L, others => %L)', 's', 'h', :c, '{}', '{}', 'release'), 'SS004', NULL, 'with all that was in it');
SELECT is(sqlstreams.resolve('s', 'h', :taken, '{8,9}', '{ack,nack}', others => 'ack'), 3::bigint, 'the new one resolves');
SELECT is((SELECT string_agg(message_id || ' ' || takeovers, ', ') FROM sqlstreams.exceptions('s', 'h', 'ready') WHERE message_id IN (7, 9)), '7 0, 9 1', 'the take-over stays counted');

-- a large claim in one call
SELECT lives_ok($$ SELECT sqlstreams.create_stream('large'), sqlstreams.create_group('large', 'g') $$, 'another stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('large', array_fill('1'::jsonb, ARRAY[20000]))), 20000::bigint, '20,000 messages');
SELECT is((SELECT sqlstreams.resolve('large', 'g', min(claim_id), array_agg(message_id ORDER BY message_id) FILTER (WHERE message_id % 2 = 0),
    (SELECT array_agg((ARRAY['ack', 'nack', 'reject', 'delay'])[1 + i / 2 % 4] ORDER BY i) FROM generate_series(2, 20000, 2) i), NULL, array_fill(interval '1 hour', ARRAY[10000]), 'ack')
  FROM sqlstreams.claim('large', 'g', 20000)), 20000::bigint, 'half of them one by one, half as the others');
SELECT results_eq($$ SELECT ready, dead, leased, committed FROM sqlstreams.consumer_groups WHERE stream = 'large' $$, $$ VALUES (5000::bigint, 2500::bigint, 0::bigint, 20000::bigint) $$, 'each as it was told');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
