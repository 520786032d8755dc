\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT sqlstreams.create_stream('s', partition_size => 10, retention => '1 day', partition_interval => '10 years', delivery_log => 'all') AS id \gset
SELECT is(fill('s', 35), 35::bigint, '35 messages');
CALL sqlstreams.maintain();
SELECT age_partitions('s', '23 hours') \g /dev/null
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '1-10 sealed, 11-20 sealed, 21-30 sealed, 31-40 open, 41-50 open, 51-60 open', 'all is kept for its time');
SELECT is((SELECT count(*) FROM sqlstreams.peek('s', 1, 100)), 35::bigint, 'every message');

-- without groups
SELECT lives_ok($$ SELECT sqlstreams.suspend_maintenance('s') $$, 'for a look at what is expired');
SELECT lives_ok(format('UPDATE sqlstreams.log_partition SET sealed_at = sealed_at - interval ''1 hour'' WHERE stream_id = %s AND number < 2', :id), 'two of them are old');
SELECT is(partition_states('s'), '1-10 expired, 11-20 expired, 21-30 sealed, 31-40 open, 41-50 open, 51-60 open', 'the view says that their time is over');
SELECT lives_ok($$ SELECT sqlstreams.resume_maintenance('s') $$, 'go on');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '21-30 sealed, 31-40 open, 41-50 open, 51-60 open', 'they are gone');
SELECT is((SELECT min(message_id) FROM sqlstreams.peek('s', 1, 100)), 21::bigint, 'with their messages');
SELECT is_empty(format('SELECT FROM sqlstreams.log_partition WHERE stream_id = %s AND number < 2', :id), 'and what was known of them');

-- a partition in the middle never goes before the lower ones
SELECT is(fill('s', 15), 50::bigint, 'more messages');
CALL sqlstreams.maintain();
SELECT lives_ok(format('UPDATE sqlstreams.log_partition SET sealed_at = sealed_at - interval ''2 days'' WHERE stream_id = %s AND number = 3', :id), 'a later one is old');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '21-30 sealed, 31-40 expired, 41-50 sealed, 51-60 open, 61-70 open, 71-80 open', 'it waits for the one before');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('s', reset => '{retention}') $$, 'kept for ever');
SELECT age_partitions('s', '10 years') \g /dev/null
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '21-30 sealed, 31-40 sealed, 41-50 sealed, 51-60 open, 61-70 open, 71-80 open', 'without retention nothing expires');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('s', retention => '1 day') $$, 'for a day again');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '51-60 open, 61-70 open, 71-80 open', 'which applies at once');

-- a group that has not claimed
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'g', initial_backoff => '0', max_retries => 0), sqlstreams.create_group('s', 'late', start_position => 'head') $$, 'groups');
SELECT is(fill('s', 25), 75::bigint, '25 messages');
SELECT min(claim_id) AS late FROM sqlstreams.claim('s', 'late', 100) \gset
SELECT is(sqlstreams.ack('s', 'late', :late), 25::bigint, 'one group is done');
CALL sqlstreams.maintain();
SELECT age_partitions('s', '2 days') \g /dev/null
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '51-60 expired, 61-70 expired, 71-80 open, 81-90 open, 91-100 open', 'what the other has not claimed stays');
SELECT is(partitions_held('s'), '51-60: consumer group "g" has not claimed message 51, 61-70: consumer group "g" has not claimed message 51', 'the view says why');

-- a claim
SELECT min(claim_id) AS c1 FROM sqlstreams.claim('s', 'g', 12, '1 hour') \gset
SELECT min(claim_id) AS c2 FROM sqlstreams.claim('s', 'g', 13, '1 hour') \gset
CALL sqlstreams.maintain();
SELECT is(partitions_held('s'), '51-60: consumer group "g": message 51 is in an open claim, 61-70: consumer group "g": message 51 is in an open claim', 'what is in a claim stays');
SELECT is(sqlstreams.ack('s', 'g', :c1, '{51,52,53,54,55,56,57,58,59}'), 9::bigint, 'one by one');
CALL sqlstreams.maintain();
SELECT is(partitions_held('s'), '51-60: consumer group "g": message 60 is in an open claim, 61-70: consumer group "g": message 60 is in an open claim', 'to the last');
SELECT is(sqlstreams.ack('s', 'g', :c1, '{60}'), 1::bigint, 'the last of the first partition');
CALL sqlstreams.maintain();
SELECT is(partition_states('s') || ' ' || partitions_held('s'), '61-70 expired, 71-80 open, 81-90 open, 91-100 open 61-70: consumer group "g": message 61 is in an open claim', 'it goes beside an open claim');
SELECT is(sqlstreams.ack('s', 'g', :c1), 2::bigint, 'whose holder may go on');

