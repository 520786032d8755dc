\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Numbers, intervals, arrays and objects out of range, for the functions that set things up. What the produce functions, claim, ack, release,
-- extend, pop and peek refuse stands in their own files.
-- PostgreSQL has infinite intervals since 17; before, it refuses the literal itself.
SELECT CASE WHEN current_setting('server_version_num')::int >= 170000 THEN '22023' ELSE '22007' END AS infinite \gset
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s'), sqlstreams.create_group('s', 'g') $$, 'a stream and a group');

-- integers
SELECT fails(format('SELECT sqlstreams.create_stream(%L, partition_size => %s)', 'x', v), '22023', 'partition_size', 'create_stream: partition_size ' || v)
  FROM unnest(ARRAY[1, 0, -1, -9223372036854775808]) WITH ORDINALITY u (v, n) ORDER BY n;
SELECT fails(format('SELECT sqlstreams.create_group(%L, %L, %s => %s)', 's', 'x', a, v), '22023', a, format('create_group: %s %s', a, v))
  FROM (VALUES (1, 'start_id', 0), (2, 'start_id', -1), (3, 'schema_version', 0), (4, 'schema_version', -1), (5, 'schema_version', 2147483648), (6, 'max_retries', -1), (7, 'max_delays', -1),
               (8, 'exponent', 0), (9, 'exponent', -1), (10, 'max_reclaims', -1), (11, 'max_retries', 9223372036854775807), (12, 'max_delays', 9223372036854775807),
               (13, 'exponent', 9223372036854775807), (14, 'max_reclaims', 9223372036854775807)) u (n, a, v) ORDER BY n;
SELECT fails(format('SELECT sqlstreams.alter_group(%L, %L, %s => %s)', 's', 'g', a, v), '22023', a, format('alter_group: %s %s', a, v))
  FROM (VALUES (1, 'schema_version', 0), (2, 'max_retries', -1), (3, 'max_delays', -1), (4, 'exponent', 0), (5, 'max_reclaims', -1)) u (n, a, v) ORDER BY n;

-- intervals
SELECT fails(format('SELECT sqlstreams.create_stream(%L, %s => %L)', 'x', a, v), '22023', a, format('create_stream: %s %s', a, v))
  FROM unnest(ARRAY['partition_interval', 'retention', 'idempotency_key_ttl', 'empty_compaction_head_ttl']) WITH ORDINALITY u (a, i),
       unnest(ARRAY['0', '-1 second', '1 day -25 hours', '-1 month', '178000000 years']) WITH ORDINALITY w (v, j) ORDER BY i, j;
SELECT fails(format('SELECT sqlstreams.create_stream(%L, %s => %L)', 'x', a, 'infinity'), :'infinite', NULL, format('create_stream: %s infinity', a))
  FROM unnest(ARRAY['partition_interval', 'retention', 'idempotency_key_ttl', 'empty_compaction_head_ttl']) WITH ORDINALITY u (a, i) ORDER BY i;
SELECT fails(format('SELECT sqlstreams.alter_stream(%L, %s => %L)', 's', a, v), '22023', a, format('alter_stream: %s %s', a, v))
  FROM unnest(ARRAY['partition_interval', 'retention', 'idempotency_key_ttl', 'empty_compaction_head_ttl']) WITH ORDINALITY u (a, i),
       unnest(ARRAY['0', '-1 second', '178000000 years']) WITH ORDINALITY w (v, j) ORDER BY i, j;
SELECT fails(format('SELECT sqlstreams.create_group(%L, %L, %s => %L)', 's', 'x', a, v), '22023', a, format('create_group: %s %s', a, v))
  FROM unnest(ARRAY['timeout', 'base_delay', 'max_delay', 'initial_backoff']) WITH ORDINALITY u (a, i),
       unnest(ARRAY['0', '-1 second', '1 day -25 hours', '-1 month', '178000000 years']) WITH ORDINALITY w (v, j) WHERE NOT (a = 'initial_backoff' AND v = '0') ORDER BY i, j;
SELECT fails(format('SELECT sqlstreams.create_group(%L, %L, %s => %L)', 's', 'x', a, 'infinity'), :'infinite', NULL, format('create_group: %s infinity', a))
  FROM unnest(ARRAY['timeout', 'base_delay', 'max_delay', 'initial_backoff']) WITH ORDINALITY u (a, i) ORDER BY i;
SELECT fails(format('SELECT sqlstreams.alter_group(%L, %L, %s => %L)', 's', 'g', a, v), '22023', a, format('alter_group: %s %s', a, v))
  FROM unnest(ARRAY['timeout', 'base_delay', 'max_delay', 'initial_backoff']) WITH ORDINALITY u (a, i), unnest(ARRAY['-1 second', '178000000 years']) WITH ORDINALITY w (v, j) ORDER BY i, j;
SELECT fails(format('SELECT * FROM sqlstreams.claim(%L, %L, lease => %L)', 's', 'g', 'infinity'), :'infinite', NULL, 'claim: lease infinity');
SELECT fails(format('SELECT sqlstreams.extend(%L, %L, 1, %L)', 's', 'g', 'infinity'), :'infinite', NULL, 'extend: lease infinity');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"timeout": "infinity"}') $$, '22023', 'timeout', 'produce: a timeout of infinity');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"retry": {"max_delay": "infinity"}}') $$, '22023', 'max_delay', 'produce: a max_delay of infinity');

-- words
SELECT fails(format('SELECT sqlstreams.create_stream(%L, delivery_log => %L)', 'x', v), '22023', 'delivery_log', format('create_stream: delivery_log "%s"', v))
  FROM unnest(ARRAY['', 'on', 'OFF', 'failure']) WITH ORDINALITY u (v, n) ORDER BY n;
