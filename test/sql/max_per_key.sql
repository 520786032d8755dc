\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Claims that carry several messages of a key, and what becomes of the later ones when an earlier one fails.
CREATE FUNCTION pg_temp.take(a_stream text, how_many bigint, per_key bigint DEFAULT 1, a_lease interval DEFAULT '1 hour', OUT claim bigint, OUT got text) LANGUAGE sql AS $$
  SELECT min(claim_id), coalesce(string_agg(concat(message_id, message_key, CASE WHEN attempts > 0 THEN ' failed' END, CASE WHEN takeovers > 0 THEN ' lost' END), ' ' ORDER BY message_key, n), '')
    FROM (SELECT *, row_number() OVER () AS n FROM sqlstreams.claim(a_stream, 'g', how_many, a_lease, max_per_key => per_key)) c
$$;
CREATE FUNCTION pg_temp.state(a_stream text) RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(concat(message_id, ' ', status, ' behind ' || blocked_by), ', ' ORDER BY message_id), '') FROM sqlstreams.exceptions(a_stream, 'g')
$$;
-- all that is to be had, in the order in which it comes
CREATE FUNCTION pg_temp.drain(a_stream text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  got record;
  ids text;
BEGIN
  FOR i IN 1 .. 20 LOOP
    FOR got IN SELECT * FROM sqlstreams.claim(a_stream, 'g', 10, '1 hour', max_per_key => 3) LOOP
      ids := concat_ws(' ', ids, got.message_id);
      PERFORM sqlstreams.ack(a_stream, 'g', got.claim_id, ARRAY[got.message_id]);
    END LOOP;
  END LOOP;
  RETURN ids;
END $$;
CREATE PROCEDURE pg_temp.make_due(a_stream text) LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('UPDATE sqlstreams.exception_queue_%s SET due_at = clock_timestamp() WHERE status = ''r''', (SELECT stream_id FROM sqlstreams.streams WHERE stream = a_stream));
END $$;
CREATE PROCEDURE pg_temp.begin(a_stream text, keys text[], a_concurrency text DEFAULT 'ordered') LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sqlstreams.drop_stream(a_stream, if_exists => true);
  PERFORM sqlstreams.create_stream(a_stream, partition_size => 4), sqlstreams.create_group(a_stream, 'g', initial_backoff => '2 hours', max_retries => 1);
  PERFORM sqlstreams.produce_batch(a_stream, (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, cardinality(keys)) i), keys, concurrency => a_concurrency);
END $$;

-- how many come
CALL pg_temp.begin('s', '{a,b,a,a,b,a,b,a}');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 2) \gset
SELECT is(:'got'::text, '1a 3a 2b 5b', 'two of each key, by id');
SELECT is(pg_temp.state('s'), '4 deferred behind 1, 6 deferred behind 1, 7 deferred behind 2, 8 deferred behind 1', 'the others wait');
SELECT is((SELECT got FROM pg_temp.take('s', 10, 2)), '', 'for all that the claim has');
SELECT is(sqlstreams.ack('s', 'g', :c, '{1,2}'), 2::bigint, 'the first of each, acked');
SELECT is((SELECT got FROM pg_temp.take('s', 10, 2)), '', 'do not free the keys');
SELECT is(pg_temp.state('s'), '4 deferred behind 3, 6 deferred behind 3, 7 deferred behind 5, 8 deferred behind 3', 'they wait behind the second ones');
SELECT is(sqlstreams.ack('s', 'g', :c), 2::bigint, 'the second ones, acked');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 2) \gset
SELECT is(:'got'::text, '4a 6a 7b', 'the next');
SELECT is(sqlstreams.ack('s', 'g', :c), 3::bigint, 'acked');
SELECT is((SELECT got FROM pg_temp.take('s', 10, 100)), '8a', 'the last');
CALL pg_temp.begin('s', '{a,a,a,b,b,b}', 'exclusive');
SELECT is((SELECT got FROM pg_temp.take('s', 5, 100)), '1a 2a 3a 4b 5b', 'as many as fit');
CALL pg_temp.begin('s', '{a,a,a,b,b,b}', 'exclusive');
SELECT is((SELECT got FROM pg_temp.take('s', 10, NULL)), '1a 4b', 'NULL is one');
SELECT fails(format($$ SELECT sqlstreams.claim('s', 'g', max_per_key => %s) $$, n), '22023', 'max_per_key', 'max_per_key ' || n) FROM unnest(ARRAY[0, -1, 100001]) n;
CALL pg_temp.begin('s', '{a,a,a,a}', 'parallel');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '1a 2a 3a 4a', 'parallel keys have no limit');

