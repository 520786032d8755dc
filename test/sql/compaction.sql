\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- The heads of compacted keys: what produce does with them, and the functions that read them.
CREATE FUNCTION tap.head(a_stream text, a_key text) RETURNS bigint LANGUAGE sql AS $$
  SELECT message_id FROM sqlstreams.compaction_head(a_stream, a_key)
$$;
CREATE FUNCTION tap.heads(a_stream text, OUT heads text) LANGUAGE sql AS $$
  SELECT coalesce(string_agg(message_key || message_id, ' '), '') FROM sqlstreams.compaction_heads(a_stream)
$$;
CREATE FUNCTION tap.put(a_stream text, a_key text, rank bigint DEFAULT 0, version bigint DEFAULT 1) RETURNS bigint LANGUAGE sql AS $$
  SELECT sqlstreams.produce(a_stream, to_jsonb(a_key), a_key, compaction => true, compaction_rank => rank, schema_version => version)
$$;

SELECT sqlstreams.create_stream('s', partition_size => 4) AS id \gset
SELECT 'sqlstreams.message_log_' || :id AS log, 'sqlstreams.compaction_key_' || :id AS keys, 'sqlstreams.compaction_head_' || :id AS heads \gset
SELECT lives_ok($$ SELECT sqlstreams.create_stream('t'), sqlstreams.create_group('s', 'g') $$, 'another stream and a group');

-- the tables
SELECT is_empty($$ SELECT * FROM sqlstreams.compaction_head('s', 'a') $$, 'no head before the first message');
SELECT is(heads('s'), '', 'of no key');
SELECT hasnt_table('sqlstreams', 'compaction_key_' || :id, 'no table of keys before the first');
SELECT hasnt_table('sqlstreams', 'compaction_head_' || :id, 'nor one of heads');
SELECT is(sqlstreams.produce('s', '1', 'a'), 1::bigint, 'a message with a key alone');
SELECT hasnt_table('sqlstreams', 'compaction_key_' || :id, 'needs neither');
SELECT is(put('s', 'a'), 2::bigint, 'a compacted one');
SELECT has_table('sqlstreams', 'compaction_key_' || :id, 'brings the table of keys');
SELECT has_table('sqlstreams', 'compaction_head_' || :id, 'and that of heads');
SELECT results_eq(format('SELECT id, compaction_rank FROM %s ORDER BY id', :'log'), $$ VALUES (1::bigint, NULL::bigint), (2, 0) $$, 'the log says which is compacted');
SELECT results_eq($$ SELECT message_id, payload, message_key, schema_version, compaction_rank, body IS NULL FROM sqlstreams.compaction_head('s', 'a') $$,
  $$ VALUES (2::bigint, '"a"'::jsonb, 'a', 1, 0::bigint, true) $$, 'it is the head');
SELECT results_eq($$ SELECT * FROM sqlstreams.compaction_head('s', 'a') $$, $$ SELECT * FROM sqlstreams.peek('s', 2, 1) $$, 'as peek shows it');
SELECT is(sqlstreams.produce('s', '1', 'a'), 3::bigint, 'one that is not compacted');
SELECT is(head('s', 'a'), 2::bigint, 'does not change the head');
SELECT is(head('t', 'a'), NULL, 'nor does another stream have it');

-- the order of versions
SELECT is(put('s', 'a'), 4::bigint, 'the same version and rank');
SELECT is(head('s', 'a'), 4::bigint, 'the later one is the head');
SELECT is(put('s', 'a', 5), 5::bigint, 'a higher rank');
SELECT is(head('s', 'a'), 5::bigint, 'is the head');
SELECT is(put('s', 'a', 4), 6::bigint, 'a lower one');
SELECT is(head('s', 'a'), 5::bigint, 'is not');
SELECT is(put('s', 'a', 5), 7::bigint, 'an equal one');
SELECT is(head('s', 'a'), 7::bigint, 'is');
SELECT is(put('s', 'a', -9223372036854775808, 2), 8::bigint, 'a higher schema version with the lowest rank');
SELECT is(head('s', 'a'), 8::bigint, 'is the head');
SELECT is(put('s', 'a', 9223372036854775807, 1), 9::bigint, 'a lower schema version with the highest rank');
SELECT is(head('s', 'a'), 8::bigint, 'is not');
SELECT is(sqlstreams.produce_bytes('s', '\x00', 'a', compaction => true, compaction_rank => 1, schema_version => 2), 10::bigint, 'bytes');
SELECT results_eq($$ SELECT message_id, payload, body FROM sqlstreams.compaction_head('s', 'a') $$, $$ VALUES (10::bigint, NULL::jsonb, '\x00'::bytea) $$, 'are as good');
SELECT results_eq(format('SELECT h::text FROM %s h', :'heads'), ARRAY['(a,10,2,1)'], 'one row holds the head');
SELECT results_eq(format('SELECT k::text FROM %s k', :'keys'), ARRAY['(a)'], 'another the key');

