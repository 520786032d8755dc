\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours'), sqlstreams.create_group('s', 'h', max_retries => 0) $$, 'a stream and two groups');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 30) i))), 30::bigint, 'thirty messages');
-- the dead ones of a group
CREATE FUNCTION pg_temp.dead(a_group text) RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(message_id::text, ' '), '') FROM sqlstreams.exceptions('s', a_group, 'dead')
$$;
SELECT is(sqlstreams.discard('s', 'g', '{1}'), 0::bigint, 'nothing is dead');

SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 14, '1 hour') \gset
SELECT is(sqlstreams.resolve('s', 'g', :c, '{1,2,3,4,5,6,7,8,9,10,12}', '{reject,reject,reject,reject,reject,reject,nack,delay,ack,reject,reject}',
    ARRAY['timeout after 5 s', 'timeout after 10 s', 'no account', NULL, '100% wrong', '', 'not dead', NULL, NULL, 'Timeout', 'timeouts'], array_fill(interval '1 hour', ARRAY[11])), 11::bigint, 'many a fate');
SELECT is(sqlstreams.discard('s', 'g', '{2,7,8,9,11,13,15,99,0,-1,2}'), 1::bigint, 'by ids: the dead ones of them, each counted once');
SELECT is(pg_temp.dead('g'), '1 3 4 5 6 10 12', 'that one is gone');
SELECT is((SELECT string_agg(message_id || ' ' || status || ' ' || attempts || '/' || delays, ', ') FROM sqlstreams.exceptions('s', 'g', 'ready')), '7 ready 1/0, 8 ready 0/1', 'what was not dead is as it was');
SELECT is((SELECT unresolved FROM sqlstreams.leases), 3::bigint, 'so is the claim');
SELECT is(sqlstreams.discard('s', 'g', '{2}'), 0::bigint, 'not a second time');
SELECT is(sqlstreams.redrive('s', 'g', '{2}'), 0::bigint, 'nor can it be redriven');
SELECT is(sqlstreams.discard('s', 'g', '{}'), 0::bigint, 'no ids are none');
SELECT is(sqlstreams.discard('s', 'g', error_like => 'timeout'), 0::bigint, 'error_like is a pattern for the whole text');
SELECT is(sqlstreams.discard('s', 'g', error_like => 'timeout%'), 2::bigint, 'as LIKE has it, in its case');
SELECT is(pg_temp.dead('g'), '3 4 5 6 10', 'those are gone');
SELECT is(sqlstreams.discard('s', 'g', '{5,10}', '%accoun_'), 0::bigint, 'both: those of the ids whose error is like it');
SELECT is(sqlstreams.discard('s', 'g', '{3,10}', '%accoun_'), 1::bigint, 'one is');
SELECT is(sqlstreams.discard('s', 'g', '{}', '%'), 0::bigint, 'no ids, whatever the pattern');
SELECT is(sqlstreams.discard('s', 'g', error_like => '100\% wrong'), 1::bigint, 'a backslash takes a sign as it is');
SELECT is(sqlstreams.discard('s', 'g', error_like => ''), 1::bigint, 'an empty pattern is an empty error');
SELECT is(sqlstreams.discard('s', 'g', error_like => '%'), 1::bigint, 'any error');
SELECT is(pg_temp.dead('g'), '4', 'the one without an error is left');
SELECT is(sqlstreams.discard('s', 'g', '{4}'), 1::bigint, 'and goes by its id');
SELECT results_eq($$ SELECT ready, dead, leased FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$, $$ VALUES (2::bigint, 0::bigint, 3::bigint) $$, 'none is dead any more');
SELECT is((SELECT string_agg(message_id::text, ' ' ORDER BY message_id) FROM sqlstreams.claim('s', 'g', 3, '1 hour')), '15 16 17', 'they do not come again');
SELECT is((SELECT string_agg(payload::text, ' ') FROM sqlstreams.peek('s', 1, 4)), '1 2 3 4', 'the messages stay in the log');

