\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Leases that were lost with exceptions in them.
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours', base_delay => '1 hour', max_delay => '1 day') $$, 'a stream and a group');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 12) i))), 12::bigint, 'twelve messages');
-- the clock is moved, not waited for
SELECT format('UPDATE sqlstreams.exception_queue_%s SET due_at = (SELECT clock_timestamp()) WHERE status = ''r''', stream_id) AS make_due,
       format('UPDATE sqlstreams.group_cursor_%1$s SET lease_scan_from = ''-infinity''; UPDATE sqlstreams.claim_lease_%1$s SET expires_at = (SELECT clock_timestamp())', stream_id) AS expire FROM sqlstreams.streams WHERE stream = 's' \gset
-- the exceptions: id, status, attempts, delays, takeovers
CREATE FUNCTION pg_temp.state(a_stream text DEFAULT 's') RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(format('%s %s %s/%s/%s', message_id, status, attempts, delays, takeovers), ', ' ORDER BY message_id), '')
    FROM sqlstreams.exceptions(a_stream, max_messages => 1000)
$$;
-- a claim: what it returns, each with attempts and take-overs
CREATE FUNCTION pg_temp.take(how_many bigint, a_stream text DEFAULT 's', OUT claim bigint, OUT got text) LANGUAGE sql AS $$
  SELECT min(claim_id), coalesce(string_agg(format('%s %s/%s', message_id, attempts, takeovers), ', ' ORDER BY message_id), '') FROM sqlstreams.claim(a_stream, 'g', how_many, '1 hour')
$$;

-- alone in its claim: charged
SELECT is((SELECT sqlstreams.nack('s', 'g', min(claim_id), error => 'first') FROM sqlstreams.claim('s', 'g', 12)), 0::bigint, 'all have failed once');
:make_due AND message_id = 1;
SELECT claim AS c, got FROM pg_temp.take(10) \gset
SELECT is(:'got'::text, '1 1/0', 'one alone in its claim');
:expire WHERE claim_id = :c;
SELECT is((SELECT got FROM pg_temp.take(10)), '', 'its lease is lost: it does not come at once');
SELECT results_eq($$ SELECT status, attempts, delays, takeovers, can_run_after - updated_at, claim_id FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 1 $$, $$ VALUES ('ready', 2, 0, 1, interval '1 hour', NULL::bigint) $$, 'it was charged a failed attempt, and waits as after a nack');
SELECT is((SELECT last_error LIKE '%lease%' FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 1), true, 'its error says that the lease ended');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'its holder has lost it');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'g', :c, '{1}'), 'SS004', NULL, 'and may not nack it as well');
SELECT is((SELECT attempts FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 1), 2, 'charged once');
:make_due AND message_id = 1;
SELECT claim AS c, got FROM pg_temp.take(10) \gset
SELECT is(:'got'::text, '1 2/1', 'due again');
:expire WHERE claim_id = :c;
SELECT is((SELECT got FROM pg_temp.take(10)), '', 'lost again');
SELECT results_eq($$ SELECT attempts, takeovers, can_run_after - updated_at FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 1 $$, $$ VALUES (3, 2, interval '2 hours') $$, 'the backoff grows');
:make_due AND message_id = 1;
SELECT claim AS c FROM pg_temp.take(10) \gset
:expire WHERE claim_id = :c;
BEGIN;
SELECT is((SELECT got FROM pg_temp.take(10)), '', 'lost a third time');
SELECT is((SELECT status || ' ' || attempts || ' ' || takeovers FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 1), 'dead 4 3', 'is its death');
ROLLBACK;
SELECT is((SELECT status || ' ' || attempts || ' ' || takeovers FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 1), 'inflight 3 2', 'the claim rolled back: nothing was charged');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'and the holder of the lease may still ack');

