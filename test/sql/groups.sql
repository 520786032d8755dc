\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 3) $$, 'a stream');
SELECT sqlstreams.create_group('s', 'g') AS g \gset
SELECT sqlstreams.create_group('s', 'h') AS h \gset
SELECT ok(:g > 0 AND :h > 0 AND :g <> :h, 'create_group returns the id of the group');
SELECT results_eq($$ SELECT consumer_group, group_id FROM sqlstreams.consumer_groups WHERE stream = 's' ORDER BY group_id $$,
  format('VALUES (%L, %s::bigint), (%L, %s::bigint)', 'g', :g, 'h', :h), 'the view shows both');
SELECT results_eq($$ SELECT claimed, committed, settled_head, head, backlog, leased, ready, inflight, deferred, dead FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$,
  $$ VALUES (0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint) $$, 'a new group of an empty stream');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'g') $$, 'SS003', 'consumer group "g"', 'a second group of that name is refused');
SELECT is(sqlstreams.create_group('s', 'g', timeout => '1 hour', if_not_exists => true), :g::bigint, 'if_not_exists returns the one that is there');
SELECT fails($$ SELECT sqlstreams.create_group('nope', 'g') $$, 'SS001', 'stream "nope"', 'a group of an unknown stream');
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s2'), sqlstreams.create_group('s2', 'g') $$, 'another stream may have a group of the same name');

-- groups are independent (D3)
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', ARRAY['1', '2', '3', '4', '5']::jsonb[])), 5::bigint, 'five messages');
SELECT is(claimed('s', 'g', 2), '1 2', 'one group claims two');
SELECT is(claimed('s', 'h'), '1 2 3 4 5', 'the other gets all five');
SELECT is(claimed('s', 'g'), '3 4 5', 'the first the rest');
SELECT is(claimed('s2', 'g'), '', 'nothing of it in the other stream');

-- where a group starts
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'late') $$, 'a group made later');
SELECT is(claimed('s', 'late'), '1 2 3 4 5', 'starts at the beginning');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'beginning', start_position => 'beginning') $$, 'start_position beginning');
SELECT is(claimed('s', 'beginning'), '1 2 3 4 5', 'says the same');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'from4', start_id => 4) $$, 'start_id');
SELECT is(claimed('s', 'from4'), '4 5', 'is the first id that is read');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'from1', start_id => 1) $$, 'start_id 1');
SELECT is(claimed('s', 'from1'), '1 2 3 4 5', 'is the beginning');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'from8', start_id => 8) $$, 'a start_id that is not there yet');
SELECT is(claimed('s', 'from8'), '', 'nothing yet');
SELECT is((SELECT backlog FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = 'from8'), 0::bigint, 'nor any backlog');
SELECT is((SELECT array_agg(id) FROM sqlstreams.produce_batch('s', ARRAY['6', '7', '8', '9']::jsonb[]) id), '{6,7,8,9}'::bigint[], 'four more');
SELECT is(claimed('s', 'from8'), '8 9', 'it begins where it was told to');
SELECT is(claimed('s', 'g'), '6 7 8 9', 'the others go on');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', start_id => 0) $$, '22023', 'start_id', 'start_id 0');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', start_id => -1) $$, '22023', 'start_id', 'start_id -1');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', start_position => 'middle') $$, '22023', 'start_position', 'an unknown start_position');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', start_position => '') $$, '22023', 'start_position', 'an empty start_position');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', start_position => 'beginning', start_id => 1) $$, '22023', NULL, 'two starts');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', start_position => 'head', start_id => 1) $$, '22023', NULL, 'two starts, one of them head');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', start_position => 'beginning', start_time => now()) $$, '22023', NULL, 'two starts, one of them a time');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', start_id => 1, start_time => now()) $$, '22023', NULL, 'an id and a time');

-- settings
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'set', timeout => '1 minute', schema_version => 1, concurrency => 'parallel') $$, 'settings at creation');
SELECT is((SELECT (settings ->> 'timeout')::interval FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = 'set'), '1 minute'::interval,
  'the view shows them');
