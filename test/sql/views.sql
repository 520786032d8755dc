\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- the columns that users rely on, in order; more may follow
SELECT is((SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute WHERE attrelid = ('sqlstreams.' || v)::regclass AND attnum BETWEEN 1 AND n), columns, 'columns of ' || v)
  FROM (VALUES (1, 'streams', 16, 'stream stream_id owner messages_head settled_head partitions oldest_message_at newest_message_at bytes retention partition_size partition_interval idempotency_key_ttl delivery_log message_defaults maintenance_suspended'),
               (2, 'consumer_groups', 26, 'stream consumer_group group_id claimed committed settled_head head backlog leased ready inflight deferred dead oldest_unclaimed_at oldest_unresolved_at next_due_at last_claim_at last_resolved_at claim_held_by held_back_by_pids held_back_by_prepared held_back_since bindings schema_version settings superseded'),
               (3, 'partitions', 9, 'stream partition from_id to_id bytes created_at sealed_at state held_by'),
               (4, 'leases', 9, 'stream consumer_group claim_id consumer messages unresolved claimed_at expires_at takeovers')) u (i, v, n, columns) ORDER BY i;
SELECT is_empty($$ SELECT FROM sqlstreams.streams UNION ALL SELECT FROM sqlstreams.consumer_groups UNION ALL SELECT FROM sqlstreams.partitions UNION ALL SELECT FROM sqlstreams.leases $$, 'all empty at first');

SELECT clock_timestamp() AS t0 \gset
SELECT sqlstreams.create_stream('s', partition_size => 4, message_defaults => '{"timeout": "10s"}') AS id \gset
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'g'), sqlstreams.create_group('s', 'h') $$, 'two groups');
SELECT ok((SELECT oldest_message_at IS NULL AND newest_message_at IS NULL AND NOT maintenance_suspended AND bytes >= 0 FROM sqlstreams.streams), 'an empty stream has no times');
SELECT ok((SELECT bool_and(oldest_unclaimed_at IS NULL AND oldest_unresolved_at IS NULL AND next_due_at IS NULL AND last_claim_at IS NULL AND last_resolved_at IS NULL AND claim_held_by IS NULL
    AND coalesce(held_back_by_pids, '{}') = '{}' AND coalesce(held_back_by_prepared, '{}') = '{}' AND held_back_since IS NULL AND bindings IS NULL AND schema_version IS NULL) FROM sqlstreams.consumer_groups), 'nor have its groups');
SELECT is((SELECT array_agg(id) FROM sqlstreams.produce_batch('s', '{1,2,3,4,5,6,7,8,9,10}') id), '{1,2,3,4,5,6,7,8,9,10}'::bigint[], 'ten messages');

SELECT results_eq($$ SELECT messages_head, settled_head, partition_size, message_defaults FROM sqlstreams.streams $$, $$ VALUES (10::bigint, 10::bigint, 4::bigint, '{"timeout": "10s"}'::jsonb) $$, 'streams: heads and settings');
SELECT ok((SELECT oldest_message_at BETWEEN :'t0' AND newest_message_at AND newest_message_at <= clock_timestamp() AND bytes > 0 AND partitions >= 3 FROM sqlstreams.streams), 'streams: times, bytes and partitions');
SELECT results_eq($$ SELECT partition::text COLLATE "default", from_id, to_id FROM sqlstreams.partitions WHERE from_id <= 10 ORDER BY from_id $$,
  format('VALUES (%L, 1::bigint, 4::bigint), (%L, 5, 8), (%L, 9, 12)', 'message_log_' || :id || '_0', 'message_log_' || :id || '_1', 'message_log_' || :id || '_2'), 'partitions: what each holds');
SELECT is((SELECT count(*) FROM sqlstreams.partitions), (SELECT partitions FROM sqlstreams.streams), 'partitions: as many as streams counts');
SELECT ok((SELECT bool_and(bytes > 0) FROM sqlstreams.partitions WHERE from_id <= 10), 'partitions: bytes');
SELECT ok((SELECT bool_and(stream = 's') FROM sqlstreams.partitions), 'partitions: the stream');

