\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- a backoff that no test outlives
CREATE FUNCTION pg_temp.create_group(a_group text, max_retries bigint DEFAULT 3) RETURNS bigint LANGUAGE sql AS $$
  SELECT sqlstreams.create_group('s', a_group, initial_backoff => '2 hours', base_delay => '1 hour', max_delay => '1 day', max_retries => max_retries)
$$;
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), pg_temp.create_group('g'), pg_temp.create_group('h') $$, 'a stream and two groups');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 80) i))), 80::bigint, 'eighty messages');
-- the clock is moved, not waited for
SELECT format('UPDATE sqlstreams.exception_queue_%s SET due_at = (SELECT clock_timestamp()) WHERE status = ''r''', stream_id) AS make_due,
       format('UPDATE sqlstreams.group_cursor_%1$s SET lease_scan_from = ''-infinity''; UPDATE sqlstreams.claim_lease_%1$s SET expires_at = (SELECT clock_timestamp())', stream_id) AS expire FROM sqlstreams.streams WHERE stream = 's' \gset
-- the exceptions of a group: id, status, attempts, delays, takeovers
CREATE FUNCTION pg_temp.state(a_group text) RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(format('%s %s %s/%s/%s', message_id, status, attempts, delays, takeovers), ', ' ORDER BY message_id), '')
    FROM sqlstreams.exceptions('s', a_group, max_messages => 1000)
$$;

-- one message, several, all of a claim
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 5, '1 hour') \gset
SELECT is(sqlstreams.nack('s', 'g', :c, '{2}', 'broken'), 0::bigint, 'nack of one message: none is dead by it');
SELECT is(pg_temp.state('g'), '2 ready 1/0/0', 'it has failed once');
SELECT results_eq($$ SELECT last_error, claim_id, can_run_after - updated_at, payload FROM sqlstreams.exceptions('s', 'g') $$,
  $$ VALUES ('broken', NULL::bigint, interval '2 hours', '2'::jsonb) $$, 'with its error, due after the initial backoff, and nobody holds it');
SELECT is((SELECT messages || ' ' || unresolved FROM sqlstreams.leases), '5 4', 'the others are still the claim''s');
SELECT results_eq($$ SELECT claimed, committed, leased, ready, inflight, dead FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$,
  $$ VALUES (5::bigint, 0::bigint, 4::bigint, 1::bigint, 0::bigint, 0::bigint) $$, 'the view counts it');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'g', :c, '{2}'), 'SS004', NULL, 'not a second time');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :c, '{2}'), 'SS004', NULL, 'nor can it be acked');
SELECT is(sqlstreams.nack('s', 'g', :c, '{4,3,4}', NULL), 0::bigint, 'of several; an id given twice counts once');
SELECT is(pg_temp.state('g'), '2 ready 1/0/0, 3 ready 1/0/0, 4 ready 1/0/0', 'each has failed once');
SELECT results_eq($$ SELECT message_id, last_error FROM sqlstreams.exceptions('s', 'g') $$, $$ VALUES (2::bigint, 'broken'), (3, NULL), (4, NULL) $$, 'each with its own error, or none');
SELECT is(sqlstreams.nack('s', 'g', :c, error => 'the rest'), 0::bigint, 'of all that is open');
SELECT is(pg_temp.state('g'), '1 ready 1/0/0, 2 ready 1/0/0, 3 ready 1/0/0, 4 ready 1/0/0, 5 ready 1/0/0', 'which leaves the others alone');
SELECT is_empty($$ SELECT FROM sqlstreams.leases $$, 'the claim is gone');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'and cannot be nacked again');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'g', :c, '{}'), 'SS004', NULL, 'nor for no ids');
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), 5::bigint, 'every id up to 5 is an exception');
SELECT is(pg_temp.state('h'), '', 'the other group has none');

