\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Which concurrency a message gets: the group's override, else its own, else the stream's default, else the group's default, else
-- parallel. Messages without a key are parallel.
CREATE FUNCTION pg_temp.policies(a_stream text, a_group text) RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(concat(message_id, ' ', concurrency), ', ' ORDER BY message_id), '') FROM sqlstreams.claim(a_stream, a_group, 100, '1 hour')
$$;

-- each message has a key of its own
SELECT lives_ok($$ SELECT sqlstreams.create_stream('none'), sqlstreams.create_stream('def', message_defaults => '{"concurrency": "exclusive"}') $$, 'a stream without a default, and one with');
SELECT lives_ok(format($$ SELECT sqlstreams.create_group(%L, 'none'), sqlstreams.create_group(%1$L, 'def', concurrency => 'ordered'), sqlstreams.create_group(%1$L, 'over', concurrency => 'exclusive', concurrency_override => 'ordered'), sqlstreams.create_group(%1$L, 'par', concurrency => 'parallel'), sqlstreams.create_group(%1$L, 'all', concurrency_override => 'parallel') $$, s), 'groups of ' || s) FROM unnest('{none,def}'::text[]) s;
SELECT results_eq(format($$ SELECT sqlstreams.produce(%L, '1', 'a'), sqlstreams.produce(%1$L, '2', 'b', concurrency => 'parallel'), sqlstreams.produce(%1$L, '3', 'c', concurrency => 'exclusive'), sqlstreams.produce(%1$L, '4', 'd', concurrency => 'ordered'), sqlstreams.produce(%1$L, '5'), sqlstreams.produce(%1$L, '6', concurrency => 'parallel') $$, s),
  $$ VALUES (1::bigint, 2::bigint, 3::bigint, 4::bigint, 5::bigint, 6::bigint) $$, 'one that does not say, one of each, two without a key') FROM unnest('{none,def}'::text[]) s;
SELECT is(pg_temp.policies(s, g), wanted, format('stream %s, group %s', s, g))
  FROM (VALUES
    ('none', 'none', '1 parallel, 2 parallel, 3 exclusive, 4 ordered, 5 parallel, 6 parallel'),
    ('none', 'def', '1 ordered, 2 parallel, 3 exclusive, 4 ordered, 5 parallel, 6 parallel'),
    ('none', 'over', '1 ordered, 2 ordered, 3 ordered, 4 ordered, 5 parallel, 6 parallel'),
    ('none', 'par', '1 parallel, 2 parallel, 3 exclusive, 4 ordered, 5 parallel, 6 parallel'),
    ('none', 'all', '1 parallel, 2 parallel, 3 parallel, 4 parallel, 5 parallel, 6 parallel'),
    ('def', 'none', '1 exclusive, 2 parallel, 3 exclusive, 4 ordered, 5 parallel, 6 parallel'),
    ('def', 'def', '1 exclusive, 2 parallel, 3 exclusive, 4 ordered, 5 parallel, 6 parallel'),
    ('def', 'over', '1 ordered, 2 ordered, 3 ordered, 4 ordered, 5 parallel, 6 parallel'),
    ('def', 'par', '1 exclusive, 2 parallel, 3 exclusive, 4 ordered, 5 parallel, 6 parallel'),
    ('def', 'all', '1 parallel, 2 parallel, 3 parallel, 4 parallel, 5 parallel, 6 parallel')) u (s, g, wanted);

-- what is refused
SELECT fails(format('SELECT sqlstreams.produce(%L, %L, concurrency => %L)', 'none', '1', c), '22023', 'message_key', c || ' needs a key') FROM unnest('{exclusive,ordered}'::text[]) c;
SELECT fails($$ SELECT sqlstreams.produce('none', '1', '', concurrency => 'exclusive') $$, '22023', 'message_key', 'the empty string is none');
SELECT fails($$ SELECT sqlstreams.produce_batch('none', '{1,2}', '{a,NULL}', concurrency => 'ordered') $$, '22023', 'message_keys', 'each message of a batch needs one');
SELECT fails(format('SELECT sqlstreams.produce(%L, %L, %L, concurrency => %L)', 'none', '1', 'a', c), '22023', 'concurrency', 'no concurrency: ' || c) FROM unnest('{serial,Exclusive,"",none}'::text[]) c;
SELECT fails(format('SELECT sqlstreams.create_group(%L, %L, %s => %L)', 'none', 'bad', a, 'serial'), '22023', a, 'no ' || a) FROM unnest('{concurrency,concurrency_override}'::text[]) a;
SELECT fails(format('SELECT sqlstreams.alter_group(%L, %L, %s => %L)', 'none', 'none', a, 'serial'), '22023', a, 'alter_group: no ' || a) FROM unnest('{concurrency,concurrency_override}'::text[]) a;
SELECT fails($$ SELECT sqlstreams.create_stream('bad', message_defaults => '{"concurrency": "serial"}') $$, '22023', 'concurrency', 'nor a default');
SELECT fails($$ SELECT sqlstreams.produce('none', '1', 'a', compaction => true, concurrency => 'ordered') $$, '22023', 'concurrency', 'compaction and ordered');
SELECT lives_ok(format($$ SELECT sqlstreams.produce('none', '1', 'a', compaction => true, concurrency => %L) $$, c), 'compaction and ' || coalesce(c, 'nothing')) FROM unnest('{parallel,exclusive,NULL}'::text[]) c;