-- exceptions
SELECT is(sqlstreams.delay('s', 'g', :c2, '{63}', '1 hour'), 0::bigint, 'a delayed one');
SELECT is(sqlstreams.reject('s', 'g', :c2, '{64,71}', 'no good'), 2::bigint, 'dead ones');
SELECT is(sqlstreams.ack('s', 'g', :c2), 10::bigint, 'the others are done');
CALL sqlstreams.maintain();
SELECT is(partitions_held('s'), '61-70: consumer group "g": the exception of message 63 is not resolved', 'an exception holds its partition');
SELECT lives_ok(format('UPDATE sqlstreams.exception_queue_%s SET due_at = now() WHERE status = ''r''', :id), 'it is due');
SELECT min(claim_id) AS c3, string_agg(message_id::text, ' ') AS m FROM sqlstreams.claim('s', 'g', 5, '1 hour') \gset
SELECT is(:'m'::text, '63', 'and claimed');
CALL sqlstreams.maintain();
SELECT is((SELECT count(*) FROM sqlstreams.partitions WHERE state = 'expired' AND held_by LIKE '%"g"%63%'), 1::bigint, 'in flight, it holds on');
SELECT is(sqlstreams.ack('s', 'g', :c3), 1::bigint, 'done');
SELECT ok((SELECT count(*) > 10 FROM sqlstreams.deliveries('s')), 'the delivery log knows all of it');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '71-80 open, 81-90 open, 91-100 open', 'dead ones hold nothing');
SELECT results_eq($$ SELECT message_id, status FROM sqlstreams.exceptions('s') $$, $$ VALUES (71::bigint, 'dead') $$, 'they go with their messages');
SELECT results_eq(format('SELECT count(*), min(message_id) FROM sqlstreams.delivery_log_%s', :id), $$ VALUES (10::bigint, 71::bigint) $$, 'and so does what the delivery log has of them');
SELECT results_eq(format('SELECT count(*) FROM sqlstreams.exception_queue_%s', :id), $$ VALUES (1::bigint) $$, 'nothing is left over');
SELECT is(sqlstreams.redrive('s', 'g', '{64}'), 0::bigint, 'nothing to redrive');
SELECT is(sqlstreams.redrive('s', 'g'), 1::bigint, 'but what is there');

-- places that are gone
SELECT fails($$ SELECT sqlstreams.seek('s', 'late', start_id => 70) $$, '22023', 'start_id', 'nobody can go back to them');
SELECT results_eq($$ SELECT claimed_before, claimed_after FROM sqlstreams.seek('s', 'late', start_position => 'beginning') $$, $$ VALUES (75::bigint, 70::bigint) $$, 'the beginning is what is there');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.pop('s', 'late', 100)), '{71,72,73,74,75}'::bigint[], 'from there on');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'new'), sqlstreams.create_group('s', 'low', start_id => 3), sqlstreams.create_group('s', 'old', start_time => '2000-01-01') $$, 'groups that begin there');
SELECT is((SELECT string_agg(consumer_group || ' ' || claimed, ', ' ORDER BY consumer_group) FROM sqlstreams.consumer_groups WHERE consumer_group IN ('new', 'low', 'old')), 'low 70, new 70, old 70', 'begin behind it');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.pop('s', 'new', 100)), '{71,72,73,74,75}'::bigint[], 'and get what is there');
SELECT is((SELECT min(message_id) FROM sqlstreams.peek('s', 60)), 71::bigint, 'as peek does');

-- a group without state, as while a dump is restored
SELECT is(fill('s', 5), 80::bigint, 'a full partition');
SELECT ok((SELECT count(*) >= 5 FROM sqlstreams.pop('s', g, 100)), g || ' is done') FROM unnest('{g,late,low,new,old}'::text[]) g;
SELECT lives_ok($$ SELECT sqlstreams.suspend_maintenance('s') $$, 'nobody maintains it');
SELECT lives_ok($$ SELECT sqlstreams.resume_maintenance('s') $$, 'but us');
CALL sqlstreams.maintain();
BEGIN;
SELECT format('CREATE TEMP TABLE kept AS SELECT c.* FROM sqlstreams.group_cursor_%s c JOIN sqlstreams.consumer_groups g USING (group_id) WHERE g.consumer_group = ''old''', :id) \gexec
SELECT format('DELETE FROM sqlstreams.group_cursor_%s c USING kept k WHERE c.group_id = k.group_id', :id) \gexec
SELECT age_partitions('s', '2 days') \g /dev/null
COMMIT;
CALL sqlstreams.maintain();
SELECT is(partitions_held('s'), '71-80: consumer group "old" has no state', 'a group without state holds everything');
BEGIN;
SELECT format('INSERT INTO sqlstreams.group_cursor_%s SELECT * FROM kept', :id) \gexec
CREATE TEMP TABLE kept_group AS SELECT * FROM sqlstreams.consumer_group WHERE group_name = 'low';
DELETE FROM sqlstreams.consumer_group WHERE group_name = 'low';
COMMIT;
CALL sqlstreams.maintain();
SELECT is(partitions_held('s'), '71-80: a consumer group is not there yet: a restore is running', 'so does the state of a group that is not there');
INSERT INTO sqlstreams.consumer_group SELECT * FROM kept_group;
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '81-90 open, 91-100 open, 101-110 open', 'until all is there');

