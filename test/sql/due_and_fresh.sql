\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- How due and fresh messages share a claim. Messages up to "due" have failed once and are due; the others are fresh.
CREATE PROCEDURE pg_temp.prepare(a_stream text, due int, fresh int) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sqlstreams.create_stream(a_stream), sqlstreams.create_group(a_stream, 'g', max_retries => 1000000, max_reclaims => 1000);
  PERFORM sqlstreams.produce_batch(a_stream, array_fill('1'::jsonb, ARRAY[due])) WHERE due > 0;
  PERFORM sqlstreams.nack(a_stream, 'g', min(claim_id), retry_in => '0') FROM sqlstreams.claim(a_stream, 'g', due) HAVING due > 0;
  PERFORM sqlstreams.produce_batch(a_stream, array_fill('1'::jsonb, ARRAY[fresh])) WHERE fresh > 0;
END $$;
-- what one claim gets: how many due and how many fresh, and of those that were taken over
CREATE FUNCTION pg_temp.take(a_stream text, how_many bigint, OUT got text) LANGUAGE sql AS $$
  SELECT format('%s due, %s fresh', count(*) FILTER (WHERE attempts > 0), count(*) FILTER (WHERE attempts = 0 AND takeovers = 0))
      || CASE WHEN count(*) FILTER (WHERE attempts = 0 AND takeovers > 0) > 0 THEN format(', %s lost', count(*) FILTER (WHERE attempts = 0 AND takeovers > 0)) ELSE '' END
    FROM sqlstreams.claim(a_stream, 'g', how_many, '1 hour')
$$;

-- many of both: up to half of the claim is due ones
CALL pg_temp.prepare('both', 200, 200);
SELECT is(pg_temp.take('both', n), wanted, 'a claim of ' || n)
  FROM (VALUES (10, '5 due, 5 fresh'), (11, '5 due, 6 fresh'), (2, '1 due, 1 fresh'), (3, '1 due, 2 fresh'), (4, '2 due, 2 fresh'), (5, '2 due, 3 fresh'), (100, '50 due, 50 fresh')) u (n, wanted);
SELECT is((SELECT string_agg(CASE WHEN attempts > 0 THEN 'due' ELSE 'fresh' END, ' ' ORDER BY n) FROM sqlstreams.claim('both', 'g', 6, '1 hour') WITH ORDINALITY c
    (claim_id, message_id, payload, message_key, routing_key, headers, schema_version, compaction_rank, created_at, deliver_at, attempts, delays, takeovers, concurrency, options, lease_expires_at, body, n)),
  'due due due fresh fresh fresh', 'the due ones stand first');

-- few of one kind: the other fills up
CALL pg_temp.prepare('fewdue', 3, 100);
SELECT is(pg_temp.take('fewdue', 10), '3 due, 7 fresh', 'few due ones');
SELECT is(pg_temp.take('fewdue', 10), '0 due, 10 fresh', 'none');
CALL pg_temp.prepare('fewfresh', 100, 2);
SELECT is(pg_temp.take('fewfresh', 10), '8 due, 2 fresh', 'few fresh ones: due ones fill up');
SELECT is(pg_temp.take('fewfresh', 10), '10 due, 0 fresh', 'no fresh ones: all of it is due ones');
SELECT is(pg_temp.take('fewfresh', 100), '82 due, 0 fresh', 'to the last');
SELECT is(pg_temp.take('fewfresh', 100), '0 due, 0 fresh', 'and no more');

-- pop
CALL pg_temp.prepare('pop', 6, 20);
SELECT is((SELECT count(*) FILTER (WHERE attempts > 0) || ' ' || count(*) FILTER (WHERE attempts = 0) FROM sqlstreams.pop('pop', 'g', 8)), '4 4', 'pop shares as claim does');
SELECT is((SELECT count(*) FILTER (WHERE attempts > 0) || ' ' || count(*) FILTER (WHERE attempts = 0) FROM sqlstreams.pop('pop', 'g', 100)), '2 16', 'and gets the rest');

-- claims of one take turns
CALL pg_temp.prepare('one', 100, 100);
SELECT is((SELECT string_agg(left(got, 1), '') FROM generate_series(1, 40) i, LATERAL pg_temp.take('one', 1 + i - i)) IN (repeat('10', 20), repeat('01', 20)), true, 'claims of one: a due one, a fresh one, and so on');
CREATE TEMP TABLE taken (got text);
INSERT INTO taken SELECT pg_temp.take('one', 1);
INSERT INTO taken SELECT pg_temp.take('one', 1);
INSERT INTO taken SELECT pg_temp.take('one', 1);
INSERT INTO taken SELECT pg_temp.take('one', 1);
SELECT is((SELECT string_agg(n::text, ' ') FROM (SELECT count(*) AS n FROM taken GROUP BY got) t), '2 2', 'each in a transaction of its own, too');
-- a claim that was rolled back does not change whose turn it is
SELECT pg_temp.take('one', 1) AS before \gset
BEGIN;
SELECT pg_temp.take('one', 1) AS lost \gset
ROLLBACK;
SELECT isnt(:'lost'::text, :'before', 'the other kind''s turn');
SELECT is(pg_temp.take('one', 1), :'lost'::text, 'a claim that was rolled back did not take it');
-- with none of one kind, all are of the other
CALL pg_temp.prepare('onlydue', 20, 0);
SELECT is((SELECT string_agg(DISTINCT got, ', ') FROM generate_series(1, 20) i, LATERAL pg_temp.take('onlydue', 1 + i - i)), '1 due, 0 fresh', 'only due ones');
CALL pg_temp.prepare('onlyfresh', 0, 20);
SELECT is((SELECT string_agg(DISTINCT got, ', ') FROM generate_series(1, 20) i, LATERAL pg_temp.take('onlyfresh', 1 + i - i)), '0 due, 1 fresh', 'only fresh ones');

