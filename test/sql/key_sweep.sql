\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Exclusive and ordered keys that nobody uses are forgotten, those that say anything are not.
CREATE FUNCTION pg_temp.id() RETURNS bigint LANGUAGE sql AS $$ SELECT stream_id FROM sqlstreams.streams WHERE stream = 's' $$;
CREATE FUNCTION pg_temp.keys() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  EXECUTE format('SELECT coalesce(string_agg(concat(message_key, holders, CASE WHEN deferred THEN '' awaited'' END), '' '' ORDER BY message_key), '''') FROM sqlstreams.message_key_lease_%s', pg_temp.id()) INTO result;
  RETURN result;
END $$;
CREATE FUNCTION pg_temp.take(how_many bigint DEFAULT 10, a_group text DEFAULT 'g', OUT claim bigint, OUT got text) LANGUAGE sql AS $$
  SELECT min(claim_id), coalesce(string_agg(concat(message_id, message_key), ' ' ORDER BY message_id), '') FROM sqlstreams.claim('s', a_group, how_many, '1 hour', max_per_key => 2)
$$;
CREATE FUNCTION pg_temp.make_due() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('UPDATE sqlstreams.exception_queue_%s SET due_at = clock_timestamp() WHERE status = ''r''', pg_temp.id());
  EXECUTE format('UPDATE sqlstreams.group_cursor_%s SET due_from = ''-infinity''', pg_temp.id());
END $$;
CREATE PROCEDURE pg_temp.begin(a_concurrency text) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sqlstreams.drop_stream('s', if_exists => true);
  PERFORM sqlstreams.create_stream('s'), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours');
  PERFORM sqlstreams.produce_batch('s', '{1,2,3,4,5,6}', '{a,b,a,a,c,d}', concurrency => a_concurrency);
END $$;

-- nothing but open keys
CALL pg_temp.begin('exclusive');
CALL sqlstreams.maintain();
SELECT claim AS c, got FROM pg_temp.take() \gset
SELECT is(:'got'::text, '1a 2b 3a 5c 6d', 'five messages of four keys');
SELECT is(pg_temp.keys(), 'a{1,3} awaited b{2} c{5} d{6}', 'the keys');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'a{1,3} awaited b{2} c{5} d{6}', 'are kept while their messages are open');
SELECT is(sqlstreams.ack('s', 'g', :c, '{1,2}'), 2::bigint, 'two are done');
SELECT is(sqlstreams.nack('s', 'g', :c, '{5}'), 0::bigint, 'one fails');
SELECT is(sqlstreams.reject('s', 'g', :c, '{6}'), 1::bigint, 'one is given up');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'a{1,3} awaited c{5} d{6}', 'only what is done is forgotten');
SELECT claim AS c2, got FROM pg_temp.take() \gset
SELECT is(:'got'::text, '', 'another message of the first key is still open');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'it is done, too');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'a{1,3} awaited c{5} d{6}', 'a message waits for the key');
SELECT claim AS c2, got FROM pg_temp.take() \gset
SELECT is(:'got'::text, '4a', 'and gets it');
CALL sqlstreams.maintain();
SELECT is(sqlstreams.ack('s', 'g', :c2), 1::bigint, 'done');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'c{5} d{6}', 'nobody waits any more, whatever the row says');
SELECT is((SELECT got FROM pg_temp.take()), '', 'no message is left');
SELECT is(sqlstreams.discard('s', 'g', '{6}'), 1::bigint, 'the dead one is discarded');
SELECT pg_temp.make_due() \g /dev/null
SELECT claim AS c, got FROM pg_temp.take() \gset
SELECT is(:'got'::text, '5c', 'the failed one is tried again');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'and done');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), '', 'not a key is left');
SELECT is(sqlstreams.produce('s', '7', 'a', concurrency => 'exclusive'), 7::bigint, 'a new message');
SELECT is((SELECT got FROM pg_temp.take()), '7a', 'comes');
SELECT is(pg_temp.keys(), 'a{7}', 'its key is known again');

-- a row that says that a message waits, which was purged
SELECT sqlstreams.produce('s', '8', 'a', concurrency => 'exclusive') \g /dev/null
SELECT is((SELECT got FROM pg_temp.take()), '', 'one more of the key');
SELECT is(pg_temp.keys(), 'a{7} awaited', 'waits for it');
SELECT is(sqlstreams.purge_stream('s'), 8::bigint, 'both are purged');
SELECT is(pg_temp.keys(), 'a{7} awaited', 'the row stays as it is');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), '', 'nobody uses the key');

-- ordered: what is to be tried again keeps its key, what is dead its place
CALL pg_temp.begin('ordered');
SELECT claim AS c, got FROM pg_temp.take() \gset
SELECT is(sqlstreams.nack('s', 'g', :c, '{2}'), 0::bigint, 'one fails');
SELECT is(sqlstreams.reject('s', 'g', :c, '{6}'), 1::bigint, 'one is given up');
SELECT is(sqlstreams.ack('s', 'g', :c), 3::bigint, 'the others are done');
SELECT is(sqlstreams.produce('s', '7', 'b', concurrency => 'ordered'), 7::bigint, 'one more of the failed one''s key');
SELECT is(sqlstreams.produce('s', '8', 'd', concurrency => 'ordered'), 8::bigint, 'and of the dead one''s');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'a{1,3} awaited b{2} d{6}', 'the keys');
SELECT is(sqlstreams.redrive('s', 'g', '{6}'), 1::bigint, 'the dead one is brought back');
SELECT is((SELECT got FROM pg_temp.take(2)), '4a 6d', 'and comes before what is behind it');

-- two groups; the first claim after a walk over nothing
CALL pg_temp.begin('ordered');
SELECT sqlstreams.create_group('s', 'h') \g /dev/null
SELECT claim AS c FROM pg_temp.take(10, 'g') \gset
SELECT claim AS c2 FROM pg_temp.take(10, 'h') \gset
SELECT is(sqlstreams.ack('s', 'g', :c), 5::bigint, 'one group is done');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'a{1,3} awaited a{1,3} awaited b{2} c{5} d{6}', 'the other keeps its keys');
SELECT is((SELECT got FROM pg_temp.take(10, 'g')), '4a', 'where a message waits it comes');
SELECT is((SELECT got FROM pg_temp.take(10, 'h')), '', 'or waits on');
SELECT sqlstreams.drop_group('s', 'h') \g /dev/null
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'a{4}', 'a dropped group has none');

-- many keys take many steps
CALL pg_temp.begin('exclusive');
SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 15000) i), (SELECT array_agg('k' || i) FROM generate_series(1, 15000) i), concurrency => 'exclusive') \g /dev/null
SELECT claim AS c FROM pg_temp.take(15006) \gset
SELECT is(sqlstreams.ack('s', 'g', :c, (SELECT array_agg(i) FROM generate_series(1000, 15005) i)), 14006::bigint, 'most are done');
CALL sqlstreams.maintain();
SELECT is((SELECT count(*) FROM regexp_split_to_table(pg_temp.keys(), ' ') k WHERE k <> 'awaited'), 998::bigint, 'they are forgotten');

-- dead entries of forgotten keys do not hold a walk up for ever
SELECT is(sqlstreams.ack('s', 'g', :c), 999::bigint, 'all are done');
CALL sqlstreams.maintain();
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'a{1,3} awaited', 'but for one, for which a message waits');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