-- batches
SELECT results_eq($$ SELECT * FROM sqlstreams.produce_batch('s', '{1,2,3,4,5,6}', '{c,b,c,d,b,c}', compaction => true, compaction_ranks => '{0,NULL,2,0,-1,1}') $$, ARRAY[11, 12, 13, 14, 15, 16]::bigint[], 'a batch with several versions of a key');
SELECT is(heads('s'), 'a10 b12 c13 d14', 'the greatest of each is the head');
SELECT results_eq($$ SELECT * FROM sqlstreams.produce_bytes_batch('s', ARRAY['', '']::bytea[], '{d,c}', compaction => true, compaction_ranks => '{0,1}') $$, ARRAY[17, 18]::bigint[], 'a batch of bytes');
SELECT is(heads('s'), 'a10 b12 c13 d17', 'one wins, one does not');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', '{}', '{}', compaction => true)), 0::bigint, 'an empty batch');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('t', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 2000) i), (SELECT array_agg('k' || i % 500) FROM generate_series(1, 2000) i), compaction => true)), 2000::bigint, 'a large one');
SELECT is((SELECT array_agg(message_id - 1500 = (CASE substr(message_key, 2)::int WHEN 0 THEN 500 ELSE substr(message_key, 2)::int END)) FROM sqlstreams.compaction_heads('t')), array_fill(true, ARRAY[500]), 'the last of each is the head');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1,2}', '{a,NULL}', compaction => true) $$, '22023', 'message_keys', 'each message needs a key');
SELECT is((SELECT messages_head FROM sqlstreams.streams WHERE stream = 's'), 18::bigint, 'what was refused used up no id');

-- duplicates take no key
SELECT is(sqlstreams.produce('s', '1', 'dup', compaction => true, idempotency_key => 'i'), 19::bigint, 'with an idempotency key');
SELECT is(sqlstreams.produce('s', '1', 'dup2', compaction => true, idempotency_key => 'i'), 0::bigint, 'a duplicate');
SELECT results_eq($$ SELECT * FROM sqlstreams.produce_batch('s', '{1,2,3}', '{dup,e,dup}', compaction => true, idempotency_keys => '{i,j,j}') $$, ARRAY[0, 20, 0]::bigint[], 'a batch with duplicates');
SELECT is(heads('s'), 'a10 b12 c13 d17 dup19 e20', 'duplicates are no heads');
SELECT is_empty(format($$ SELECT * FROM %s WHERE message_key = 'dup2' $$, :'keys'), 'and their keys are not taken');

