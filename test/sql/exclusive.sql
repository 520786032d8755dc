\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Exclusive keys: one delivery of a key at a time and group, the oldest that waits next, and a message that failed lets the others by.
CREATE FUNCTION pg_temp.take(a_stream text, how_many bigint, a_group text DEFAULT 'g', OUT claim bigint, OUT got text) LANGUAGE sql AS $$
  SELECT min(claim_id), coalesce(string_agg(concat(payload, message_key, CASE WHEN attempts > 0 THEN ' failed' END), ' ' ORDER BY message_id), '') FROM sqlstreams.claim(a_stream, a_group, how_many, '1 hour')
$$;
CREATE FUNCTION pg_temp.got(a_stream text, how_many bigint, a_group text DEFAULT 'g') RETURNS text LANGUAGE sql AS $$
  SELECT got FROM pg_temp.take(a_stream, how_many, a_group)
$$;
CREATE FUNCTION pg_temp.state(a_stream text, a_group text DEFAULT 'g') RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(concat(message_id, ' ', status, ' behind ' || blocked_by), ', ' ORDER BY message_id), '') FROM sqlstreams.exceptions(a_stream, a_group)
$$;
CREATE FUNCTION pg_temp.put(a_stream text, keys text[], a_concurrency text DEFAULT 'exclusive') RETURNS bigint LANGUAGE sql AS $$
  SELECT count(*) FROM sqlstreams.produce_batch(a_stream, (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, cardinality(keys)) i), keys, concurrency => a_concurrency)
$$;
CREATE PROCEDURE pg_temp.make_due(a_stream text, ids bigint[]) LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('UPDATE sqlstreams.exception_queue_%s SET due_at = clock_timestamp() WHERE message_id = ANY ($1) AND status = ''r''', (SELECT stream_id FROM sqlstreams.streams WHERE stream = a_stream)) USING ids;
END $$;

-- one at a time, in order, keyless and other keys beside it
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 4), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours'), sqlstreams.create_group('s', 'other') $$, 'a stream with two groups');
SELECT is(pg_temp.put('s', '{a,a,a,b,b}'), 5::bigint, 'two exclusive keys');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', '{6,7}')), 2::bigint, 'two messages without a key');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '1a 4b 6 7', 'one of each key, and all without');
SELECT is((SELECT string_agg(DISTINCT l.concurrency, ' ') FROM sqlstreams.claim('s', 'other', 10) l WHERE message_key IS NOT NULL), 'exclusive', 'the policy is told');
SELECT is(pg_temp.state('s'), '2 deferred behind 1, 3 deferred behind 1, 5 deferred behind 4', 'the others are deferred');
SELECT is(pg_temp.state('s', 'other'), '2 deferred behind 1, 3 deferred behind 1, 5 deferred behind 4', 'in the other group by itself');
SELECT results_eq($$ SELECT message_id, message_key, concurrency, attempts, delays, takeovers, claim_id, payload FROM sqlstreams.exceptions('s', 'g', 'deferred', max_messages => 1) $$,
  $$ VALUES (2::bigint, 'a', 'exclusive', 0, 0, 0, NULL::bigint, '2'::jsonb) $$, 'a deferred message in exceptions()');