SELECT results_eq($$ SELECT consumer_group, claimed, committed, settled_head, head, backlog, leased FROM sqlstreams.consumer_groups ORDER BY 1 $$,
  $$ VALUES ('g', 0::bigint, 0::bigint, 10::bigint, 10::bigint, 10::bigint, 0::bigint), ('h', 0, 0, 10, 10, 10, 0) $$, 'consumer_groups: everything to be claimed');
SELECT min(claim_id) AS c1 FROM sqlstreams.claim('s', 'g', 3, '1 hour', consumer => 'first') \gset
SELECT min(claim_id) AS c2 FROM sqlstreams.claim('s', 'g', 4, '2 hours', consumer => 'second') \gset
SELECT results_eq($$ SELECT consumer_group, claimed, committed, settled_head, head, backlog, leased FROM sqlstreams.consumer_groups ORDER BY 1 $$,
  $$ VALUES ('g', 7::bigint, 0::bigint, 10::bigint, 10::bigint, 3::bigint, 7::bigint), ('h', 0, 0, 10, 10, 10, 0) $$, 'consumer_groups: seven claimed');
SELECT results_eq($$ SELECT stream, consumer_group, claim_id, consumer, messages, unresolved, takeovers FROM sqlstreams.leases ORDER BY consumer $$,
  format('VALUES (%L, %L, %s::bigint, %L, 3::bigint, 3::bigint, 0), (%L, %L, %s, %L, 4, 4, 0)', 's', 'g', :c1, 'first', 's', 'g', :c2, 'second'), 'leases: two claims');
SELECT ok((SELECT bool_and(claimed_at BETWEEN :'t0' AND clock_timestamp() AND expires_at BETWEEN claimed_at + '1 hour' AND claimed_at + '2 hours') FROM sqlstreams.leases), 'leases: times');
SELECT is(sqlstreams.ack('s', 'g', :c2), 4::bigint, 'the later claim is acked');
SELECT results_eq($$ SELECT claimed, committed, leased FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$, $$ VALUES (7::bigint, 0::bigint, 3::bigint) $$, 'consumer_groups: committed waits for the earlier one');
SELECT is(sqlstreams.ack('s', 'g', :c1, '{1,3}'), 2::bigint, 'two of the earlier one');
SELECT results_eq($$ SELECT claimed, committed, leased FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$, $$ VALUES (7::bigint, 1::bigint, 1::bigint) $$, 'consumer_groups: up to the first open message');
SELECT results_eq($$ SELECT messages, unresolved FROM sqlstreams.leases $$, $$ VALUES (3::bigint, 1::bigint) $$, 'leases: one message of three is open');
SELECT is(sqlstreams.ack('s', 'g', :c1), 1::bigint, 'the last one');
SELECT results_eq($$ SELECT claimed, committed, backlog, leased FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$, $$ VALUES (7::bigint, 7::bigint, 3::bigint, 0::bigint) $$, 'consumer_groups: all of it resolved');
SELECT ok((SELECT last_claim_at BETWEEN :'t0' AND clock_timestamp() FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), 'consumer_groups: last_claim_at');

-- whoever holds back a claim is named
BEGIN;
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'h', 2)), 2::bigint, 'an open claim');
SELECT is((SELECT claim_held_by FROM sqlstreams.consumer_groups WHERE consumer_group = 'h'), pg_backend_pid(), 'consumer_groups: claim_held_by');
SELECT is((SELECT claim_held_by FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), NULL, 'only of that group');
COMMIT;
SELECT is((SELECT claim_held_by FROM sqlstreams.consumer_groups WHERE consumer_group = 'h'), NULL, 'not after its end');

-- the views work in a read-only transaction and at every isolation level
BEGIN READ ONLY;
SELECT is((SELECT count(*) FROM sqlstreams.streams, sqlstreams.consumer_groups), 2::bigint, 'in a read-only transaction');
SELECT ok((SELECT count(*) >= 3 FROM sqlstreams.partitions, sqlstreams.leases), 'all of them');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT is((SELECT count(*) FROM sqlstreams.streams, sqlstreams.consumer_groups), 2::bigint, 'at SERIALIZABLE');
ROLLBACK;

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT is_empty($$ SELECT FROM sqlstreams.streams UNION ALL SELECT FROM sqlstreams.consumer_groups UNION ALL SELECT FROM sqlstreams.partitions UNION ALL SELECT FROM sqlstreams.leases $$, 'all empty again');
SELECT * FROM finish();
