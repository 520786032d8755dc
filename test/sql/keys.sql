\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Keys are compared byte by byte, and have up to 1,024 of these.
CREATE FUNCTION pg_temp.claimed_ids(a_stream text, a_group text DEFAULT 'g') RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(message_id::text, ' ' ORDER BY message_id), '') FROM sqlstreams.claim(a_stream, a_group, 100, '1 hour')
$$;
-- keys that some collation, or a careless comparison, takes for one
CREATE TEMP TABLE key AS SELECT n, key FROM unnest(ARRAY['a', 'A', 'a ', ' a', U&'\00E9', U&'e\0301', 'e', U&'\00DF', 'ss', U&'\0130', 'i', 'I', U&'\0131', U&'\+01F600', '%', '_', '*', '''', '"', '\', '\\', 'NULL', 'null', '0', '00', U&'\FEFFa', U&'a\200B', E'a\n', E'a\t', E'\x01', repeat('x', 1023), repeat('x', 1024)]) WITH ORDINALITY k (key, n);

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 1000), sqlstreams.create_group('s', 'x', concurrency_override => 'exclusive'), sqlstreams.create_group('s', 'o', concurrency_override => 'ordered'), sqlstreams.create_group('s', 'p') $$, 'a stream');
SELECT is((SELECT count(*) FROM key, LATERAL sqlstreams.produce('s', to_jsonb(n), key) p WHERE p = n), 32::bigint, 'a message of each key');
SELECT is((SELECT count(*) FROM key, LATERAL sqlstreams.produce('s', to_jsonb(n), key) p WHERE p = n + 32), 32::bigint, 'and another');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.claim('s', g, 100, '1 hour')), (SELECT string_agg(i::text, ' ') FROM generate_series(1, 32) i), 'one of each: ' || g) FROM unnest('{x,o}'::text[]) g;
SELECT is((SELECT bool_and(e.blocked_by = e.message_id - 32 AND e.message_key = k.key COLLATE "C") FROM sqlstreams.exceptions('s', g) e JOIN key k ON k.n = e.message_id - 32), true, 'the other waits for it: ' || g) FROM unnest('{x,o}'::text[]) g;
SELECT is((SELECT sum(sqlstreams.ack('s', g, claim_id)) FROM (SELECT claim_id FROM sqlstreams.leases WHERE consumer_group = g) l), 32::numeric, 'acked: ' || g) FROM unnest('{x,o}'::text[]) g;
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', g, 100, '1 hour') WHERE message_id > 32), 32::bigint, 'the others: ' || g) FROM unnest('{x,o}'::text[]) g;
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'p', 100) c JOIN key k ON k.key = c.message_key COLLATE "C" AND k.n IN (c.message_id, c.message_id - 32)), 64::bigint, 'keys come as they were given');
SELECT is((SELECT count(*) FROM key, LATERAL sqlstreams.key_messages('s', key) m WHERE m.message_id IN (n, n + 32)), 64::bigint, 'key_messages finds them');
SELECT lives_ok($$ SELECT sqlstreams.create_stream('c', partition_size => 1000), sqlstreams.create_group('c', 'g') $$, 'a stream for compaction');
SELECT is((SELECT count(*) FROM key, LATERAL sqlstreams.produce('c', to_jsonb(n), key, compaction => true) p), 32::bigint, 'a version of each key');
SELECT is((SELECT count(*) FROM key, LATERAL sqlstreams.produce('c', to_jsonb(n), key, compaction => true) p), 32::bigint, 'and a newer one');
SELECT is(pg_temp.claimed_ids('c'), (SELECT string_agg(i::text, ' ' ORDER BY i) FROM generate_series(33, 64) i), 'the newer ones are delivered');
SELECT is((SELECT count(*) FROM sqlstreams.compaction_heads('c')), 32::bigint, 'one head each');

-- how long they may be: in bytes
SELECT is(sqlstreams.produce('s', '1', repeat(U&'\00E9', 512), concurrency => 'exclusive') > 0, true, 'a thousand and twenty-four bytes in characters of two');
SELECT fails(format('SELECT sqlstreams.produce(%L, %L, %L%s)', 's', '1', repeat(U&'\00E9', 512) || 'x', more), '54000', 'message_key', 'one more' || more) FROM unnest(ARRAY['', ', concurrency => ''exclusive''', ', concurrency => ''ordered''', ', compaction => true']) more;
SELECT fails(format('SELECT sqlstreams.produce(%L, %L, %L)', 's', '1', repeat('x', 1025)), '54000', 'message_key', 'one byte more');
SELECT fails(format('SELECT sqlstreams.produce_batch(%L, %L, %L)', 's', '{1,2}', ARRAY['a', repeat('x', 1025)]), '54000', 'message_key', 'in a batch');
SELECT fails(format('SELECT sqlstreams.produce_bytes(%L, %L, %L)', 's', 'b', repeat('x', 1025)), '54000', 'message_key', 'of bytes');
-- long keys that do not compress
SELECT is((SELECT count(*) FROM generate_series(1, 20) i, LATERAL sqlstreams.produce('c', '1', (SELECT string_agg(md5(format('%s %s', i, j)), '' ORDER BY j) FROM generate_series(1, 32) j), compaction => true, concurrency => 'exclusive') p), 20::bigint, 'twenty of 1,024 bytes');
SELECT is((SELECT count(*) FROM sqlstreams.claim('c', 'g', 100)), 20::bigint, 'are claimed');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('c', array_fill('1'::jsonb, ARRAY[3]), array_fill(repeat('y', 1024), ARRAY[3]), concurrency => 'ordered')), 3::bigint, 'three of one');
SELECT is((SELECT count(*) FROM sqlstreams.claim('c', 'g', 100)), 1::bigint, 'come one by one');

