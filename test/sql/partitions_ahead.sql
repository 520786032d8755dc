\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- a stream that nobody uses keeps the partition that it was made with
SELECT sqlstreams.create_stream('s', partition_size => 10) AS id \gset
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '1-10 open', 'nothing is made ahead of a stream without messages');
SELECT ok((SELECT created_at BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp() AND sealed_at IS NULL AND held_by IS NULL FROM sqlstreams.partitions), 'when it was made');

-- from the first message on, two are there behind that of the next id
SELECT is(fill('s', 1), 1::bigint, 'a message');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '1-10 open, 11-20 open, 21-30 open', 'two ahead');
SELECT is(fill('s', 8), 9::bigint, 'one id is left');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '1-10 open, 11-20 open, 21-30 open', 'still two');
SELECT is(fill('s', 1), 10::bigint, 'the last id');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '1-10 sealed, 11-20 open, 21-30 open, 31-40 open', 'the next id is of the next one');
SELECT is(fill('s', 45), 55::bigint, 'over the edge of several');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '1-10 sealed, 11-20 sealed, 21-30 sealed, 31-40 sealed, 41-50 sealed, 51-60 open, 61-70 open, 71-80 open', 'it catches up');
SELECT ok((SELECT bool_and(sealed_at >= created_at AND sealed_at <= clock_timestamp()) FROM sqlstreams.partitions WHERE state = 'sealed'), 'when they were sealed');
SELECT ok((SELECT bool_and(p.sealed_at >= m.created_at) FROM sqlstreams.partitions p JOIN sqlstreams.peek('s', 1, 100) m ON m.message_id BETWEEN p.from_id AND p.to_id WHERE p.state = 'sealed'), 'no message is younger');

-- a rolled back produce has drawn ids too
BEGIN;
SELECT fill('s', 10) \g /dev/null
ROLLBACK;
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '1-10 sealed, 11-20 sealed, 21-30 sealed, 31-40 sealed, 41-50 sealed, 51-60 sealed, 61-70 open, 71-80 open, 81-90 open', 'ids that were rolled back count');

-- what somebody took away is made again
SELECT format('DROP TABLE sqlstreams.message_log_%s_8', :id) \gexec
CALL sqlstreams.maintain();
SELECT ok(partition_states('s') LIKE '%, 81-90 open', 'one that was dropped by hand');

-- rows that a dump does not have come back
SELECT lives_ok(format('DELETE FROM sqlstreams.log_partition WHERE stream_id = %s AND number IN (4, 5, 6)', :id), 'three are not known');
SELECT is((SELECT count(*) FROM sqlstreams.partitions WHERE created_at IS NULL AND held_by IS NULL), 3::bigint, 'which the view says');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '1-10 sealed, 11-20 sealed, 21-30 sealed, 31-40 sealed, 41-50 sealed, 51-60 sealed, 61-70 open, 71-80 open, 81-90 open', 'those that are full are sealed again');

-- one whose writers were listed on another server
SELECT lives_ok(format('UPDATE sqlstreams.log_partition SET sealed_at = NULL, waits_for = ARRAY[pg_current_xact_id()], waits_system = 1 WHERE stream_id = %s AND number = 5', :id), 'from another server');
CALL sqlstreams.maintain();
SELECT is((SELECT state FROM sqlstreams.partitions WHERE from_id = 51), 'sealed', 'writers are listed anew');

-- in one transaction: what it has produced holds a partition
BEGIN;
SELECT is(fill('s', 15), 80::bigint, 'a producer');
CALL sqlstreams.maintain();
SELECT is((SELECT state FROM sqlstreams.partitions WHERE from_id = 61), 'full', 'its partition is not sealed by itself');
SELECT is((SELECT held_by FROM sqlstreams.partitions WHERE from_id = 61), 'an open producer: process ' || pg_backend_pid(), 'the view says why');
COMMIT;
CALL sqlstreams.maintain();
SELECT ok(partition_states('s') LIKE '%, 61-70 sealed, 71-80 sealed, 81-90 open, 91-100 open, 101-110 open', 'sealed after its end');

-- the end of all ids
SELECT sqlstreams.create_stream('wide', partition_size => 9007199254740991, partition_interval => '1 second') AS wide \gset
SELECT setval(format('sqlstreams.message_id_%s', :wide), 9223372036854775000) \g /dev/null
CALL sqlstreams.maintain();
SELECT is(sqlstreams.produce('wide', '2'), 9223372036854775001, 'at the end of all ids');
CALL sqlstreams.maintain();
SELECT is((SELECT max(to_id) FROM sqlstreams.partitions WHERE stream = 'wide'), 9223372036854775806, 'the last partition that there is');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT is_empty($$ SELECT FROM sqlstreams.log_partition $$, 'nothing is left of the streams');
SELECT * FROM finish();