-- it comes back when it is due, not before
SELECT is(claimed('s', 'g', 2), '6 7', 'what is not due does not hold back what is behind it');
:make_due AND message_id = 3;
SELECT results_eq($$ SELECT message_id, payload, attempts, delays, takeovers FROM sqlstreams.claim('s', 'g', 4, '1 hour') WHERE attempts > 0 $$, $$ VALUES (3::bigint, '3'::jsonb, 1, 0, 0) $$, 'due: it comes again, and knows that it failed');
SELECT claim_id AS c FROM sqlstreams.leases WHERE consumer_group = 'g' AND messages = 4 \gset
SELECT is(pg_temp.state('g'), '1 ready 1/0/0, 2 ready 1/0/0, 3 inflight 1/0/0, 4 ready 1/0/0, 5 ready 1/0/0', 'it is in flight');
SELECT results_eq($$ SELECT claim_id, last_error FROM sqlstreams.exceptions('s', 'g', 'inflight') $$, format('VALUES (%s::bigint, NULL::text)', :c), 'with its claim');
SELECT results_eq($$ SELECT leased, ready, inflight FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$, $$ VALUES (6::bigint, 4::bigint, 1::bigint) $$, 'the view says so');
SELECT is(sqlstreams.ack('s', 'g', :c, '{3}'), 1::bigint, 'acked');
SELECT is(pg_temp.state('g'), '1 ready 1/0/0, 2 ready 1/0/0, 4 ready 1/0/0, 5 ready 1/0/0', 'it is no exception any more');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'g', :c, '{3}'), 'SS004', NULL, 'and cannot be nacked');
SELECT is(sqlstreams.ack('s', 'g', :c), 3::bigint, 'the fresh ones of that claim');
:make_due;
SELECT is(claimed('s', 'h', 2), '1 2', 'the other group gets its own, as fresh as they were');

-- until it is dead: three retries, then the failure that follows
SELECT lives_ok($$ SELECT * FROM sqlstreams.seek('s', 'g', 'head') $$, 'past the fresh ones');
SELECT is(sqlstreams.produce('s', '81'), 81::bigint, 'but one');
SELECT min(claim_id) AS c, string_agg(message_id::text, ' ' ORDER BY message_id) AS ids FROM sqlstreams.claim('s', 'g', 100, '1 hour') \gset
SELECT is(:'ids'::text, '1 2 4 5 81', 'they share a claim');
SELECT is(sqlstreams.nack('s', 'g', :c, '{1,2,81}', 'second'), 0::bigint, 'a second failure');
SELECT is(pg_temp.state('g'), '1 ready 2/0/0, 2 ready 2/0/0, 4 inflight 1/0/0, 5 inflight 1/0/0, 81 ready 1/0/0', 'counted for each by itself');
SELECT results_eq($$ SELECT message_id, can_run_after - updated_at, last_error FROM sqlstreams.exceptions('s', 'g', 'ready') $$,
  $$ VALUES (1::bigint, interval '1 hour', 'second'), (2, '1 hour', 'second'), (81, '2 hours', 'second') $$, 'as the backoff is');
SELECT is(sqlstreams.ack('s', 'g', :c), 2::bigint, 'the others are done');
:make_due AND message_id = 1;
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 100, '1 hour') \gset
SELECT is(sqlstreams.nack('s', 'g', :c, error => 'third'), 0::bigint, 'a third');
SELECT results_eq($$ SELECT attempts, can_run_after - updated_at FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 1 $$, $$ VALUES (3, interval '2 hours') $$, 'the backoff grows');
:make_due AND message_id = 1;
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 100, '1 hour') \gset
SELECT is(sqlstreams.nack('s', 'g', :c, error => 'fourth'), 1::bigint, 'the fourth is its death, and nack says so');
SELECT is(pg_temp.state('g'), '1 dead 4/0/0, 2 ready 2/0/0, 81 ready 1/0/0', 'dead');
SELECT is((SELECT last_error FROM sqlstreams.exceptions('s', 'g', 'dead')), 'fourth', 'with its last error');
SELECT is((SELECT dead FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), 1::bigint, 'the view counts it');
:make_due;
SELECT min(claim_id) AS c, string_agg(message_id::text, ' ' ORDER BY message_id) AS ids FROM sqlstreams.claim('s', 'g', 100, '1 hour') \gset
SELECT is(:'ids'::text, '2 81', 'it does not come again');
SELECT is(sqlstreams.ack('s', 'g', :c), 2::bigint, 'the others do');