-- the empty string is no key
SELECT lives_ok($$ SELECT sqlstreams.create_stream('e'), sqlstreams.create_group('e', 'g', concurrency_override => 'ordered') $$, 'a stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('e', '{1,2,3,4}', '{"",NULL,"",NULL}')), 4::bigint, 'messages without a key, and with an empty one');
SELECT is(sqlstreams.produce('e', '5', ''), 5::bigint, 'by produce');
SELECT is((SELECT string_agg(concat(message_id, ' ', concurrency, ' ', coalesce(message_key, 'none')), ', ' ORDER BY message_id) FROM sqlstreams.claim('e', 'g', 10)), '1 parallel none, 2 parallel none, 3 parallel none, 4 parallel none, 5 parallel none', 'all are without');
SELECT fails($$ SELECT sqlstreams.produce('e', '1', '', compaction => true) $$, '22023', 'message_key', 'compaction of an empty key');

-- groups of two streams, and two groups of a stream, share no keys
SELECT lives_ok($$ SELECT sqlstreams.create_stream('t'), sqlstreams.create_group('t', 'g'), sqlstreams.create_group('t', 'h') $$, 'another stream');
SELECT is(sqlstreams.produce('t', '1', 'a', concurrency => 'exclusive') + sqlstreams.produce('e', '6', 'a'), 7::bigint, 'a message in each');
SELECT is(pg_temp.claimed_ids('t') || ' ' || pg_temp.claimed_ids('t', 'h') || ' ' || pg_temp.claimed_ids('e'), '1 1 6', 'all three get it');

-- a key alone changes nothing
SELECT lives_ok($$ SELECT sqlstreams.create_stream('k'), sqlstreams.create_group('k', 'g') $$, 'a group that sets no concurrency');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('k', array_fill('1'::jsonb, ARRAY[5]), array_fill('a'::text, ARRAY[5]))), 5::bigint, 'five of a key');
SELECT is((SELECT string_agg(message_id || ' ' || concurrency, ', ' ORDER BY message_id) FROM sqlstreams.claim('k', 'g', 10)), '1 parallel, 2 parallel, 3 parallel, 4 parallel, 5 parallel', 'all are delivered');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
