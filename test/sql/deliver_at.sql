\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours'), sqlstreams.create_group('s', 'h') $$, 'a stream and two groups');
-- the clock is moved, not waited for
SELECT format('UPDATE sqlstreams.exception_queue_%s SET due_at = (SELECT clock_timestamp()) WHERE status = ''r''', stream_id) AS make_due,
       format('UPDATE sqlstreams.message_log_%s SET deliver_at = ''2001-01-01''', stream_id) AS make_past FROM sqlstreams.streams WHERE stream = 's' \gset

-- not before its time, and nothing behind it waits
SELECT is(sqlstreams.produce('s', '1'), 1::bigint, 'one at once');
SELECT is(sqlstreams.produce('s', '2', deliver_at => '2100-01-02 03:04:05Z'), 2::bigint, 'one for later');
SELECT is(sqlstreams.produce('s', '3', deliver_at => '2001-01-01'), 3::bigint, 'in the past is now');
SELECT is((SELECT string_agg(id::text, ' ') FROM sqlstreams.produce_batch('s', '{4,5}', deliver_at => '2100-01-01Z') id), '4 5', 'a batch for later');
SELECT is(sqlstreams.produce_bytes('s', '\x06', deliver_at => '2100-01-01Z'), 6::bigint, 'bytes for later');
SELECT is((SELECT string_agg(id::text, ' ') FROM sqlstreams.produce_bytes_batch('s', '{"\\x07","\\x08"}', deliver_at => '2100-01-01Z') id), '7 8', 'a batch of bytes for later');
SELECT is(sqlstreams.produce('s', '9', deliver_at => NULL), 9::bigint, 'NULL is at once');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.peek('s', 1, 100) WHERE deliver_at > clock_timestamp()), '2 4 5 6 7 8', 'peek shows when');
SELECT is(claimed('s', 'g'), '1 3 9', 'a claim gets what is due');
SELECT is(claimed('s', 'g'), '', 'and no more');
SELECT results_eq($$ SELECT message_id, status, attempts, delays, takeovers, last_error, claim_id FROM sqlstreams.exceptions('s', 'g') $$,
  $$ VALUES (2::bigint, 'ready', 0, 0, 0, NULL, NULL::bigint), (4, 'ready', 0, 0, 0, NULL, NULL), (5, 'ready', 0, 0, 0, NULL, NULL), (6, 'ready', 0, 0, 0, NULL, NULL), (7, 'ready', 0, 0, 0, NULL, NULL), (8, 'ready', 0, 0, 0, NULL, NULL) $$,
  'what it stepped over is kept for later');
SELECT is((SELECT bool_and(e.can_run_after = p.deliver_at) FROM sqlstreams.exceptions('s', 'g') e JOIN sqlstreams.peek('s', 1, 100) p USING (message_id)), true, 'until the time that was asked for');
SELECT results_eq($$ SELECT claimed, backlog, leased, ready FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$, $$ VALUES (9::bigint, 0::bigint, 3::bigint, 6::bigint) $$, 'the group is not behind');
SELECT is(sqlstreams.ack('s', 'g', claim_id), 3::bigint, 'acked') FROM sqlstreams.leases WHERE consumer_group = 'g';
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), 9::bigint, 'nor is its commit');

-- when it is due
:make_due AND message_id IN (2, 6);
SELECT results_eq($$ SELECT message_id, payload, body, attempts, delays, takeovers, deliver_at FROM sqlstreams.claim('s', 'g', 10, '1 hour') ORDER BY message_id $$,
  $$ VALUES (2::bigint, '2'::jsonb, NULL::bytea, 0, 0, 0, timestamptz '2100-01-02 03:04:05Z'), (6, NULL, '\x06', 0, 0, 0, '2100-01-01Z') $$, 'due: it comes, like a fresh one');
SELECT min(claim_id) AS c FROM sqlstreams.leases WHERE consumer_group = 'g' \gset
SELECT is(sqlstreams.ack('s', 'g', :c, '{2}'), 1::bigint, 'one acked');
SELECT is(sqlstreams.nack('s', 'g', :c, '{6}', 'x'), 0::bigint, 'one nacked');
SELECT results_eq($$ SELECT attempts, delays, can_run_after - updated_at FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 6 $$, $$ VALUES (1, 0, interval '2 hours') $$, 'is its first failure, with the first backoff');
:make_due AND message_id = 4;
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.pop('s', 'g', 10)), '4', 'pop takes one that is due');
:make_due AND message_id = 5;
SELECT is((SELECT sum(sqlstreams.reject('s', 'g', claim_id, error => 'no')) FROM sqlstreams.claim('s', 'g')), 1::numeric, 'one rejected');
SELECT is(sqlstreams.redrive('s', 'g', '{5}'), 1::bigint, 'and redriven');
SELECT is(claimed('s', 'g'), '5', 'comes at once');

