\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- The same life of fifteen messages in each mode of the delivery log.
CREATE PROCEDURE pg_temp.live(a_stream text) LANGUAGE plpgsql AS $$
DECLARE
  id bigint := sqlstreams.create_stream(a_stream, partition_size => 4, delivery_log => a_stream);
  c bigint;
BEGIN
  PERFORM sqlstreams.create_group(a_stream, 'g', max_reclaims => 0, max_retries => 1, max_delays => 1, initial_backoff => '2 hours');
  PERFORM sqlstreams.produce_batch(a_stream, (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 15) i));
  COMMIT;
  -- 1 acked, 2 nacked, 3 rejected, 4 delayed, 5 released
  SELECT min(claim_id) INTO c FROM sqlstreams.claim(a_stream, 'g', 5, '1 hour', consumer => 'first');
  COMMIT;
  PERFORM sqlstreams.ack(a_stream, 'g', c, '{1}');
  PERFORM sqlstreams.nack(a_stream, 'g', c, '{2}', 'broken', '0');
  PERFORM sqlstreams.reject(a_stream, 'g', c, '{3}', 'no account');
  PERFORM sqlstreams.delay(a_stream, 'g', c, '{4}', '0', 'closed');
  PERFORM sqlstreams.release(a_stream, 'g', c);
  COMMIT;
  -- 2 nacked to its death, 4 delayed to its death, 5 acked, 6 resolved: nacked
  SELECT min(claim_id) INTO c FROM sqlstreams.claim(a_stream, 'g', 4, '1 hour', consumer => 'second');
  COMMIT;
  PERFORM sqlstreams.resolve(a_stream, 'g', c, '{2,4,6}', '{nack,delay,nack}', '{still,"still closed",NULL}', array_fill(interval '1 hour', ARRAY[3]), 'ack');
  COMMIT;
  -- 7 popped
  PERFORM sqlstreams.pop(a_stream, 'g', 1);
  COMMIT;
  -- 8, 9 and 10 lost and split, come alone; 8 acked, 9 and 10 lost again and again
  PERFORM sqlstreams.claim(a_stream, 'g', 3, '1 hour', consumer => 'killed');
  COMMIT;
  FOR i IN 1 .. 12 LOOP
    EXECUTE format('UPDATE sqlstreams.group_cursor_%s SET lease_scan_from = ''-infinity''', id);
    EXECUTE format('UPDATE sqlstreams.claim_lease_%s SET expires_at = (SELECT clock_timestamp())', id);
    EXECUTE format('UPDATE sqlstreams.exception_queue_%s SET due_at = (SELECT clock_timestamp()) WHERE status = ''r'' AND message_id > 7', id);
    COMMIT;
    PERFORM sqlstreams.ack(a_stream, 'g', claim_id) FROM sqlstreams.claim(a_stream, 'g', 1, '1 hour', consumer => 'killed alone') WHERE message_id IN (8, 11, 12, 13, 14, 15);
    COMMIT;
  END LOOP;
END $$;
CALL pg_temp.live('off');
CALL pg_temp.live('failures');
CALL pg_temp.live('all');
CREATE FUNCTION pg_temp.log(a_stream text, a_message bigint) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(format('%s %s by %s', attempt, outcome, consumer) || CASE WHEN outcome IN ('expired', 'split') THEN '' ELSE ': ' || coalesce(error, '-') END, '; ' ORDER BY ended_at, attempt)
    FROM sqlstreams.deliveries(a_stream, 'g', a_message)
$$;
SELECT results_eq($$ SELECT stream, claimed, committed, leased, dead FROM sqlstreams.consumer_groups ORDER BY stream $$,
  $$ VALUES ('all', 15::bigint, 15::bigint, 0::bigint, 5::bigint), ('failures', 15, 15, 0, 5), ('off', 15, 15, 0, 5) $$, 'each group has done the same, whatever its log');

