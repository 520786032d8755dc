\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

CREATE FUNCTION pg_temp.create_group(a_group text) RETURNS bigint LANGUAGE sql AS $$
  SELECT sqlstreams.create_group('s', a_group, initial_backoff => '2 hours', base_delay => '1 hour', max_delay => '1 day')
$$;
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), pg_temp.create_group('a'), pg_temp.create_group('b') $$, 'a stream and two groups');
-- the clock is moved, not waited for
SELECT format('UPDATE sqlstreams.exception_queue_%s SET due_at = (SELECT clock_timestamp()) WHERE status = ''r''', stream_id) AS make_due FROM sqlstreams.streams WHERE stream = 's' \gset
SELECT is_empty($$ SELECT * FROM sqlstreams.exceptions('s') $$, 'no exceptions');
SELECT is_empty($$ SELECT * FROM sqlstreams.exceptions('s', 'a') $$, 'nor in a group');

-- every column
SELECT is(sqlstreams.produce('s', '{"n": 1}', 'the key', 'the.routing.key', headers => '{"h": 1}'), 1::bigint, 'a message with everything');
SELECT is(sqlstreams.produce_bytes('s', '\x00ff'), 2::bigint, 'one with a body');
SELECT is(sqlstreams.produce('s', '3'), 3::bigint, 'one with nothing');
SELECT is(sqlstreams.produce('s', 'null'), 4::bigint, 'one with a JSON null');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'a', 4, '1 hour') \gset
SELECT is(sqlstreams.resolve('s', 'a', :c, '{1,2,3,4}', '{nack,reject,delay,nack}', '{broken,never,later,NULL}', ARRAY[NULL, NULL, '10 minutes', NULL]::interval[]), 4::bigint, 'all of them failed');
SELECT results_eq($$ SELECT consumer_group, message_id, status, message_key, concurrency, attempts, delays, takeovers, last_error, blocked_by, claim_id, payload, body, routing_key, headers
    FROM sqlstreams.exceptions('s') WHERE message_id <> 3 $$,
  $$ VALUES ('a', 1::bigint, 'ready', 'the key', 'parallel', 1, 0, 0, 'broken', NULL::bigint, NULL::bigint, '{"n": 1}'::jsonb, NULL::bytea, 'the.routing.key', '{"h": 1}'::jsonb),
            ('a', 2, 'dead', NULL, 'parallel', 1, 0, 0, 'never', NULL, NULL, NULL, '\x00ff', NULL, NULL),
            ('a', 4, 'ready', NULL, 'parallel', 1, 0, 0, NULL, NULL, NULL, 'null', NULL, NULL, NULL) $$, 'every column of them');
SELECT results_eq($$ SELECT message_id, status, attempts, delays, can_run_after - updated_at FROM sqlstreams.exceptions('s', 'a', 'ready') $$,
  $$ VALUES (1::bigint, 'ready', 1, 0, interval '2 hours'), (3, 'ready', 0, 1, '10 minutes'), (4, 'ready', 1, 0, '2 hours') $$, 'and when they can run');
SELECT results_eq($$ SELECT e.message_id, e.created_at FROM sqlstreams.exceptions('s', 'a') e $$, $$ SELECT p.message_id, p.created_at FROM sqlstreams.peek('s') p $$, 'created_at is the message''s');
SELECT is((SELECT bool_and(updated_at BETWEEN created_at AND clock_timestamp()) FROM sqlstreams.exceptions('s')), true, 'updated_at is when it failed');
SELECT updated_at AS before FROM sqlstreams.exceptions('s', 'a') WHERE message_id = 1 \gset
:make_due AND message_id = 1;
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'a', 1, '1 hour') \gset
SELECT results_eq($$ SELECT message_id, status, claim_id, attempts, last_error FROM sqlstreams.exceptions('s', 'a', 'inflight') $$, format('VALUES (1::bigint, %L, %s::bigint, 1, %L)', 'inflight', :c, 'broken'), 'in flight, with its claim and its last error');
SELECT is((SELECT updated_at > :'before' FROM sqlstreams.exceptions('s', 'a') WHERE message_id = 1), true, 'a claim is a change');
SELECT is(sqlstreams.nack('s', 'a', :c), 0::bigint, 'a failure without an error');
SELECT is((SELECT last_error FROM sqlstreams.exceptions('s', 'a') WHERE message_id = 1), 'broken', 'keeps the last one');

