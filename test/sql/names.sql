\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Names that nobody means to send. What is allowed works everywhere; what is not is refused, and never reaches an identifier unquoted.
SELECT fails($$ SELECT sqlstreams.create_stream(NULL) $$, '22004', 'stream', 'a NULL stream');
SELECT fails(format('SELECT sqlstreams.create_stream(%L)', name), '22023', 'stream', 'stream ' || shown)
  FROM (VALUES (1, '', 'of no characters'), (2, 'Orders', 'with a capital'), (3, repeat('n', 201), 'of 201 bytes'), (4, 'a"b', 'with a double quote'), (5, 'a''b', 'with a quote'),
               (6, '$$;drop', 'that is SQL'), (7, 'a b', 'with a blank'), (8, ' a', 'that begins with a blank'), (9, 'a ', 'that ends with a blank'), (10, E'a\n', 'that ends with a newline'),
               (11, E'a\tb', 'with a tab'), (12, 'a\b', 'with a backslash'), (13, 'a/b', 'with a slash'), (14, 'a%b', 'with a percent sign'), (15, 'a;b', 'with a semicolon'),
               (16, U&'\00E9', 'of an accented letter'), (17, U&'\65E5\672C', 'in Japanese'), (18, U&'\0131', 'of a dotless i'), (19, U&'a\FF0Eb', 'with a fullwidth dot'), (20, U&'\+01F600', 'of an emoji'),
               (21, '__system.', 'of the reserved prefix'), (22, '__system.x', 'with the reserved prefix')) v (n, name, shown) ORDER BY n;
SELECT lives_ok(format('SELECT sqlstreams.create_stream(%L), sqlstreams.create_group(%L, %L)', name, name, name), 'stream and group ' || shown)
  FROM (VALUES (1, 'orders', 'orders'), (2, 'a.b', 'with a dot'), (3, '.', 'of a dot'), (4, '..', 'of two dots'), (5, '-', 'of a dash'), (6, '--', 'of two dashes'), (7, '_', 'of an underscore'),
               (8, '0', 'of a digit'), (9, 'select', 'of a keyword'), (10, 'public', 'public'), (11, '__system', 'of the prefix without its dot'), (12, 'x__system.y', 'with the prefix inside'),
               (13, repeat('n', 200), 'of 200 bytes'), (14, repeat('n', 199) || 'm', 'of 200 bytes that differs in the last')) v (n, name, shown) ORDER BY n;
SELECT lives_ok($$ SELECT sqlstreams.create_group('orders', '__system.g') $$, 'a group may have the reserved prefix');
SELECT fails($$ SELECT sqlstreams.create_group('orders', NULL) $$, '22004', 'consumer_group', 'a NULL group');
SELECT fails(format('SELECT sqlstreams.create_group(%L, %L)', 'orders', name), '22023', 'consumer_group', 'group ' || shown)
  FROM (VALUES (1, '', 'of no characters'), (2, 'Orders', 'with a capital'), (3, repeat('n', 201), 'of 201 bytes'), (4, 'a"b', 'with a double quote'), (5, 'a''b', 'with a quote'),
               (6, '$$;drop', 'that is SQL'), (7, 'a b', 'with a blank'), (8, E'a\n', 'that ends with a newline'), (9, U&'\00E9', 'of an accented letter'), (10, U&'\65E5\672C', 'in Japanese')) v (n, name, shown) ORDER BY n;
SELECT fails(format('SELECT sqlstreams.rename_stream(%L, %L)', 'orders', name), '22023', 'new_name', 'new name ' || shown)
  FROM (VALUES (1, '', 'of no characters'), (2, 'Orders', 'with a capital'), (3, repeat('n', 201), 'of 201 bytes'), (4, '$$;drop', 'that is SQL'), (5, E'a\n', 'that ends with a newline'), (6, '__system.x', 'with the reserved prefix')) v (n, name, shown) ORDER BY n;
SELECT fails($$ SELECT sqlstreams.rename_stream('orders', NULL) $$, '22004', 'new_name', 'a NULL new name');

