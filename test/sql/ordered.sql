\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Ordered keys: nothing passes an earlier message of its key that is not resolved.
CREATE FUNCTION pg_temp.take(a_stream text, how_many bigint, a_lease interval DEFAULT '1 hour', OUT claim bigint, OUT got text) LANGUAGE sql AS $$
  SELECT min(claim_id), coalesce(string_agg(concat(message_id, message_key, CASE WHEN attempts > 0 THEN ' failed' END, CASE WHEN takeovers > 0 THEN ' lost' END), ' ' ORDER BY message_id), '') FROM sqlstreams.claim(a_stream, 'g', how_many, a_lease)
$$;
CREATE FUNCTION pg_temp.state(a_stream text) RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(concat(message_id, ' ', status, ' behind ' || blocked_by), ', ' ORDER BY message_id), '') FROM sqlstreams.exceptions(a_stream, 'g')
$$;
CREATE FUNCTION pg_temp.put(a_stream text, keys text[], a_concurrency text DEFAULT 'ordered', at timestamptz DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
  SELECT count(*) FROM sqlstreams.produce_batch(a_stream, (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, cardinality(keys)) i), keys, concurrency => a_concurrency, deliver_at => at)
$$;
CREATE PROCEDURE pg_temp.make_due(a_stream text, ids bigint[]) LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('UPDATE sqlstreams.exception_queue_%s SET due_at = clock_timestamp() WHERE message_id = ANY ($1) AND status = ''r''', (SELECT stream_id FROM sqlstreams.streams WHERE stream = a_stream)) USING ids;
END $$;
CREATE PROCEDURE pg_temp.begin(a_stream text, keys text[]) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sqlstreams.create_stream(a_stream, partition_size => 4), sqlstreams.create_group(a_stream, 'g', initial_backoff => '2 hours', max_retries => 1);
  PERFORM pg_temp.put(a_stream, keys);
END $$;

-- acked one by one, over many claims
CALL pg_temp.begin('s', '{a,a,b,a,b,a}');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', '{7,8}')), 2::bigint, 'and two without a key');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '1a 3b 7 8', 'the first of each key, and all without');
SELECT is(pg_temp.state('s'), '2 deferred behind 1, 4 deferred behind 1, 5 deferred behind 3, 6 deferred behind 1', 'the others wait');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '', 'nothing else is to be had');
SELECT is(sqlstreams.ack('s', 'g', :c, '{3}'), 1::bigint, 'the ack of one');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '5b', 'lets the next of its key go');
SELECT is(sqlstreams.ack('s', 'g', :c), 3::bigint, 'the rest acked');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '2a', 'the other key');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'acked');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '4a', 'in order');
SELECT is(pg_temp.put('s', '{a}'), 1::bigint, 'a fresh one');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'acked');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '6a', 'goes after those that wait');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'acked');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '9a', 'to the last');
SELECT is((SELECT string_agg(sqlstreams.ack('s', 'g', claim_id)::text, ' ') FROM (SELECT claim_id FROM sqlstreams.leases WHERE stream = 's') l), '1 1', 'all acked');
SELECT is(pg_temp.state('s'), '', 'nothing is left');

