\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Where a group begins. Each message is a transaction of its own; :t3 is when the third was produced.
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 4) $$, 'a stream');
SELECT sqlstreams.create_group('s', 'empty', start_position => 'head') AS id \g /dev/null
SELECT sqlstreams.create_group('s', 'empty_past', start_time => '2000-01-01') AS id \g /dev/null
SELECT sqlstreams.create_group('s', 'empty_future', start_time => clock_timestamp() + '1 hour') AS id \g /dev/null
SELECT sqlstreams.produce('s', '1') \g /dev/null
SELECT sqlstreams.produce('s', '2') \g /dev/null
SELECT sqlstreams.produce('s', '3') \g /dev/null
SELECT sqlstreams.produce('s', '4') \g /dev/null
SELECT sqlstreams.produce('s', '5') \g /dev/null
SELECT sqlstreams.produce('s', '6') \g /dev/null
SELECT is(claimed('s', 'empty'), '1 2 3 4 5 6', 'head of an empty stream is its beginning');
SELECT is(claimed('s', 'empty_past'), '1 2 3 4 5 6', 'and so is a time in the past');
SELECT is(claimed('s', 'empty_future'), '1 2 3 4 5 6', 'and a time to come: what is produced afterwards is never skipped');
SELECT created_at AS t3 FROM sqlstreams.peek('s', 3, 1) \gset
SELECT created_at AS t6 FROM sqlstreams.peek('s', 6, 1) \gset
-- what a group that begins so gets
CREATE FUNCTION pg_temp.gets(arguments text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  EXECUTE format('SELECT sqlstreams.create_group(%L, %L, %s)', 's', 'probe', arguments);
  result := tap.claimed('s', 'probe');
  PERFORM sqlstreams.drop_group('s', 'probe');
  RETURN result;
END $$;
SELECT is(pg_temp.gets($$ start_position => 'beginning' $$), '1 2 3 4 5 6', 'at the beginning');
SELECT is(pg_temp.gets($$ start_position => NULL, start_id => NULL, start_time => NULL $$), '1 2 3 4 5 6', 'NULL is not given');
SELECT is(pg_temp.gets($$ start_position => 'head' $$), '', 'at the head');
SELECT is(pg_temp.gets($$ start_id => 3 $$), '3 4 5 6', 'at an id');
SELECT is(pg_temp.gets($$ start_position => NULL, start_id => 6 $$), '6', 'at the last id');
SELECT is(pg_temp.gets(format('start_time => %L', :'t3')), '3 4 5 6', 'at a time: that of a message');
SELECT is(pg_temp.gets(format('start_time => timestamptz %L + interval %L', :'t3', '1 microsecond')), '4 5 6', 'just after it');
SELECT is(pg_temp.gets(format('start_time => timestamptz %L - interval %L', :'t3', '1 microsecond')), '3 4 5 6', 'just before it');
SELECT is(pg_temp.gets(format('start_time => %L', :'t6')), '6', 'that of the last');
SELECT is(pg_temp.gets($$ start_time => '2000-01-01' $$), '1 2 3 4 5 6', 'a time long past');
SELECT is(pg_temp.gets($$ start_time => '4713-01-01 BC' $$), '1 2 3 4 5 6', 'the oldest there is');
SELECT is(pg_temp.gets($$ start_time => clock_timestamp() $$), '', 'now');
SELECT is(pg_temp.gets($$ start_time => clock_timestamp() + '1 day' $$), '', 'a time to come');
SELECT is(pg_temp.gets($$ start_time => '294276-12-31' $$), '', 'the last there is');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', start_time => 'infinity') $$, '22023', 'start_time', 'never');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', start_time => '-infinity') $$, '22023', 'start_time', 'always');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', start_position => 'head', start_time => now()) $$, '22023', 'start_position', 'a position and a time');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', start_position => 'head', start_id => 1, start_time => now()) $$, '22023', 'start_position', 'all three');