-- allow_drop_past_committed
SELECT lives_ok($$ SELECT sqlstreams.drop_group('s', consumer_group) FROM sqlstreams.consumer_groups WHERE consumer_group <> 'g' $$, 'one group');
SELECT is(fill('s', 30), 110::bigint, '30 messages');
SELECT min(claim_id) AS c4 FROM sqlstreams.claim('s', 'g', 5, '1 hour') \gset
SELECT is(sqlstreams.delay('s', 'g', :c4, '{84}', '1 hour'), 0::bigint, 'a claim of four and an exception');
CALL sqlstreams.maintain();
SELECT age_partitions('s', '2 days') \g /dev/null
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '81-90 expired, 91-100 expired, 101-110 expired, 111-120 open, 121-130 open, 131-140 open', 'held');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('s', allow_drop_past_committed => true) $$, 'allow_drop_past_committed');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '111-120 open, 121-130 open, 131-140 open', 'it goes by time alone');
SELECT is((SELECT count(*) FROM sqlstreams.exceptions('s')) + (SELECT count(*) FROM sqlstreams.leases) + (SELECT count(*) FROM sqlstreams.deliveries('s')), 0::bigint, 'with exceptions, claims and deliveries');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'g', :c4), 'SS004', NULL, 'the claim is lost');
SELECT is((SELECT claimed FROM sqlstreams.consumer_groups), 110::bigint, 'the group goes on behind it');
SELECT is(sqlstreams.produce('s', '"new"'), 111::bigint, 'with the next message');
SELECT is(claimed('s', 'g'), '"new"', 'which it gets');

-- a purge, and maintenance of what it leaves
SELECT is(fill('s', 12), 123::bigint, '12 messages');
SELECT is(sqlstreams.purge_stream('s'), 13::bigint, 'purged');
SELECT ok((SELECT dropped_at IS NOT NULL FROM sqlstreams.log_partition WHERE stream_id = :id AND number = 11), 'it says that the partition is empty');
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '121-130 open, 131-140 open, 141-150 open', 'it is gone, the rest stays');

-- a group that has claimed all messages, and has not come since the ids behind them were passed over
SELECT is(fill('s', 10), 133::bigint, '10 messages');
SELECT is((SELECT count(*) FROM sqlstreams.pop('s', 'g', 100)), 10::bigint, 'all claimed');
BEGIN;
SELECT fill('s', 10) \g /dev/null
ROLLBACK;
SELECT is(sqlstreams.produce('s', '"next"'), 144::bigint, 'the next message is in the next partition');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('s', reset => '{allow_drop_past_committed}') $$, 'by what the group needs');
CALL sqlstreams.maintain();
SELECT age_partitions('s', '2 days') \g /dev/null
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '141-150 open, 151-160 open, 161-170 open', 'ids without messages hold nothing');
SELECT is((SELECT claimed FROM sqlstreams.consumer_groups), 140::bigint, 'the group is taken along');
SELECT is(claimed('s', 'g'), '"next"', 'and gets what comes next');

-- what a user has made of a partition
SELECT is((SELECT sqlstreams.ack('s', 'g', claim_id) FROM sqlstreams.leases), 1::bigint, 'nothing is needed');
SELECT is(fill('s', 10), 154::bigint, '10 messages');
SELECT is((SELECT count(*) FROM sqlstreams.pop('s', 'g', 100)), 10::bigint, 'nor of these');
CALL sqlstreams.maintain();
SELECT format('CREATE VIEW tap.depends AS SELECT * FROM sqlstreams.message_log_%s_14', :id) \gexec
SELECT age_partitions('s', '2 days') \g /dev/null
SET client_min_messages = error;
CALL sqlstreams.maintain();
SET client_min_messages = warning;
SELECT is(partition_states('s'), '141-150 purged, 151-160 open, 161-170 open, 171-180 open', 'a table that a view needs stays, its messages do not');
DROP VIEW tap.depends;
CALL sqlstreams.maintain();
SELECT is(partition_states('s'), '151-160 open, 161-170 open, 171-180 open', 'without the view the table goes');

-- many dead messages
SELECT sqlstreams.create_stream('many', partition_size => 30000, retention => '1 day', partition_interval => '10 years') AS many \gset
SELECT lives_ok($$ SELECT sqlstreams.create_group('many', 'g') $$, 'a group');
SELECT is(fill('many', 30000), 30000::bigint, 'very many messages');
SELECT is((SELECT sqlstreams.reject('many', 'g', claim_id) FROM (SELECT DISTINCT claim_id FROM sqlstreams.claim('many', 'g', 30000)) c), 30000::bigint, 'all dead');
CALL sqlstreams.maintain();
SELECT age_partitions('many', '2 days') \g /dev/null
CALL sqlstreams.maintain();
SELECT is(partition_states('many'), '30001-60000 open, 60001-90000 open, 90001-120000 open', 'they go');
SELECT is_empty(format('SELECT group_id FROM sqlstreams.exception_queue_%1$s UNION ALL SELECT group_id FROM sqlstreams.delivery_log_%1$s', :many), 'with all that hung on them');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT is_empty($$ SELECT FROM sqlstreams.log_partition $$, 'nothing is left of the streams');
SELECT * FROM finish();
