\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT sqlstreams.create_stream('orders') AS orders \gset
SELECT sqlstreams.create_stream('other', partition_size => 10) AS other \gset
SELECT ok(:orders > 0 AND :other > :orders, 'create_stream returns the id of the new stream');

-- what is there after it
SELECT results_eq($$
  SELECT stream, owner::text = current_user::text, messages_head, settled_head, partition_size, retention IS NULL, partition_interval IS NULL,
         idempotency_key_ttl, delivery_log, message_defaults IS NULL
    FROM sqlstreams.streams WHERE stream = 'orders' $$,
  $$ VALUES ('orders', true, 0::bigint, 0::bigint, 1000000::bigint, true, true, '24 hours'::interval, 'failures', true) $$,
  'a new stream has the documented defaults');
SELECT is((SELECT stream_id FROM sqlstreams.streams WHERE stream = 'orders'), :orders::bigint, 'the view shows the same id');
SELECT has_table('sqlstreams', 'message_log_' || :orders, 'the log is named by the id');
SELECT is((SELECT relkind::text || ' ' || pg_get_partkeydef(oid) FROM pg_class WHERE oid = ('sqlstreams.message_log_' || :orders)::regclass),
          'p RANGE (id)', 'the log is range-partitioned by id');
SELECT has_sequence('sqlstreams', 'message_id_' || :orders, 'the sequence is named by the id');
SELECT hasnt_table('sqlstreams', 'group_cursor_' || :orders, 'no group state before the first group');
SELECT hasnt_table('sqlstreams', 'claim_lease_' || :orders, 'no leases before the first group');
SELECT hasnt_table('sqlstreams', 'idempotency_key_' || :orders || '_1', 'no key table before the first key');
SELECT lives_ok($$ SELECT sqlstreams.create_group('orders', 'g') $$, 'first group');
SELECT has_table('sqlstreams', 'group_cursor_' || :orders, 'the first group brings its cursor');
SELECT has_table('sqlstreams', 'claim_lease_' || :orders, 'the first group brings its leases');
SELECT lives_ok($$ SELECT sqlstreams.produce('orders', '1', idempotency_key => 'k') $$, 'first key');
SELECT has_table('sqlstreams', 'idempotency_key_' || :orders || '_1', 'the first key brings the key table');
SELECT is((SELECT count(*) FROM pg_class c WHERE c.relnamespace = 'sqlstreams'::regnamespace AND c.relkind IN ('r', 'p')
              AND c.relname ~ ('^[a-z_]+_' || :orders || '(_|$)') AND NOT EXISTS (
                SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)), 0::bigint, 'every table of a stream has a primary key');
SELECT is((SELECT count(*) FROM pg_depend d JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
            WHERE d.deptype = 'e' AND c.relname ~ ('^[a-z_]+_' || :orders || '(_|$)')), 0::bigint, 'the tables of a stream are no members of the extension');

-- twice
SELECT fails($$ SELECT sqlstreams.create_stream('orders') $$, 'SS003', 'stream "orders"', 'a second stream of that name is refused');
SELECT is(sqlstreams.create_stream('orders', partition_size => 7, if_not_exists => true), :orders::bigint, 'if_not_exists returns the one that is there');
SELECT is((SELECT partition_size FROM sqlstreams.streams WHERE stream = 'orders'), 1000000::bigint, 'if_not_exists changes nothing of it');
SELECT isnt(sqlstreams.create_stream('third', if_not_exists => true), :orders::bigint, 'if_not_exists makes one that is not there');
SELECT fails($$ SELECT sqlstreams.create_stream('orders', if_not_exists => NULL) $$, 'SS003', 'orders', 'NULL for if_not_exists is its default');
SELECT fails($$ SELECT sqlstreams.create_stream('orders', partition_size => 1, if_not_exists => true) $$, '22023', 'partition_size', 'if_not_exists still checks its arguments');

-- in a transaction
BEGIN;
SELECT sqlstreams.create_stream('gone') IS NOT NULL AS made \gset
SELECT is(sqlstreams.produce('gone', '1'), 1::bigint, 'a stream can be used in the transaction that makes it');
ROLLBACK;
SELECT fails($$ SELECT sqlstreams.produce('gone', '1') $$, 'SS001', 'stream "gone"', 'a rolled back stream never was');
BEGIN;
SELECT lives_ok($$ SELECT sqlstreams.create_stream('small', partition_size => 2), sqlstreams.create_group('small', 'g') $$, 'stream and group in one statement');
SELECT is((SELECT array_agg(sqlstreams.produce('small', to_jsonb(i))) FROM generate_series(1, 7) i), '{1,2,3,4,5,6,7}'::bigint[],
          'partitions of an uncommitted stream are made on the spot');
