\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- A key for which thousands wait: they come in order, and no other key waits for them.
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', delivery_log => 'off'), sqlstreams.create_group('s', 'x', concurrency => 'exclusive'), sqlstreams.create_group('s', 'o', concurrency => 'ordered') $$, 'a stream with two groups');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', array_fill('1'::jsonb, ARRAY[5001]), array_fill('hot'::text, ARRAY[5001]))), 5001::bigint, 'five thousand and one messages of one key');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', array_fill('1'::jsonb, ARRAY[50]), (SELECT array_agg('cold' || i) FROM generate_series(1, 50) i))), 50::bigint, 'one of each of fifty keys behind them');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', array_fill('1'::jsonb, ARRAY[50]))), 50::bigint, 'fifty without a key');
-- one claim may let all of them wait
SET sqlstreams.max_scan = 1000000;
CREATE TEMP TABLE delivered (n bigint GENERATED ALWAYS AS IDENTITY, a_group text, round int, claim_id bigint, message_id bigint, message_key text);

-- claims whose messages are not resolved: the first of the key, then all the others, in full claims
CREATE FUNCTION pg_temp.claims(a_group text, claims int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. claims LOOP
    INSERT INTO delivered (a_group, round, claim_id, message_id, message_key) SELECT a_group, i, claim_id, message_id, message_key FROM sqlstreams.claim('s', a_group, 10, '1 hour');
  END LOOP;
END $$;
SELECT lives_ok(format('SELECT pg_temp.claims(%L, 11)', g), 'claims of group ' || g) FROM unnest('{x,o}'::text[]) g;
SELECT results_eq($$ SELECT a_group, count(*), count(*) FILTER (WHERE message_key = 'hot'), min(message_id) FILTER (WHERE message_key = 'hot'), max(round) FROM delivered GROUP BY a_group ORDER BY a_group $$,
  $$ VALUES ('o', 101::bigint, 1::bigint, 1::bigint, 11), ('x', 101, 1, 1, 11) $$, 'one of the key and all of the others, in eleven claims');
SELECT results_eq($$ SELECT consumer_group, deferred FROM sqlstreams.consumer_groups ORDER BY 1 $$, $$ VALUES ('o', 5000::bigint), ('x', 5000) $$, 'five thousand wait');
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', g, 10)), 0::bigint, 'nothing else is to be had by ' || g) FROM unnest('{x,o}'::text[]) g;
SELECT results_eq($$ SELECT consumer_group, bool_and(blocked_by = 1), count(*) FROM sqlstreams.exceptions('s', status => 'deferred', max_messages => 2000) GROUP BY 1 ORDER BY 1 $$,
  $$ VALUES ('o', true, 1000::bigint), ('x', true, 1000) $$, 'all behind the first');
RESET sqlstreams.max_scan;
-- with a bound on that, every claim goes on where the one before ended
SELECT is(sqlstreams.create_group('s', 'b', concurrency => 'exclusive') > 0, true, 'another group');
SELECT lives_ok($$ SELECT pg_temp.claims('b', 40) $$, 'claims of it');
SELECT results_eq($$ SELECT count(*), count(*) FILTER (WHERE message_key = 'hot') FROM delivered WHERE a_group = 'b' $$, $$ VALUES (101::bigint, 1::bigint) $$, 'get to all others, too');
SELECT ok(sqlstreams.drop_group('s', 'b'), 'dropped');
DELETE FROM delivered WHERE a_group = 'b';

-- what is produced now is not behind them
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', '{1,1}', '{hot,new}')), 2::bigint, 'one more of the key, one of a new key');
SELECT is((SELECT string_agg(message_key, ' ') FROM sqlstreams.claim('s', g, 1)), 'new', 'the new key comes with the next claim of one, to ' || g) FROM unnest('{x,o}'::text[]) g;

-- drained by claims of ten, of the key one, and later ten
CREATE PROCEDURE pg_temp.drain(a_group text) LANGUAGE plpgsql AS $$
DECLARE
  claim bigint;
BEGIN
  FOR i IN 1 .. 100000 LOOP
    INSERT INTO delivered (a_group, round, claim_id, message_id, message_key)
      SELECT a_group, 1000 + i, c.claim_id, c.message_id, c.message_key
        FROM sqlstreams.claim('s', a_group, 10, '1 hour', max_per_key => CASE WHEN i > 100 THEN 10 ELSE 1 END) c;
    SELECT min(claim_id) INTO claim FROM delivered d WHERE d.a_group = drain.a_group AND d.round = 1000 + i;
    EXIT WHEN claim IS NULL;
    PERFORM sqlstreams.ack('s', a_group, claim);
    IF i % 20 = 0 THEN
      COMMIT;
    END IF;
  END LOOP;
END $$;
SELECT lives_ok(format('SELECT sqlstreams.ack(%L, %L, claim_id) FROM (SELECT claim_id FROM sqlstreams.leases WHERE consumer_group = %2$L) l', 's', g), 'all acked by ' || g) FROM unnest('{x,o}'::text[]) g;
CREATE INDEX ON delivered (a_group, round);
CALL pg_temp.drain('x');
CALL pg_temp.drain('o');
SELECT results_eq($$ SELECT a_group, count(*), count(DISTINCT message_id), max(message_id) FROM delivered WHERE message_key = 'hot' GROUP BY 1 ORDER BY 1 $$,
  $$ VALUES ('o', 5002::bigint, 5002::bigint, 5102::bigint), ('x', 5002, 5002, 5102) $$, 'each came once');
SELECT is_empty($$ SELECT * FROM (SELECT a_group, message_id, lag(message_id) OVER (PARTITION BY a_group ORDER BY n) AS before FROM delivered WHERE message_key = 'hot') d WHERE message_id <= before $$, 'in order');
SELECT results_eq($$ SELECT a_group, count(DISTINCT round) FROM delivered WHERE round > 1000 GROUP BY 1 ORDER BY 1 $$,
  $$ VALUES ('o', 591::bigint), ('x', 591) $$, 'by a hundred claims of one, and as few of ten as may be');
SELECT is((SELECT count(*) FROM sqlstreams.exceptions('s')), 0::bigint, 'none is left');
SELECT results_eq($$ SELECT consumer_group, committed, deferred FROM sqlstreams.consumer_groups ORDER BY 1 $$, $$ VALUES ('o', 5103::bigint, 0::bigint), ('x', 5103, 0) $$, 'all are resolved');

-- many keys that become free at once fill a claim
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', array_fill('1'::jsonb, ARRAY[60]), (SELECT array_agg('k' || i % 20) FROM generate_series(1, 60) i))), 60::bigint, 'three of each of twenty keys');
SELECT min(claim_id) AS c, count(*) FROM sqlstreams.claim('s', 'x', 100) \gset
SELECT is(:count, 20, 'one of each');
SELECT is(sqlstreams.ack('s', 'x', :c), 20::bigint, 'all acked at once');
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'x', 8)), 8::bigint, 'a claim of eight is full');
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'x', 100)), 12::bigint, 'the next gets the rest');
SELECT is((SELECT sum(sqlstreams.ack('s', 'x', claim_id)) FROM (SELECT claim_id FROM sqlstreams.leases WHERE consumer_group = 'x') l), 20::numeric, 'all acked again');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', array_fill('1'::jsonb, ARRAY[100]))), 100::bigint, 'a hundred fresh messages without a key');
SELECT is((SELECT string_agg(n || ' ' || kind, ', ' ORDER BY kind) FROM (SELECT CASE WHEN message_key IS NULL THEN 'fresh' ELSE 'deferred' END AS kind, count(*) AS n FROM sqlstreams.claim('s', 'x', 8) GROUP BY 1) k), '4 deferred, 4 fresh', 'they share a claim as due and fresh messages do');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
