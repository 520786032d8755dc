\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- A partition that somebody has renamed, or moved to another schema or tablespace, is still one.
CREATE SCHEMA regress_sqlstreams_elsewhere;
SELECT sqlstreams.create_stream('s', partition_size => 10, retention => '1 day', partition_interval => '10 years') AS id \gset
SELECT sqlstreams.create_group('s', 'g') \g /dev/null
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 35) i))), 35::bigint, '35 messages');
CALL sqlstreams.maintain();
SELECT format('ALTER TABLE sqlstreams.message_log_%s_0 SET SCHEMA regress_sqlstreams_elsewhere', :id) \gexec
SELECT format('ALTER TABLE sqlstreams.message_log_%s_1 RENAME TO renamed', :id) \gexec
SELECT format('ALTER TABLE sqlstreams.message_log_%s_3 SET SCHEMA regress_sqlstreams_elsewhere', :id) \gexec

SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('s', 'g', 5)), ARRAY[1, 2, 3, 4, 5]::bigint[], 'claims find the messages of a moved one');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.peek('s', 9, 4)), ARRAY[9, 10, 11, 12]::bigint[], 'so does peek');
SELECT is(sqlstreams.produce('s', '36'), 36::bigint, 'produce appends to it');
SELECT format('SELECT is((SELECT count(*) FROM regress_sqlstreams_elsewhere.message_log_%s_3), 6::bigint, ''where it is'')', :id) \gexec
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'g', 100)), 31::bigint, 'claims get all');
SELECT is((SELECT string_agg(from_id || ' ' || state, ', ' ORDER BY from_id) FROM sqlstreams.partitions), '1 sealed, 11 sealed, 21 sealed, 31 open, 41 open, 51 open', 'view partitions shows them');

-- they go like others
SELECT is((SELECT sum(sqlstreams.ack('s', 'g', claim_id)) FROM sqlstreams.leases), 36::numeric, 'all is acked');
UPDATE sqlstreams.log_partition SET sealed_at = sealed_at - interval '2 days';
CALL sqlstreams.maintain();
SELECT is((SELECT string_agg(from_id || ' ' || state, ', ' ORDER BY from_id) FROM sqlstreams.partitions), '31 open, 41 open, 51 open', 'retention drops them');
SELECT is((SELECT count(*) FROM pg_class WHERE relnamespace = 'regress_sqlstreams_elsewhere'::regnamespace AND relkind = 'r'), 1::bigint, 'where they are');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
DROP SCHEMA regress_sqlstreams_elsewhere;
SELECT * FROM finish();
