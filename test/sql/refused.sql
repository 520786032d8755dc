\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Settings whose effect is not there yet are refused, not ignored. What is invalid in any case stays 22023.
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s'), sqlstreams.create_group('s', 'g') $$, 'a stream and a group');

SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'x', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) $$, 'NULL is the default of each');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'y', concurrency => 'parallel', concurrency_override => 'parallel', max_retries => 3, max_delays => 0, base_delay => '1 second', max_delay => '300 s',
    exponent => 2, initial_backoff => '5000 ms') $$, 'the default may be said');

SELECT fails($$ SELECT sqlstreams.create_stream('x', retention => '1 day') $$, '0A000', 'retention', 'create_stream: retention');
SELECT fails($$ SELECT sqlstreams.create_stream('x', partition_interval => '1 day') $$, '0A000', 'partition_interval', 'create_stream: partition_interval');
SELECT fails($$ SELECT sqlstreams.create_stream('x', allow_drop_past_committed => true) $$, '0A000', 'allow_drop_past_committed', 'create_stream: allow_drop_past_committed');
SELECT fails($$ SELECT sqlstreams.create_stream('x', empty_compaction_head_ttl => '2 hours') $$, '0A000', 'empty_compaction_head_ttl', 'create_stream: empty_compaction_head_ttl');
SELECT fails($$ SELECT sqlstreams.alter_stream('s', retention => '1 day') $$, '0A000', 'retention', 'alter_stream: retention');
SELECT fails($$ SELECT sqlstreams.alter_stream('s', partition_interval => '1 day') $$, '0A000', 'partition_interval', 'alter_stream: partition_interval');
SELECT fails($$ SELECT sqlstreams.alter_stream('s', allow_drop_past_committed => true) $$, '0A000', 'allow_drop_past_committed', 'alter_stream: allow_drop_past_committed');
SELECT fails($$ SELECT sqlstreams.alter_stream('s', empty_compaction_head_ttl => '2 hours') $$, '0A000', 'empty_compaction_head_ttl', 'alter_stream: empty_compaction_head_ttl');
SELECT lives_ok($$ SELECT sqlstreams.create_stream('x', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) $$, 'NULL is the default of each');
SELECT lives_ok($$ SELECT sqlstreams.create_stream('y', partition_size => 1000000, allow_drop_past_committed => false, idempotency_key_ttl => '1440 minutes', empty_compaction_head_ttl => '60 minutes',
    delivery_log => 'failures', message_defaults => '{"concurrency": "parallel"}') $$, 'the default may be said');

-- what comes later does not pretend to be there
SELECT is((SELECT array_agg(proname ORDER BY proname) FROM pg_proc WHERE pronamespace = 'sqlstreams'::regnamespace
            AND proname IN ('wait',
                            'maintain', 'start_worker', 'suspend_maintenance', 'resume_maintenance', 'grant_stream', 'revoke_stream', 'produce_trigger')), NULL, 'no function is there before its work is');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