-- a nack of one puts the later ones of its key back
CALL pg_temp.begin('s', '{a,b,a,b,a,b,a}');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT is(:'got'::text, '1a 3a 5a 2b 4b 6b', 'three of each');
SELECT is(sqlstreams.ack('s', 'g', :c, '{1}'), 1::bigint, 'the first acked');
SELECT is(sqlstreams.nack('s', 'g', :c, '{3}'), 0::bigint, 'the second fails');
SELECT is(pg_temp.state('s'), '3 ready, 5 deferred behind 3, 7 deferred behind 3', 'the third waits behind it');
SELECT fails(format($$ SELECT sqlstreams.ack('s', 'g', %s, '{5}') $$, :c), 'SS004', NULL, 'a later call that names it');
SELECT fails(format($$ SELECT sqlstreams.nack('s', 'g', %s, '{2,5}') $$, :c), 'SS004', NULL, 'even among others');
SELECT is(sqlstreams.ack('s', 'g', :c), 3::bigint, 'the other key is still the claim''s');
SELECT is((SELECT got FROM pg_temp.take('s', 10, 3)), '', 'the key waits');
CALL pg_temp.make_due('s');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT is(sqlstreams.ack('s', 'g', :c) > 0, true, 'due, it is acked');
SELECT is(concat_ws(' ', :'got', (SELECT nullif(got, '') FROM pg_temp.take('s', 10, 3))), '3a failed 5a 7a', 'it comes first, and then those behind it');
SELECT lives_ok($$ SELECT sqlstreams.ack('s', 'g', claim_id) FROM (SELECT claim_id FROM sqlstreams.leases WHERE stream = 's') l $$, 'all acked');
SELECT is(pg_temp.state('s'), '', 'nothing is left');
-- exclusive: the key is free for them
CALL pg_temp.begin('s', '{a,a,a,a}', 'exclusive');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT is(sqlstreams.nack('s', 'g', :c, '{1}'), 0::bigint, 'the first of three fails');
SELECT is(pg_temp.state('s'), '1 ready, 2 deferred, 3 deferred, 4 deferred', 'the others wait for nobody');
SELECT fails(format($$ SELECT sqlstreams.ack('s', 'g', %s) $$, :c), 'SS004', NULL, 'nothing of the claim is left');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT is(:'got'::text, '2a 3a 4a', 'they come without it');
SELECT is(sqlstreams.ack('s', 'g', :c, '{3}'), 1::bigint, 'the second acked first');
SELECT is(sqlstreams.nack('s', 'g', :c, '{2}'), 0::bigint, 'then the first fails');
SELECT is(pg_temp.state('s'), '1 ready, 2 ready, 4 deferred', 'what was acked by an earlier call stays so');
SELECT is((SELECT got FROM pg_temp.take('s', 10, 3)), '4a', 'the third comes');