SELECT is((SELECT format('%s ready, %s inflight, %s deferred, %s dead, %s leased', ready, inflight, deferred, dead, leased) FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = 'g'), '0 ready, 0 inflight, 3 deferred, 0 dead, 4 leased', 'and in the view');
SELECT is(pg_temp.got('s', 10), '', 'nothing else is to be had');
SELECT is(sqlstreams.ack('s', 'g', :c, '{4}'), 1::bigint, 'the ack of one key');
SELECT is(pg_temp.got('s', 10), '5b', 'frees that key');
BEGIN;
SELECT is(sqlstreams.ack('s', 'g', :c, '{1}'), 1::bigint, 'the other key, acked');
ROLLBACK;
SELECT is(pg_temp.got('s', 10), '', 'and rolled back: it is busy');
SELECT is(pg_temp.state('s'), '2 deferred behind 1, 3 deferred behind 1, 5 inflight', 'behind the same message');
BEGIN;
SELECT is(sqlstreams.ack('s', 'g', :c, '{1}'), 1::bigint, 'acked again');
SELECT is(pg_temp.got('s', 10), '2a', 'in the same transaction the next may be claimed');
ROLLBACK;
SELECT is(sqlstreams.ack('s', 'g', :c, '{1}'), 1::bigint, 'acked at last');
SELECT is(pg_temp.put('s', '{a}'), 1::bigint, 'a fresh message of the key');
SELECT is(pg_temp.got('s', 10), '2a', 'the oldest that waits is next');
SELECT is(pg_temp.state('s'), '2 inflight, 3 deferred behind 2, 5 inflight, 8 deferred behind 2', 'the fresh one waits, too');
SELECT is(sqlstreams.ack('s', 'g', claim_id), 1::bigint, 'acked') FROM sqlstreams.exceptions('s', 'g', 'inflight') WHERE message_id = 2;
SELECT is((SELECT got FROM pg_temp.take('s', 1)), '3a', 'then the next');
SELECT is(sqlstreams.ack('s', 'g', claim_id), 1::bigint, 'acked') FROM sqlstreams.exceptions('s', 'g', 'inflight') WHERE message_id = 3;
SELECT is((SELECT got FROM pg_temp.take('s', 1)), '1a', 'then the fresh one');
SELECT results_eq($$ SELECT message_id, outcome FROM sqlstreams.deliveries('s', 'g') ORDER BY message_id $$, $$ VALUES (2::bigint, 'deferred'), (3, 'deferred'), (5, 'deferred'), (8, 'deferred') $$, 'the delivery log says which had to wait');
SELECT is(pg_temp.state('s', 'other'), '2 deferred behind 1, 3 deferred behind 1, 5 deferred behind 4', 'the other group is where it was');
-- ack and claim in one call, and pop
SELECT claim_id AS c FROM sqlstreams.exceptions('s', 'g', 'inflight') WHERE message_id = 8 \gset
SELECT is(pg_temp.put('s', '{a,a,a,a}'), 4::bigint, 'four more');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.claim('s', 'g', 10, '1 hour', ack => :c)), '9', 'a claim that acks the holder gets the next');
SELECT is(sqlstreams.ack('s', 'g', claim_id), 1::bigint, 'acked') FROM sqlstreams.leases WHERE stream = 's' AND consumer_group = 'g' AND claimed_at = (SELECT max(claimed_at) FROM sqlstreams.leases WHERE stream = 's' AND consumer_group = 'g');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.pop('s', 'g')), '10', 'pop gets the next, and resolves it');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.pop('s', 'g', 10)), '11 12', 'so it may get all that are left, in order');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.pop('s', 'g', 10)), NULL, 'no more');
SELECT is((SELECT string_agg(sqlstreams.ack('s', 'g', claim_id)::text, ' ') FROM (SELECT claim_id FROM sqlstreams.leases WHERE stream = 's' AND consumer_group = 'g') l), '2 1', 'the rest acked');
SELECT is(pg_temp.state('s'), '', 'no exceptions are left');
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = 'g'), 12::bigint, 'all is resolved');

