\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- One message for each routing key; its payload is the key.
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7) $$, 'a stream');
SELECT results_eq($$ SELECT count(*) FROM sqlstreams.produce_batch('s',
    (SELECT array_agg(coalesce(to_jsonb(k), 'null') ORDER BY n) FROM unnest(ARRAY['order.created', 'order.paid', 'order.eu.paid', 'order.', 'order', 'orders.paid', 'my.order.paid', '*', '', NULL, 'a+b', 'aab', '[ab]', 'a', 'A', 'x\y', 'größe.€', 'order.paid.']) WITH ORDINALITY u(k, n)),
    routing_keys => ARRAY['order.created', 'order.paid', 'order.eu.paid', 'order.', 'order', 'orders.paid', 'my.order.paid', '*', '', NULL, 'a+b', 'aab', '[ab]', 'a', 'A', 'x\y', 'größe.€', 'order.paid.']) $$,
  $$ VALUES (18::bigint) $$, 'eighteen messages');

-- what a group with these bindings gets
CREATE FUNCTION pg_temp.gets(patterns text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  result text;
BEGIN
  PERFORM sqlstreams.create_group('s', 'probe', bindings => patterns);
  SELECT coalesce(string_agg(coalesce(payload #>> '{}', 'null'), ' ' ORDER BY message_id), '') INTO result FROM sqlstreams.claim('s', 'probe', 100);
  PERFORM sqlstreams.drop_group('s', 'probe');
  RETURN result;
END $$;
SELECT is(pg_temp.gets('{order.paid}'), 'order.paid', 'a literal pattern matches the whole key, nothing more');
SELECT is(pg_temp.gets('{order}'), 'order', 'neither a beginning of it');
SELECT is(pg_temp.gets('{paid}'), '', 'nor an end');
SELECT is(pg_temp.gets('{order.*}'), 'order.created order.paid order.eu.paid order. order.paid.', 'a star at the end matches any run, none and dots included');
SELECT is(pg_temp.gets('{*.paid}'), 'order.paid order.eu.paid orders.paid my.order.paid', 'a star at the beginning');
SELECT is(pg_temp.gets('{order*paid}'), 'order.paid order.eu.paid orders.paid', 'a star in the middle');
SELECT is(pg_temp.gets('{order.paid*}'), 'order.paid order.paid.', 'the run may be empty');
SELECT is(pg_temp.gets('{*order.paid}'), 'order.paid my.order.paid', 'also at the beginning');
SELECT is(pg_temp.gets('{*order*paid*}'), 'order.paid order.eu.paid orders.paid my.order.paid order.paid.', 'several stars');
SELECT is(pg_temp.gets('{o*r*.*p*d}'), 'order.paid order.eu.paid orders.paid', 'stars that have to go back');
SELECT is(pg_temp.gets('{a*b}'), 'a+b aab', 'a star takes as little as it must');
SELECT is(pg_temp.gets('{a*a*b}'), 'aab', 'and as much');
SELECT is(pg_temp.gets('{order**paid}'), pg_temp.gets('{order*paid}'), 'two stars are one');
SELECT is(pg_temp.gets('{*}'), 'order.created order.paid order.eu.paid order. order orders.paid my.order.paid * a+b aab [ab] a A x\y größe.€ order.paid.',
  'a star matches every key, but a message without a key, or an empty one, which is none');
SELECT is(pg_temp.gets(NULL), 'order.created order.paid order.eu.paid order. order orders.paid my.order.paid *  null a+b aab [ab] a A x\y größe.€ order.paid.', 'without bindings a group gets all');
SELECT is(pg_temp.gets('{order.paid,a,nothing}'), 'order.paid a', 'several patterns: one has to match');
SELECT is(pg_temp.gets('{order.paid,*.paid,order.paid}'), 'order.paid order.eu.paid orders.paid my.order.paid', 'a message that two match comes once');
-- nothing but the star means anything else than itself
SELECT is(pg_temp.gets('{a+b}'), 'a+b', 'a plus');
SELECT is(pg_temp.gets('{[ab]}'), '[ab]', 'brackets');
SELECT is(pg_temp.gets('{order?paid}'), '', 'a question mark');
SELECT is(pg_temp.gets('{order.pai.}'), '', 'a dot');
SELECT is(pg_temp.gets('{order%,order_paid,^order$,#,(a|A),a.*}'), '', 'and what patterns are made of elsewhere');
SELECT is(pg_temp.gets(ARRAY['x\y']), 'x\y', 'a backslash');
SELECT is(pg_temp.gets(ARRAY['\*']), '', 'does not escape');
SELECT is(pg_temp.gets('{A}'), 'A', 'case counts');
SELECT is(pg_temp.gets('{gr*€}'), 'größe.€', 'characters of more than one byte');
SELECT is(pg_temp.gets(ARRAY[repeat('*a', 500) || '*']), '', 'a pattern of a thousand bytes');

-- what is refused
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', bindings => '{}') $$, '22023', 'bindings', 'no pattern');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', bindings => '{""}') $$, '22023', 'bindings', 'an empty pattern');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', bindings => '{{a,b},{c,d}}') $$, '22023', 'bindings', 'two dimensions');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', bindings => ARRAY['a', NULL]) $$, '22004', 'bindings', 'a NULL pattern');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', bindings => ARRAY[repeat('a', 1025)]) $$, '22023', 'bindings', 'a pattern that no key is as long as');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'x', bindings => ARRAY[repeat('a', 1024)]), sqlstreams.drop_group('s', 'x') $$, 'one of 1,024 bytes is good');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'g', bindings => '[5:6]={order.*,a}') $$, 'an array may begin anywhere');
SELECT is((SELECT bindings::text[] = '[5:6]={order.*,a}'::text[] FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), true, 'the view shows the patterns');
SELECT fails($$ SELECT sqlstreams.alter_group('s', 'g', bindings => '{}') $$, '22023', 'bindings', 'alter_group: no pattern');
SELECT fails($$ SELECT sqlstreams.alter_group('s', 'g', bindings => ARRAY[NULL]::text[]) $$, '22004', 'bindings', 'alter_group: a NULL pattern');

