\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 5), sqlstreams.create_group('s', 'all'), sqlstreams.create_group('s', 'two', schema_version => 2),
    sqlstreams.create_group('s', 'max', schema_version => 2147483647), sqlstreams.create_group('s', 'both', schema_version => 1, bindings => '{a*}') $$, 'a stream and its groups');
SELECT lives_ok($$ SELECT sqlstreams.produce_batch('s', '{1,2,3}', routing_keys => '{a,b,NULL}') $$, 'three messages of the first version');
SELECT lives_ok($$ SELECT sqlstreams.produce_batch('s', '{4,5,6}', routing_keys => '{a,b,NULL}', schema_version => 2) $$, 'three of the second');
SELECT lives_ok($$ SELECT sqlstreams.produce('s', '7', routing_key => 'ab'), sqlstreams.produce('s', '8', schema_version => 2147483647), sqlstreams.produce('s', '9', schema_version => 2) $$, 'and others');
SELECT is(claimed('s', 'all'), '1 2 3 4 5 6 7 8 9', 'a group that sets none gets every version');
SELECT is(claimed('s', 'two', 2), '4 5', 'one that does gets its version only');
SELECT is(claimed('s', 'two'), '6 9', 'wherever they are');
SELECT is(claimed('s', 'max'), '8', 'the highest version');
SELECT is(claimed('s', 'both'), '1 7', 'bindings apply too');
SELECT is((SELECT array_agg(schema_version ORDER BY consumer_group COLLATE "C")::text FROM sqlstreams.consumer_groups), '{NULL,1,2147483647,2}', 'the view shows it');
SELECT is((SELECT sum(backlog) FROM sqlstreams.consumer_groups), 0::numeric, 'nothing is behind');

-- a change applies from the cursor on
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'change', schema_version => 1) $$, 'another group');
SELECT is(claimed('s', 'change', 1), '1', 'its first message');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'change', schema_version => 2) $$, 'another version');
SELECT is(claimed('s', 'change', 2), '4 5', 'from the cursor on');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'change', reset => '{schema_version}') $$, 'reset');
SELECT is(claimed('s', 'change'), '6 7 8 9', 'every version');

-- what was claimed stays the claim's
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'lost', schema_version => 2) $$, 'another group');
SELECT is(claimed('s', 'lost', 2, '1 microsecond'), '4 5', 'a claim');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'lost', schema_version => 2147483647), wait_for_expiry('s', 'lost') $$, 'that is lost, and another version');
SELECT is(claimed('s', 'lost'), '4 5 8', 'is taken over as it was');

-- what is refused
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', schema_version => 0) $$, '22023', 'schema_version', 'version 0');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', schema_version => -1) $$, '22023', 'schema_version', 'version -1');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', schema_version => 2147483648) $$, '22023', 'schema_version', 'version 2^31');
SELECT fails($$ SELECT sqlstreams.alter_group('s', 'all', schema_version => 0) $$, '22023', 'schema_version', 'alter_group: version 0');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
