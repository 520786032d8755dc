\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Settings whose effect is not there yet are refused, not ignored. What is invalid in any case stays 22023.
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s'), sqlstreams.create_group('s', 'g') $$, 'a stream and a group');

SELECT fails($$ SELECT sqlstreams.produce('s', '1', 'k', compaction => true) $$, '0A000', 'compaction', 'produce: compaction');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', 'k', compaction => true, compaction_rank => 3) $$, '0A000', 'compaction', 'produce: compaction with a rank');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', 'k', concurrency => 'exclusive') $$, '0A000', 'concurrency', 'produce: exclusive');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', 'k', concurrency => 'ordered') $$, '0A000', 'concurrency', 'produce: ordered');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1}', '{k}', compaction => true) $$, '0A000', 'compaction', 'produce_batch: compaction');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1}', '{k}', concurrency => 'exclusive') $$, '0A000', 'concurrency', 'produce_batch: exclusive');
SELECT fails($$ SELECT sqlstreams.produce_batch('s', '{1}', '{k}', concurrency => 'ordered') $$, '0A000', 'concurrency', 'produce_batch: ordered');
SELECT fails($$ SELECT sqlstreams.produce_bytes('s', '', 'k', compaction => true) $$, '0A000', 'compaction', 'produce_bytes: compaction');
SELECT fails($$ SELECT sqlstreams.produce_bytes_batch('s', ARRAY['']::bytea[], '{k}', compaction => true) $$, '0A000', 'compaction', 'produce_bytes_batch: compaction');
SELECT is((SELECT messages_head FROM sqlstreams.streams), 0::bigint, 'none of them used up an id');

SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', concurrency => 'exclusive') $$, '0A000', 'concurrency', 'create_group: exclusive');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', concurrency => 'ordered') $$, '0A000', 'concurrency', 'create_group: ordered');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', concurrency_override => 'exclusive') $$, '0A000', 'concurrency_override', 'create_group: override exclusive');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', concurrency_override => 'ordered') $$, '0A000', 'concurrency_override', 'create_group: override ordered');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'x', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) $$, 'NULL is the default of each');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'y', concurrency => 'parallel', concurrency_override => 'parallel', max_retries => 3, max_delays => 0, base_delay => '1 second', max_delay => '300 s',
    exponent => 2, initial_backoff => '5000 ms') $$, 'the default may be said');

SELECT fails($$ SELECT sqlstreams.alter_group('s', 'g', concurrency => 'exclusive') $$, '0A000', 'concurrency', 'alter_group: exclusive');
SELECT fails($$ SELECT sqlstreams.alter_group('s', 'g', concurrency_override => 'ordered') $$, '0A000', 'concurrency_override', 'alter_group: override ordered');

SELECT fails($$ SELECT sqlstreams.create_stream('x', retention => '1 day') $$, '0A000', 'retention', 'create_stream: retention');
SELECT fails($$ SELECT sqlstreams.create_stream('x', partition_interval => '1 day') $$, '0A000', 'partition_interval', 'create_stream: partition_interval');
SELECT fails($$ SELECT sqlstreams.create_stream('x', allow_drop_past_committed => true) $$, '0A000', 'allow_drop_past_committed', 'create_stream: allow_drop_past_committed');
SELECT fails($$ SELECT sqlstreams.create_stream('x', empty_compaction_head_ttl => '2 hours') $$, '0A000', 'empty_compaction_head_ttl', 'create_stream: empty_compaction_head_ttl');
SELECT fails($$ SELECT sqlstreams.create_stream('x', message_defaults => '{"concurrency": "exclusive"}') $$, '0A000', 'concurrency', 'create_stream: a default of exclusive');
SELECT fails($$ SELECT sqlstreams.create_stream('x', message_defaults => '{"concurrency": "ordered"}') $$, '0A000', 'concurrency', 'create_stream: a default of ordered');
SELECT fails($$ SELECT sqlstreams.alter_stream('s', retention => '1 day') $$, '0A000', 'retention', 'alter_stream: retention');
SELECT fails($$ SELECT sqlstreams.alter_stream('s', partition_interval => '1 day') $$, '0A000', 'partition_interval', 'alter_stream: partition_interval');
SELECT fails($$ SELECT sqlstreams.alter_stream('s', allow_drop_past_committed => true) $$, '0A000', 'allow_drop_past_committed', 'alter_stream: allow_drop_past_committed');
SELECT fails($$ SELECT sqlstreams.alter_stream('s', empty_compaction_head_ttl => '2 hours') $$, '0A000', 'empty_compaction_head_ttl', 'alter_stream: empty_compaction_head_ttl');
SELECT lives_ok($$ SELECT sqlstreams.create_stream('x', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) $$, 'NULL is the default of each');
SELECT lives_ok($$ SELECT sqlstreams.create_stream('y', partition_size => 1000000, allow_drop_past_committed => false, idempotency_key_ttl => '1440 minutes', empty_compaction_head_ttl => '60 minutes',
    delivery_log => 'failures', message_defaults => '{"concurrency": "parallel"}') $$, 'the default may be said');

-- what comes later does not pretend to be there
SELECT is((SELECT array_agg(proname ORDER BY proname) FROM pg_proc WHERE pronamespace = 'sqlstreams'::regnamespace
            AND proname IN ('wait', 'compaction_head', 'compaction_heads', 'lock_compaction_head',
                            'maintain', 'start_worker', 'suspend_maintenance', 'resume_maintenance', 'grant_stream', 'revoke_stream', 'produce_trigger')), NULL, 'no function is there before its work is');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