-- dead at the first failure; several at once
SELECT lives_ok($$ SELECT pg_temp.create_group('none', 0) $$, 'a group without retries');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'none', 6, '1 hour') \gset
SELECT is(sqlstreams.nack('s', 'none', :c, '{1,5,5,3}', 'e'), 3::bigint, 'three dead, each counted once');
SELECT is(sqlstreams.nack('s', 'none', :c, '{}', 'e'), 0::bigint, 'no ids: 0, after checking the claim');
SELECT is(sqlstreams.nack('s', 'none', :c), 3::bigint, 'and the rest');
SELECT is(pg_temp.state('none'), '1 dead 1/0/0, 2 dead 1/0/0, 3 dead 1/0/0, 4 dead 1/0/0, 5 dead 1/0/0, 6 dead 1/0/0', 'all dead');
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE consumer_group = 'none'), 6::bigint, 'they do not hold back the cursor');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'none', max_retries => 1) $$, 'one retry now');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'none', 1, '1 hour') \gset
SELECT is(sqlstreams.nack('s', 'none', :c, '{7}'), 0::bigint, 'holds for the next failure');

-- retry_in instead of the backoff
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'h', 10, '1 hour') \gset
SELECT is(sqlstreams.nack('s', 'h', :c, '{3}', 'now', '0'), 0::bigint, 'retry_in 0');
SELECT is((SELECT can_run_after - updated_at FROM sqlstreams.exceptions('s', 'h')), interval '0', 'is due at once');
SELECT is((SELECT string_agg(message_id || ' ' || attempts, ', ' ORDER BY message_id) FROM sqlstreams.claim('s', 'h', 2, '1 hour')), '3 1, 13 0', 'and comes with the next claim');
SELECT is(sqlstreams.nack('s', 'h', :c, '{4}', retry_in => '1 month 1 day 1 second'), 0::bigint, 'retry_in of a month, a day and a second');
SELECT is((SELECT extract(epoch FROM can_run_after - updated_at) FROM sqlstreams.exceptions('s', 'h', 'ready') WHERE message_id = 4), 31 * 86400 + 1.0, 'a month is 30 days, a day 24 hours');
SET TimeZone = 'Europe/Berlin';
SELECT is(sqlstreams.nack('s', 'h', :c, '{5}', retry_in => '200 days'), 0::bigint, 'over a change of the clocks');
SELECT is((SELECT extract(epoch FROM can_run_after - updated_at) FROM sqlstreams.exceptions('s', 'h', 'ready') WHERE message_id = 5), 200 * 86400.0, 'too');
RESET TimeZone;
SELECT is(sqlstreams.nack('s', 'h', :c, '{6}', retry_in => '178000000 years'), 0::bigint, 'retry_in beyond every clock is no error');
SELECT ok((SELECT can_run_after > '200000-01-01' FROM sqlstreams.exceptions('s', 'h', 'ready') WHERE message_id = 6), 'but as late as there is');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L, retry_in => %L)', 's', 'h', :c, '{7}', v), '22023', 'retry_in', 'retry_in ' || v)
  FROM unnest(ARRAY['-1 second', '1 day -25 hours', '-178000000 years']) WITH ORDINALITY u (v, n) ORDER BY n;
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L, retry_in => %L)', 's', 'h', :c, '{7}', 'infinity'),
  CASE WHEN current_setting('server_version_num')::int >= 170000 THEN '22023' ELSE '22007' END, NULL, 'retry_in infinity');