SELECT fails(format('SELECT sqlstreams.create_group(%L, %L, %s => %L)', 's', 'x', a, v), '22023', a, format('create_group: %s "%s"', a, v))
  FROM unnest(ARRAY['concurrency', 'concurrency_override']) WITH ORDINALITY u (a, i), unnest(ARRAY['', 'serial', 'PARALLEL']) WITH ORDINALITY w (v, j) ORDER BY i, j;

-- objects
SELECT fails(format('SELECT sqlstreams.create_stream(%L, message_defaults => %L)', 'x', v), '22023', a, 'create_stream: message_defaults ' || v)
  FROM (VALUES (1, 'message_defaults', '[]'), (2, 'message_defaults', 'null'), (3, 'message_defaults', '"x"'), (4, 'nope', '{"nope": 1}'), (5, 'timeout', '{"timeout": "0s"}'), (6, 'timeout', '{"timeout": "-1s"}'),
               (7, 'timeout', '{"timeout": 10}'), (8, 'concurrency', '{"concurrency": "serial"}'), (9, 'concurrency', '{"concurrency": 1}'), (10, 'retry', '{"retry": []}'), (11, 'nope', '{"retry": {"nope": 1}}'),
               (12, 'max_retries', '{"retry": {"max_retries": -1}}'), (13, 'max_retries', '{"retry": {"max_retries": 1.5}}'), (14, 'exponent', '{"retry": {"exponent": 1e30}}')) u (n, a, v) ORDER BY n;
SELECT fails(format('SELECT sqlstreams.create_group(%L, %L, %s => %L)', 's', 'x', a, v), '22023', w, format('create_group: %s %s', a, v))
  FROM unnest(ARRAY['message_min', 'message_max']) WITH ORDINALITY b (a, i),
       (VALUES (1, 'message_m', '[]'), (2, 'message_m', '1'), (3, 'nope', '{"nope": 1}'), (4, 'timeout', '{"timeout": "0s"}'), (5, 'max_retries', '{"retry": {"max_retries": -1}}')) u (n, w, v) ORDER BY i, n;

-- arrays
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', bindings => '{}') $$, '22023', 'bindings', 'create_group: empty bindings');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', bindings => '{{a},{b}}') $$, '22023', 'bindings', 'create_group: two-dimensional bindings');
SELECT fails($$ SELECT sqlstreams.create_group('s', 'x', bindings => '{a,NULL}') $$, '22004', 'bindings', 'create_group: a NULL binding');
SELECT fails($$ SELECT sqlstreams.alter_group('s', 'g', bindings => '{}') $$, '22023', 'bindings', 'alter_group: empty bindings');
SELECT fails($$ SELECT sqlstreams.alter_group('s', 'g', reset => '{{timeout},{max_reclaims}}') $$, '22023', 'reset', 'alter_group: a two-dimensional reset');
SELECT fails($$ SELECT sqlstreams.alter_stream('s', reset => '{{retention},{delivery_log}}') $$, '22023', 'reset', 'alter_stream: a two-dimensional reset');

-- NULL where there is no default
SELECT fails('SELECT sqlstreams.' || call, '22004', a, call)
  FROM (VALUES (1, 'stream', 'create_stream(NULL)'), (2, 'stream', 'alter_stream(NULL)'), (3, 'stream', 'rename_stream(NULL, ''x'')'), (4, 'new_name', 'rename_stream(''s'', NULL)'), (5, 'stream', 'drop_stream(NULL)'),
               (6, 'stream', 'drop_stream(NULL, true)'), (7, 'stream', 'purge_stream(NULL)'), (8, 'stream', 'create_group(NULL, ''x'')'), (9, 'consumer_group', 'create_group(''s'', NULL)'),
               (10, 'stream', 'alter_group(NULL, ''g'')'), (11, 'consumer_group', 'alter_group(''s'', NULL)'), (12, 'stream', 'drop_group(NULL, ''g'')'), (13, 'consumer_group', 'drop_group(''s'', NULL, true)'),
               (14, 'stream', 'release(NULL, ''g'', 1)'), (15, 'consumer_group', 'release(''s'', NULL, 1)'), (16, 'stream', 'extend(NULL, ''g'', 1)'), (17, 'consumer_group', 'extend(''s'', NULL, 1)')) u (n, a, call) ORDER BY n;

-- nothing of all this left anything behind
SELECT results_eq($$ SELECT stream, messages_head FROM sqlstreams.streams $$, $$ VALUES ('s', 0::bigint) $$, 'the stream is as it was');
SELECT results_eq($$ SELECT consumer_group FROM sqlstreams.consumer_groups ORDER BY 1 $$, '{g}'::text[], 'so are its groups');
SELECT results_eq($$ SELECT DISTINCT (settings ->> 'timeout')::interval FROM sqlstreams.consumer_groups $$, $$ VALUES ('30 seconds'::interval) $$, 'and their settings');

-- writers and set-up in a read-only transaction
BEGIN READ ONLY;
SELECT fails('SELECT sqlstreams.' || call, '25006', split_part(call, '(', 1), 'read-only: ' || split_part(call, '(', 1))
  FROM (VALUES (1, 'create_stream(''x'')'), (2, 'alter_stream(''s'', delivery_log => ''off'')'), (3, 'rename_stream(''s'', ''x'')'), (4, 'purge_stream(''s'')'), (5, 'drop_stream(''s'')'),
               (6, 'create_group(''s'', ''x'')'), (7, 'alter_group(''s'', ''g'', timeout => ''1 s'')'), (8, 'drop_group(''s'', ''g'')')) u (n, call) ORDER BY n;
COMMIT;

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