-- messages that are much older than their neighbours and such that share a time
SELECT lives_ok($$ SELECT sqlstreams.create_stream('old', partition_size => 10) $$, 'a stream that is older');
SELECT sqlstreams.produce_batch('old', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 40) i)) \g /dev/null
SELECT format('UPDATE sqlstreams.message_log_%s SET created_at = timestamptz ''2020-01-01 00:00:00Z'' + interval ''1 minute'' * (id / 2)', stream_id) FROM sqlstreams.streams WHERE stream = 'old' \gexec
SELECT lives_ok($$ SELECT sqlstreams.create_group('old', 'g', start_time => '2020-01-01 00:15:00Z'), sqlstreams.create_group('old', 'h', start_time => '2020-01-01 00:00:00Z'),
    sqlstreams.create_group('old', 'i', start_time => '2020-01-01 00:14:31Z'), sqlstreams.create_group('old', 'j', start_time => '2020-01-01 00:20:00Z'), sqlstreams.create_group('old', 'k', start_time => '2020-01-01 00:20:01Z') $$, 'groups by time');
SELECT is((SELECT min(message_id) FROM sqlstreams.claim('old', 'g', 100)), 30::bigint, 'of two that share the time the first');
SELECT is((SELECT min(message_id) FROM sqlstreams.claim('old', 'h', 100)), 1::bigint, 'the first of all');
SELECT is((SELECT min(message_id) FROM sqlstreams.claim('old', 'i', 100)), 30::bigint, 'a time between');
SELECT is((SELECT min(message_id) FROM sqlstreams.claim('old', 'j', 100)), 40::bigint, 'the last');
SELECT is((SELECT min(message_id) FROM sqlstreams.claim('old', 'k', 100)), NULL, 'none');

-- head and holes
BEGIN;
SELECT sqlstreams.produce('s', '0') \g /dev/null
ROLLBACK;
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'head', start_position => 'head') $$, 'head after a hole');
SELECT is(sqlstreams.produce('s', '8'), 8::bigint, 'a message');
SELECT is(claimed('s', 'head'), '8', 'is its first');
SELECT results_eq($$ SELECT claimed, committed, backlog FROM sqlstreams.consumer_groups WHERE consumer_group = 'head' $$, $$ VALUES (8::bigint, 7::bigint, 0::bigint) $$, 'the view');
-- a group made by a transaction that has produced, which passes no hole that nobody has passed
SELECT is(claimed('s', 'empty'), '8', 'another group passes the hole');
BEGIN;
SELECT sqlstreams.produce('s', '9') \g /dev/null
SELECT sqlstreams.create_group('s', 'own', start_position => 'head') AS id \g /dev/null
SELECT sqlstreams.produce('s', '10') \g /dev/null
SELECT is(claimed('s', 'own'), '10', 'of its own transaction a group at head gets what comes after it');
COMMIT;
SELECT is(claimed('s', 'own'), '', 'nothing else');
-- head with bindings and a version
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'bound', start_position => 'head', bindings => '{b}', schema_version => 2) $$, 'head, bindings and a version');
SELECT sqlstreams.produce('s', '11', routing_key => 'b'), sqlstreams.produce('s', '12', routing_key => 'b', schema_version => 2), sqlstreams.produce('s', '13', routing_key => 'c', schema_version => 2) \g /dev/null
SELECT is(claimed('s', 'bound'), '12', 'all of it applies');

-- purged
SELECT is(sqlstreams.purge_stream('s'), 13::bigint, 'purge_stream');
SELECT is(pg_temp.gets($$ start_position => 'beginning' $$), '', 'nothing is left at the beginning');
SELECT is(pg_temp.gets($$ start_time => '2000-01-01' $$), '', 'nor of a time');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'p1', start_id => 1), sqlstreams.create_group('s', 'p2', start_time => '2000-01-01'), sqlstreams.create_group('s', 'p3', start_position => 'head') $$, 'groups of a purged stream');
SELECT sqlstreams.produce('s', '14') \g /dev/null
SELECT is(claimed('s', 'p1') || claimed('s', 'p2') || claimed('s', 'p3'), '141414', 'get what comes');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
