\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'g', max_retries => 1, initial_backoff => '2 hours', base_delay => '1 hour', max_delay => '1 day', max_delays => 1),
    sqlstreams.create_group('s', 'h', max_retries => 0) $$, 'a stream and two groups');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 30) i), idempotency_keys => (SELECT array_agg('key ' || i ORDER BY i) FROM generate_series(1, 30) i))), 30::bigint,
  'thirty messages, each with an idempotency key');
-- the exceptions of a group: id, status, attempts, delays, takeovers, error
CREATE FUNCTION pg_temp.state(a_group text) RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(format('%s %s %s/%s/%s %s', message_id, status, attempts, delays, takeovers, coalesce(last_error, '-')), ', ' ORDER BY message_id), '')
    FROM sqlstreams.exceptions('s', a_group, max_messages => 1000)
$$;
SELECT is(sqlstreams.redrive('s', 'g'), 0::bigint, 'nothing is dead');

-- by ids
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 12, '1 hour') \gset
SELECT is(sqlstreams.resolve('s', 'g', :c, '{1,2,3,4,5,6,7,8,9,10}', '{reject,reject,reject,reject,reject,reject,nack,delay,ack,reject}',
    ARRAY['timeout after 5 s', 'timeout after 10 s', 'no account', NULL, '100% wrong', '', 'not dead', NULL, NULL, 'Timeout'], array_fill(interval '1 hour', ARRAY[10])), 10::bigint, 'many a fate');
SELECT is(sqlstreams.redrive('s', 'g', '{2,7,8,9,11,12,13,99,0,-1,2}'), 1::bigint, 'by ids: the dead ones of them, each counted once');
SELECT is((SELECT status || ' ' || attempts || '/' || delays || '/' || takeovers FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 2), 'ready 0/0/0', 'ready, with a fresh budget');
SELECT is((SELECT can_run_after <= clock_timestamp() FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 2), true, 'and due');
SELECT is((SELECT string_agg(message_id || ' ' || status, ', ') FROM sqlstreams.exceptions('s', 'g')), '1 dead, 2 ready, 3 dead, 4 dead, 5 dead, 6 dead, 7 ready, 8 ready, 10 dead', 'the others are as they were');
SELECT is((SELECT attempts || ' ' || delays FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 7), '1 0', 'one that is not dead keeps its count');
SELECT is(sqlstreams.redrive('s', 'g', '{2}'), 0::bigint, 'it is not dead any more');
SELECT is(sqlstreams.redrive('s', 'g', '{}'), 0::bigint, 'no ids are none, not all');
SELECT results_eq($$ SELECT ready, dead FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$, $$ VALUES (3::bigint, 6::bigint) $$, 'the view counts them');
SELECT min(claim_id) AS d, string_agg(format('%s %s/%s/%s', message_id, attempts, delays, takeovers), ', ' ORDER BY message_id) AS ids FROM sqlstreams.claim('s', 'g', 2, '1 hour') \gset
SELECT is(:'ids'::text, '2 0/0/0, 13 0/0/0', 'delivered again, idempotency key or not, like a new one');
SELECT is(sqlstreams.redrive('s', 'g', '{2}'), 0::bigint, 'in flight, it is not dead');
SELECT is(sqlstreams.nack('s', 'g', :d, '{2}', 'again', '0'), 0::bigint, 'its first failure');
SELECT is((SELECT sum(sqlstreams.nack('s', 'g', claim_id, ARRAY[message_id], 'and again')) FROM sqlstreams.claim('s', 'g', 2) WHERE message_id = 2), 1::numeric, 'its second one is its death again');
SELECT is((SELECT attempts || ' ' || last_error FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 2), '2 and again', 'counted from the redrive on');
SELECT is(sqlstreams.redrive('s', 'g', '{2}'), 1::bigint, 'and it can be redriven again');
SELECT is((SELECT sum(sqlstreams.ack('s', 'g', claim_id, ARRAY[message_id])) FROM sqlstreams.claim('s', 'g', 2) WHERE message_id = 2), 1::numeric, 'acked');
SELECT is(sqlstreams.redrive('s', 'g', '{2}'), 0::bigint, 'then it is gone');