-- each group by itself; one that comes late
SELECT is(claimed('s', 'h', 1), '1', 'the other group has not come so far');
SELECT is(claimed('s', 'h', 1), '3', 'it goes on behind one for later');
:make_past WHERE id IN (4, 7);
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.claim('s', 'h', 10, '1 hour')), '4 7 9', 'what was due before the group came there is fresh');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'h')), '2 5 6 8', 'the others wait');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'head', start_position => 'head'), sqlstreams.create_group('s', 'late', start_id => 5) $$, 'two groups more');
SELECT is(claimed('s', 'head'), '', 'a group that begins at the head');
SELECT is_empty($$ SELECT FROM sqlstreams.exceptions('s', 'head') $$, 'has none that came before');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.claim('s', 'late', 10, '1 hour')), '7 9', 'one that begins later');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'late')), '5 6 8', 'has those from there on');

-- what a group does not get it does not keep either
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'bound', start_position => 'head', bindings => '{a.*}', schema_version => 1, message_min => '{"timeout": "1 s"}') $$, 'a group with bindings');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', '{10,11,12}', routing_keys => '{a.b,b.a,NULL}', deliver_at => '2100-01-01Z')), 3::bigint, 'three for later');
SELECT is(sqlstreams.produce('s', '13', routing_key => 'a.c', schema_version => 2, deliver_at => '2100-01-01Z'), 13::bigint, 'and one of another version');
SELECT is(claimed('s', 'bound'), '', 'nothing yet');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'bound')), '10', 'its own is kept');
:make_due AND message_id BETWEEN 10 AND 13;
SELECT is(claimed('s', 'bound'), '10', 'and comes');

-- transactions
BEGIN;
SELECT is(sqlstreams.produce('s', '14', deliver_at => '2100-01-01Z'), 14::bigint, 'one for later');
SELECT is(claimed('s', 'head'), '', 'not yet in the same transaction');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'head')), '10 11 12 13 14', 'which has stepped over it');
ROLLBACK;
SELECT is_empty($$ SELECT FROM sqlstreams.exceptions('s', 'head') $$, 'rolled back, nothing was');
SELECT is(claimed('s', 'head'), '', 'claimed for good');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'head')), '10 11 12 13', 'what is there waits');
BEGIN;
:make_due AND message_id = 10;
SELECT is(claimed('s', 'head', 5), '10', 'a due one claimed');
ROLLBACK;
SELECT is((SELECT string_agg(message_id || ' ' || status, ', ') FROM sqlstreams.exceptions('s', 'head')), '10 ready, 11 ready, 12 ready, 13 ready', 'and rolled back');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT is(sqlstreams.produce('s', '15', deliver_at => '2100-01-01Z'), 15::bigint, 'at REPEATABLE READ');
SELECT is(claimed('s', 'head', 5), '', 'the same');
COMMIT;
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'head')), '10 11 12 13 15', 'and it lasts');

-- idempotency, keys and other options go with it
SELECT is(sqlstreams.produce('s', '16', 'key', 'a.b', idempotency_key => 'once', deliver_at => '2100-01-01Z', headers => '{"h": 1}', options => '{"timeout": "10 s"}'), 16::bigint, 'with a key');
SELECT is(sqlstreams.produce('s', '16', 'key', 'a.b', idempotency_key => 'once'), 0::bigint, 'it is known before it is delivered');
SELECT is(claimed('s', 'bound'), '', 'not yet');
:make_due AND message_id = 16;
SELECT results_eq($$ SELECT message_key, routing_key, headers, (options ->> 'timeout')::interval FROM sqlstreams.claim('s', 'bound', 5) $$, $$ VALUES ('key', 'a.b', '{"h": 1}'::jsonb, interval '10 s') $$, 'delivered as it was produced');

-- times at the edges
SELECT fails(format('SELECT sqlstreams.produce(%L, %L, deliver_at => %L)', 's', '17', v), '22023', 'deliver_at', 'deliver_at ' || v) FROM unnest(ARRAY['infinity', '-infinity']) v;
SELECT is(sqlstreams.produce('s', '17', deliver_at => '290000-01-01'), 17::bigint, 'a time that nobody lives to see');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.pop('s', 'head', 10)), NULL, 'does not come');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', 'k', compaction => true, deliver_at => '2100-01-01Z') $$, '22023', 'deliver_at', 'not with compaction');

-- many for later do not make a claim of what is behind them wait or fail
SELECT lives_ok($$ SELECT sqlstreams.create_stream('many'), sqlstreams.create_group('many', 'g') $$, 'another stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('many', array_fill('1'::jsonb, ARRAY[25000]), deliver_at => '2100-01-01Z')), 25000::bigint, '25,000 for later');
SELECT is(sqlstreams.produce('many', '2'), 25001::bigint, 'and one behind them');
SELECT is((SELECT count(*) FROM generate_series(1, 10) i, LATERAL (SELECT FROM sqlstreams.claim('many', 'g', 1 + i - i)) c), 1::bigint, 'found by one of a few claims');
SELECT is((SELECT claimed FROM sqlstreams.consumer_groups WHERE stream = 'many'), 25001::bigint, 'all the others are kept');
SELECT is((SELECT count(*) FROM sqlstreams.exceptions('many', 'g', max_messages => 100000)), 25000::bigint, 'each of them');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
