\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Compaction heads whose messages are gone: they go after a while, with their keys, unless another message of the key is in their way.
CREATE FUNCTION pg_temp.id(a_stream text DEFAULT 's') RETURNS bigint LANGUAGE sql AS $$ SELECT stream_id FROM sqlstreams.streams WHERE stream = a_stream $$;
CREATE FUNCTION pg_temp.keys(a_stream text DEFAULT 's') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  EXECUTE format('SELECT coalesce(string_agg(k.message_key || coalesce(h.message_id::text, ''?''), '' '' ORDER BY k.message_key), '''') FROM sqlstreams.compaction_key_%1$s k FULL JOIN sqlstreams.compaction_head_%1$s h USING (message_key)', pg_temp.id(a_stream)) INTO result;
  RETURN result;
END $$;
CREATE FUNCTION pg_temp.dropped(a_stream text DEFAULT 's') RETURNS bigint[] LANGUAGE sql AS $$
  SELECT coalesce(array_agg(number ORDER BY number), '{}') FROM sqlstreams.log_partition WHERE stream_id = pg_temp.id(a_stream) AND dropped_at IS NOT NULL
$$;
CREATE PROCEDURE pg_temp.later(a_interval interval) LANGUAGE sql AS $$
  UPDATE sqlstreams.log_partition SET dropped_at = dropped_at - a_interval
$$;

-- two messages in a partition
SELECT sqlstreams.create_stream('s', partition_size => 2, empty_compaction_head_ttl => '10 minutes') \g /dev/null
SELECT sqlstreams.produce('s', to_jsonb(i), k, compaction => true) FROM unnest(ARRAY['a', 'b', 'c', 'd']) WITH ORDINALITY k (k, i) \g /dev/null
SELECT * FROM sqlstreams.lock_compaction_head('s', 'locked') \g /dev/null
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'a1 b2 c3 d4 locked?', 'heads');
SELECT is(sqlstreams.purge_stream('s'), 4::bigint, 'all messages are dropped');
CALL sqlstreams.maintain();
SELECT is(pg_temp.dropped(), '{0,1}', 'it is known when');
SELECT is(pg_temp.keys(), 'a1 b2 c3 d4 locked?', 'their heads stay');
SELECT is((SELECT count(*) FROM sqlstreams.compaction_heads('s')), 0::bigint, 'and are shown to nobody');
SELECT is(sqlstreams.produce('s', '5', 'a', compaction => true, compaction_rank => -1), 5::bigint, 'an older version comes too late');
SELECT is((SELECT count(*) FROM sqlstreams.compaction_head('s', 'a')), 0::bigint, 'to be the head');
SELECT is(sqlstreams.produce('s', '6', 'b', compaction => true), 6::bigint, 'a newer one');
SELECT is((SELECT message_id FROM sqlstreams.compaction_head('s', 'b')), 6::bigint, 'does not');
SELECT is(sqlstreams.produce('s', '7', 'c'), 7::bigint, 'what is not compacted does not count');
CALL pg_temp.later('9 minutes');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'a1 b6 c3 d4 locked?', 'after a while all is as it was');
SELECT is(pg_temp.dropped(), '{0,1}', 'and known');
CALL pg_temp.later('2 minutes');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'a1 b6', 'then what is empty goes, with its keys, but for that which keeps an older version from being the head');
SELECT is(pg_temp.dropped(), '{}', 'the partitions are forgotten');
SELECT is(sqlstreams.produce('s', '8', 'c', compaction => true, compaction_rank => -1), 8::bigint, 'an older version is in time now');
SELECT is((SELECT message_id FROM sqlstreams.compaction_head('s', 'c')), 8::bigint, 'to be the head');
SELECT sqlstreams.create_group('s', 'g') \g /dev/null
SELECT is(claimed('s', 'g'), '6 7 8', 'a group gets heads, and what is not compacted');

-- the message that was in the way goes, too
SELECT is(sqlstreams.purge_stream('s'), 4::bigint, 'dropped again');
CALL sqlstreams.maintain();
CALL pg_temp.later('11 minutes');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), '', 'not a key is left');
SELECT is(pg_temp.dropped(), '{}', 'nor a dropped partition');

-- partitions that were dropped at different times: each head has its time
SELECT sqlstreams.create_stream('t', partition_size => 2, empty_compaction_head_ttl => '10 minutes') \g /dev/null
SELECT sqlstreams.produce('t', '1', 'k' || i, compaction => true) FROM generate_series(1, 2) i \g /dev/null
SELECT is(sqlstreams.purge_stream('t'), 2::bigint, 'some are dropped');
CALL sqlstreams.maintain();
CALL pg_temp.later('11 minutes');
SELECT sqlstreams.produce('t', '1', 'k' || i, compaction => true) FROM generate_series(3, 4) i \g /dev/null
SELECT is(sqlstreams.purge_stream('t'), 2::bigint, 'more later');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys('t'), 'k33 k44', 'the heads of the first are gone');
SELECT is(pg_temp.dropped('t'), '{1}', 'the partition of the others is known');

-- a message that was purged with a part of its partition is in nobody's way
SELECT sqlstreams.create_stream('u', partition_size => 2, empty_compaction_head_ttl => '10 minutes') \g /dev/null
SELECT sqlstreams.produce('u', '1', k, compaction => true, compaction_rank => r) FROM (VALUES ('a', 5), ('b', 0), ('a', 0)) v (k, r) \g /dev/null
SELECT is(sqlstreams.purge_stream('u'), 3::bigint, 'purged');
SELECT is(sqlstreams.produce('u', '1', 'c', compaction => true), 4::bigint, 'not all of the partition');
CALL sqlstreams.maintain();
CALL pg_temp.later('11 minutes');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys('u'), 'c4', 'two heads are gone');

-- a partition that still has a message is not dropped, nor are its heads
SELECT is(sqlstreams.produce('s', '9', 'e', compaction => true), 9::bigint, 'one message in a partition');
SELECT is(sqlstreams.purge_stream('s'), 1::bigint, 'gone');
SELECT is(sqlstreams.produce('s', '10', 'f', compaction => true), 10::bigint, 'but not another');
CALL sqlstreams.maintain();
CALL pg_temp.later('11 minutes');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'e9 f10', 'both heads are there');

-- a partition dropped by hand goes with those that are dropped after it
SELECT sqlstreams.produce('s', to_jsonb(i), 'h' || i, compaction => true) FROM generate_series(11, 14) i \g /dev/null
CALL sqlstreams.maintain();
SELECT format('DROP TABLE sqlstreams.message_log_%s_5', pg_temp.id()) \gexec
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'e9 f10 h1111 h1212 h1313 h1414', 'heads of messages that were dropped by hand are kept');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.compaction_heads('s')), '{10,13,14}', 'and shown to nobody');
SELECT is(sqlstreams.purge_stream('s'), 5::bigint, 'all is dropped');
CALL sqlstreams.maintain();
CALL pg_temp.later('11 minutes');
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), '', 'all heads are gone');
SELECT is(pg_temp.dropped(), '{}', 'and partitions');

-- the index by which messages of a key are found is missing: then nothing is removed
SELECT sqlstreams.produce('s', to_jsonb(i), 'i' || i, compaction => true) FROM generate_series(15, 16) i \g /dev/null
SELECT sqlstreams.purge_stream('s') \g /dev/null
SELECT is(sqlstreams.produce('s', '17', 'j', compaction => true), 17::bigint, 'a message');
CALL sqlstreams.maintain();
CALL pg_temp.later('11 minutes');
BEGIN;
SELECT format('UPDATE pg_index SET indisvalid = false WHERE indexrelid = (SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = %L::regclass AND NOT i.indisprimary)', 'sqlstreams.message_log_' || pg_temp.id() || '_8') \gexec
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'i1515 i1616 j17', 'it cannot be told that they have no other message');
ROLLBACK;
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys(), 'j17', 'now it can');

-- many keys take many steps; of one key it cannot soon be told that no message is compacted
SELECT sqlstreams.drop_stream('s'), sqlstreams.create_stream('s', partition_size => 10000, empty_compaction_head_ttl => '10 minutes') \g /dev/null
SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 10000) i), (SELECT array_agg('k' || i) FROM generate_series(1, 10000) i), compaction => true) \g /dev/null
SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 20000) i), array_fill('k6'::text, ARRAY[20000])) \g /dev/null
SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 2000) i), (SELECT array_agg('k' || i) FROM generate_series(1, 4000, 2) i), compaction => true) \g /dev/null
CALL sqlstreams.maintain();
UPDATE sqlstreams.log_partition SET sealed_at = sealed_at - interval '2 hours' WHERE stream_id = pg_temp.id() AND number = 0;
SELECT sqlstreams.alter_stream('s', retention => '1 hour') \g /dev/null
CALL sqlstreams.maintain();
SELECT is(pg_temp.dropped(), '{0}', 'one partition is dropped');
CALL pg_temp.later('11 minutes');
CALL sqlstreams.maintain();
SELECT is((SELECT count(*) FROM regexp_split_to_table(pg_temp.keys(), ' ')), 2001::bigint, 'those that have a newer version stay');
SELECT is((SELECT count(*) FROM sqlstreams.compaction_heads('s', max_keys => 100000)), 2000::bigint, 'and are read');
SELECT is(pg_temp.dropped(), '{}', 'it is forgotten');

-- without compaction dropped partitions are forgotten at once
SELECT sqlstreams.create_stream('plain', partition_size => 2) \g /dev/null
SELECT sqlstreams.produce('plain', '1') FROM generate_series(1, 4) \g /dev/null
SELECT is(sqlstreams.purge_stream('plain'), 4::bigint, 'dropped');
SELECT isnt(pg_temp.dropped('plain'), '{}', 'partitions are known');
CALL sqlstreams.maintain();
SELECT is(pg_temp.dropped('plain'), '{}', 'they are forgotten');

-- a purge of a part of a partition
SELECT sqlstreams.create_stream('part', empty_compaction_head_ttl => '10 minutes') \g /dev/null
SELECT sqlstreams.produce('part', '1', k, compaction => true, compaction_rank => 9) FROM unnest(ARRAY['a', 'b']) k \g /dev/null
SELECT is(sqlstreams.purge_stream('part'), 2::bigint, 'two of a million ids are purged');
SELECT sqlstreams.produce('part', '3', 'b', compaction => true, compaction_rank => 10) \g /dev/null
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys('part'), 'a1 b3', 'the head of one stays');
UPDATE sqlstreams.stream SET purged_at = purged_at - interval '11 minutes' WHERE stream_name = 'part';
SELECT sqlstreams.alter_stream('part') \g /dev/null
CALL sqlstreams.maintain();
SELECT is(pg_temp.keys('part'), 'b3', 'not longer than others, although the partition goes on');
SELECT sqlstreams.produce('part', '4', 'a', compaction => true, compaction_rank => 1) \g /dev/null
SELECT is((SELECT message_id FROM sqlstreams.compaction_head('part', 'a')), 4::bigint, 'then an older version is the head');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