-- what fails, is delayed or dead lets later messages by
SELECT lives_ok($$ SELECT sqlstreams.create_stream('f', partition_size => 4), sqlstreams.create_group('f', 'g', initial_backoff => '2 hours', max_retries => 1) $$, 'a stream for failures');
SELECT is(pg_temp.put('f', '{a,a,a,a,a,a}'), 6::bigint, 'six messages of a key');
SELECT claim AS c, got FROM pg_temp.take('f', 10) \gset
SELECT is(:'got'::text, '1a', 'one');
SELECT is(sqlstreams.nack('f', 'g', :c), 0::bigint, 'fails');
SELECT is(pg_temp.state('f'), '1 ready, 2 deferred, 3 deferred, 4 deferred, 5 deferred, 6 deferred', 'nobody has the key');
SELECT claim AS c, got FROM pg_temp.take('f', 10) \gset
SELECT is(:'got'::text, '2a', 'a later one goes first');
CALL pg_temp.make_due('f', '{1}');
SELECT is(pg_temp.got('f', 10), '', 'due, the one that failed finds the key busy');
SELECT is(pg_temp.state('f'), '1 deferred behind 2, 2 inflight, 3 deferred behind 2, 4 deferred behind 2, 5 deferred behind 2, 6 deferred behind 2', 'and waits');
SELECT is(sqlstreams.delay('f', 'g', :c, '{2}', '1 hour'), 0::bigint, 'the second is delayed');
SELECT claim AS c, got FROM pg_temp.take('f', 10) \gset
SELECT is(:'got'::text, '1a failed', 'the oldest that waits is the one that failed');
SELECT is(sqlstreams.nack('f', 'g', :c, error => 'no'), 1::bigint, 'it dies');
SELECT claim AS c, got FROM pg_temp.take('f', 10) \gset
SELECT is(:'got'::text, '3a', 'a dead one frees the key');
SELECT is(sqlstreams.reject('f', 'g', :c), 1::bigint, 'rejected');
SELECT claim AS c, got FROM pg_temp.take('f', 10) \gset
SELECT is(:'got'::text, '4a', 'frees it as well');
SELECT is(sqlstreams.release('f', 'g', :c), 1::bigint, 'handed back');
SELECT claim AS c, got FROM pg_temp.take('f', 10) \gset
SELECT is(:'got'::text, '4a', 'it comes again before the later ones');
SELECT is(sqlstreams.redrive('f', 'g', '{1}'), 1::bigint, 'a dead one, redriven');
SELECT is(pg_temp.got('f', 10), '', 'finds the key busy');
SELECT is(pg_temp.state('f'), '1 deferred behind 4, 2 ready, 3 dead, 4 inflight, 5 deferred behind 4, 6 deferred behind 4', 'and waits');
SELECT is(sqlstreams.ack('f', 'g', :c), 1::bigint, 'acked');
SELECT claim AS c, got FROM pg_temp.take('f', 10) \gset
SELECT is(:'got'::text, '1a', 'it is the oldest, with a fresh budget');
SELECT is(sqlstreams.resolve('f', 'g', :c, '{1}', '{ack}'), 1::bigint, 'acked by resolve');
SELECT claim AS c, got FROM pg_temp.take('f', 10) \gset
SELECT is(:'got'::text, '5a', 'frees it, too');
CALL pg_temp.make_due('f', '{2}');
SELECT is(sqlstreams.ack('f', 'g', :c), 1::bigint, 'acked');
SELECT claim AS c, got FROM pg_temp.take('f', 1) \gset
SELECT is(:'got'::text, '2a', 'the delayed one, due, is older than what waits');
SELECT is(sqlstreams.ack('f', 'g', :c), 1::bigint, 'acked');
SELECT claim AS c, got FROM pg_temp.take('f', 10) \gset
SELECT is(:'got'::text, '6a', 'the last');
SELECT is(sqlstreams.discard('f', 'g', '{3}'), 1::bigint, 'a dead one, discarded');
SELECT is(sqlstreams.ack('f', 'g', :c), 1::bigint, 'acked');
SELECT is(pg_temp.state('f'), '', 'nothing is left');
SELECT is((SELECT string_agg(message_id || outcome, ' ' ORDER BY ended_at) FROM sqlstreams.deliveries('f', 'g') WHERE outcome <> 'deferred'), '1nack 2delay 1nack 3reject', 'the failures in the delivery log');

