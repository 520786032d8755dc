\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Keys and what waits for them, when the group moves, changes its version, or messages are dropped.
CREATE FUNCTION pg_temp.take(how_many bigint, OUT claim bigint, OUT got text) LANGUAGE sql AS $$
  SELECT min(claim_id), coalesce(string_agg(concat(message_id, message_key, CASE WHEN attempts > 0 THEN ' failed' END), ' ' ORDER BY message_id), '') FROM sqlstreams.claim('s', 'g', how_many, '1 hour')
$$;
CREATE FUNCTION pg_temp.state() RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(concat(message_id, ' ', status, ' behind ' || blocked_by), ', ' ORDER BY message_id), '') FROM sqlstreams.exceptions('s', 'g')
$$;
CREATE PROCEDURE pg_temp.make_due() LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('UPDATE sqlstreams.exception_queue_%s SET due_at = clock_timestamp() WHERE status = ''r''', (SELECT stream_id FROM sqlstreams.streams WHERE stream = 's'));
END $$;
-- four messages of a key, of which the first is worked on
CREATE PROCEDURE pg_temp.begin(a_concurrency text) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sqlstreams.drop_stream('s', if_exists => true);
  PERFORM sqlstreams.create_stream('s', partition_size => 4), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours');
  PERFORM sqlstreams.produce_batch('s', '{1,2,3,4}', '{a,a,a,a}', concurrency => a_concurrency);
END $$;

-- back: all come again, in order
CALL pg_temp.begin('exclusive');
SELECT claim AS c, got FROM pg_temp.take(10) \gset
SELECT is(pg_temp.state(), '2 deferred behind 1, 3 deferred behind 1, 4 deferred behind 1', 'one is worked on, three wait');
SELECT is((SELECT messages FROM sqlstreams.seek('s', 'g', 'beginning')), 4::bigint, 'back');
SELECT is(pg_temp.state(), '', 'nobody waits');
SELECT fails(format($$ SELECT sqlstreams.ack('s', 'g', %s) $$, :c), 'SS004', NULL, 'the claim is lost');
SELECT claim AS c, got FROM pg_temp.take(10) \gset
SELECT is(:'got'::text, '1a', 'the first again');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'acked');
SELECT is((SELECT got FROM pg_temp.take(10)), '2a', 'the next');
-- back to between them: what is before stays
CALL pg_temp.begin('ordered');
SELECT claim AS c, got FROM pg_temp.take(10) \gset
SELECT is((SELECT messages FROM sqlstreams.seek('s', 'g', start_id => 3)), 2::bigint, 'back to the third');
SELECT is(pg_temp.state(), '2 deferred behind 1', 'the second waits still');
SELECT is((SELECT got FROM pg_temp.take(10)), '', 'the first has the key');
SELECT is(pg_temp.state(), '2 deferred behind 1, 3 deferred behind 1, 4 deferred behind 1', 'the others wait again');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'acked');
SELECT claim AS c, got FROM pg_temp.take(10) \gset
SELECT is(:'got'::text, '2a', 'the second is next');
SELECT is(sqlstreams.nack('s', 'g', :c), 0::bigint, 'it fails');
SELECT is((SELECT messages FROM sqlstreams.seek('s', 'g', start_id => 4)), 1::bigint, 'back to the fourth');
SELECT is((SELECT got FROM pg_temp.take(10)), '', 'the second has the key');
SELECT is((SELECT messages FROM sqlstreams.seek('s', 'g', start_id => 2)), 3::bigint, 'back to the second, which has failed');
SELECT claim AS c, got FROM pg_temp.take(10) \gset
SELECT is(:'got'::text, '2a', 'it comes as a fresh one');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'acked');
SELECT is((SELECT got FROM pg_temp.take(10)), '3a', 'the third');