-- a stream that orders by default
SELECT lives_ok($$ SELECT sqlstreams.create_stream('o', message_defaults => '{"concurrency": "ordered"}'), sqlstreams.create_group('o', 'g') $$, 'a stream with ordered as its default');
SELECT is(sqlstreams.produce('o', '1'), 1::bigint, 'the default is not for messages without a key');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('o', '{2,3,4}', '{NULL,a,""}')), 3::bigint, 'nor in a batch');
SELECT fails($$ SELECT sqlstreams.produce('o', '1', 'a', compaction => true) $$, '22023', 'compaction', 'compaction is refused');
SELECT fails($$ SELECT sqlstreams.produce_batch('o', '{1}', '{a}', compaction => true) $$, '22023', 'compaction', 'in a batch, too');
SELECT is(sqlstreams.produce('o', '5', 'b', compaction => true, concurrency => 'exclusive'), 5::bigint, 'but for a message that asks for something else');
SELECT is(sqlstreams.produce('o', '6', 'c', compaction => true, concurrency => 'parallel'), 6::bigint, 'be it parallel');
SELECT is(pg_temp.policies('o', 'g'), '1 parallel, 2 parallel, 3 ordered, 4 parallel, 5 exclusive, 6 parallel', 'what each gets');
SELECT is((SELECT messages_head FROM sqlstreams.streams WHERE stream = 'o'), 6::bigint, 'what was refused used up no id');
-- by message_defaults that are changed
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('o', reset => '{message_defaults}') $$, 'the default is reset');
SELECT is(sqlstreams.produce('o', '7', 'd', compaction => true), 7::bigint, 'compaction is accepted');
SELECT is(pg_temp.policies('o', 'g'), '7 parallel', 'and parallel');

-- a group's concurrency that is changed applies to what is claimed or deferred after it
SELECT lives_ok($$ SELECT sqlstreams.create_stream('c'), sqlstreams.create_group('c', 'g') $$, 'a stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('c', '{1,2,3,4,5,6}', '{a,a,a,a,a,a}')), 6::bigint, 'six messages of a key');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.claim('c', 'g', 2)), '1 2', 'parallel');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('c', 'g', concurrency => 'exclusive') $$, 'exclusive from here on');
SELECT is((SELECT string_agg(message_id || ' ' || concurrency, ', ') FROM sqlstreams.claim('c', 'g', 2)), '3 exclusive', 'one of the key, beside the parallel ones');
SELECT is((SELECT string_agg(message_id || ' ' || status, ', ' ORDER BY message_id) FROM sqlstreams.exceptions('c')), '4 deferred, 5 deferred, 6 deferred', 'the others are deferred');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('c', 'g', reset => '{concurrency}') $$, 'parallel again');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('c', '{7}', '{a}')), 1::bigint, 'a message');
SELECT is((SELECT string_agg(message_id || ' ' || concurrency, ', ') FROM sqlstreams.claim('c', 'g', 10) WHERE message_id = 7), '7 parallel', 'waits for nothing');
SELECT ok((SELECT sum(sqlstreams.ack('c', 'g', claim_id)) FROM (SELECT claim_id FROM sqlstreams.leases WHERE stream = 'c') l) >= 4, 'all are acked');
DO $$ BEGIN FOR i IN 1 .. 4 LOOP PERFORM sqlstreams.ack('c', 'g', c.claim_id, ARRAY[c.message_id]) FROM sqlstreams.claim('c', 'g', 10) c; END LOOP; END $$;
SELECT is((SELECT count(*) FROM sqlstreams.exceptions('c')), 0::bigint, 'none of those that were deferred is forgotten');
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE stream = 'c'), 7::bigint, 'all are resolved');

-- the group's settings say so
SELECT is((SELECT concat(settings ->> 'concurrency', ' ', settings ->> 'concurrency_override') FROM sqlstreams.consumer_groups WHERE stream = 'none' AND consumer_group = 'over'), 'exclusive ordered', 'in the view');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('none', 'over', reset => '{concurrency_override}') $$, 'the override is reset');
SELECT is(sqlstreams.produce('none', '9', 'z'), 10::bigint, 'a message');
SELECT is((SELECT string_agg(concurrency, ' ') FROM sqlstreams.claim('none', 'over', 100) WHERE message_id = 10), 'exclusive', 'the default is left');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