SELECT is(claimed('small', 'g'), '1 2 3 4 5 6 7', 'and claimed before the commit');
COMMIT;
SELECT is(sqlstreams.produce('small', '8'), 8::bigint, 'it goes on after the commit');
SELECT is(claimed('small', 'g'), '8', 'for the consumer too');

-- partition_size
SELECT lives_ok($$ SELECT sqlstreams.create_stream('wide', partition_size => 2147483647) $$, 'a partition of 2^31-1 ids');
SELECT is(sqlstreams.produce('wide', '1'), 1::bigint, 'which takes a message');
SELECT is((SELECT partition_size FROM sqlstreams.streams WHERE stream = 'small'), 2::bigint, 'partition_size is kept');

-- idempotency_key_ttl, delivery_log, message_defaults
SELECT lives_ok($$ SELECT sqlstreams.create_stream('set', idempotency_key_ttl => '1 month', delivery_log => 'off', message_defaults => '{"timeout":"10s"}') $$,
  'settings at creation');
SELECT results_eq($$ SELECT extract(epoch FROM idempotency_key_ttl)::bigint, delivery_log, message_defaults FROM sqlstreams.streams WHERE stream = 'set' $$,
  $$ VALUES (30 * 86400::bigint, 'off', '{"timeout":"10s"}'::jsonb) $$, 'they are kept; a month is 30 days');

-- alter_stream
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('set', idempotency_key_ttl => '2 hours') $$, 'alter_stream');
SELECT results_eq($$ SELECT idempotency_key_ttl, delivery_log FROM sqlstreams.streams WHERE stream = 'set' $$,
  $$ VALUES ('2 hours'::interval, 'off') $$, 'it changes what is given and leaves the rest');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('set', delivery_log => 'failures', reset => '{idempotency_key_ttl,message_defaults}') $$, 'reset beside a change');
SELECT results_eq($$ SELECT idempotency_key_ttl, delivery_log, message_defaults IS NULL FROM sqlstreams.streams WHERE stream = 'set' $$,
  $$ VALUES ('24 hours'::interval, 'failures', true) $$, 'reset puts defaults back');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('set', reset => '{retention,partition_interval,allow_drop_past_committed,empty_compaction_head_ttl,delivery_log}') $$,
  'every setting can be reset');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('set', reset => '{}') $$, 'an empty reset');
SELECT fails($$ SELECT sqlstreams.alter_stream('set', reset => '{nope}') $$, '22023', 'reset', 'an unknown setting cannot be reset');
SELECT fails($$ SELECT sqlstreams.alter_stream('set', reset => '{partition_size}') $$, '22023', 'reset', 'partition_size is fixed for life');
SELECT fails($$ SELECT sqlstreams.alter_stream('set', reset => ARRAY[NULL]::text[]) $$, '22004', 'reset', 'a NULL setting cannot be reset');
SELECT fails($$ SELECT sqlstreams.alter_stream('set', idempotency_key_ttl => '0') $$, '22023', 'idempotency_key_ttl', 'alter_stream checks as create_stream does');
SELECT fails($$ SELECT sqlstreams.alter_stream('set', idempotency_key_ttl => '1 hour', reset => '{idempotency_key_ttl}') $$, '22023', 'idempotency_key_ttl',
  'a setting is given or reset, not both');
SELECT fails($$ SELECT sqlstreams.alter_stream('nope', delivery_log => 'off') $$, 'SS001', 'stream "nope"', 'alter_stream of an unknown stream');

-- rename_stream
SELECT lives_ok($$ SELECT sqlstreams.rename_stream('small', 'renamed') $$, 'rename_stream');
SELECT fails($$ SELECT sqlstreams.produce('small', '1') $$, 'SS001', 'stream "small"', 'the old name is free');
SELECT is(sqlstreams.produce('renamed', '9'), 9::bigint, 'the new one goes on');
SELECT is(claimed('renamed', 'g'), '9', 'with its groups');
SELECT fails($$ SELECT sqlstreams.rename_stream('renamed', 'orders') $$, 'SS003', 'stream "orders"', 'a name in use is refused');
SELECT fails($$ SELECT sqlstreams.rename_stream('nope', 'x') $$, 'SS001', 'stream "nope"', 'rename_stream of an unknown stream');
SELECT isnt(sqlstreams.create_stream('small'), NULL, 'the old name can be used anew');
SELECT is(sqlstreams.produce('small', '1'), 1::bigint, 'for another stream');