-- also those that the same call names as acked
CALL pg_temp.begin('s', '{a,b,a,b,a,b}');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT is(sqlstreams.resolve('s', 'g', :c, '{5,3,1,2,4}', '{ack,nack,ack,ack,ack}'), 5::bigint, 'resolve: the second of three fails, the others are acked');
SELECT is(pg_temp.state('s'), '3 ready, 5 deferred behind 3', 'the third waits, the first and the other key are acked');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'one is left in the claim');
CALL pg_temp.begin('s', '{a,b,a,b,a,b}');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT ok(sqlstreams.resolve('s', 'g', :c, '{1}', '{delay}', NULL, '{1 hour}', 'ack') > 0, 'the first is delayed, all others acked');
SELECT is(pg_temp.state('s'), '1 ready, 3 deferred behind 1, 5 deferred behind 1', 'those of its key wait');
SELECT is_empty($$ SELECT * FROM sqlstreams.leases WHERE stream = 's' $$, 'nothing is left of the claim');
CALL pg_temp.begin('s', '{a,b,a,b,a,b}');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT ok(sqlstreams.resolve('s', 'g', :c, '{3,1}', '{nack,ack}', others => 'release') > 0, 'the second fails, all others are handed back');
SELECT matches(pg_temp.state('s'), '3 ready, .*5 deferred behind 3', 'the third waits behind it');
SELECT is(pg_temp.drain('s'), '2 4 6', 'the other key comes again');
-- reject is no failure that is tried again: what is behind it goes on
CALL pg_temp.begin('s', '{a,a,a}');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT is(sqlstreams.reject('s', 'g', :c, '{1}'), 1::bigint, 'the first is rejected');
SELECT is(pg_temp.state('s'), '1 dead', 'the others stay in the claim');
SELECT is(sqlstreams.ack('s', 'g', :c), 2::bigint, 'and are acked');
-- delay
CALL pg_temp.begin('s', '{a,a,a}');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT is(sqlstreams.delay('s', 'g', :c, '{2}', '1 hour'), 0::bigint, 'the second is delayed before the first is done');
SELECT is(pg_temp.state('s'), '2 ready, 3 deferred behind 1', 'the third waits behind the first');
SELECT is((SELECT got FROM pg_temp.take('s', 10, 3)), '', 'the key is busy');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'the first is acked');
SELECT is(pg_temp.state('s'), '2 ready, 3 deferred behind 2', 'then it waits behind the second');
SELECT is((SELECT got FROM pg_temp.take('s', 10, 3)), '', 'which has the key');
CALL pg_temp.make_due('s');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '2a', 'due, it comes');
-- the whole claim fails
CALL pg_temp.begin('s', '{a,b,a,b,a}');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT is(sqlstreams.nack('s', 'g', :c), 0::bigint, 'all fail');
SELECT is(pg_temp.state('s'), '1 ready, 2 ready, 3 deferred behind 1, 4 deferred behind 2, 5 deferred behind 1', 'the first of each key has failed, the others wait');
SELECT is((SELECT string_agg(message_id || ' ' || attempts, ', ' ORDER BY message_id) FROM sqlstreams.exceptions('s')), '1 1, 2 1, 3 0, 4 0, 5 0', 'and are charged nothing');
CALL pg_temp.make_due('s');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT matches(:'got'::text, '^1a failed( 3a 5a)? 2b failed( 4b)?$', 'those that failed come again, before those behind them');
SELECT is(sqlstreams.nack('s', 'g', :c, '{1}'), 1::bigint, 'one dies');
SELECT is(sqlstreams.reject('s', 'g', :c, '{2}'), 1::bigint, 'one is rejected');
SELECT is(sqlstreams.release('s', 'g', :c) >= 0, true, 'whatever else the claim has is handed back');
SELECT is((SELECT string_agg(id, ' ' ORDER BY n) FROM string_to_table(pg_temp.drain('s'), ' ') WITH ORDINALITY d (id, n) WHERE id <> '4'), '3 5', 'dead ones hold nothing back');
SELECT is(pg_temp.state('s'), '1 dead, 2 dead', 'all others are acked');