SELECT is(pg_temp.state('h'), '3 inflight 1/0/0, 4 ready 1/0/0, 5 ready 1/0/0, 6 ready 1/0/0', 'and nothing has changed');
SELECT is(sqlstreams.nack('s', 'h', :c, '{7}', retry_in => NULL), 0::bigint, 'retry_in NULL');
SELECT is((SELECT can_run_after - updated_at FROM sqlstreams.exceptions('s', 'h', 'ready') WHERE message_id = 7), interval '2 hours', 'is the backoff');
:make_due AND message_id = 7;
SELECT is((SELECT sum(sqlstreams.nack('s', 'h', claim_id, ARRAY[message_id], retry_in => '0')) FROM sqlstreams.claim('s', 'h', 2) WHERE message_id = 7), 0::numeric, 'a second failure, and retry_in');
SELECT is((SELECT sum(sqlstreams.nack('s', 'h', claim_id, ARRAY[message_id], retry_in => '0')) FROM sqlstreams.claim('s', 'h', 2) WHERE message_id = 7), 0::numeric, 'a third');
SELECT is((SELECT sum(sqlstreams.nack('s', 'h', claim_id, ARRAY[message_id], retry_in => '0')) FROM sqlstreams.claim('s', 'h', 2) WHERE message_id = 7), 1::numeric, 'the fourth is deadly all the same');

-- the text is kept whole
SELECT min(claim_id) AS c, min(message_id) AS m FROM sqlstreams.claim('s', 'h', 3, '1 hour') \gset
SELECT is(sqlstreams.nack('s', 'h', :c, ARRAY[:m], (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 32768) i)), 0::bigint, 'an error of 1 MB');
SELECT results_eq(format('SELECT length(last_error), md5(last_error) FROM sqlstreams.exceptions(%L, %L) WHERE message_id = %s', 's', 'h', :m),
  $$ SELECT 1048576, md5((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 32768) i)) $$, 'to the last byte');
SELECT is(sqlstreams.nack('s', 'h', :c, ARRAY[:m + 1], E'%s %n ''; DROP\n\t"\\ \u20ac\u00fc\U0001F600 '), 0::bigint, 'any text');
SELECT is((SELECT last_error FROM sqlstreams.exceptions('s', 'h') WHERE message_id = :m + 1), E'%s %n ''; DROP\n\t"\\ \u20ac\u00fc\U0001F600 ', 'as it was');
SELECT is(sqlstreams.nack('s', 'h', :c, ARRAY[:m + 2], ''), 0::bigint, 'an empty text');
SELECT is((SELECT last_error FROM sqlstreams.exceptions('s', 'h') WHERE message_id = :m + 2), '', 'is not none');

-- what cannot be nacked; nothing changes by it
SELECT lives_ok($$ SELECT pg_temp.create_group('e'), sqlstreams.create_stream('t'), sqlstreams.create_group('t', 'e') $$, 'another group');
SELECT min(claim_id) AS other FROM sqlstreams.claim('s', 'e', 2, '1 hour') \gset
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'e', 5, '1 hour') \gset
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'e', :c, '{3,8}'), 'SS004', NULL, 'a message that nobody has');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'e', :c, '{3,2}'), 'SS004', NULL, 'another claim''s message');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'e', :c, '{3,0}'), 'SS004', NULL, 'id 0');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'e', :c, '{-1}'), 'SS004', NULL, 'id -1');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'e', :c, '{3,9223372036854775807}'), 'SS004', NULL, 'id 2^63-1');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'e', :c, '{3,NULL}'), '22004', 'message_ids', 'a NULL id');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'e', :c, '{{3},{4}}'), '22023', 'message_ids', 'a two-dimensional array');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, NULL, %L)', 's', 'e', '{3}'), '22004', 'claim_id', 'a NULL claim');
SELECT fails($$ SELECT sqlstreams.nack('s', 'e', NULL) $$, '22004', 'claim_id', 'without ids, too');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s)', 's', 'e', v), 'SS004', NULL, 'claim ' || v) FROM unnest(ARRAY[0, -1, 9223372036854775807, 12345]) WITH ORDINALITY u (v, n) ORDER BY n;
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'another group''s claim');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s)', 't', 'e', :c), 'SS004', NULL, 'another stream''s');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s)', 'nope', 'e', :c), 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s)', 's', 'nope', :c), 'SS002', 'consumer group "nope"', 'an unknown group');
SELECT fails(format('SELECT sqlstreams.nack(NULL, %L, %s)', 'e', :c), '22004', 'stream', 'a NULL stream');
SELECT fails(format('SELECT sqlstreams.nack(%L, NULL, %s)', 's', :c), '22004', 'consumer_group', 'a NULL group');
BEGIN READ ONLY;
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s)', 's', 'e', :c), '25006', 'nack', 'in a read-only transaction');
COMMIT;
SELECT is(pg_temp.state('e'), '', 'no exception came of all this');
SELECT is((SELECT string_agg(unresolved::text, ' ' ORDER BY unresolved) FROM sqlstreams.leases WHERE stream = 's' AND consumer_group = 'e'), '2 5', 'and the claims are whole');
SELECT is(sqlstreams.nack('s', 'e', :c, '[5:6]={3,4}'), 0::bigint, 'where an array begins to count does not matter');