-- together in a claim: charged nothing, due at once, suspect; a suspect comes alone
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', max_retries => 10) $$, 'more retries');
:make_due AND message_id IN (2, 3, 4);
SELECT claim AS c, got FROM pg_temp.take(10) \gset
SELECT is(:'got'::text, '2 1/0, 3 1/0, 4 1/0', 'three together');
:expire WHERE claim_id = :c;
SELECT claim AS d, got FROM pg_temp.take(10) \gset
SELECT is(:'got' IN ('2 1/1', '3 1/1', '4 1/1'), true, 'lost: one of them, alone, charged nothing');
SELECT is((SELECT string_agg(status || ' ' || attempts || ' ' || takeovers, ', ' ORDER BY status) FROM sqlstreams.exceptions('s', 'g') WHERE message_id BETWEEN 2 AND 4), 'inflight 1 1, ready 1 1, ready 1 1', 'the others are due, charged nothing');
SELECT is((SELECT bool_and(can_run_after <= clock_timestamp()) FROM sqlstreams.exceptions('s', 'g', 'ready') WHERE message_id BETWEEN 2 AND 4), true, 'at once');
SELECT is((SELECT string_agg(DISTINCT last_error, ' ') FROM sqlstreams.exceptions('s', 'g') WHERE message_id BETWEEN 2 AND 4), 'first', 'and keep their error');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 's', 'g', :c, '{2}'), 'SS004', NULL, 'the holder has lost all of them');
SELECT is(sqlstreams.release('s', 'g', :c), 0::bigint, 'each');
-- resolved: suspects no more
SELECT is(sqlstreams.nack('s', 'g', :d, error => 'second', retry_in => '0'), 0::bigint, 'a suspect that is nacked');
CREATE TEMP TABLE taken (claim bigint, got text);
INSERT INTO taken SELECT * FROM pg_temp.take(1);
INSERT INTO taken SELECT * FROM pg_temp.take(10);
INSERT INTO taken SELECT * FROM pg_temp.take(10);
SELECT is((SELECT string_agg(got, '; ' ORDER BY got COLLATE "C") FROM taken WHERE got LIKE '% 1/1'), (SELECT string_agg(format('%s 1/1', i), '; ' ORDER BY i) FROM generate_series(2, 4) i WHERE format('%s 1/1', i) <> :'got'), 'the others come alone');
SELECT is((SELECT count(*) FROM taken WHERE got LIKE '%2/1'), 1::bigint, 'it comes as any other');
SELECT is((SELECT sum(CASE WHEN got LIKE '%2/1' THEN sqlstreams.nack('s', 'g', claim, retry_in => '0') ELSE sqlstreams.delay('s', 'g', claim, (SELECT array_agg(message_id) FROM sqlstreams.exceptions('s', 'g', 'inflight') WHERE claim_id = claim), '0') END) FROM taken), 0::numeric,
  'nacked and delayed');
SELECT claim AS c, got FROM pg_temp.take(10) \gset
SELECT is((SELECT string_agg(substring(m FROM '.$'), ' ' ORDER BY m COLLATE "C") FROM regexp_split_to_table(:'got', ', ') m), '1 1 1', 'all three together: none is suspect any more');

-- a suspect whose own lease is lost stays suspect, and is charged
:expire WHERE claim_id = :c;
SELECT claim AS c, got FROM pg_temp.take(10) \gset
SELECT substring(:'got' FROM '^\d+') AS m, substring(:'got' FROM ' (\d)/')::int AS attempts \gset
:expire WHERE claim_id = :c;
SELECT lives_ok($$ SELECT pg_temp.take(10), pg_temp.take(10) $$, 'lost together, then one of them alone');
SELECT is((SELECT attempts FROM sqlstreams.exceptions('s', 'g') WHERE message_id = :m), :attempts + 1, 'that one is charged');
SELECT is(sqlstreams.ack('s', 'g', claim_id), 1::bigint, 'the others are acked alone') FROM sqlstreams.leases;
:make_due AND message_id IN (:m, 5, 6);
INSERT INTO taken SELECT * FROM pg_temp.take(10);
INSERT INTO taken SELECT * FROM pg_temp.take(10);
SELECT is((SELECT count(*) FROM taken WHERE got LIKE :'m' || ' %' AND got NOT LIKE '%,%' AND got LIKE format('%%%s/3', :attempts + 1)), 1::bigint, 'it comes alone again, whatever else is due');
SELECT is((SELECT count(*) FROM taken WHERE got = '5 1/0, 6 1/0'), 1::bigint, 'the others together');
SELECT is((SELECT sum(sqlstreams.ack('s', 'g', claim_id)) FROM sqlstreams.leases), 3::numeric, 'all acked');