-- handed back, lost
CALL pg_temp.begin('s', '{a,a,a,a}');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT is(sqlstreams.release('s', 'g', :c, '{2}'), 1::bigint, 'one in the middle is handed back');
SELECT is((SELECT got FROM pg_temp.take('s', 10, 3)), '', 'the key is busy with the first');
SELECT is(sqlstreams.ack('s', 'g', :c, '{1}'), 1::bigint, 'which is acked');
SELECT is(sqlstreams.release('s', 'g', :c), 1::bigint, 'the third is handed back');
SELECT is(pg_temp.drain('s'), '2 3 4', 'all come again, in order');
CALL pg_temp.begin('s', '{a,a,a,a}');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT is(sqlstreams.release('s', 'g', :c, '{2}'), 1::bigint, 'one in the middle is handed back');
SELECT is(sqlstreams.release('s', 'g', :c), 2::bigint, 'then the others');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '1a', 'the first comes first');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'acked');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '2a', 'then the second');
CALL pg_temp.begin('s', '{a,b,a,b,a}');
SELECT is((SELECT got FROM pg_temp.take('s', 10, 2, '1 millisecond')), '1a 3a 2b 4b', 'two of each');
SELECT lives_ok($$ SELECT wait_for_expiry('s', 'g') $$, 'the lease ends');
SELECT claim AS c, got FROM pg_temp.take('s', 1) \gset
SELECT is(:'got'::text, '1a lost', 'a claim of one takes over the first');
SELECT claim AS d, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '2b lost', 'the next claim the first of the other key');
SELECT is(sqlstreams.ack('s', 'g', :c) + sqlstreams.ack('s', 'g', :d), 2::bigint, 'acked');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '3a lost 4b lost', 'then the second ones');
SELECT is(sqlstreams.ack('s', 'g', :c), 2::bigint, 'acked');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '5a', 'and what was behind them');
CALL pg_temp.begin('s', '{a,b,a,b,a}');
SELECT is((SELECT got FROM pg_temp.take('s', 10, 2, '1 millisecond')), '1a 3a 2b 4b', 'two of each');
SELECT lives_ok($$ SELECT wait_for_expiry('s', 'g') $$, 'the lease ends');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT matches(:'got'::text, '^1a lost( 3a lost)? 2b lost( 4b lost)?$', 'a claim of one a key after it');
SELECT ok(sqlstreams.nack('s', 'g', :c, '{1}') = 0, 'the first fails');
SELECT matches(pg_temp.state('s'), '1 ready, .*3 (deferred|ready)( behind 1)?, .*5 deferred behind 1', 'nothing of the key passes it');
SELECT ok((SELECT got FROM pg_temp.take('s', 10, 5)) !~ 'a', 'nor is it to be had');

-- a message that is not exclusive between those that are
CALL pg_temp.begin('s', '{a,a}', 'exclusive');
SELECT is(sqlstreams.produce('s', '1', 'a', concurrency => 'parallel'), 3::bigint, 'a parallel one');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', '{1,2}', '{a,a}', concurrency => 'exclusive')), 2::bigint, 'and two more');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT is(:'got'::text, '1a 2a 3a 4a', 'does not count');
SELECT is(sqlstreams.nack('s', 'g', :c, '{1}'), 0::bigint, 'the first fails');
SELECT is(pg_temp.state('s'), '1 ready, 2 deferred, 4 deferred, 5 deferred', 'the parallel one stays');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'and is acked');

-- pop
CALL pg_temp.begin('s', '{a,a,a}');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.pop('s', 'g', 2)), '1 2', 'pop resolves what it gets, so it may get several of a key');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '3a', 'the rest');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.pop('s', 'g', 2)), NULL, 'not of a key that is busy');

-- a rolled-back failure puts nothing back
CALL pg_temp.begin('s', '{a,a,a}');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
BEGIN;
SELECT is(sqlstreams.nack('s', 'g', :c, '{1}'), 0::bigint, 'the first fails');
SELECT is(pg_temp.state('s'), '1 ready, 2 deferred behind 1, 3 deferred behind 1', 'the others wait');
ROLLBACK;
SELECT is(pg_temp.state('s'), '', 'rolled back');
SELECT is(sqlstreams.ack('s', 'g', :c), 3::bigint, 'all are the claim''s');

-- one that was acked before is lost to a call that names it, also behind one that this call fails
CALL pg_temp.begin('s', '{a,a,a}');
SELECT claim AS c, got FROM pg_temp.take('s', 10, 3) \gset
SELECT is(sqlstreams.ack('s', 'g', :c, '{2}'), 1::bigint, 'the second, acked by itself');
SELECT fails(format($$ SELECT sqlstreams.nack('s', 'g', %s, '{1,2}') $$, :c), 'SS004', NULL, 'and named again beside the first');
SELECT is(pg_temp.state('s'), '', 'nothing has changed');
SELECT is(sqlstreams.nack('s', 'g', :c, '{1}'), 0::bigint, 'the first alone fails');
SELECT is(pg_temp.state('s'), '1 ready, 3 deferred behind 1', 'and puts back what was open');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
