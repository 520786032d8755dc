\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- the tables that this transaction keeps others from reading or writing
CREATE FUNCTION pg_temp.locked_out() RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(relation::regclass::text || ' ' || mode, ', ' ORDER BY 1)
    FROM pg_locks JOIN pg_class ON pg_class.oid = relation
   WHERE pid = pg_backend_pid() AND relnamespace = 'sqlstreams'::regnamespace AND relkind IN ('r', 'p')
     AND mode IN ('ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
$$;

SELECT sqlstreams.create_stream('s', partition_size => 10, retention => '1 day', partition_interval => '10 years') \g /dev/null
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', array_fill('1'::jsonb, ARRAY[15]))), 15::bigint, '15 messages');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '1-10 sealed, 11-20 open, 21-30 open, 31-40 open', 'one call does all that is due');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', array_fill('1'::jsonb, ARRAY[10]))), 10::bigint, '10 more');
SELECT age_partitions(stream, '2 days') FROM sqlstreams.streams \g /dev/null

-- in a transaction block
SET client_min_messages = notice;
BEGIN;
CALL sqlstreams.maintain();
SET LOCAL client_min_messages = warning;
SELECT is(partition_states('s'), '1-10 purged, 11-20 sealed, 21-30 open, 31-40 open', 'in a block tables are neither made nor dropped, the rest is done');
SELECT is(pg_temp.locked_out(), NULL, 'so that nobody waits for the end of the transaction');
ROLLBACK;
SET client_min_messages = warning;
SELECT is(partition_states('s'), '1-10 expired, 11-20 full, 21-30 open, 31-40 open', 'it was rolled back');
SELECT lives_ok('CALL sqlstreams.maintain()', 'from a function it is as in a block');
SELECT is(partition_states('s'), '1-10 purged, 11-20 sealed, 21-30 open, 31-40 open', 'without making and dropping tables');
DO $$ BEGIN CALL sqlstreams.maintain(); END $$;
SELECT is(partition_states('s'), '11-20 sealed, 21-30 open, 31-40 open, 41-50 open', 'in a DO that may commit all is done');

-- ids without a message
SELECT sqlstreams.create_stream('idle', partition_size => 1000, retention => '1 day', partition_interval => '1 microsecond') \g /dev/null
SELECT sqlstreams.create_group('idle', 'g') \g /dev/null
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('idle', array_fill('1'::jsonb, ARRAY[3]))), 3::bigint, '3 messages');
CALL sqlstreams.maintain();
SELECT is(partition_states('idle'), '1-1000 sealed, 1001-2000 open, 2001-3000 open, 3001-4000 open', 'the partition was ended by time; the stream is not fast for that');
SELECT is((SELECT count(*) FROM sqlstreams.pop('idle', 'g', 2)), 2::bigint, 'the group gets two');
SELECT age_partitions(stream, '2 days') FROM sqlstreams.streams \g /dev/null
CALL sqlstreams.maintain();
SELECT is(partition_states('idle'), '1-1000 expired, 1001-2000 open, 2001-3000 open, 3001-4000 open', 'the third holds the partition');
SELECT is((SELECT count(*) FROM sqlstreams.pop('idle', 'g', 1)), 1::bigint, 'the group gets it');
SELECT is((SELECT claimed FROM sqlstreams.consumer_groups WHERE stream = 'idle'), 3::bigint, 'and has claimed no more');
CALL sqlstreams.maintain();
SELECT is(partition_states('idle'), '1001-2000 open, 2001-3000 open, 3001-4000 open', 'the other ids of the partition hold nothing');
SELECT is((SELECT message_id FROM sqlstreams.produce('idle', '4') AS message_id), 1001::bigint, 'the next message');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.pop('idle', 'g', 10)), ARRAY[1001::bigint], 'is delivered');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