-- filters
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(5, 30) i))), 26::bigint, 'more messages');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'a', 26, '1 hour') \gset
SELECT is(sqlstreams.nack('s', 'a', :c, (SELECT array_agg(i) FROM generate_series(5, 30) i WHERE i % 3 = 0)), 0::bigint, 'some nacked');
SELECT is(sqlstreams.reject('s', 'a', :c, (SELECT array_agg(i) FROM generate_series(5, 30) i WHERE i % 3 = 1)), 8::bigint, 'some rejected');
SELECT is(sqlstreams.ack('s', 'a', :c), 9::bigint, 'the others acked');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'b', 30, '1 hour') \gset
SELECT is(sqlstreams.nack('s', 'b', :c, (SELECT array_agg(i) FROM generate_series(1, 30) i WHERE i % 4 = 0)), 0::bigint, 'the other group has others');
SELECT is(sqlstreams.reject('s', 'b', :c, '{9}'), 1::bigint, 'and a dead one');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'a')), '1 2 3 4 6 7 9 10 12 13 15 16 18 19 21 22 24 25 27 28 30', 'one group''s, by id');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'b')), '4 8 9 12 16 20 24 28', 'the other''s');
SELECT is((SELECT string_agg(message_id || consumer_group, ' ') FROM sqlstreams.exceptions('s') WHERE message_id < 13), '1a 2a 3a 4a 4b 6a 7a 8b 9a 9b 10a 12a 12b', 'of both by id, then by group');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'a', 'dead')), '2 7 10 13 16 19 22 25 28', 'the dead ones');
SELECT is((SELECT string_agg(message_id || consumer_group, ' ') FROM sqlstreams.exceptions('s', status => 'dead') WHERE message_id < 13), '2a 7a 9b 10a', 'of both groups');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'b', 'ready')), '4 8 12 16 20 24 28', 'the ready ones');
SELECT is_empty($$ SELECT FROM sqlstreams.exceptions('s', 'b', 'inflight') $$, 'none in flight: what was never an exception is none');
SELECT is_empty($$ SELECT FROM sqlstreams.exceptions('s', NULL, 'deferred') $$, 'none deferred');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'a', 'dead', 16, 3)), '19 22 25', 'behind an id, so many');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'a', after_id => 27)), '28 30', 'to the end');
SELECT is_empty($$ SELECT FROM sqlstreams.exceptions('s', 'a', after_id => 30) $$, 'behind the last');
SELECT is((SELECT count(*) FROM sqlstreams.exceptions('s', 'a', after_id => 0)), 21::bigint, 'from 0 on');
SELECT is((SELECT count(*) FROM sqlstreams.exceptions('s', 'a', after_id => -1)), 21::bigint, 'or from before it');
SELECT is((SELECT payload FROM sqlstreams.exceptions('s', 'a', after_id => 27, max_messages => 1)), '28'::jsonb, 'with its payload');

-- page by page, each row once; the rows of one message are never torn apart
CREATE FUNCTION pg_temp.pages(a_size bigint, a_group text DEFAULT NULL, a_status text DEFAULT NULL, OUT pages text) LANGUAGE plpgsql AS $$
DECLARE
  page text;
  last bigint := NULL;
  next bigint;
BEGIN
  pages := '';
  LOOP
    SELECT string_agg(message_id || consumer_group, ' '), max(message_id) INTO page, next FROM sqlstreams.exceptions('s', a_group, a_status, last, a_size);
    EXIT WHEN next IS NULL;
    pages := concat_ws(' ', nullif(pages, ''), page);
    last := next;
  END LOOP;
END $$;
SELECT is(pages, (SELECT string_agg(message_id || consumer_group, ' ') FROM sqlstreams.exceptions('s', max_messages => 1000)), format('pages of %s are the whole', n))
  FROM generate_series(1, 6) n, LATERAL pg_temp.pages(n) ORDER BY n;
SELECT is(pages, '2a 7a 9b 10a 13a 16a 19a 22a 25a 28a', 'pages of one status') FROM pg_temp.pages(2, NULL, 'dead');
SELECT is(pages, '4b 8b 9b 12b 16b 20b 24b 28b', 'pages of one group') FROM pg_temp.pages(3, 'b');

