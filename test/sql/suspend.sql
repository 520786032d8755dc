\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT sqlstreams.create_stream('s', partition_size => 10, retention => '1 day', partition_interval => '10 years') AS id \gset
SELECT is(fill('s', 15), 15::bigint, '15 messages');
CALL sqlstreams.maintain();
SELECT lives_ok($$ SELECT sqlstreams.suspend_maintenance('s') $$, 'suspend_maintenance');
SELECT is((SELECT maintenance_suspended FROM sqlstreams.streams), true, 'streams says so');
SELECT age_partitions('s', '2 days') \g /dev/null
SELECT is(fill('s', 15), 30::bigint, 'producers go on');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '1-10 expired, 11-20 full, 21-30 full, 31-40 open', 'nothing goes, nothing is made or sealed');
SELECT lives_ok($$ SELECT sqlstreams.suspend_maintenance('s') $$, 'twice is as once');
SELECT is(fill('s', 15), 45::bigint, 'partitions are made on the spot');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'g') $$, 'a group');
SELECT is((SELECT count(*) FROM sqlstreams.pop('s', 'g', 20)), 20::bigint, 'claims go on');
SELECT is(sqlstreams.purge_stream('s'), 45::bigint, 'purge_stream too');
SELECT is(partition_states('s'), '41-50 open', 'it drops what it may');
SELECT is(fill('s', 5), 50::bigint, 'five messages');

SELECT lives_ok($$ SELECT sqlstreams.resume_maintenance('s') $$, 'resume_maintenance');
SELECT is((SELECT maintenance_suspended FROM sqlstreams.streams), false, 'streams says so');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '41-50 sealed, 51-60 open, 61-70 open, 71-80 open', 'what was due is done');
SELECT lives_ok($$ SELECT sqlstreams.resume_maintenance('s') $$, 'twice is as once');

-- in a transaction that is rolled back
BEGIN;
SELECT sqlstreams.suspend_maintenance('s') \g /dev/null
SELECT is((SELECT maintenance_suspended FROM sqlstreams.streams), true, 'in the transaction');
ROLLBACK;
SELECT is((SELECT maintenance_suspended FROM sqlstreams.streams), false, 'it never was');

-- who may
CREATE ROLE regress_sqlstreams_other;
GRANT USAGE ON SCHEMA tap TO regress_sqlstreams_other;
SET ROLE regress_sqlstreams_other;
SELECT fails($$ SELECT sqlstreams.suspend_maintenance('s') $$, '42501', 'stream "s"', 'only the owner');
SELECT fails($$ SELECT sqlstreams.resume_maintenance('s') $$, '42501', 'stream "s"', 'of either');
RESET ROLE;
DROP OWNED BY regress_sqlstreams_other;
DROP ROLE regress_sqlstreams_other;
SELECT fails($$ SELECT sqlstreams.suspend_maintenance('nope') $$, 'SS001', 'stream "nope"', 'no such stream');
SELECT fails($$ SELECT sqlstreams.resume_maintenance('nope') $$, 'SS001', 'stream "nope"', 'of either');
SELECT fails($$ SELECT sqlstreams.suspend_maintenance(NULL) $$, '22004', 'stream', 'no stream');
SELECT fails($$ SELECT sqlstreams.resume_maintenance(NULL) $$, '22004', 'stream', 'of either');
BEGIN READ ONLY;
SELECT fails($$ SELECT sqlstreams.suspend_maintenance('s') $$, '25006', 'suspend_maintenance', 'in a read-only transaction');
SELECT fails($$ SELECT sqlstreams.resume_maintenance('s') $$, '25006', 'resume_maintenance', 'neither');
ROLLBACK;

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT is_empty($$ SELECT FROM sqlstreams.log_partition $$, 'nothing is left of the streams');
SELECT * FROM finish();