-- in one transaction and one statement
SELECT results_eq($$ SELECT put('s', 'e') FROM generate_series(1, 3) $$, ARRAY[21, 22, 23]::bigint[], 'many in one statement');
SELECT is(head('s', 'e'), 23::bigint, 'the last is the head');
SELECT results_eq($$ SELECT put('s', 'e'), (SELECT message_id FROM sqlstreams.lock_compaction_head('s', 'e')) $$, $$ VALUES (24::bigint, 24::bigint) $$, 'and read beside them');
SELECT results_eq($$ SELECT h.message_id FROM put('s', 'e') p, LATERAL (SELECT * FROM sqlstreams.lock_compaction_head('s', 'e') WHERE p > 0) h $$, ARRAY[25]::bigint[], 'locking the head sees what the same statement produced');
BEGIN;
SELECT is(put('s', 'e'), 26::bigint, 'to be rolled back');
SELECT is(head('s', 'e'), 26::bigint, 'the head in the transaction');
ROLLBACK;
SELECT is(head('s', 'e'), 25::bigint, 'not after it');
BEGIN;
SELECT is(put('s', 'e'), 27::bigint, 'before a savepoint');
SAVEPOINT a;
SELECT is(put('s', 'e', 9), 28::bigint, 'in a savepoint, with a higher rank');
SELECT is(put('s', 'new'), 29::bigint, 'another key');
SELECT is(heads('s'), 'a10 b12 c13 d17 dup19 e28 new29', 'both are heads');
ROLLBACK TO a;
SELECT is(heads('s'), 'a10 b12 c13 d17 dup19 e27', 'they go with the savepoint');
SELECT is(put('s', 'e'), 30::bigint, 'after it');
SAVEPOINT b;
SELECT is(put('s', 'e'), 31::bigint, 'in another');
RELEASE b;
SELECT is(put('s', 'new'), 32::bigint, 'the other key again');
COMMIT;
SELECT is(heads('s'), 'a10 b12 c13 d17 dup19 e31 new32', 'what is left');
BEGIN;
DECLARE c CURSOR FOR SELECT put('s', 'e', i) FROM generate_series(1, 3) i;
FETCH c \g /dev/null
SAVEPOINT a;
FETCH c \g /dev/null
SELECT is(head('s', 'e'), 34::bigint, 'by a cursor');
ROLLBACK TO a;
SELECT is(head('s', 'e'), 33::bigint, 'that was rolled back in part');
COMMIT;
SELECT is(head('s', 'e'), 33::bigint, 'the head is what was fetched before');
SELECT is((SELECT count(*) = count(DISTINCT message_key) FROM sqlstreams.compaction_heads('s')), true, 'one head a key');
SELECT results_eq(format('SELECT count(*) FROM %s', :'heads'), ARRAY[7]::bigint[], 'one row each');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT is(head('s', 'e'), 33::bigint, 'at SERIALIZABLE');
SELECT is(put('s', 'e', 1), 35::bigint, 'the next');
SELECT is(put('s', 'e', 1), 36::bigint, 'and the next');
SELECT is(head('s', 'e'), 36::bigint, 'it is the head');
COMMIT;

-- reading
SELECT is(sqlstreams.produce_batch('s', '{1,2,3,4}', ARRAY['Z', U&'\00E9', 'z', 'ee'], compaction => true) > 0, true, 'more keys') LIMIT 1;
SELECT is(heads('s'), U&'Z37 a10 b12 c13 d17 dup19 e36 ee40 new32 z39 \00E938', 'in the order of their bytes');
SELECT results_eq($$ SELECT message_key FROM sqlstreams.compaction_heads('s', max_keys => 2) $$, ARRAY['Z', 'a'], 'the first two');
SELECT results_eq($$ SELECT message_key FROM sqlstreams.compaction_heads('s', 'a', 2) $$, ARRAY['b', 'c'], 'the next two');
SELECT results_eq($$ SELECT message_key FROM sqlstreams.compaction_heads('s', 'bb', 1) $$, ARRAY['c'], 'after a key that is none');
SELECT is_empty(format($$ SELECT message_key FROM sqlstreams.compaction_heads('s', %L) $$, U&'\00E9'), 'after the last');
SELECT results_eq($$ SELECT message_key FROM sqlstreams.compaction_heads('s', '', 1) $$, ARRAY['Z'], 'the empty string is no key');
SELECT results_eq($$ SELECT count(*) FROM sqlstreams.compaction_heads('t', NULL, NULL) $$, ARRAY[500]::bigint[], 'NULL is the default');
SELECT is_empty($$ SELECT * FROM sqlstreams.compaction_head('s', '') $$, 'nor has it a head');
SELECT is_empty($$ SELECT * FROM sqlstreams.compaction_head('s', 'none') $$, 'an unknown key has none');
SELECT is(put('s', repeat('x', 1024)), 41::bigint, 'the longest key');
SELECT is(head('s', repeat('x', 1024)), 41::bigint, 'has a head');
SELECT fails($$ SELECT sqlstreams.compaction_head('s', repeat('x', 1025)) $$, '54000', 'message_key', 'compaction_head of a longer one');
SELECT fails($$ SELECT sqlstreams.lock_compaction_head('s', repeat('x', 1025)) $$, '54000', 'message_key', 'lock_compaction_head of a longer one');
SELECT fails($$ SELECT sqlstreams.compaction_heads('s', repeat('x', 1025)) $$, '54000', 'after_key', 'compaction_heads after a longer one');
SELECT fails($$ SELECT sqlstreams.lock_compaction_head('s', '') $$, '22023', 'message_key', 'lock_compaction_head of no key');
SELECT fails(format('SELECT sqlstreams.%s(NULL, %L)', f, 'a'), '22004', 'stream', f || ': no stream') FROM unnest(ARRAY['compaction_head', 'compaction_heads', 'lock_compaction_head']) f;
SELECT fails(format('SELECT sqlstreams.%s(%L, %L)', f, 'nope', 'a'), 'SS001', 'nope', f || ': an unknown stream') FROM unnest(ARRAY['compaction_head', 'compaction_heads', 'lock_compaction_head']) f;
SELECT fails(format('SELECT sqlstreams.%s(%L, NULL)', f, 's'), '22004', 'message_key', f || ': no key') FROM unnest(ARRAY['compaction_head', 'lock_compaction_head']) f;
SELECT fails(format($$ SELECT sqlstreams.compaction_heads('s', max_keys => %s) $$, n), '22023', 'max_keys', 'max_keys ' || n) FROM unnest(ARRAY[0, -1, 100001]) n;