-- off: nothing; failures: all but acks and releases; all: those, too
SELECT is_empty($$ SELECT * FROM sqlstreams.deliveries('off') $$, 'off: nothing is written');
SELECT is(pg_temp.log('failures', 1), NULL, 'failures: not an ack');
SELECT is(pg_temp.log('failures', 2), '1 nack by first: broken; 2 nack by second: still', 'each nack, with its error');
SELECT is(pg_temp.log('failures', 3), '1 reject by first: no account', 'a reject');
SELECT is(pg_temp.log('failures', 4), '1 delay by first: closed; 1 delay by second: still closed', 'delays, which are no failed attempts');
SELECT is(pg_temp.log('failures', 5), NULL, 'not a release, nor the ack after it');
SELECT is(pg_temp.log('failures', 6), '1 nack by second: -', 'a nack without an error');
SELECT is(pg_temp.log('failures', 7), NULL, 'not a pop');
SELECT is(pg_temp.log('failures', 8), '1 split by killed', 'a claim that was split');
SELECT is(pg_temp.log('failures', m), '1 split by killed; 1 expired by killed alone; 2 expired by killed alone', 'a lost lease that was charged') FROM unnest('{9,10}'::bigint[]) m;
SELECT is(pg_temp.log('all', 1), '1 ack by first: -', 'all: an ack');
SELECT is(pg_temp.log('all', 2), pg_temp.log('failures', 2), 'and what is there among failures');
SELECT is(pg_temp.log('all', 4), pg_temp.log('failures', 4), 'each');
SELECT is(pg_temp.log('all', 5), '1 release by first: -; 1 ack by second: -', 'a release, which counts nothing');
SELECT is((SELECT outcome || ' ' || attempt FROM sqlstreams.deliveries('all', 'g', 7)), 'ack 1', 'a pop');
SELECT is(pg_temp.log('all', 8), '1 split by killed; 1 ack by killed alone: -', 'an ack after a split');
SELECT is(pg_temp.log('all', 9), pg_temp.log('failures', 9), 'a lost lease');
SELECT is((SELECT count(*) FROM sqlstreams.deliveries('all', 'g', 15)), 1::bigint, 'one row for each delivery');

-- the columns
SELECT is((SELECT bool_and(started_at <= ended_at AND ended_at <= clock_timestamp() AND claim_id > 0 AND consumer_group = 'g') FROM sqlstreams.deliveries('failures')), true, 'when it began and ended, and the claim');
SELECT is((SELECT count(DISTINCT claim_id) FROM sqlstreams.deliveries('all', 'g') WHERE message_id BETWEEN 1 AND 5 AND consumer = 'first'), 1::bigint, 'the same for what was claimed together');
SELECT lives_ok($$ SELECT sqlstreams.create_group('all', 'h', initial_backoff => '2 hours') $$, 'another group');
SELECT min(claim_id) AS c, clock_timestamp() AS claimed FROM sqlstreams.claim('all', 'h', 3, '1 hour', consumer => 'it') \gset
SELECT claimed_at AS started FROM sqlstreams.leases WHERE claim_id = :c \gset
SELECT is(sqlstreams.nack('all', 'h', :c, '{2}', 'x'), 0::bigint, 'a nack');
SELECT results_eq($$ SELECT consumer_group, message_id, attempt, outcome, error, consumer, claim_id, started_at FROM sqlstreams.deliveries('all', 'h') $$,
  format('VALUES (%L, 2::bigint, 1, %L, %L, %L, %s::bigint, %L::timestamptz)', 'h', 'nack', 'x', 'it', :c, :'started'), 'every column of it');
SELECT is((SELECT ended_at >= :'claimed' FROM sqlstreams.deliveries('all', 'h')), true, 'it ended when it was nacked');

