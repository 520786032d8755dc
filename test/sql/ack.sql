\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'g'), sqlstreams.create_group('s', 'h'), sqlstreams.create_stream('t'), sqlstreams.create_group('t', 'g') $$,
  'two streams with a group g each');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 30) i))), 30::bigint, 'thirty messages');

-- whole
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 3) \gset
SELECT is(sqlstreams.ack('s', 'g', :c), 3::bigint, 'ack says how many it resolved');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'a repeat raises, so that the repeated work is undone');
SELECT is_empty($$ SELECT FROM sqlstreams.leases $$, 'no lease is left');
SELECT results_eq($$ SELECT claimed, committed, backlog, leased FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = 'g' $$, $$ VALUES (3::bigint, 3::bigint, 27::bigint, 0::bigint) $$, 'the view counts it');

-- by message
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 7) \gset
SELECT is(sqlstreams.ack('s', 'g', :c, '{5}'), 1::bigint, 'one message');
SELECT is((SELECT messages || ' ' || unresolved FROM sqlstreams.leases), '7 6', 'the others stay open');
SELECT is(sqlstreams.ack('s', 'g', :c, '{9,4,9,4,9}'), 2::bigint, 'an id given twice counts once, in any order');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :c, '{6,5}'), 'SS004', NULL, 'an id that was acked before raises');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :c, '{6,1}'), 'SS004', NULL, 'an id that is not in the claim raises');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :c, '{6,11}'), 'SS004', NULL, 'an id that nobody has claimed raises');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :c, '{6,0}'), 'SS004', NULL, 'so does 0');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :c, '{6,-9223372036854775808}'), 'SS004', NULL, 'and the least bigint');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :c, '{6,9223372036854775807}'), 'SS004', NULL, 'and the greatest');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :c, '{6,NULL}'), '22004', 'message_ids', 'a NULL id');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :c, '{{6},{7}}'), '22023', 'message_ids', 'a two-dimensional array');
SELECT is((SELECT messages || ' ' || unresolved FROM sqlstreams.leases), '7 4', 'and nothing has changed');
SELECT is(sqlstreams.ack('s', 'g', :c, '{}'), 0::bigint, 'no ids: 0, after checking the claim');
SELECT is(sqlstreams.ack('s', 'g', :c, '[0:1]={6,7}'), 2::bigint, 'where the array begins to count does not matter');
SELECT is(sqlstreams.ack('s', 'g', :c, NULL), 2::bigint, 'without ids: the ones that are left');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :c, '{}'), 'SS004', NULL, 'the claim is gone with its last message, also for no ids');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 2) \gset
SELECT is(sqlstreams.ack('s', 'g', :c, '{12,11}'), 2::bigint, 'all of them by id');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'leaves nothing either');
SELECT is_empty($$ SELECT FROM sqlstreams.leases $$, 'not even the lease');

-- what is not one's own
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 2) \gset
SELECT is(sqlstreams.ack('s', 'g', NULL), 0::bigint, 'a NULL claim');
SELECT is(sqlstreams.ack('s', 'g', NULL, '{1}'), 0::bigint, 'also with ids');
SELECT fails($$ SELECT sqlstreams.ack('s', 'g', 0) $$, 'SS004', NULL, 'claim 0');
SELECT fails($$ SELECT sqlstreams.ack('s', 'g', -1) $$, 'SS004', NULL, 'claim -1');
SELECT fails($$ SELECT sqlstreams.ack('s', 'g', 9223372036854775807) $$, 'SS004', NULL, 'claim 2^63-1');
SELECT fails($$ SELECT sqlstreams.ack('s', 'g', 12345, '{}') $$, 'SS004', NULL, 'an unknown claim, no ids');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'h', :c), 'SS004', NULL, 'another group''s claim');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'h', :c, '{13}'), 'SS004', NULL, 'a message of another group''s claim');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 't', 'g', :c), 'SS004', NULL, 'another stream''s claim');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 'nope', 'g', :c), 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'nope', :c), 'SS002', 'consumer group "nope"', 'an unknown group');
SELECT fails(format('SELECT sqlstreams.ack(NULL, %L, %s)', 'g', :c), '22004', 'stream', 'a NULL stream');
SELECT fails(format('SELECT sqlstreams.ack(%L, NULL, %s)', 's', :c), '22004', 'consumer_group', 'a NULL group');
SELECT is(sqlstreams.ack('s', 'g', :c), 2::bigint, 'its holder still has it');

-- transactions
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 3) \gset
BEGIN;
SELECT is(sqlstreams.ack('s', 'g', :c, '{15}'), 1::bigint, 'one acked in a transaction');
SAVEPOINT a;
SELECT is(sqlstreams.ack('s', 'g', :c), 2::bigint, 'the rest in a savepoint');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'which knows it');
ROLLBACK TO a;
SELECT is(sqlstreams.ack('s', 'g', :c, '{17}'), 1::bigint, 'rolled back with it');
COMMIT;
SELECT is((SELECT unresolved FROM sqlstreams.leases), 1::bigint, 'one is left open');
BEGIN;
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'acked');
ROLLBACK;
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'and rolled back: still open');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 1) \gset
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'claim and ack at REPEATABLE READ');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 1) \gset
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'at SERIALIZABLE');
COMMIT;
BEGIN READ ONLY;
SELECT fails($$ SELECT sqlstreams.ack('s', 'g', 1) $$, '25006', 'ack', 'in a read-only transaction');
COMMIT;

-- in the statement that made the claim
SELECT is((SELECT sum(sqlstreams.ack('s', 'g', claim_id, ARRAY[message_id])) FROM sqlstreams.claim('s', 'g', 5)), 5::numeric, 'each message acked in the claim''s statement');
SELECT is((SELECT count(*) FROM sqlstreams.leases), 0::bigint, 'nothing is left');

-- after the lease's end
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 2, '1 millisecond') \gset
SELECT wait_for_expiry('s', 'g') \g /dev/null
SELECT is(sqlstreams.ack('s', 'g', :c, '{25}'), 1::bigint, 'an expired claim that nobody took over is still its holder''s');
SELECT min(claim_id) AS taken FROM sqlstreams.claim('s', 'g', 1) \gset
SELECT isnt(:taken, :c, 'a take-over gives a new claim_id');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'and the old holder has nothing any more');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 's', 'g', :c, '{24}'), 'SS004', NULL, 'not by id either');
SELECT is(sqlstreams.ack('s', 'g', :taken), 1::bigint, 'the new one has');

-- a large claim acked one by one
SELECT lives_ok($$ SELECT sqlstreams.create_stream('large'), sqlstreams.create_group('large', 'g') $$, 'another stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('large', array_fill('1'::jsonb, ARRAY[20000]))), 20000::bigint, '20,000 messages');
SELECT min(claim_id) AS c FROM sqlstreams.claim('large', 'g', 20000) \gset
SELECT is((SELECT sum(sqlstreams.ack('large', 'g', :c, ARRAY[i])) FROM generate_series(20000, 1, -1) i), 20000::numeric, 'acked one by one, backwards, in one transaction');
SELECT is((SELECT count(*) FROM sqlstreams.leases), 0::bigint, 'nothing is left');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