-- locking
SELECT is((SELECT message_id FROM sqlstreams.lock_compaction_head('s', 'a')), 10::bigint, 'lock_compaction_head returns the head');
SELECT is_empty($$ SELECT * FROM sqlstreams.lock_compaction_head('s', 'locked') $$, 'or nothing');
SELECT is(head('s', 'locked'), NULL, 'a lock makes no head');
SELECT lives_ok($$ SELECT sqlstreams.create_stream('l'), sqlstreams.lock_compaction_head('l', 'a') $$, 'it makes the tables, too');
SELECT is(put('l', 'a'), 1::bigint, 'then produce finds them');
BEGIN READ ONLY;
SELECT is(head('s', 'a'), 10::bigint, 'read only, compaction_head works');
SELECT is(heads('l'), 'a1', 'and compaction_heads');
SELECT fails($$ SELECT sqlstreams.lock_compaction_head('s', 'a') $$, '25006', 'lock_compaction_head', 'not lock_compaction_head');
ROLLBACK;

-- empty heads
SELECT is(sqlstreams.purge_stream('l'), 1::bigint, 'purge');
SELECT is(head('l', 'a'), NULL, 'empties a head');
SELECT is_empty($$ SELECT * FROM sqlstreams.lock_compaction_head('l', 'a') $$, 'also for who locks it');
SELECT is(heads('l'), '', 'and in the list');
SELECT is(put('l', 'a', -1), 2::bigint, 'a lower rank');
SELECT is(head('l', 'a'), NULL, 'still loses against it');
SELECT is(put('l', 'b'), 3::bigint, 'another key');
SELECT results_eq($$ SELECT message_key FROM sqlstreams.compaction_heads('l', max_keys => 1) $$, ARRAY['b'], 'an empty head does not count');
SELECT is(put('l', 'a'), 4::bigint, 'an equal rank');
SELECT is(heads('l'), 'a4 b3', 'fills it again');
SELECT lives_ok(format('DROP TABLE %s_2', :'log'), 'dropping a partition');
SELECT is(heads('s'), U&'Z37 c13 d17 dup19 e36 ee40 new32 ' || repeat('x', 1024) || U&'41 z39 \00E938', 'empties the heads in it');
SELECT is(head('s', 'a'), NULL, 'for who asks for one, too');

