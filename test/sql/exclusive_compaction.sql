\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Compacted keys that are exclusive, or ordered by the group: when the key frees, its head runs, and what lies between is superseded.
CREATE FUNCTION pg_temp.take(a_stream text, how_many bigint, a_group text DEFAULT 'g', OUT claim bigint, OUT got text) LANGUAGE sql AS $$
  SELECT min(claim_id), coalesce(string_agg(concat(message_id, message_key, CASE WHEN attempts > 0 THEN ' failed' END), ' ' ORDER BY message_id), '') FROM sqlstreams.claim(a_stream, a_group, how_many, '1 hour')
$$;
CREATE FUNCTION pg_temp.state(a_stream text, a_group text DEFAULT 'g') RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(concat(message_id, ' ', status, ' behind ' || blocked_by), ', ' ORDER BY message_id), '') FROM sqlstreams.exceptions(a_stream, a_group)
$$;
CREATE FUNCTION pg_temp.put(a_stream text, key text DEFAULT 'a', rank bigint DEFAULT 0, a_concurrency text DEFAULT 'exclusive') RETURNS bigint LANGUAGE sql AS $$
  SELECT sqlstreams.produce(a_stream, '1', key, compaction => true, compaction_rank => rank, concurrency => a_concurrency)
$$;
CREATE FUNCTION pg_temp.superseded(a_stream text, a_group text DEFAULT 'g') RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(message_id::text, ' ' ORDER BY message_id), '') FROM sqlstreams.deliveries(a_stream, a_group) WHERE outcome = 'superseded'
$$;
CREATE PROCEDURE pg_temp.make_due(a_stream text) LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('UPDATE sqlstreams.exception_queue_%s SET due_at = clock_timestamp() WHERE status = ''r''', (SELECT stream_id FROM sqlstreams.streams WHERE stream = a_stream));
END $$;

-- three updates while the first is worked on: only the newest runs when it is done
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 4), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours', max_retries => 1) $$, 'a stream');
SELECT is(pg_temp.put('s'), 1::bigint, 'a message');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '1a', 'is worked on');
SELECT is(pg_temp.put('s'), 2::bigint, 'an update');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '', 'waits');
SELECT is(pg_temp.put('s'), 3::bigint, 'another');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '', 'waits as well');
SELECT is(pg_temp.put('s'), 4::bigint, 'and a third');
SELECT is(pg_temp.put('s', 'b'), 5::bigint, 'another key');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '5b', 'does not');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'the first is done');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '4a', 'the newest runs');
SELECT is(pg_temp.superseded('s'), '2 3', 'the two between are superseded');
SELECT is(pg_temp.state('s'), '4 inflight', 'and gone');
-- it fails, and a newer one comes meanwhile
SELECT is(sqlstreams.nack('s', 'g', :c), 0::bigint, 'it fails');
SELECT is(pg_temp.put('s'), 6::bigint, 'an update while it waits');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '6a', 'runs');
CALL pg_temp.make_due('s');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '', 'due, the one that failed is no longer the head');
SELECT is(pg_temp.superseded('s'), '2 3 4', 'and is superseded');
SELECT is(sqlstreams.delay('s', 'g', :c, '{6}', '1 hour'), 0::bigint, 'the head is delayed');
SELECT is(pg_temp.put('s', 'a', -1), 7::bigint, 'one of a lower rank');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '', 'does not run');
SELECT is(pg_temp.superseded('s'), '2 3 4 7', 'it is superseded');
CALL pg_temp.make_due('s');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '6a', 'the delayed head runs');
SELECT is(pg_temp.put('s', 'a', -1), 8::bigint, 'a lower rank while the head is worked on');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'done');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '', 'is not what runs next');
SELECT is(pg_temp.superseded('s'), '2 3 4 7 8', 'but superseded');
-- dead versions
SELECT is(pg_temp.put('s'), 9::bigint, 'an update');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(sqlstreams.reject('s', 'g', :c), 1::bigint, 'rejected');
SELECT is(sqlstreams.redrive('s', 'g', '{9}'), 1::bigint, 'redriven as the head');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '9a', 'it runs');
SELECT is(sqlstreams.reject('s', 'g', :c), 1::bigint, 'rejected again');
SELECT is(pg_temp.put('s'), 10::bigint, 'a newer version');
SELECT is(sqlstreams.redrive('s', 'g', '{9}'), 1::bigint, 'redriven as what is no longer the head');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '10a', 'the head runs');
SELECT is(pg_temp.superseded('s'), '2 3 4 7 8 9', 'the redriven one is superseded');
SELECT is(pg_temp.state('s'), '', 'nothing is left');
-- messages of the key that are not compacted run, too, one at a time
SELECT is(sqlstreams.produce('s', '1', 'a', concurrency => 'exclusive'), 11::bigint, 'one that is not compacted');
SELECT is(pg_temp.put('s'), 12::bigint, 'an update');
SELECT is(sqlstreams.produce('s', '1', 'a', concurrency => 'exclusive'), 13::bigint, 'another that is not');
SELECT is(pg_temp.put('s'), 14::bigint, 'another update');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '', 'all wait');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'done');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '11a', 'the first that is not compacted');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'done');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '13a', 'the second, for an update is superseded');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'done');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '14a', 'the head');
SELECT is(pg_temp.superseded('s'), '2 3 4 7 8 9 12', 'in the delivery log');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'done');