-- forward over what waits and what has the key
CALL pg_temp.begin('ordered');
SELECT claim AS c, got FROM pg_temp.take(1) \gset
SELECT is(sqlstreams.nack('s', 'g', :c), 0::bigint, 'the first has failed');
SELECT is((SELECT got FROM pg_temp.take(10)), '', 'the others wait');
SELECT is((SELECT claimed_after FROM sqlstreams.seek('s', 'g', 'head')), 4::bigint, 'forward from behind them');
SELECT is(pg_temp.state(), '1 ready, 2 deferred behind 1, 3 deferred behind 1, 4 deferred behind 1', 'changes nothing of them');
SELECT is((SELECT messages FROM sqlstreams.seek('s', 'g', start_id => 2)), 3::bigint, 'back');
SELECT is((SELECT messages FROM sqlstreams.seek('s', 'g', start_id => 4)), -2::bigint, 'forward over two');
SELECT is((SELECT got FROM pg_temp.take(10)), '', 'the fourth waits');
SELECT is(pg_temp.state(), '1 ready, 4 deferred behind 1', 'behind the first');
CALL pg_temp.make_due();
SELECT claim AS c, got FROM pg_temp.take(10) \gset
SELECT is(:'got'::text, '1a failed', 'which is tried again');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'acked');
SELECT is((SELECT got FROM pg_temp.take(10)), '4a', 'and it comes');

-- a version of the group
CALL pg_temp.begin('ordered');
SELECT claim AS c, got FROM pg_temp.take(10) \gset
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', '{5,6}', '{a,b}', concurrency => 'ordered', schema_version => 2)), 2::bigint, 'two of another version');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', schema_version => 2) $$, 'the group changes to it');
SELECT is((SELECT got FROM pg_temp.take(10)), '6b', 'another key');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'acked');
DO $$ BEGIN FOR i IN 1 .. 5 LOOP PERFORM pg_temp.take(10); END LOOP; END $$;
SELECT ok(EXISTS (SELECT FROM sqlstreams.exceptions('s') WHERE message_id BETWEEN 2 AND 4), 'messages of the old version are kept');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', reset => '{schema_version}') $$, 'all versions again');
CREATE TEMP TABLE delivered (n bigint GENERATED ALWAYS AS IDENTITY, message_id bigint);
DO $$
BEGIN
  FOR i IN 1 .. 30 LOOP
    INSERT INTO delivered (message_id) SELECT message_id FROM sqlstreams.claim('s', 'g', 10, '1 hour') ORDER BY message_id;
    PERFORM sqlstreams.ack('s', 'g', claim_id) FROM (SELECT claim_id FROM sqlstreams.leases) l;
  END LOOP;
END $$;
SELECT is((SELECT string_agg(message_id::text, ' ' ORDER BY n) FROM delivered WHERE message_id < 5), '2 3 4', 'they come, in order');
SELECT is(pg_temp.state(), '', 'and none is left');

-- purged
CALL pg_temp.begin('ordered');
SELECT claim AS c, got FROM pg_temp.take(10) \gset
SELECT is(sqlstreams.purge_stream('s'), 4::bigint, 'all is dropped');
SELECT fails(format($$ SELECT sqlstreams.ack('s', 'g', %s) $$, :c), 'SS004', NULL, 'the claim is lost');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', '{5,6}', '{a,a}', concurrency => 'ordered')), 2::bigint, 'more of the key');
SELECT is((SELECT string_agg(got, '') FROM (SELECT got FROM pg_temp.take(10) UNION ALL SELECT got FROM pg_temp.take(10)) t), '5a', 'the key is free');
SELECT matches(pg_temp.state(), '^(5 inflight, )?6 deferred behind 5$', 'and taken again');

-- a group that is dropped and made again knows nothing of keys
SELECT ok(sqlstreams.drop_group('s', 'g'), 'dropped');
SELECT ok(sqlstreams.create_group('s', 'g') > 0, 'made again');
SELECT is((SELECT got FROM pg_temp.take(10)), '5a', 'the first');
SELECT is(pg_temp.state(), '6 deferred behind 5', 'and the second waits');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