-- rights
CREATE ROLE regress_sqlstreams_owner;
CREATE ROLE regress_sqlstreams_user;
GRANT USAGE ON SCHEMA tap TO PUBLIC;
GRANT CREATE ON SCHEMA sqlstreams TO regress_sqlstreams_owner;
SELECT fails(format('SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.%s(%L, %L)', f, 's', 'a'), '42501', '"s"', f || ' without a right') FROM unnest(ARRAY['compaction_head', 'compaction_heads', 'lock_compaction_head']) f;
GRANT SELECT ON :log TO regress_sqlstreams_user;
SELECT lives_ok($$ SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.compaction_head('s', 'a') $$, 'compaction_head by a reader');
RESET ROLE;
SELECT lives_ok($$ SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.compaction_heads('s') $$, 'compaction_heads by a reader');
RESET ROLE;
SELECT fails($$ SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.lock_compaction_head('s', 'a') $$, '42501', '"s"', 'a reader may not lock');
REVOKE SELECT ON :log FROM regress_sqlstreams_user;
GRANT INSERT (payload) ON :log TO regress_sqlstreams_user;
SELECT lives_ok($$ SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.produce('s', '1', 'r', compaction => true) $$, 'a producer writes heads');
RESET ROLE;
SELECT is(head('s', 'r'), 42::bigint, 'as the owner does');
SELECT fails($$ SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.compaction_head('s', 'a') $$, '42501', '"s"', 'a producer may not read');
SELECT fails($$ SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.lock_compaction_head('s', 'a') $$, '42501', '"s"', 'nor lock');
GRANT SELECT ON :log TO regress_sqlstreams_user;
SELECT lives_ok($$ SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.lock_compaction_head('s', 'a') $$, 'with both rights it may');
RESET ROLE;
ALTER TABLE :log OWNER TO regress_sqlstreams_owner;
SELECT lives_ok($$ SET LOCAL ROLE regress_sqlstreams_owner; SELECT sqlstreams.alter_stream('s') $$, 'alter_stream by a new owner');
RESET ROLE;
SELECT is((SELECT string_agg(DISTINCT relowner::regrole::text, ' ') FROM pg_class WHERE oid IN (:'keys'::regclass, :'heads'::regclass)), 'regress_sqlstreams_owner', 'hands the tables over');

-- what an owner puts on the tables
CREATE FUNCTION tap.change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  CASE TG_ARGV[0]
    WHEN 'refuse' THEN RETURN NULL;
    WHEN 'key' THEN NEW.message_key := 'other';
    WHEN 'no key' THEN NEW.message_key := NULL;
    WHEN 'rank' THEN NEW.compaction_rank := coalesce(NEW.compaction_rank, 0) + 1;
    WHEN 'no rank' THEN NEW.compaction_rank := NULL;
    WHEN 'version' THEN NEW.schema_version := 7;
    WHEN 'header' THEN NEW.headers := '{"h": 1}';
    WHEN 'again' THEN IF NEW.payload = '"n"' THEN PERFORM sqlstreams.produce('s', '"inner"', NEW.message_key, compaction => true, compaction_rank => TG_ARGV[1]::bigint); END IF;
  END CASE;
  RETURN NEW;