-- transactions
BEGIN;
SELECT is(sqlstreams.nack('s', 'e', :c, '{5}', 'x'), 0::bigint, 'nacked in a transaction');
SELECT is(pg_temp.state('e'), '3 ready 1/0/0, 4 ready 1/0/0, 5 ready 1/0/0', 'which sees it');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'e', :c, '{5}'), 'SS004', NULL, 'and knows that it is no longer open');
SAVEPOINT a;
SELECT is(sqlstreams.nack('s', 'e', :c), 0::bigint, 'the rest in a savepoint');
ROLLBACK TO a;
SELECT is(sqlstreams.ack('s', 'e', :c, '{6}'), 1::bigint, 'rolled back with it: still open');
ROLLBACK;
SELECT is(pg_temp.state('e'), '3 ready 1/0/0, 4 ready 1/0/0', 'rolled back, nothing was');
SELECT is((SELECT unresolved FROM sqlstreams.leases WHERE claim_id = :c), 3::bigint, 'all of it is open');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT is(sqlstreams.nack('s', 'e', :c, '{5}', retry_in => '0'), 0::bigint, 'at REPEATABLE READ');
SELECT is((SELECT string_agg(message_id || ' ' || attempts, ', ' ORDER BY message_id) FROM sqlstreams.claim('s', 'e', 2)), '5 1, 8 0', 'and claimed there again');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT is(sqlstreams.nack('s', 'e', :c, '{6}', retry_in => '0'), 0::bigint, 'at SERIALIZABLE');
COMMIT;
SELECT is(sqlstreams.nack('s', 'e', :c), 0::bigint, 'the last of it');
SELECT is(pg_temp.state('e'), '3 ready 1/0/0, 4 ready 1/0/0, 5 inflight 1/0/0, 6 ready 1/0/0, 7 ready 1/0/0', 'all of it has failed once');

-- in the statement that made the claim
SELECT is((SELECT sum(sqlstreams.nack('s', 'e', claim_id, ARRAY[message_id], 'in one')) FROM sqlstreams.claim('s', 'e', 2)), 0::numeric, 'each message nacked in the claim''s statement');
SELECT is(pg_temp.state('e'), '3 ready 1/0/0, 4 ready 1/0/0, 5 inflight 1/0/0, 6 ready 2/0/0, 7 ready 1/0/0, 9 ready 1/0/0', 'a due one and a fresh one');