-- groups are apart
SELECT is((SELECT sqlstreams.nack('s', 'h', min(claim_id), error => 'x') FROM sqlstreams.claim('s', 'h', 6)), 6::bigint, 'another group''s dead');
SELECT is(sqlstreams.discard('s', 'g', '{1,2,3}', '%'), 0::bigint, 'are not this one''s');
SELECT is(pg_temp.dead('h'), '1 2 3 4 5 6', 'and stay');

-- transactions
BEGIN;
SELECT is(sqlstreams.discard('s', 'h', '{1}'), 1::bigint, 'discarded in a transaction');
SAVEPOINT a;
SELECT is(sqlstreams.discard('s', 'h', error_like => '%'), 5::bigint, 'the others in a savepoint');
SELECT is(sqlstreams.discard('s', 'h', error_like => '%'), 0::bigint, 'which knows it');
ROLLBACK TO a;
SELECT is(pg_temp.dead('h'), '2 3 4 5 6', 'rolled back with it');
ROLLBACK;
SELECT is(pg_temp.dead('h'), '1 2 3 4 5 6', 'rolled back, nothing was');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT is(sqlstreams.discard('s', 'h', '{1}'), 1::bigint, 'at REPEATABLE READ');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT is(sqlstreams.discard('s', 'h', '{2}'), 1::bigint, 'at SERIALIZABLE');
COMMIT;
SELECT is(pg_temp.dead('h'), '3 4 5 6', 'both last');
SELECT is(sqlstreams.redrive('s', 'h', '{3}'), 1::bigint, 'one that was redriven');
SELECT is(sqlstreams.discard('s', 'h', '{3}'), 0::bigint, 'is not dead any more');

-- what is refused
SELECT fails($$ SELECT sqlstreams.discard('s', 'h') $$, '22023', 'message_ids', 'neither ids nor a pattern: never all');
SELECT fails($$ SELECT sqlstreams.discard('s', 'h', NULL, NULL) $$, '22023', 'error_like', 'nor by NULL');
SELECT fails($$ SELECT sqlstreams.discard('s', 'h', '{4,NULL}') $$, '22004', 'message_ids', 'a NULL id');
SELECT fails($$ SELECT sqlstreams.discard('s', 'h', '{{4},{5}}') $$, '22023', 'message_ids', 'a two-dimensional array');
SELECT fails($$ SELECT sqlstreams.discard('nope', 'h', '{4}') $$, 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails($$ SELECT sqlstreams.discard('s', 'nope', '{4}') $$, 'SS002', 'consumer group "nope"', 'an unknown group');
SELECT fails($$ SELECT sqlstreams.discard(NULL, 'h', '{4}') $$, '22004', 'stream', 'a NULL stream');
SELECT fails($$ SELECT sqlstreams.discard('s', NULL, '{4}') $$, '22004', 'consumer_group', 'a NULL group');
BEGIN READ ONLY;
SELECT fails($$ SELECT sqlstreams.discard('s', 'h', '{4}') $$, '25006', 'discard', 'in a read-only transaction');
COMMIT;
BEGIN;
CREATE ROLE regress_sqlstreams_discard;
SELECT fails($$ SET LOCAL ROLE regress_sqlstreams_discard; SELECT sqlstreams.discard('s', 'h', '{4}') $$, '42501', 'stream "s"', 'by who may not consume');
ROLLBACK;
SELECT is(pg_temp.dead('h'), '4 5 6', 'and nothing has changed');

-- many at once
SELECT lives_ok($$ SELECT sqlstreams.create_stream('large'), sqlstreams.create_group('large', 'g') $$, 'another stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('large', array_fill('1'::jsonb, ARRAY[20000]))), 20000::bigint, '20,000 messages');
SELECT is((SELECT sqlstreams.reject('large', 'g', min(claim_id), error => 'all wrong') FROM sqlstreams.claim('large', 'g', 20000)), 20000::bigint, 'all dead');
SELECT is(sqlstreams.discard('large', 'g', (SELECT array_agg(i) FROM generate_series(1, 20000, 2) i)), 10000::bigint, 'half of them discarded by id');
SELECT is(sqlstreams.discard('large', 'g', error_like => 'all%'), 10000::bigint, 'half of them by their error');
SELECT is_empty($$ SELECT FROM sqlstreams.exceptions('large') $$, 'nothing is left');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