-- filters and pages, newest first
SELECT is((SELECT string_agg(DISTINCT consumer_group, ' ' ORDER BY consumer_group) FROM sqlstreams.deliveries('all')), 'g h', 'all groups');
SELECT is((SELECT consumer_group || ' ' || message_id FROM sqlstreams.deliveries('all', max_messages => 1)), 'h 2', 'the newest');
SELECT is((SELECT string_agg(DISTINCT consumer_group || message_id, ' ' ORDER BY consumer_group || message_id) FROM sqlstreams.deliveries('all', message_id => 2)), 'g2 h2', 'one message, in every group');
SELECT is((SELECT bool_and(later IS NULL OR later >= ended_at) FROM (SELECT ended_at, lag(ended_at) OVER () AS later FROM sqlstreams.deliveries('all')) d), true, 'newest first');
SELECT is((SELECT string_agg(consumer, ' ') FROM sqlstreams.deliveries('failures', 'g', 2, 2)), 'second first', 'of one message, too');
SELECT is((SELECT count(*) FROM sqlstreams.deliveries('all', 'g', max_messages => 7)), 7::bigint, 'so many');
SELECT is_empty($$ SELECT FROM sqlstreams.deliveries('all', 'g', 99) $$, 'a message that never was');
SELECT fails($$ SELECT * FROM sqlstreams.deliveries('all', max_messages => NULL) $$, '22004', 'max_messages', 'max_messages NULL never means all');
SELECT fails(format('SELECT * FROM sqlstreams.deliveries(%L, max_messages => %s)', 'all', v), '22023', 'max_messages', 'max_messages ' || v) FROM unnest(ARRAY[0, -1]) WITH ORDINALITY u (v, n) ORDER BY n;
SELECT fails($$ SELECT * FROM sqlstreams.deliveries('nope') $$, 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails($$ SELECT * FROM sqlstreams.deliveries('all', 'nope') $$, 'SS002', 'consumer group "nope"', 'an unknown group');
SELECT fails($$ SELECT * FROM sqlstreams.deliveries(NULL) $$, '22004', 'stream', 'a NULL stream');
SELECT lives_ok($$ SELECT sqlstreams.create_stream('empty') $$, 'a stream without groups');
SELECT is_empty($$ SELECT * FROM sqlstreams.deliveries('empty') $$, 'has no deliveries');
BEGIN READ ONLY;
SELECT is((SELECT count(*) FROM sqlstreams.deliveries('all', 'h')), 1::bigint, 'in a read-only transaction');
COMMIT;
BEGIN;
CREATE ROLE regress_sqlstreams_deliveries;
SELECT fails($$ SET LOCAL ROLE regress_sqlstreams_deliveries; SELECT * FROM sqlstreams.deliveries('all') $$, '42501', 'stream "all"', 'by who may not consume');
ROLLBACK;

-- what was rolled back never was
BEGIN;
SELECT is(sqlstreams.reject('all', 'h', :c, '{3}'), 1::bigint, 'a reject');
SELECT is((SELECT count(*) FROM sqlstreams.deliveries('all', 'h')), 2::bigint, 'in the log of its own transaction');
ROLLBACK;
SELECT is((SELECT count(*) FROM sqlstreams.deliveries('all', 'h')), 1::bigint, 'rolled back');

-- a change of the mode applies to what comes after it
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('all', delivery_log => 'off') $$, 'off');
SELECT is(sqlstreams.nack('all', 'h', :c, '{3}'), 0::bigint, 'a nack');
SELECT is((SELECT count(*) FROM sqlstreams.deliveries('all', 'h')), 1::bigint, 'is not written; what was written stays');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('all', delivery_log => 'failures') $$, 'failures');
SELECT is(sqlstreams.ack('all', 'h', :c, '{1}'), 1::bigint, 'an ack');
SELECT is((SELECT count(*) FROM sqlstreams.deliveries('all', 'h')), 1::bigint, 'is not');
SELECT min(claim_id) AS c FROM sqlstreams.claim('all', 'h', 2, '1 hour') \gset
SELECT is(sqlstreams.reject('all', 'h', :c, '{4}'), 1::bigint, 'a reject');
SELECT is((SELECT count(*) FROM sqlstreams.deliveries('all', 'h')), 2::bigint, 'is');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('all', reset => '{delivery_log}') $$, 'reset');
SELECT is(sqlstreams.ack('all', 'h', :c, '{5}'), 1::bigint, 'an ack');
SELECT is((SELECT count(*) FROM sqlstreams.deliveries('all', 'h')), 2::bigint, 'is not: the default is failures');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('all', delivery_log => 'all') $$, 'all');
SELECT is((SELECT sum(sqlstreams.ack('all', 'h', claim_id, ARRAY[message_id])) FROM sqlstreams.claim('all', 'h', 3)), 3::numeric, 'acks one by one, in the statement that claimed');
SELECT is((SELECT string_agg(DISTINCT outcome, ' ') FROM sqlstreams.deliveries('all', 'h', max_messages => 3)), 'ack', 'have a row each');
SELECT min(claim_id) AS c FROM sqlstreams.claim('all', 'h', 2, '1 hour') \gset
SELECT is((SELECT count(*) FROM sqlstreams.claim('all', 'h', 1, '1 hour', ack => :c)), 1::bigint, 'claim with ack');
SELECT is((SELECT count(*) FROM sqlstreams.deliveries('all', 'h')), 7::bigint, 'too');
SELECT is(sqlstreams.drop_group('all', 'h'), true, 'a group dropped');
SELECT is((SELECT string_agg(DISTINCT consumer_group, ' ') FROM sqlstreams.deliveries('all')), 'g', 'its log goes with it');

-- many at once
SELECT lives_ok($$ SELECT sqlstreams.create_stream('large', delivery_log => 'all'), sqlstreams.create_group('large', 'g') $$, 'another stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('large', array_fill('1'::jsonb, ARRAY[20000]))), 20000::bigint, '20,000 messages');
SELECT is((SELECT sqlstreams.ack('large', 'g', min(claim_id)) FROM sqlstreams.claim('large', 'g', 20000)), 20000::bigint, 'all acked');
SELECT is((SELECT count(DISTINCT message_id) FROM sqlstreams.deliveries('large', max_messages => 100000)), 20000::bigint, 'a row each');
SELECT is((SELECT count(*) FROM sqlstreams.deliveries('large')), 100::bigint, 'of which 100 are shown unless more are asked for');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