-- dead by delays
SELECT is(sqlstreams.delay('s', 'g', :d, '{13}', '0'), 0::bigint, 'a delay');
SELECT is((SELECT sum(sqlstreams.delay('s', 'g', claim_id, ARRAY[message_id], '0')) FROM sqlstreams.claim('s', 'g', 2) WHERE message_id = 13), 1::numeric, 'one too many');
SELECT is(sqlstreams.redrive('s', 'g', '{13}'), 1::bigint, 'redriven');
SELECT is((SELECT sum(sqlstreams.delay('s', 'g', claim_id, ARRAY[message_id], '1 hour')) FROM sqlstreams.claim('s', 'g', 2) WHERE message_id = 13), 0::numeric, 'it may be delayed again');
SELECT is((SELECT status || ' ' || attempts || '/' || delays FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 13), 'ready 0/1', 'once');

-- by the text of the error
SELECT is(sqlstreams.redrive('s', 'g', error_like => 'timeout'), 0::bigint, 'error_like is a pattern for the whole text');
SELECT is(sqlstreams.redrive('s', 'g', error_like => 'timeout%'), 1::bigint, 'as LIKE has it, in its case');
SELECT is((SELECT status FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 1), 'ready', 'that one');
SELECT is(sqlstreams.redrive('s', 'g', '{3,10}', '%accoun_'), 1::bigint, 'both: those of the ids whose error is like it');
SELECT is(sqlstreams.redrive('s', 'g', '{10}', '%accoun_'), 0::bigint, 'not the others');
SELECT is(sqlstreams.redrive('s', 'g', '{}', '%'), 0::bigint, 'no ids, whatever the pattern');
SELECT is(sqlstreams.redrive('s', 'g', error_like => '100\% wrong'), 1::bigint, 'a backslash takes a sign as it is');
SELECT is(sqlstreams.redrive('s', 'g', error_like => ''), 1::bigint, 'an empty pattern is an empty error');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'g', 'dead')), '4 10', 'two are left, one of them without an error');
SELECT is(sqlstreams.redrive('s', 'g', error_like => '%'), 1::bigint, 'no error is like nothing');
SELECT is(sqlstreams.redrive('s', 'g', NULL, NULL), 1::bigint, 'neither: all');
SELECT is((SELECT string_agg(format('%s %s/%s', message_id, attempts, delays), ', ') FROM sqlstreams.exceptions('s', 'g', 'ready') WHERE can_run_after <= clock_timestamp()), '1 0/0, 3 0/0, 4 0/0, 5 0/0, 6 0/0, 10 0/0', 'all are due');
SELECT is(sqlstreams.redrive('s', 'g'), 0::bigint, 'a second time');
SELECT is((SELECT string_agg(message_id || ' ' || attempts, ', ' ORDER BY message_id) FROM sqlstreams.claim('s', 'g', 12, '1 hour') WHERE message_id < 11), '1 0, 3 0, 4 0, 5 0, 6 0, 10 0', 'and come, each once');

-- groups are apart
SELECT is((SELECT sqlstreams.nack('s', 'h', min(claim_id), error => 'x') FROM sqlstreams.claim('s', 'h', 5)), 5::bigint, 'another group''s dead');
SELECT is(sqlstreams.redrive('s', 'g', '{1,2,3,4,5}'), 0::bigint, 'are not this one''s');
SELECT is((SELECT dead FROM sqlstreams.consumer_groups WHERE consumer_group = 'h'), 5::bigint, 'and stay dead');