-- a lost lease
SELECT lives_ok($$ SELECT sqlstreams.create_stream('l', partition_size => 4), sqlstreams.create_group('l', 'g', max_reclaims => 1) $$, 'a stream for lost leases');
SELECT is(pg_temp.put('l', '{a,b,a,b}'), 4::bigint, 'two keys');
SELECT is((SELECT string_agg(message_id::text, ' ' ORDER BY message_id) FROM sqlstreams.claim('l', 'g', 10, '1 millisecond')), '1 2', 'claimed');
SELECT lives_ok($$ SELECT wait_for_expiry('l', 'g') $$, 'the lease ends');
SELECT is(pg_temp.got('l', 10), '1a 2b', 'they come again, the later ones do not');
SELECT is(pg_temp.state('l'), '3 deferred behind 1, 4 deferred behind 2', 'which wait');
SELECT is((SELECT sum(sqlstreams.ack('l', 'g', claim_id)) FROM sqlstreams.leases WHERE stream = 'l'), 2::numeric, 'acked');
SELECT is((SELECT string_agg(message_id::text, ' ' ORDER BY message_id) FROM sqlstreams.claim('l', 'g', 10, '1 millisecond')), '3 4', 'the later ones are claimed');
SELECT lives_ok($$ SELECT wait_for_expiry('l', 'g') $$, 'their lease ends');
SELECT is((SELECT string_agg(message_id || ' ' || takeovers, ' ' ORDER BY message_id) FROM sqlstreams.claim('l', 'g', 10, '1 hour')), '3 1', 'one comes alone, for it may be the one that kills');
SELECT is(pg_temp.got('l', 10), '4b', 'then the other');

-- messages that ask for parallel, or nothing, do not mind
SELECT lives_ok($$ SELECT sqlstreams.create_stream('p', partition_size => 4), sqlstreams.create_group('p', 'g'), sqlstreams.create_group('p', 'd', concurrency => 'exclusive'), sqlstreams.create_group('p', 'o', concurrency_override => 'exclusive'), sqlstreams.create_group('p', 'n', concurrency_override => 'parallel') $$, 'groups with defaults and overrides');
SELECT is(pg_temp.put('p', '{a,a}'), 2::bigint, 'two that ask for exclusive');
SELECT is(pg_temp.put('p', '{a,a}', 'parallel'), 2::bigint, 'two that ask for parallel');
SELECT is(pg_temp.put('p', '{a,a}', NULL), 2::bigint, 'two that do not say');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('p', '{7,8}')), 2::bigint, 'two without a key');
SELECT is((SELECT string_agg(message_id || left(concurrency, 1), ' ' ORDER BY message_id) FROM sqlstreams.claim('p', 'g', 10)), '1e 3p 4p 5p 6p 7p 8p', 'no default: parallel ones of the key are unaffected');
SELECT is((SELECT string_agg(message_id || left(concurrency, 1), ' ' ORDER BY message_id) FROM sqlstreams.claim('p', 'd', 10)), '1e 3p 4p 7p 8p', 'exclusive by default: for those that do not say');
SELECT is((SELECT string_agg(message_id || left(concurrency, 1), ' ' ORDER BY message_id) FROM sqlstreams.claim('p', 'o', 10)), '1e 7p 8p', 'by override: for all that have a key');
SELECT is((SELECT string_agg(message_id || left(concurrency, 1), ' ' ORDER BY message_id) FROM sqlstreams.claim('p', 'n', 10)), '1p 2p 3p 4p 5p 6p 7p 8p', 'parallel by override: for none');
SELECT is(pg_temp.state('p', 'o'), '2 deferred behind 1, 3 deferred behind 1, 4 deferred behind 1, 5 deferred behind 1, 6 deferred behind 1', 'all five wait');

-- two claims in one statement
SELECT lives_ok($$ SELECT sqlstreams.create_stream('one'), sqlstreams.create_group('one', 'g') $$, 'a stream');
SELECT is(pg_temp.put('one', '{a,a,b,b}'), 4::bigint, 'two keys');
SELECT results_eq($$ SELECT pg_temp.got('one', 1), pg_temp.got('one', 1), pg_temp.got('one', 10) $$, $$ VALUES ('1a', '3b', '') $$, 'a key is given once in a statement');
SELECT results_eq($$ SELECT sqlstreams.ack('one', 'g', claim_id), pg_temp.got('one', 1) FROM (SELECT claim_id FROM sqlstreams.leases WHERE stream = 'one' ORDER BY claimed_at LIMIT 1) l $$, $$ VALUES (1::bigint, '2a') $$, 'acked and claimed in one');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