-- exceptions and fresh messages in one claim
:make_due AND message_id IN (7, 8);
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', '{13,14}')), 2::bigint, 'two fresh ones');
SELECT claim AS c, got FROM pg_temp.take(4) \gset
SELECT is(:'got'::text, '7 1/0, 8 1/0, 13 0/0, 14 0/0', 'two due, two fresh');
:expire WHERE claim_id = :c;
TRUNCATE taken;
INSERT INTO taken SELECT * FROM pg_temp.take(10);
INSERT INTO taken SELECT * FROM pg_temp.take(10);
INSERT INTO taken SELECT * FROM pg_temp.take(10);
INSERT INTO taken SELECT * FROM pg_temp.take(10);
SELECT is((SELECT string_agg(got, '; ' ORDER BY length(got), got COLLATE "C") FROM taken WHERE got <> ''), '7 1/1; 8 1/1; 13 0/1, 14 0/1', 'lost: the due ones come alone, the fresh ones whole');
SELECT is((SELECT sum(sqlstreams.ack('s', 'g', claim_id)) FROM sqlstreams.leases), 4::numeric, 'all acked');
:make_due AND message_id = 9;
SELECT is(sqlstreams.produce('s', '15'), 15::bigint, 'a fresh one');
SELECT claim AS c, got FROM pg_temp.take(4) \gset
SELECT is(:'got'::text, '9 1/0, 15 0/0', 'one due, one fresh');
:expire WHERE claim_id = :c;
SELECT is((SELECT count(*) FROM (SELECT pg_temp.take(10) UNION ALL SELECT pg_temp.take(10)) t), 2::bigint, 'lost');
SELECT is((SELECT attempts || ' ' || takeovers FROM sqlstreams.exceptions('s', 'g') WHERE message_id = 9), '1 1', 'it was not alone: charged nothing');
SELECT is((SELECT sum(sqlstreams.ack('s', 'g', claim_id)) FROM sqlstreams.leases), 2::numeric, 'both acked');

-- suspects and fresh messages with an endless supply of both
SELECT lives_ok($$ SELECT sqlstreams.create_stream('many'), sqlstreams.create_group('many', 'g', max_reclaims => 0) $$, 'another stream');
SELECT format('UPDATE sqlstreams.group_cursor_%1$s SET lease_scan_from = ''-infinity''; UPDATE sqlstreams.claim_lease_%1$s SET expires_at = (SELECT clock_timestamp())', stream_id) AS expire FROM sqlstreams.streams WHERE stream = 'many' \gset
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('many', array_fill('1'::jsonb, ARRAY[200]))), 200::bigint, 'two hundred messages');
SELECT claim AS c FROM pg_temp.take(100, 'many') \gset
:expire WHERE claim_id = :c;
TRUNCATE taken;
INSERT INTO taken SELECT t.* FROM generate_series(1, 20) i, LATERAL pg_temp.take(5 + i - i, 'many') t;
SELECT is((SELECT string_agg(n || 'x ' || c, ', ' ORDER BY n) FROM (SELECT cardinality(string_to_array(got, ',')) AS n, count(*) AS c FROM taken GROUP BY 1) t), '1x 10, 5x 10', 'every other claim is a suspect alone, the others are fresh ones');
TRUNCATE taken;
INSERT INTO taken SELECT t.* FROM generate_series(1, 20) i, LATERAL pg_temp.take(1 + i - i, 'many') t;
SELECT is((SELECT count(*) FILTER (WHERE got LIKE '%/1') || ' ' || count(*) FILTER (WHERE got LIKE '%/0') FROM taken), '10 10', 'also in claims of one');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
