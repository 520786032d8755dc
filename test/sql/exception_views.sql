\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- What the views say of exceptions.
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours'), sqlstreams.create_group('s', 'h') $$, 'a stream and two groups');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 12) i))), 12::bigint, 'twelve messages');
SELECT format('UPDATE sqlstreams.exception_queue_%s SET due_at = (SELECT clock_timestamp()) WHERE status = ''r''', stream_id) AS make_due FROM sqlstreams.streams WHERE stream = 's' \gset
CREATE FUNCTION pg_temp.counts(a_group text DEFAULT 'g') RETURNS text LANGUAGE sql AS $$
  SELECT format('claimed %s, committed %s, backlog %s; leased %s; ready %s, inflight %s, deferred %s, dead %s', claimed, committed, backlog, leased, ready, inflight, deferred, dead) FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = a_group
$$;
SELECT is(pg_temp.counts(), 'claimed 0, committed 0, backlog 12; leased 0; ready 0, inflight 0, deferred 0, dead 0', 'at first');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 8, '1 hour', consumer => 'first') \gset
SELECT is(sqlstreams.resolve('s', 'g', :c, '{1,2,3,5,6}', '{nack,ack,reject,nack,delay}', delays => array_fill(interval '1 hour', ARRAY[5])), 5::bigint, 'five resolved');
SELECT is(pg_temp.counts(), 'claimed 8, committed 3, backlog 4; leased 3; ready 3, inflight 0, deferred 0, dead 1', 'up to 3 all are resolved or exceptions');
SELECT is((SELECT next_due_at FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), (SELECT min(can_run_after) FROM sqlstreams.exceptions('s', 'g', 'ready')), 'next_due_at: when the first of the ready ones can run');
SELECT is((SELECT next_due_at FROM sqlstreams.consumer_groups WHERE consumer_group = 'h'), NULL, 'of that group');
SELECT is((SELECT oldest_unresolved_at FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), (SELECT created_at FROM sqlstreams.peek('s', 1, 1)), 'oldest_unresolved_at: of a ready one');
SELECT results_eq($$ SELECT consumer, messages, unresolved, takeovers FROM sqlstreams.leases $$, $$ VALUES ('first', 8::bigint, 3::bigint, 0) $$, 'leases: what is open');
SELECT is(sqlstreams.ack('s', 'g', :c), 3::bigint, 'the rest acked');
SELECT is(pg_temp.counts(), 'claimed 8, committed 8, backlog 4; leased 0; ready 3, inflight 0, deferred 0, dead 1', 'exceptions do not hold the commit back');

-- in flight
:make_due AND message_id IN (1, 5);
SELECT is((SELECT next_due_at <= clock_timestamp() FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), true, 'next_due_at: due');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 4, '1 hour', consumer => 'second') \gset
SELECT is(pg_temp.counts(), 'claimed 10, committed 8, backlog 2; leased 4; ready 1, inflight 2, deferred 0, dead 1', 'two in flight, with two fresh ones');
SELECT results_eq($$ SELECT consumer, messages, unresolved, takeovers FROM sqlstreams.leases $$, $$ VALUES ('second', 4::bigint, 4::bigint, 0) $$, 'leases: due and fresh ones');
SELECT is((SELECT next_due_at FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), (SELECT can_run_after FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 6), 'next_due_at: the one that is left');
SELECT is((SELECT oldest_unresolved_at FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), (SELECT created_at FROM sqlstreams.peek('s', 1, 1)), 'oldest_unresolved_at: of one in flight');
SELECT is(sqlstreams.reject('s', 'g', :c, '{1}'), 1::bigint, 'one rejected');
SELECT is(sqlstreams.ack('s', 'g', :c), 3::bigint, 'the others acked');
:make_due AND message_id = 6;
SELECT is((SELECT sqlstreams.ack('s', 'g', min(claim_id)) FROM sqlstreams.claim('s', 'g', 100)), 3::bigint, 'all that is left acked');
SELECT is(pg_temp.counts(), 'claimed 12, committed 12, backlog 0; leased 0; ready 0, inflight 0, deferred 0, dead 2', 'two are dead');
SELECT is((SELECT next_due_at FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), NULL, 'nothing will be due');
SELECT is((SELECT oldest_unresolved_at FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), NULL, 'dead ones are not unresolved');
SELECT is(pg_temp.counts('h'), 'claimed 0, committed 0, backlog 12; leased 0; ready 0, inflight 0, deferred 0, dead 0', 'the other group is where it was');

-- no view counts without bound
SELECT lives_ok($$ SELECT sqlstreams.create_stream('many'), sqlstreams.create_group('many', 'g', initial_backoff => '2 hours') $$, 'another stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('many', array_fill('1'::jsonb, ARRAY[25000]))), 25000::bigint, '25,000 messages');
SELECT is((SELECT sqlstreams.resolve('many', 'g', min(claim_id), array_agg(message_id ORDER BY message_id), array_agg(CASE WHEN message_id <= 12000 THEN 'nack' WHEN message_id <= 24000 THEN 'reject' ELSE 'ack' END ORDER BY message_id))
  FROM sqlstreams.claim('many', 'g', 25000)), 25000::bigint, '12,000 ready, 12,000 dead');
SELECT results_eq($$ SELECT ready, dead, inflight FROM sqlstreams.consumer_groups WHERE stream = 'many' $$, $$ VALUES (10000::bigint, 10000::bigint, 0::bigint) $$, 'the view stops counting at 10,000');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