-- an endless supply of due ones: each nacked at once, with fresh ones behind it; and the other way round
CALL pg_temp.prepare('endless', 50, 50);
DO $$
BEGIN
  FOR i IN 1 .. 60 LOOP
    INSERT INTO taken SELECT 'endless ' || (attempts > 0) FROM sqlstreams.claim('endless', 'g', 1, '1 hour') c;
    PERFORM sqlstreams.nack('endless', 'g', claim_id, retry_in => '0') FROM sqlstreams.leases WHERE stream = 'endless';
    PERFORM sqlstreams.produce('endless', '1');
  END LOOP;
END $$;
SELECT results_eq($$ SELECT got, count(*) FROM taken WHERE got LIKE 'endless%' GROUP BY got $$, $$ VALUES ('endless false', 30::bigint), ('endless true', 30) $$, 'claims of one: half of them each');
TRUNCATE taken;
DO $$
BEGIN
  FOR i IN 1 .. 20 LOOP
    INSERT INTO taken SELECT (attempts > 0)::text FROM sqlstreams.claim('endless', 'g', 7, '1 hour') c;
    PERFORM sqlstreams.nack('endless', 'g', claim_id, retry_in => '0') FROM sqlstreams.leases WHERE stream = 'endless';
    PERFORM sqlstreams.produce_batch('endless', array_fill('1'::jsonb, ARRAY[7]));
  END LOOP;
END $$;
SELECT results_eq($$ SELECT got, count(*) FROM taken GROUP BY got $$, $$ VALUES ('false', 80::bigint), ('true', 60) $$, 'claims of seven: three due ones, four fresh ones');

-- what was lost comes first
CALL pg_temp.prepare('lost', 20, 20);
SELECT is((SELECT count(*) FROM sqlstreams.claim('lost', 'g', 8, '1 hour') WHERE attempts = 0), 4::bigint, 'a claim of eight');
SELECT is(sqlstreams.ack('lost', 'g', claim_id, (SELECT array_agg(e.message_id) FROM sqlstreams.exceptions('lost', 'g', 'inflight') e)), 4::bigint, 'its due ones acked') FROM sqlstreams.leases WHERE stream = 'lost';
SELECT format('UPDATE sqlstreams.group_cursor_%1$s SET lease_scan_from = ''-infinity''; UPDATE sqlstreams.claim_lease_%1$s SET expires_at = (SELECT clock_timestamp())', stream_id) AS expire FROM sqlstreams.streams WHERE stream = 'lost' \gset
:expire;
SELECT is(pg_temp.take('lost', 10), '5 due, 1 fresh, 4 lost', 'first what was lost, then due ones up to half, then fresh ones');
SELECT is((SELECT sum(sqlstreams.ack('lost', 'g', claim_id)) FROM sqlstreams.leases WHERE stream = 'lost'), 10::numeric, 'all acked');
SELECT is((SELECT count(*) FROM sqlstreams.claim('lost', 'g', 6, '1 hour') WHERE attempts = 0), 3::bigint, 'a claim of six');
SELECT is(sqlstreams.ack('lost', 'g', claim_id, (SELECT array_agg(e.message_id) FROM sqlstreams.exceptions('lost', 'g', 'inflight') e)), 3::bigint, 'its due ones acked') FROM sqlstreams.leases WHERE stream = 'lost';
:expire;
SELECT is(pg_temp.take('lost', 2), '0 due, 0 fresh, 2 lost', 'as much as fits');
SELECT is(pg_temp.take('lost', 2), '1 due, 0 fresh, 1 lost', 'the rest stays expired and comes with the next claim');

-- max_bytes counts both
SELECT lives_ok($$ SELECT sqlstreams.create_stream('bytes'), sqlstreams.create_group('bytes', 'g') $$, 'a stream of large messages');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('bytes', array_fill(to_jsonb(repeat('x', 1000)), ARRAY[20]))), 20::bigint, 'twenty of 1,000 bytes');
SELECT is((SELECT sqlstreams.nack('bytes', 'g', min(claim_id), retry_in => '0') FROM sqlstreams.claim('bytes', 'g', 10)), 0::bigint, 'ten are due');
SELECT is((SELECT count(*) FROM sqlstreams.claim('bytes', 'g', 10, '1 hour', max_bytes => 1)), 1::bigint, 'one message at least');
SELECT is((SELECT count(*) FROM sqlstreams.claim('bytes', 'g', 10, '1 hour', max_bytes => 2500)), 3::bigint, 'up to the message that reaches it');
SELECT is((SELECT count(*) FROM sqlstreams.claim('bytes', 'g', 100, '1 hour')), 16::bigint, 'what did not fit comes later');

-- many due ones that others hold, or that are not due, do not hide one that is
CALL pg_temp.prepare('far', 5000, 0);
SELECT is((SELECT sum(sqlstreams.nack('far', 'g', claim_id, ARRAY[message_id], retry_in => CASE message_id WHEN 4321 THEN interval '0' ELSE '1 day' END)) FROM sqlstreams.claim('far', 'g', 5000)), 0::numeric, 'five thousand not due, one due');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.claim('far', 'g', 10)), '4321', 'is found');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