-- a failure holds the key through its backoff; a fresh message behind it waits, too
CALL pg_temp.begin('n', '{a,a,b,b}');
SELECT claim AS c, got FROM pg_temp.take('n', 10) \gset
SELECT is(sqlstreams.nack('n', 'g', :c, '{1}'), 0::bigint, 'the first fails');
SELECT is((SELECT got FROM pg_temp.take('n', 10)), '', 'nothing passes it');
SELECT is(pg_temp.put('n', '{a,b,c}'), 3::bigint, 'more of both keys and of a third');
SELECT is((SELECT got FROM pg_temp.take('n', 10)), '7c', 'a key that nobody has goes on');
SELECT is(pg_temp.state('n'), '1 ready, 2 deferred behind 1, 4 deferred behind 3, 5 deferred behind 1, 6 deferred behind 3', 'those of the others wait');
SELECT is(sqlstreams.ack('n', 'g', :c), 1::bigint, 'the other key is acked');
SELECT is((SELECT got FROM pg_temp.take('n', 10)), '4b', 'and goes on');
CALL pg_temp.make_due('n', '{1}');
SELECT claim AS c, got FROM pg_temp.take('n', 10) \gset
SELECT is(:'got'::text, '1a failed', 'due, it is tried again before the others');
SELECT is(pg_temp.state('n'), '1 inflight, 2 deferred behind 1, 4 inflight, 5 deferred behind 1, 6 deferred behind 4', 'which wait on');
SELECT is(sqlstreams.delay('n', 'g', :c, '{1}', '1 hour'), 0::bigint, 'it is delayed');
SELECT is((SELECT got FROM pg_temp.take('n', 10)), '', 'a delayed one has its key');
CALL pg_temp.make_due('n', '{1}');
SELECT claim AS c, got FROM pg_temp.take('n', 10) \gset
SELECT is(:'got'::text, '1a failed', 'due again');
SELECT is(sqlstreams.release('n', 'g', :c), 1::bigint, 'handed back');
SELECT claim AS c, got FROM pg_temp.take('n', 10) \gset
SELECT is(:'got'::text, '1a failed', 'it comes again');
SELECT is(sqlstreams.nack('n', 'g', :c), 1::bigint, 'it dies');
SELECT claim AS c, got FROM pg_temp.take('n', 10) \gset
SELECT is(:'got'::text, '2a', 'a dead one holds nothing back');
-- redriven, it comes after what has passed it
SELECT is(sqlstreams.redrive('n', 'g', '{1}'), 1::bigint, 'redriven');
SELECT is((SELECT got FROM pg_temp.take('n', 10)), '', 'it does not pass the one that runs');
SELECT is(sqlstreams.nack('n', 'g', :c), 0::bigint, 'which fails');
SELECT is((SELECT got FROM pg_temp.take('n', 10)), '', 'nor while that one has to wait');
CALL pg_temp.make_due('n', '{2}');
SELECT claim AS c, got FROM pg_temp.take('n', 10) \gset
SELECT is(:'got'::text, '2a failed', 'that one is tried again');
SELECT is(sqlstreams.ack('n', 'g', :c), 1::bigint, 'and acked');
SELECT claim AS c, got FROM pg_temp.take('n', 10) \gset
SELECT is(:'got'::text, '1a', 'the redriven one is the oldest that waits');
SELECT is(sqlstreams.reject('n', 'g', :c), 1::bigint, 'rejected');
SELECT claim AS c, got FROM pg_temp.take('n', 10) \gset
SELECT is(:'got'::text, '5a', 'the next');
SELECT is(sqlstreams.discard('n', 'g', '{1}'), 1::bigint, 'discarded while the key is busy');
SELECT is((SELECT got FROM pg_temp.take('n', 10)), '', 'that changes nothing');
SELECT is((SELECT string_agg(sqlstreams.ack('n', 'g', claim_id)::text, ' ') FROM (SELECT claim_id FROM sqlstreams.leases WHERE stream = 'n') l), '1 1 1', 'all acked');
SELECT is((SELECT got FROM pg_temp.take('n', 10)), '6b', 'the last');

-- lost leases
CALL pg_temp.begin('l', '{a,a,b,b}');
SELECT is((SELECT got FROM pg_temp.take('l', 10, '1 millisecond')), '1a 3b', 'claimed');
SELECT lives_ok($$ SELECT wait_for_expiry('l', 'g') $$, 'the lease ends');
SELECT is(pg_temp.state('l'), '2 deferred behind 1, 4 deferred behind 3', 'the keys are not free');
SELECT is((SELECT got FROM pg_temp.take('l', 1)), '1a lost', 'a take-over with room for one');
SELECT is(pg_temp.state('l'), '2 deferred behind 1, 3 deferred, 4 deferred', 'the other, first of its key, waits for the next claim');
SELECT is((SELECT got FROM pg_temp.take('l', 10)), '3b lost', 'and comes with the next claim');
SELECT is((SELECT got FROM pg_temp.take('l', 10)), '', 'those behind them do not');
SELECT is(pg_temp.state('l'), '2 deferred behind 1, 3 inflight, 4 deferred behind 3', 'which wait');
SELECT is((SELECT string_agg(sqlstreams.ack('l', 'g', claim_id)::text, ' ') FROM (SELECT claim_id FROM sqlstreams.leases WHERE stream = 'l') l), '1 1', 'acked');
SELECT is((SELECT got FROM pg_temp.take('l', 10, '1 millisecond')), '2a 4b', 'the next');
SELECT lives_ok($$ SELECT wait_for_expiry('l', 'g') $$, 'lost');
SELECT is(pg_temp.put('l', '{a,b}'), 2::bigint, 'more of both');
SELECT matches((SELECT got FROM pg_temp.take('l', 10)), '^(2a|4b)( failed)? lost$|^2a lost 4b lost$', 'they come before the fresh ones');
SELECT ok((SELECT got FROM pg_temp.take('l', 10)) !~ '[56]', 'which wait');
SELECT is((SELECT sum(sqlstreams.ack('l', 'g', claim_id)) FROM (SELECT claim_id FROM sqlstreams.leases WHERE stream = 'l') l), 2::numeric, 'acked');
SELECT is((SELECT got FROM pg_temp.take('l', 10)), '5a 6b', 'and now these');

-- a lost claim that is split
SELECT lives_ok($$ SELECT sqlstreams.create_stream('x', partition_size => 4), sqlstreams.create_group('x', 'g', max_reclaims => 0) $$, 'a group that splits at once');
SELECT is(pg_temp.put('x', '{a,b,a,b}'), 4::bigint, 'two keys');
SELECT is((SELECT got FROM pg_temp.take('x', 10, '1 millisecond')), '1a 2b', 'claimed');
SELECT lives_ok($$ SELECT wait_for_expiry('x', 'g') $$, 'lost');
SELECT is((SELECT got FROM pg_temp.take('x', 10)), '1a lost', 'the first alone');
SELECT is((SELECT got FROM pg_temp.take('x', 10)), '2b lost', 'the second alone');
SELECT is(pg_temp.state('x'), '1 inflight, 2 inflight, 3 deferred behind 1, 4 deferred behind 2', 'those behind them wait');