-- purge_stream
SELECT sqlstreams.create_stream('purged', partition_size => 3) AS purged \gset
SELECT lives_ok($$ SELECT sqlstreams.create_group('purged', 'g'), sqlstreams.create_group('purged', 'late') $$, 'groups of a stream to be purged');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('purged', ARRAY['1', '2', '3', '4', '5']::jsonb[])), 5::bigint, 'five messages');
SELECT is(sqlstreams.produce('purged', '6', idempotency_key => 'kept'), 6::bigint, 'one with a key');
SELECT min(claim_id) AS held, count(*) AS n FROM sqlstreams.claim('purged', 'g', 2) \gset
SELECT is(:n, 2, 'two are claimed');
SELECT is(sqlstreams.purge_stream('purged'), 6::bigint, 'purge_stream says how many ids it dropped');
SELECT is_empty($$ SELECT * FROM sqlstreams.peek('purged') $$, 'nothing is left');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 'purged', 'g', :held), 'SS004', NULL, 'claims on dropped messages are lost');
SELECT is(claimed('purged', 'g') || claimed('purged', 'late'), '', 'no group gets any of them');
SELECT is(sqlstreams.produce('purged', '7', idempotency_key => 'kept'), 0::bigint, 'idempotency keys stay');
SELECT is(sqlstreams.produce('purged', '7'), 7::bigint, 'ids go on rising');
SELECT is(claimed('purged', 'g') || claimed('purged', 'late'), '77', 'groups stay and go on');
SELECT is(sqlstreams.purge_stream('purged'), 1::bigint, 'a second purge drops what came since');
SELECT is(sqlstreams.purge_stream('purged'), 0::bigint, 'a purge of nothing');
SELECT results_eq($$ SELECT messages_head, settled_head FROM sqlstreams.streams WHERE stream = 'purged' $$, $$ VALUES (7::bigint, 7::bigint) $$, 'the heads stay');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('purged', ARRAY['8', '9', '10', '11']::jsonb[])), 4::bigint, 'and it takes more');
SELECT is(claimed('purged', 'g'), '8 9 10 11', 'which arrive');
SELECT fails($$ SELECT sqlstreams.purge_stream('nope') $$, 'SS001', 'stream "nope"', 'purge_stream of an unknown stream');

-- drop_stream
SELECT is(sqlstreams.drop_stream('orders'), true, 'drop_stream');
SELECT is((SELECT count(*) FROM pg_class WHERE relnamespace = 'sqlstreams'::regnamespace AND relname ~ ('^[a-z_]+_' || :orders || '(_|$)')), 0::bigint,
  'nothing of it is left');
SELECT is_empty($$ SELECT FROM sqlstreams.consumer_groups WHERE stream = 'orders' $$, 'nor of its groups');
SELECT fails($$ SELECT sqlstreams.produce('orders', '1') $$, 'SS001', 'stream "orders"', 'produce to a dropped stream');
SELECT fails($$ SELECT * FROM sqlstreams.claim('orders', 'g') $$, 'SS001', 'stream "orders"', 'claim from a dropped stream');
SELECT fails($$ SELECT sqlstreams.drop_stream('orders') $$, 'SS001', 'stream "orders"', 'drop_stream of an unknown stream');
SELECT is(sqlstreams.drop_stream('orders', if_exists => true), false, 'if_exists says that there was none');
SELECT fails($$ SELECT sqlstreams.drop_stream('orders', NULL) $$, 'SS001', 'stream "orders"', 'NULL for if_exists is its default');
SELECT cmp_ok(sqlstreams.create_stream('orders'), '>', :orders::bigint, 'a stream of the same name is another stream');
SELECT is(sqlstreams.produce('orders', '1', idempotency_key => 'k'), 1::bigint, 'with nothing of the old one in it');
BEGIN;
SELECT is(sqlstreams.drop_stream('orders'), true, 'drop_stream in a transaction');
SELECT fails($$ SELECT sqlstreams.produce('orders', '1') $$, 'SS001', 'stream "orders"', 'gone inside it');
ROLLBACK;
SELECT is(sqlstreams.produce('orders', '2'), 2::bigint, 'a rolled back drop never was');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT is_empty($$ SELECT FROM sqlstreams.streams $$, 'all gone');
SELECT * FROM finish();
