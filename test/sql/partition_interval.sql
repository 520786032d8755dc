\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- messages of a stream without partition_interval stay where they are
SELECT sqlstreams.create_stream('s', partition_size => 1000) AS id \gset
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'g') $$, 'a group');
SELECT is(fill('s', 5), 5::bigint, 'five messages');
SELECT lives_ok(format('UPDATE sqlstreams.message_log_%s SET created_at = created_at - interval ''1 day''', :id), 'of yesterday');
CALL sqlstreams.maintain();
SELECT is((SELECT messages_head FROM sqlstreams.streams), 5::bigint, 'no partition ends by time');

-- with it, a partition ends when its first message is as old
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('s', partition_interval => '2 days') $$, 'every two days');
CALL sqlstreams.maintain();
SELECT is((SELECT messages_head FROM sqlstreams.streams), 5::bigint, 'not before');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('s', partition_interval => '1 hour') $$, 'every hour');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '1-1000 sealed, 1001-2000 open, 2001-3000 open, 3001-4000 open', 'it ends');
SELECT is((SELECT messages_head FROM sqlstreams.streams), 1000::bigint, 'its ids are passed over');
SELECT is(sqlstreams.produce('s', '6'), 1001::bigint, 'the next message is in the next one');
SELECT is(claimed('s', 'g'), '1 2 3 4 5 6', 'claims do not mind');
CALL sqlstreams.maintain();
SELECT is((SELECT messages_head FROM sqlstreams.streams), 1001::bigint, 'once, and not again');
SELECT is(partition_states('s'), '1-1000 sealed, 1001-2000 open, 2001-3000 open, 3001-4000 open', 'with two ahead of it');

-- nothing to end
SELECT lives_ok(format('UPDATE sqlstreams.message_log_%s SET created_at = created_at - interval ''1 day'' WHERE id = 1001', :id), 'that one is old, too');
CALL sqlstreams.maintain();
SELECT is((SELECT messages_head FROM sqlstreams.streams), 2000::bigint, 'it ends');
CALL sqlstreams.maintain();
SELECT is((SELECT messages_head FROM sqlstreams.streams), 2000::bigint, 'one without ids does not');
BEGIN;
SELECT fill('s', 3) \g /dev/null
ROLLBACK;
CALL sqlstreams.maintain();
SELECT is((SELECT messages_head FROM sqlstreams.streams), 2003::bigint, 'nor one without messages');

-- a quarter of the retention, where it is not said
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('s', retention => '8 hours', reset => '{partition_interval}') $$, 'by retention');
SELECT is(sqlstreams.produce('s', '7'), 2004::bigint, 'a message');
SELECT lives_ok(format('UPDATE sqlstreams.message_log_%s SET created_at = created_at - interval ''119 minutes'' WHERE id = 2004', :id), 'not quite two hours old');
CALL sqlstreams.maintain();
SELECT is((SELECT messages_head FROM sqlstreams.streams), 2004::bigint, 'is kept where it is');
SELECT lives_ok(format('UPDATE sqlstreams.message_log_%s SET created_at = created_at - interval ''1 minute'' WHERE id = 2004', :id), 'two hours');
CALL sqlstreams.maintain();
SELECT is((SELECT messages_head FROM sqlstreams.streams), 3000::bigint, 'ends it');

-- in one transaction: the next partition must be there for others first
SELECT sqlstreams.create_stream('t', partition_size => 1000, partition_interval => '1 microsecond') AS t \gset
SELECT lives_ok($$ SELECT sqlstreams.suspend_maintenance('t') $$, 'nobody makes partitions');
SELECT is(sqlstreams.produce('t', '1'), 1::bigint, 'a message');
BEGIN;
SELECT sqlstreams.resume_maintenance('t') \g /dev/null
CALL sqlstreams.maintain();
SELECT is((SELECT messages_head FROM sqlstreams.streams WHERE stream = 't'), 1::bigint, 'a partition that is not committed is not begun');
COMMIT;
CALL sqlstreams.maintain();
SELECT is((SELECT messages_head FROM sqlstreams.streams WHERE stream = 't'), 1000::bigint, 'then it is');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT is_empty($$ SELECT FROM sqlstreams.log_partition $$, 'nothing is left of the streams');
SELECT * FROM finish();