-- changed bindings apply from the cursor on
SELECT is(claimed('s', 'g', 2), '"order.created" "order.paid"', 'two of the group');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', bindings => '{order,*.paid}') $$, 'other bindings');
SELECT is(claimed('s', 'g', 2), '"order.eu.paid" "order"', 'what was passed stays passed, the rest is matched anew');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', timeout => '1 minute') $$, 'another setting');
SELECT is(claimed('s', 'g', 1), '"orders.paid"', 'leaves them alone');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', reset => '{bindings}') $$, 'reset');
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'g', 100)), 12::bigint, 'from there on the group gets all');
BEGIN;
SELECT sqlstreams.alter_group('s', 'g', bindings => '{no}') \g /dev/null
SELECT sqlstreams.produce('s', '"yes"', routing_key => 'yes') \g /dev/null
SELECT is(claimed('s', 'g'), '', 'they apply in the transaction that changes them');
ROLLBACK;
SELECT sqlstreams.produce('s', '"yes"', routing_key => 'yes') \g /dev/null
SELECT is(claimed('s', 'g'), '"yes"', 'and not once it is rolled back');

-- what was claimed stays the claim's, whatever the bindings became
SELECT lives_ok($$ SELECT sqlstreams.create_stream('t', partition_size => 10), sqlstreams.create_group('t', 'even', bindings => '{even}'), sqlstreams.create_group('t', 'all') $$, 'another stream');
SELECT lives_ok($$ SELECT sqlstreams.produce_batch('t', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 30) i),
    routing_keys => (SELECT array_agg(CASE i % 2 WHEN 0 THEN 'even' ELSE 'odd' END ORDER BY i) FROM generate_series(1, 30) i)) $$, 'thirty messages, odd and even');
SELECT is(claimed('t', 'even', 5, '1 microsecond'), '2 4 6 8 10', 'a claim of five');
SELECT lives_ok($$ SELECT wait_for_expiry('t', 'even') $$, 'is lost');
SELECT is(claimed('t', 'even', 3, '1 microsecond'), '2 4 6', 'what fits is taken over');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('t', 'even', bindings => '{odd}'), wait_for_expiry('t', 'even') $$, 'lost again, and other bindings');
SELECT results_eq($$ SELECT message_id, takeovers FROM sqlstreams.claim('t', 'even', 7, '1 hour') $$,
  $$ VALUES (2::bigint, 2), (4, 2), (6, 2), (8, 1), (10, 1), (11, 0), (13, 0) $$, 'what was claimed is taken over as it was, what is new is odd');