-- more than the default page
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(31, 180) i))), 150::bigint, 'many messages');
SELECT is((SELECT sqlstreams.reject('s', 'b', min(claim_id)) FROM sqlstreams.claim('s', 'b', 150) WHERE message_id > 30), 150::bigint, 'all dead');
SELECT is((SELECT count(*) FROM sqlstreams.exceptions('s', 'b')), 100::bigint, 'a page is 100 messages');
SELECT is((SELECT count(*) FROM sqlstreams.exceptions('s', 'b', after_id => 122)), 58::bigint, 'the rest');
SELECT is((SELECT count(*) FROM sqlstreams.exceptions('s', 'b', max_messages => 1000)), 158::bigint, 'all of them');
SELECT is((SELECT dead FROM sqlstreams.consumer_groups WHERE consumer_group = 'b'), 151::bigint, 'the view counts the dead');

-- what is refused
SELECT fails($$ SELECT * FROM sqlstreams.exceptions('s', 'a', max_messages => NULL) $$, '22004', 'max_messages', 'max_messages NULL never means all');
SELECT fails(format('SELECT * FROM sqlstreams.exceptions(%L, max_messages => %s)', 's', v), '22023', 'max_messages', 'max_messages ' || v) FROM unnest(ARRAY[0, -1]) WITH ORDINALITY u (v, n) ORDER BY n;
SELECT fails(format('SELECT * FROM sqlstreams.exceptions(%L, status => %L)', 's', v), '22023', 'status', format('status "%s"', v)) FROM unnest(ARRAY['', 'DEAD', 'r', 'acked']) WITH ORDINALITY u (v, n) ORDER BY n;
SELECT fails($$ SELECT * FROM sqlstreams.exceptions('nope') $$, 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails($$ SELECT * FROM sqlstreams.exceptions('s', 'nope') $$, 'SS002', 'consumer group "nope"', 'an unknown group');
SELECT fails($$ SELECT * FROM sqlstreams.exceptions(NULL) $$, '22004', 'stream', 'a NULL stream');
SELECT lives_ok($$ SELECT sqlstreams.create_stream('empty') $$, 'a stream without groups');
SELECT is_empty($$ SELECT * FROM sqlstreams.exceptions('empty') $$, 'has no exceptions');
BEGIN READ ONLY;
SELECT is((SELECT count(*) FROM sqlstreams.exceptions('s', 'a', 'dead')), 9::bigint, 'in a read-only transaction');
COMMIT;
BEGIN;
CREATE ROLE regress_sqlstreams_exceptions;
SELECT fails($$ SET LOCAL ROLE regress_sqlstreams_exceptions; SELECT * FROM sqlstreams.exceptions('s') $$, '42501', 'stream "s"', 'who has no rights on the stream sees none');
ROLLBACK;

-- what open transactions did
BEGIN;
SELECT is((SELECT sum(sqlstreams.nack('s', 'a', claim_id, ARRAY[message_id], 'own')) FROM sqlstreams.claim('s', 'a', 1)), 0::numeric, 'a failure');
SELECT is((SELECT string_agg(message_id || ' ' || last_error, ' ') FROM sqlstreams.exceptions('s', 'a', after_id => 30)), '31 own', 'the own transaction sees it');
ROLLBACK;
SELECT is_empty($$ SELECT FROM sqlstreams.exceptions('s', 'a', after_id => 30) $$, 'rolled back');

-- without their messages, and without their group
SELECT is(sqlstreams.drop_group('s', 'b'), true, 'a group dropped');
SELECT fails($$ SELECT * FROM sqlstreams.exceptions('s', 'b') $$, 'SS002', 'consumer group "b"', 'has no exceptions any more');
SELECT is((SELECT string_agg(DISTINCT consumer_group, ' ') FROM sqlstreams.exceptions('s')), 'a', 'nor are they among the stream''s');
SELECT lives_ok($$ SELECT pg_temp.create_group('b') $$, 'made again');
SELECT is_empty($$ SELECT FROM sqlstreams.exceptions('s', 'b') $$, 'it begins without');
SELECT is(sqlstreams.purge_stream('s'), 180::bigint, 'the stream purged');
SELECT is_empty($$ SELECT FROM sqlstreams.exceptions('s') $$, 'no exceptions are left');
SELECT results_eq($$ SELECT ready, inflight, dead FROM sqlstreams.consumer_groups WHERE consumer_group = 'a' $$, $$ VALUES (0::bigint, 0::bigint, 0::bigint) $$, 'nor counted');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