-- many updates
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', array_fill('1'::jsonb, ARRAY[500]), array_fill('m'::text, ARRAY[500]), compaction => true, concurrency => 'exclusive')), 500::bigint, 'five hundred at once');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '514m', 'the last runs');
SELECT lives_ok(format('DO $d$ BEGIN FOR i IN 1 .. 50 LOOP PERFORM pg_temp.put(%L, %L); PERFORM pg_temp.take(%1$L, 3); END LOOP; END $d$', 's', 'm'), 'fifty more, one after the other, with a claim behind each');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'done');
SELECT claim AS c, got FROM pg_temp.take('s', 1) \gset
SELECT is(:'got'::text, '564m', 'the last runs, found by one claim of one');
SELECT is((SELECT superseded FROM sqlstreams.consumer_groups WHERE stream = 's'), 555::bigint, 'all others are superseded');
SELECT is(pg_temp.state('s'), '564 inflight', 'and none waits');

-- ordered by the group: supersession first, what is left in order
SELECT lives_ok($$ SELECT sqlstreams.create_stream('o', partition_size => 4), sqlstreams.create_group('o', 'g', concurrency_override => 'ordered', initial_backoff => '2 hours'), sqlstreams.create_group('o', 'd', concurrency => 'ordered') $$, 'groups that order');
SELECT is(sqlstreams.produce('o', '1', 'a'), 1::bigint, 'not compacted');
SELECT is(pg_temp.put('o', a_concurrency => NULL), 2::bigint, 'compacted');
SELECT is(sqlstreams.produce('o', '1', 'a'), 3::bigint, 'not compacted');
SELECT is(pg_temp.put('o', a_concurrency => NULL), 4::bigint, 'compacted');
SELECT is(sqlstreams.produce('o', '1', 'a'), 5::bigint, 'not compacted');
SELECT claim AS c, got FROM pg_temp.take('o', 10) \gset
SELECT is(:'got'::text, '1a', 'the first');
SELECT is(pg_temp.superseded('o'), '2', 'an older version is superseded at once');
SELECT is(pg_temp.state('o'), '3 deferred behind 1, 4 deferred behind 1, 5 deferred behind 1', 'the others wait');
SELECT is(sqlstreams.ack('o', 'g', :c), 1::bigint, 'done');
SELECT claim AS c, got FROM pg_temp.take('o', 10) \gset
SELECT is(:'got'::text, '3a', 'the next');
SELECT is(sqlstreams.ack('o', 'g', :c), 1::bigint, 'done');
SELECT claim AS c, got FROM pg_temp.take('o', 10) \gset
SELECT is(:'got'::text, '4a', 'the head');
SELECT is(sqlstreams.nack('o', 'g', :c), 0::bigint, 'fails');
SELECT is((SELECT got FROM pg_temp.take('o', 10)), '', 'what is behind it waits');
SELECT is(pg_temp.put('o', a_concurrency => NULL), 6::bigint, 'a newer version');
CALL pg_temp.make_due('o');
SELECT claim AS c, got FROM pg_temp.take('o', 10) \gset
SELECT is(:'got'::text, '5a', 'supersedes it, and frees what is behind');
SELECT is(pg_temp.superseded('o'), '2 4', 'in the delivery log');
SELECT is(sqlstreams.ack('o', 'g', :c), 1::bigint, 'done');
SELECT is((SELECT got FROM pg_temp.take('o', 10)), '6a', 'the newest, in its place');
SELECT is((SELECT string_agg(concurrency || ' ' || message_id, ', ') FROM sqlstreams.claim('o', 'd', 10)), 'ordered 1', 'ordered by default as by override');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