END $$;
CREATE TRIGGER change BEFORE INSERT ON :log FOR EACH ROW EXECUTE FUNCTION tap.change('refuse');
SELECT is(put('s', 'd'), 0::bigint, 'a trigger that refuses the row');
SELECT results_eq($$ SELECT * FROM sqlstreams.produce_batch('s', '{1,2}', '{d,new}', compaction => true) $$, ARRAY[0, 0]::bigint[], 'also those of a batch');
SELECT is(head('s', 'd'), 17::bigint, 'leaves the head as it is');
SELECT is(head('s', 'new'), 32::bigint, 'of all keys');
DROP TRIGGER change ON :log;
CREATE TRIGGER change BEFORE INSERT ON :log FOR EACH ROW EXECUTE FUNCTION tap.change('key');
SELECT fails($$ SELECT put('s', 'd') $$, '39P01', 'message_key', 'a trigger that changes the key');
SELECT lives_ok($$ SELECT sqlstreams.produce('s', '1', 'd') $$, 'may do so when the message is not compacted');
DROP TRIGGER change ON :log;
CREATE TRIGGER change BEFORE INSERT ON :log FOR EACH ROW EXECUTE FUNCTION tap.change('no key');
SELECT fails($$ SELECT put('s', 'd') $$, '39P01', 'message_key', 'one that takes the key away');
DROP TRIGGER change ON :log;
CREATE TRIGGER change BEFORE INSERT ON :log FOR EACH ROW EXECUTE FUNCTION tap.change('rank');
SELECT fails($$ SELECT put('s', 'd') $$, '39P01', 'compaction_rank', 'one that changes the rank');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', 'd') $$, '39P01', 'compaction_rank', 'one that compacts a message');
DROP TRIGGER change ON :log;
CREATE TRIGGER change BEFORE INSERT ON :log FOR EACH ROW EXECUTE FUNCTION tap.change('no rank');
SELECT fails($$ SELECT put('s', 'd') $$, '39P01', 'compaction_rank', 'one that takes the rank away');
DROP TRIGGER change ON :log;
CREATE TRIGGER change BEFORE INSERT ON :log FOR EACH ROW EXECUTE FUNCTION tap.change('version');
SELECT fails($$ SELECT put('s', 'd') $$, '39P01', 'schema_version', 'one that changes the version');
DROP TRIGGER change ON :log;
CREATE TRIGGER change BEFORE INSERT ON :log FOR EACH ROW EXECUTE FUNCTION tap.change('header');
SELECT is(put('s', 'd') > 0, true, 'one that changes something else');
SELECT results_eq($$ SELECT headers FROM sqlstreams.compaction_head('s', 'd') $$, $$ VALUES ('{"h": 1}'::jsonb) $$, 'is honoured');
DROP TRIGGER change ON :log;
CREATE TRIGGER change AFTER INSERT ON :log FOR EACH ROW EXECUTE FUNCTION tap.change('again', '0');
SELECT lives_ok($$ SELECT put('s', 'n') $$, 'a trigger that produces a version of the same key');
SELECT results_eq($$ SELECT payload FROM sqlstreams.compaction_head('s', 'n') $$, $$ VALUES ('"inner"'::jsonb) $$, 'which is the newer one');
DROP TRIGGER change ON :log;
CREATE TRIGGER change AFTER INSERT ON :log FOR EACH ROW EXECUTE FUNCTION tap.change('again', '-1');
SELECT lives_ok($$ SELECT put('s', 'n') $$, 'or a version of lower rank');
SELECT results_eq($$ SELECT payload FROM sqlstreams.compaction_head('s', 'n') $$, $$ VALUES ('"n"'::jsonb) $$, 'which is not');
SELECT results_eq(format($$ SELECT count(*) FROM %s WHERE message_key = 'n' $$, :'heads'), ARRAY[1]::bigint[], 'there is one head');
DROP TRIGGER change ON :log;
ALTER TABLE :log ENABLE ROW LEVEL SECURITY;
SELECT fails($$ SELECT sqlstreams.compaction_head('s', 'a') $$, '0A000', 'row-level security', 'policies on the log are not bypassed');
SELECT fails($$ SELECT sqlstreams.lock_compaction_head('s', 'a') $$, '0A000', 'row-level security', 'by none of the functions');
ALTER TABLE :log DISABLE ROW LEVEL SECURITY;
CREATE TRIGGER change BEFORE INSERT ON :heads FOR EACH ROW EXECUTE FUNCTION tap.change('refuse');
SELECT fails($$ SELECT put('s', 'd') $$, '55000', 'compaction_head', 'a trigger on the heads is refused');
DROP TRIGGER change ON :heads;
CREATE TRIGGER change BEFORE INSERT ON :keys FOR EACH ROW EXECUTE FUNCTION tap.change('refuse');
SELECT fails($$ SELECT put('s', 'd') $$, '55000', 'compaction_key', 'one on the keys, too');
DROP TRIGGER change ON :keys;
DROP TABLE :heads;
SELECT fails($$ SELECT put('s', 'd') $$, '55000', '"s"', 'a table that somebody has dropped is said to be missing');
SELECT is(heads('s'), '', 'there are no heads then');
SELECT is(sqlstreams.produce('s', '1', 'd') > 0, true, 'and messages that are not compacted need none');

-- the end
SELECT lives_ok($$ SELECT sqlstreams.rename_stream('s', 'renamed') $$, 'a new name');
SELECT is(put('renamed', 'd') > 0, true, 'has the table made again');
SELECT is(heads('renamed') ~ '^d[0-9]+$', true, 'with what came since');
SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT is((SELECT count(*) FROM pg_class WHERE relnamespace = 'sqlstreams'::regnamespace AND relname LIKE 'compaction%'), 0::bigint, 'the tables go with the stream');
REVOKE CREATE ON SCHEMA sqlstreams FROM regress_sqlstreams_owner;
DROP ROLE regress_sqlstreams_owner, regress_sqlstreams_user;
DROP FUNCTION tap.head, tap.heads, tap.put, tap.change;
SELECT * FROM finish();