-- release, extend and a claim with ack speak of due messages as of fresh ones
:make_due AND message_id IN (3, 4, 7);
SELECT min(claim_id) AS c, string_agg(message_id::text, ' ' ORDER BY message_id) AS ids FROM sqlstreams.claim('s', 'e', 6, '1 hour') \gset
SELECT is(:'ids'::text, '3 4 7 10 11 12', 'three due ones and three fresh ones');
SELECT ok(sqlstreams.extend('s', 'e', :c, '2 hours') > clock_timestamp() + interval '110 minutes', 'extended');
SELECT is(sqlstreams.release('s', 'e', :c, '{4,10}'), 2::bigint, 'one of each released');
SELECT is(pg_temp.state('e'), '3 inflight 1/0/0, 4 ready 1/0/0, 5 inflight 1/0/0, 6 ready 2/0/0, 7 inflight 1/0/0, 9 ready 1/0/0', 'handed back, nothing counted');
SELECT min(claim_id) AS d, string_agg(message_id || ' ' || attempts, ', ' ORDER BY message_id) AS ids FROM sqlstreams.claim('s', 'e', 2, '1 hour', ack => :c) \gset
SELECT is(:'ids'::text, '4 1, 10 0', 'at once');
SELECT is(pg_temp.state('e'), '4 inflight 1/0/0, 5 inflight 1/0/0, 6 ready 2/0/0, 9 ready 1/0/0', 'the claim acked the others');
SELECT is(sqlstreams.release('s', 'e', :d), 2::bigint, 'a whole claim released');
SELECT is(pg_temp.state('e'), '4 ready 1/0/0, 5 inflight 1/0/0, 6 ready 2/0/0, 9 ready 1/0/0', 'is as it was before');
SELECT is((SELECT string_agg(message_id::text, ' ' ORDER BY message_id) FROM sqlstreams.pop('s', 'e', 2)), '4 10', 'pop takes due ones, too');
SELECT is(pg_temp.state('e'), '5 inflight 1/0/0, 6 ready 2/0/0, 9 ready 1/0/0', 'and is done with them');

-- after the lease's end
SELECT lives_ok($$ SELECT pg_temp.create_group('lost') $$, 'another group');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'lost', 4, '1 hour') \gset
:expire WHERE claim_id = :c;
SELECT is(sqlstreams.nack('s', 'lost', :c, '{1}', 'late'), 0::bigint, 'an expired claim that nobody took over is still its holder''s');
SELECT min(claim_id) AS taken, string_agg(message_id || ' ' || takeovers, ', ' ORDER BY message_id) AS ids FROM sqlstreams.claim('s', 'lost', 3, '1 hour') \gset
SELECT is(:'ids'::text, '2 1, 3 1, 4 1', 'what is open in it is taken over');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s)', 's', 'lost', :c), 'SS004', NULL, 'then its holder has lost it');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'lost', :c, '{2}'), 'SS004', NULL, 'each message of it');
SELECT is(sqlstreams.nack('s', 'lost', :taken, '{3}'), 0::bigint, 'the new one nacks');
SELECT is(pg_temp.state('lost'), '1 ready 1/0/0, 3 ready 1/0/1', 'the take-over stays counted');
:make_due AND message_id = 3;
SELECT is((SELECT attempts || ' ' || takeovers FROM sqlstreams.claim('s', 'lost', 2) WHERE message_id = 3), '1 1', 'in what is delivered, too');

-- a large claim, nacked one by one and whole
SELECT lives_ok($$ SELECT sqlstreams.create_stream('large'), sqlstreams.create_group('large', 'g') $$, 'another stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('large', array_fill('1'::jsonb, ARRAY[10000]))), 10000::bigint, '10,000 messages');
SELECT min(claim_id) AS c FROM sqlstreams.claim('large', 'g', 5000) \gset
SELECT is((SELECT sum(sqlstreams.nack('large', 'g', :c, ARRAY[i], retry_in => '0')) FROM generate_series(5000, 1, -1) i), 0::numeric, 'half of them nacked one by one, backwards, in one transaction');
SELECT min(claim_id) AS c, count(*) FILTER (WHERE attempts = 1) AS due, count(*) AS n FROM sqlstreams.claim('large', 'g', 100000) \gset
SELECT is(:due || ' ' || :n, '5000 10000', 'all are due, and come with the rest');
SELECT is(sqlstreams.nack('large', 'g', :c, retry_in => '0'), 0::bigint, 'nacked whole');
SELECT results_eq($$ SELECT attempts, count(*) FROM sqlstreams.claim('large', 'g', 100000) GROUP BY 1 ORDER BY 1 $$, $$ VALUES (1, 5000::bigint), (2, 5000::bigint) $$, 'each is counted by itself');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