SELECT is((SELECT (settings ->> 'schema_version')::bigint FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = 'set'), 1::bigint, 'each');
SELECT ok((SELECT bool_and(lease_expires_at - clock_timestamp() BETWEEN '70 seconds' AND '75 seconds') FROM sqlstreams.claim('s', 'set', 3)),
  'a lease is the timeout plus 15 seconds');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'set', timeout => '10 seconds') $$, 'alter_group');
SELECT ok((SELECT bool_and(lease_expires_at - clock_timestamp() BETWEEN '20 seconds' AND '25 seconds') FROM sqlstreams.claim('s', 'set', 3)),
  'applies to the next claim');
SELECT is((SELECT (settings ->> 'schema_version')::bigint FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = 'set'), 1::bigint, 'and leaves the rest');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'set', reset => '{timeout,max_reclaims}') $$, 'reset');
SELECT is((SELECT (settings ->> 'timeout')::interval FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = 'set'), '30 seconds'::interval, 'puts the default back');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'set', reset => '{bindings,schema_version,concurrency,concurrency_override,max_retries,max_delays,base_delay,max_delay,exponent,initial_backoff,message_min,message_max}') $$,
  'every setting can be reset');
SELECT fails($$ SELECT sqlstreams.alter_group('s', 'set', reset => '{start_id}') $$, '22023', 'reset', 'the start cannot');
SELECT fails($$ SELECT sqlstreams.alter_group('s', 'set', reset => '{nope}') $$, '22023', 'reset', 'nor what does not exist');
SELECT fails($$ SELECT sqlstreams.alter_group('s', 'set', reset => ARRAY[NULL]::text[]) $$, '22004', 'reset', 'nor NULL');
SELECT fails($$ SELECT sqlstreams.alter_group('s', 'nope', timeout => '1 s') $$, 'SS002', 'consumer group "nope"', 'alter_group of an unknown group');
SELECT fails($$ SELECT sqlstreams.alter_group('nope', 'g', timeout => '1 s') $$, 'SS001', 'stream "nope"', 'alter_group of an unknown stream');
SELECT fails($$ SELECT sqlstreams.alter_group('s', 'set', timeout => '0') $$, '22023', 'timeout', 'alter_group checks as create_group does');

-- drop_group
SELECT min(claim_id) AS held FROM sqlstreams.claim('s', 'late', 2) \gset
SELECT min(claim_id) AS other FROM sqlstreams.claim('s', 'h', 2) \gset
SELECT is(sqlstreams.drop_group('s', 'late'), true, 'drop_group');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'late', :held), 'SS002', 'consumer group "late"', 'its claims are gone with it');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'late') $$, 'SS002', 'consumer group "late"', 'claim from a dropped group');
SELECT fails($$ SELECT sqlstreams.drop_group('s', 'late') $$, 'SS002', 'consumer group "late"', 'drop_group of an unknown group');
SELECT fails($$ SELECT sqlstreams.drop_group('nope', 'g') $$, 'SS001', 'stream "nope"', 'drop_group of an unknown stream');
SELECT is(sqlstreams.drop_group('s', 'late', if_exists => true), false, 'if_exists says that there was none');
SELECT is(sqlstreams.drop_group('nope', 'late', if_exists => true), false, 'also where the stream does not exist');
SELECT is_empty($$ SELECT FROM sqlstreams.leases WHERE consumer_group = 'late' $$, 'no lease of it is left');
SELECT is(sqlstreams.ack('s', 'h', :other), 2::bigint, 'claims of the others stay');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'late') $$, 'a group of the same name');
SELECT is(claimed('s', 'late'), '1 2 3 4 5 6 7 8 9', 'is another group');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'late', :held), 'SS004', NULL, 'which knows nothing of the old claims');
BEGIN;
SELECT is(sqlstreams.drop_group('s', 'late'), true, 'drop_group in a transaction');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'late') $$, 'SS002', NULL, 'gone inside it');
ROLLBACK;
SELECT lives_ok($$ SELECT * FROM sqlstreams.claim('s', 'late') $$, 'a rolled back drop never was');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