-- every function with every name that is allowed
SELECT is((SELECT array_agg(sqlstreams.produce(stream, to_jsonb(stream), idempotency_key => stream) ORDER BY stream) FROM sqlstreams.streams), array_fill(1::bigint, ARRAY[14]), 'produce to each');
SELECT is((SELECT array_agg((SELECT sqlstreams.produce_batch(stream, ARRAY['2']::jsonb[])) ORDER BY stream) FROM sqlstreams.streams), array_fill(2::bigint, ARRAY[14]), 'produce_batch to each');
SELECT is((SELECT bool_and(m.payload #>> '{}' = s.stream) FROM sqlstreams.streams s, sqlstreams.peek(s.stream, max_messages => 1) m), true, 'peek at each');
CREATE TABLE tap.held AS SELECT s.stream, c.claim_id, c.payload FROM sqlstreams.streams s, sqlstreams.claim(s.stream, s.stream, 1, '1 hour') c;
SELECT is((SELECT count(*) FROM tap.held WHERE payload #>> '{}' = stream), 14::bigint, 'claim from each');
SELECT is((SELECT count(*) FROM sqlstreams.leases l JOIN tap.held h ON l.stream = h.stream AND l.consumer_group = h.stream AND l.claim_id = h.claim_id), 14::bigint, 'leases of each');
SELECT is((SELECT count(*) FROM tap.held WHERE sqlstreams.extend(stream, stream, claim_id, '2 hours') > clock_timestamp() + '119 minutes'), 14::bigint, 'extend each');
SELECT is((SELECT sum(sqlstreams.ack(stream, stream, claim_id)) FROM tap.held), 14::numeric, 'ack each');
SELECT is((SELECT count(*) FROM sqlstreams.streams s, sqlstreams.pop(s.stream, s.stream) c WHERE c.message_id = 2), 14::bigint, 'pop from each');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream(stream, delivery_log => 'off'), sqlstreams.alter_group(stream, stream, timeout => '1 s') FROM sqlstreams.streams $$, 'alter each');
SELECT is((SELECT sum(sqlstreams.purge_stream(stream)) FROM sqlstreams.streams), 28::numeric, 'purge each');
DROP TABLE tap.held;

-- names that are not there
SELECT fails(format('SELECT sqlstreams.produce(%L, %L)', name, '1'), 'SS001', 'stream "' || name || '"', 'produce to ' || shown)
  FROM (VALUES (1, '', 'no name'), (2, 'Orders', 'Orders instead of orders'), (3, 'orders ', 'orders with a blank'), (4, 'a"b', 'a name with a double quote'), (5, 'a''b', 'a name with a quote'),
               (6, '$$;drop', 'SQL'), (7, 'sqlstreams.orders', 'a qualified name'), (8, U&'\65E5\672C', 'a name in Japanese'), (9, '%', 'a pattern'), (10, 'o_ders', 'a pattern of one character')) v (n, name, shown) ORDER BY n;
SELECT fails(format('SELECT sqlstreams.produce(%L, %L)', repeat('n', 201), '1'), 'SS001', 'stream "nn', 'produce to a name of 201 bytes');
SELECT fails(format('SELECT sqlstreams.produce(%L, %L)', repeat('n', 1000000), '1'), 'SS001', 'stream "nn', 'produce to a name of a megabyte');
SELECT fails(format('SELECT * FROM sqlstreams.claim(%L, %L)', 'orders', name), 'SS002', 'consumer group "' || name || '"', 'claim from ' || shown)
  FROM (VALUES (1, '', 'no name'), (2, 'Orders', 'Orders instead of orders'), (3, 'orders ', 'orders with a blank'), (4, 'a"b', 'a name with a double quote'), (5, '$$;drop', 'SQL'), (6, U&'\65E5\672C', 'a name in Japanese')) v (n, name, shown) ORDER BY n;
SELECT is(sqlstreams.drop_stream('$$;drop', if_exists => true), false, 'drop_stream of SQL');
SELECT is(sqlstreams.drop_group('orders', '$$;drop', if_exists => true), false, 'drop_group of SQL');

-- the hint names close ones
DO $$
DECLARE hint text;
BEGIN
  PERFORM sqlstreams.produce('Orders', '1');
EXCEPTION WHEN SQLSTATE 'SS001' THEN
  GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
  CREATE TEMP TABLE hints AS SELECT hint;
END $$;
SELECT ok((SELECT position('"orders"' IN hint) > 0 FROM hints), 'the hint for Orders names orders');
DROP TABLE hints;

-- whoever plants functions and operators in front of pg_catalog gets nothing run
CREATE SCHEMA evil;
CREATE FUNCTION evil.caught() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'caught'; END $$;
CREATE FUNCTION evil.eq(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT evil.caught() $$;
CREATE FUNCTION evil.eq(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT evil.caught() $$;
CREATE FUNCTION evil.eq(name, name) RETURNS boolean LANGUAGE sql AS $$ SELECT evil.caught() $$;
CREATE FUNCTION evil.eq(oid, oid) RETURNS boolean LANGUAGE sql AS $$ SELECT evil.caught() $$;
CREATE OPERATOR evil.= (FUNCTION = evil.eq, LEFTARG = text, RIGHTARG = text);
CREATE OPERATOR evil.= (FUNCTION = evil.eq, LEFTARG = bigint, RIGHTARG = bigint);
CREATE OPERATOR evil.= (FUNCTION = evil.eq, LEFTARG = name, RIGHTARG = name);
CREATE OPERATOR evil.= (FUNCTION = evil.eq, LEFTARG = oid, RIGHTARG = oid);
CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT NULL::timestamptz WHERE evil.caught() $$;
CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT NULL::timestamptz WHERE evil.caught() $$;
CREATE FUNCTION evil.format(text, VARIADIC "any") RETURNS text LANGUAGE internal AS 'text_format';
CREATE DOMAIN evil.bigint AS text;
CREATE DOMAIN evil.jsonb AS text;
CREATE DOMAIN evil.text AS bytea;
SET search_path = evil, pg_catalog, tap;
SELECT sqlstreams.create_stream('evil', 2) \g /dev/null
SELECT sqlstreams.create_group('evil', 'g') \g /dev/null
SELECT sqlstreams.produce('evil', to_jsonb(i), idempotency_key => 'k') FROM generate_series(1, 3) i \g /dev/null
SELECT sqlstreams.produce_batch('evil', '{1,2,3}', idempotency_keys => '{k,l,m}') \g /dev/null
SELECT sqlstreams.produce_bytes_batch('evil', '{1,2,3}') \g /dev/null
SELECT pg_catalog.min(claim_id) AS c FROM sqlstreams.claim('evil', 'g', 3) \gset
SELECT sqlstreams.extend('evil', 'g', :c) \g /dev/null
SELECT sqlstreams.ack('evil', 'g', :c, '{1}') \g /dev/null
SELECT sqlstreams.release('evil', 'g', :c) \g /dev/null
SELECT payload FROM sqlstreams.pop('evil', 'g') \g /dev/null
SELECT stream, settled_head FROM sqlstreams.streams \g /dev/null
SELECT claimed FROM sqlstreams.consumer_groups \g /dev/null
SELECT from_id FROM sqlstreams.partitions \g /dev/null
SELECT unresolved FROM sqlstreams.leases \g /dev/null
SELECT payload FROM sqlstreams.peek('evil') \g /dev/null
SELECT sqlstreams.alter_stream('evil', delivery_log => 'off') \g /dev/null
SELECT sqlstreams.alter_group('evil', 'g', timeout => '1 s') \g /dev/null
SELECT sqlstreams.purge_stream('evil') \g /dev/null
SELECT sqlstreams.drop_group('evil', 'g') \g /dev/null
SELECT sqlstreams.rename_stream('evil', 'evil2') \g /dev/null
SELECT sqlstreams.drop_stream('evil2') \g /dev/null
SET search_path = tap, pg_catalog;
SELECT pass('nothing above ran what was planted');
DROP SCHEMA evil CASCADE;

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
