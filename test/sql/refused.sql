\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- NULL for a setting, or its default, is the default.
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s'), sqlstreams.create_group('s', 'g') $$, 'a stream and a group');

SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'x', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) $$, 'NULL is the default of each');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'y', concurrency => 'parallel', concurrency_override => 'parallel', max_retries => 3, max_delays => 0, base_delay => '1 second', max_delay => '300 s',
    exponent => 2, initial_backoff => '5000 ms') $$, 'the default may be said');

SELECT lives_ok($$ SELECT sqlstreams.create_stream('x', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) $$, 'NULL is the default of each');
SELECT lives_ok($$ SELECT sqlstreams.create_stream('y', partition_size => 1000000, allow_drop_past_committed => false, idempotency_key_ttl => '1440 minutes', empty_compaction_head_ttl => '60 minutes',
    delivery_log => 'failures', message_defaults => '{"concurrency": "parallel"}') $$, 'the default may be said');

-- what comes later does not pretend to be there
SELECT is((SELECT array_agg(proname ORDER BY proname) FROM pg_proc WHERE pronamespace = 'sqlstreams'::regnamespace
            AND proname IN ('wait',
                            'grant_stream', 'revoke_stream', 'produce_trigger')), NULL, 'no function is there before its work is');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