SELECT min(claim_id) AS claim FROM sqlstreams.leases WHERE stream = 't' AND consumer_group = 'even' \gset
SELECT is(sqlstreams.release('t', 'even', :claim, '{4,6,13}'), 3::bigint, 'three are released');
SELECT is(claimed('t', 'even', 5), '4 6 13 15 17', 'and come back, just these');
SELECT is(claimed('t', 'all', 6), '1 2 3 4 5 6', 'another group is not concerned');

-- max_bytes counts what is returned
SELECT lives_ok($$ SELECT sqlstreams.create_stream('b'), sqlstreams.create_group('b', 'g', bindings => '{yes}') $$, 'a stream of large messages');
SELECT lives_ok($$ SELECT sqlstreams.produce_batch('b', (SELECT array_agg(to_jsonb(repeat('x', 1000))) FROM generate_series(1, 20)),
    routing_keys => (SELECT array_agg(CASE i % 5 WHEN 0 THEN 'yes' ELSE 'no' END ORDER BY i) FROM generate_series(1, 20) i)) $$, 'twenty, four of them for the group');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('b', 'g', 10, max_bytes => 1)), '{5}'::bigint[], 'one at least');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('b', 'g', 10, max_bytes => 1500)), '{10,15}'::bigint[], 'up to the one that reaches it');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.pop('b', 'g', 10)), '{20}'::bigint[], 'pop does the same');

-- a claim steps over no more than max_scan messages, and each of them once (C2)
SELECT lives_ok($$ SELECT sqlstreams.create_stream('m', partition_size => 1500), sqlstreams.create_group('m', 'g', bindings => '{rare}'), sqlstreams.create_group('m', 'none', bindings => '{never}') $$, 'a long stream');
SELECT lives_ok($$ SELECT sqlstreams.produce_batch('m', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 3500) i),
    routing_keys => (SELECT array_agg(CASE WHEN i IN (1500, 1501, 3300) THEN 'rare' ELSE 'common' END ORDER BY i) FROM generate_series(1, 3500) i)) $$, '3,500 messages');
SELECT is((SELECT setting || ' ' || context FROM pg_settings WHERE name = 'sqlstreams.max_scan'), '10000 user', 'the setting');
SELECT fails($$ SET sqlstreams.max_scan = 999 $$, '22023', 'sqlstreams.max_scan', 'is at least 1,000');
SELECT fails($$ SET sqlstreams.max_scan = 1000001 $$, '22023', 'sqlstreams.max_scan', 'and at most a million');
SET sqlstreams.max_scan = 1000;
CREATE FUNCTION pg_temp.progress(a_group text, OUT claimed text, OUT cursor_at bigint) LANGUAGE plpgsql AS $$
BEGIN
  SELECT tap.claimed('m', a_group) INTO claimed;
  SELECT g.claimed INTO cursor_at FROM sqlstreams.consumer_groups g WHERE stream = 'm' AND consumer_group = a_group;
END $$;
SELECT results_eq($$ SELECT p.* FROM generate_series(1, 5) i, LATERAL (SELECT * FROM pg_temp.progress(left('none', 4 + i * 0))) p $$,
  $$ VALUES ('', 1000::bigint), ('', 2000), ('', 3000), ('', 3500), ('', 3500) $$, 'a group that nothing matches gets on with each empty claim');
SELECT results_eq($$ SELECT p.* FROM generate_series(1, 4) i, LATERAL (SELECT * FROM pg_temp.progress(left('g', 1 + i * 0))) p $$,
  $$ VALUES ('', 1000::bigint), ('1500 1501', 2002), ('', 3002), ('3300', 3500) $$, 'so does one that few match');
RESET sqlstreams.max_scan;
SELECT results_eq($$ SELECT claimed, backlog, leased FROM sqlstreams.consumer_groups WHERE stream = 'm' ORDER BY consumer_group $$,
  $$ VALUES (3500::bigint, 0::bigint, 3::bigint), (3500, 0, 0) $$, 'nothing is behind');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