-- deliver_at: a message that is not due yet holds its key from its place in the order
SELECT lives_ok($$ SELECT sqlstreams.create_stream('d', partition_size => 4), sqlstreams.create_group('d', 'g') $$, 'a stream for deliver_at');
SELECT is(pg_temp.put('d', '{a}'), 1::bigint, 'a message');
SELECT is(pg_temp.put('d', '{a,b}', at => clock_timestamp() + interval '1 hour'), 2::bigint, 'two for later');
SELECT is(pg_temp.put('d', '{a,b,c}'), 3::bigint, 'and three behind them');
SELECT claim AS c, got FROM pg_temp.take('d', 10) \gset
SELECT is(:'got'::text, '1a 6c', 'none passes one for later');
SELECT is(sqlstreams.ack('d', 'g', :c), 2::bigint, 'acked');
SELECT is((SELECT got FROM pg_temp.take('d', 10)), '', 'nor now');
SELECT matches(pg_temp.state('d'), '^2 (ready|deferred), 3 ready, 4 deferred behind 2, 5 deferred behind 3$', 'they wait behind those');
CALL pg_temp.make_due('d', '{2,3}');
SELECT claim AS c, got FROM pg_temp.take('d', 10) \gset
SELECT is(:'got'::text, '2a 3b', 'due, they are first');
SELECT is(pg_temp.state('d'), '2 inflight, 3 inflight, 4 deferred behind 2, 5 deferred behind 3', 'the others go on waiting');
SELECT is(sqlstreams.ack('d', 'g', :c), 2::bigint, 'acked');
SELECT is((SELECT got FROM pg_temp.take('d', 10)), '4a 5b', 'and now they come');

-- several consumers
CALL pg_temp.begin('m', string_to_array(rtrim(repeat('x,y,z,', 10), ','), ','));
CREATE TEMP TABLE delivered (n bigint GENERATED ALWAYS AS IDENTITY, message_id bigint, message_key text);
CREATE FUNCTION pg_temp.work(how_many int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  a bigint;
  b bigint;
BEGIN
  LOOP
    WITH c AS (SELECT * FROM sqlstreams.claim('m', 'g', how_many, '1 hour', 'a')), i AS (INSERT INTO delivered (message_id, message_key) SELECT message_id, message_key FROM c) SELECT min(claim_id) INTO a FROM c;
    WITH c AS (SELECT * FROM sqlstreams.claim('m', 'g', how_many, '1 hour', 'b')), i AS (INSERT INTO delivered (message_id, message_key) SELECT message_id, message_key FROM c) SELECT min(claim_id) INTO b FROM c;
    EXIT WHEN a IS NULL AND b IS NULL;
    PERFORM sqlstreams.ack('m', 'g', b);
    PERFORM sqlstreams.ack('m', 'g', a);
  END LOOP;
END $$;
SELECT lives_ok($$ SELECT pg_temp.work(2) $$, 'two consumers that claim two each');
SELECT is((SELECT count(*) FROM delivered), 30::bigint, 'get all');
SELECT is_empty($$ SELECT * FROM delivered a JOIN delivered b USING (message_key) WHERE a.n < b.n AND a.message_id >= b.message_id $$, 'each key in order');

-- two of a key come back from a lost claim, and the first is superseded by then
SELECT sqlstreams.create_stream('back') \g /dev/null
SELECT sqlstreams.create_group('back', 'g', concurrency_override => 'ordered') \g /dev/null
SELECT sqlstreams.produce('back', '1', 'k', compaction => true), sqlstreams.produce('back', '2', 'k'), sqlstreams.produce('back', '3', 'k') \g /dev/null
SELECT min(claim_id) AS c, array_agg(message_id) AS ids FROM sqlstreams.claim('back', 'g', 2, '1 hour', max_per_key => 2) \gset
SELECT is(:'ids'::text, '{1,2}', 'a claim carries two of a key');
SELECT is_empty($$ SELECT message_id FROM sqlstreams.claim('back', 'g', 10) $$, 'the third waits');
SELECT is(sqlstreams.nack('back', 'g', :c, '{1}', retry_in => '0'), 0::bigint, 'the first fails');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('back', 'g', 2, '1 millisecond', max_per_key => 2)), '{1,2}', 'both come again, in a claim that is lost');
SELECT is(sqlstreams.produce('back', '4', 'k', compaction => true), 4::bigint, 'the first is superseded');
SELECT wait_for_expiry('back', 'g') \g /dev/null
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('back', 'g', 10)), '{2}', 'the second comes before the third');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