-- transactions
BEGIN;
SELECT is(sqlstreams.redrive('s', 'h', '{1}'), 1::bigint, 'redriven in a transaction');
SAVEPOINT a;
SELECT is(sqlstreams.redrive('s', 'h'), 4::bigint, 'the others in a savepoint');
SELECT is(sqlstreams.redrive('s', 'h'), 0::bigint, 'which knows it');
ROLLBACK TO a;
SELECT is((SELECT string_agg(message_id || ' ' || status, ', ') FROM sqlstreams.exceptions('s', 'h')), '1 ready, 2 dead, 3 dead, 4 dead, 5 dead', 'rolled back with it');
SELECT is((SELECT string_agg(message_id::text, ' ' ORDER BY message_id) FROM sqlstreams.claim('s', 'h', 2)), '1 6', 'claimed in the same transaction');
ROLLBACK;
SELECT is(pg_temp.state('h'), '1 dead 1/0/0 x, 2 dead 1/0/0 x, 3 dead 1/0/0 x, 4 dead 1/0/0 x, 5 dead 1/0/0 x', 'rolled back, all are as dead as they were');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT is(sqlstreams.redrive('s', 'h', '{1}'), 1::bigint, 'at REPEATABLE READ');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT is(sqlstreams.redrive('s', 'h', '{2}'), 1::bigint, 'at SERIALIZABLE');
COMMIT;
SELECT is((SELECT string_agg(message_id || ' ' || status, ', ') FROM sqlstreams.exceptions('s', 'h')), '1 ready, 2 ready, 3 dead, 4 dead, 5 dead', 'both last');

-- what is refused
SELECT fails($$ SELECT sqlstreams.redrive('s', 'h', '{3,NULL}') $$, '22004', 'message_ids', 'a NULL id');
SELECT fails($$ SELECT sqlstreams.redrive('s', 'h', '{{3},{4}}') $$, '22023', 'message_ids', 'a two-dimensional array');
SELECT fails($$ SELECT sqlstreams.redrive('nope', 'h') $$, 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails($$ SELECT sqlstreams.redrive('s', 'nope') $$, 'SS002', 'consumer group "nope"', 'an unknown group');
SELECT fails($$ SELECT sqlstreams.redrive(NULL, 'h') $$, '22004', 'stream', 'a NULL stream');
SELECT fails($$ SELECT sqlstreams.redrive('s', NULL) $$, '22004', 'consumer_group', 'a NULL group');
BEGIN READ ONLY;
SELECT fails($$ SELECT sqlstreams.redrive('s', 'h') $$, '25006', 'redrive', 'in a read-only transaction');
COMMIT;
BEGIN;
CREATE ROLE regress_sqlstreams_redrive;
SELECT fails($$ SET LOCAL ROLE regress_sqlstreams_redrive; SELECT sqlstreams.redrive('s', 'h') $$, '42501', 'stream "s"', 'by who may not consume');
ROLLBACK;
SELECT is((SELECT dead FROM sqlstreams.consumer_groups WHERE consumer_group = 'h'), 3::bigint, 'and nothing has changed');

-- many at once
SELECT lives_ok($$ SELECT sqlstreams.create_stream('large'), sqlstreams.create_group('large', 'g') $$, 'another stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('large', array_fill('1'::jsonb, ARRAY[20000]))), 20000::bigint, '20,000 messages');
SELECT is((SELECT sqlstreams.reject('large', 'g', min(claim_id), error => 'all wrong') FROM sqlstreams.claim('large', 'g', 20000)), 20000::bigint, 'all dead');
SELECT is(sqlstreams.redrive('large', 'g', (SELECT array_agg(i) FROM generate_series(1, 20000, 2) i)), 10000::bigint, 'half of them redriven by id');
SELECT is(sqlstreams.redrive('large', 'g', error_like => 'all%'), 10000::bigint, 'half of them by their error');
-- one that was slow to write is due a moment later
DO $$
BEGIN
  WHILE EXISTS (SELECT FROM sqlstreams.exceptions('large', 'g', 'ready', max_messages => 100000) WHERE can_run_after > clock_timestamp()) LOOP
    NULL;
  END LOOP;
END $$;
SELECT is((SELECT count(DISTINCT message_id) FROM sqlstreams.claim('large', 'g', 20000) WHERE attempts = 0), 20000::bigint, 'all come again');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
