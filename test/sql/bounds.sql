\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- How a group's messages are tried again, the bounds on what they may ask for, and what a stream's messages ask for: which values are taken, which
-- are refused, and that nothing is left of those. What comes of the values stands in backoff.sql; values that are no good by themselves in arguments.sql.
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s'), sqlstreams.create_group('s', 'g') $$, 'a stream and a group');
CREATE FUNCTION tap.settings_of(a_group text) RETURNS jsonb LANGUAGE sql AS $$
  SELECT settings FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = a_group
$$;

-- every setting, to the ends of its range
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'all', max_retries => 10, max_delays => 20, base_delay => '2 seconds', max_delay => '1 hour', exponent => 3, initial_backoff => '100 ms',
    message_min => '{"timeout": "1s", "retry": {"max_retries": 1}}', message_max => '{"timeout": "1h", "retry": {"max_retries": 100, "max_delays": 0}}', max_reclaims => 7) $$, 'every setting of create_group');
SELECT is((SELECT jsonb_object_agg(key, value) FROM jsonb_each(settings_of('all')) WHERE key IN ('max_retries', 'max_delays', 'exponent', 'max_reclaims')),
  '{"max_retries": 10, "max_delays": 20, "exponent": 3, "max_reclaims": 7}', 'is kept: numbers');
SELECT results_eq($$ SELECT (s ->> 'base_delay')::interval, (s ->> 'max_delay')::interval, (s ->> 'initial_backoff')::interval FROM settings_of('all') s $$,
  $$ VALUES ('2 seconds'::interval, '1 hour'::interval, '100 ms'::interval) $$, 'intervals');
SELECT results_eq($$ SELECT s -> 'message_min', s -> 'message_max' FROM settings_of('all') s $$,
  $$ VALUES ('{"timeout": "1s", "retry": {"max_retries": 1}}'::jsonb, '{"timeout": "1h", "retry": {"max_retries": 100, "max_delays": 0}}'::jsonb) $$, 'and bounds');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'least', timeout => '1 us', max_retries => 0, max_delays => 0, base_delay => '1 us', max_delay => '1 us', exponent => 1, initial_backoff => '0', message_min => '{}',
    message_max => '{"retry": {}}', max_reclaims => 0) $$, 'the least of each');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'most', timeout => '100000 years', max_retries => 2147483647, max_delays => 2147483647, base_delay => '100000 years', max_delay => '100000 years', exponent => 2147483647,
    initial_backoff => '100000 years', max_reclaims => 2147483647,
    message_max => '{"timeout": "100000 years", "retry": {"max_retries": 2147483647, "max_delays": 2147483647, "base_delay": "100000 years", "max_delay": "100000 years", "exponent": 2147483647}}') $$, 'the most of each');
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'capped', base_delay => '1 hour', max_delay => '1 minute') $$, 'a base_delay above max_delay is one that is capped at once');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', max_retries => 10, max_delays => 20, base_delay => '2 seconds', max_delay => '1 hour', exponent => 3, initial_backoff => '0', max_reclaims => 0) $$, 'every setting of alter_group');
SELECT is(settings_of('g') - '{base_delay,max_delay,initial_backoff,timeout}'::text[] @> '{"max_retries": 10, "max_delays": 20, "exponent": 3, "max_reclaims": 0}', true, 'is kept');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', reset => '{max_retries,max_delays,base_delay,max_delay,exponent,initial_backoff,max_reclaims}') $$, 'and can be reset');
SELECT is(settings_of('g') - '{base_delay,max_delay,initial_backoff,timeout}'::text[] @> '{"max_retries": 3, "max_delays": 0, "exponent": 2, "max_reclaims": 3}', true, 'to its default');

-- a lower bound above the upper one: for each value, at creation and with what is there
CREATE TABLE tap.crossed (n serial, key text, low text, high text);
INSERT INTO tap.crossed (key, low, high) VALUES
  ('timeout', '{"timeout": "2s"}', '{"timeout": "1s"}'),
  ('timeout', '{"timeout": "24:00:01"}', '{"timeout": "1 day"}'),
  ('retry.max_retries', '{"retry": {"max_retries": 1}}', '{"retry": {"max_retries": 0}}'),
  ('retry.max_delays', '{"retry": {"max_delays": 2}}', '{"retry": {"max_delays": 1}}'),
  ('retry.max_delays', '{"retry": {"max_delays": 0}}', '{"retry": {"max_delays": 2147483647}}'),
  ('retry.base_delay', '{"retry": {"base_delay": "2ms"}}', '{"retry": {"base_delay": "1ms"}}'),
  ('retry.max_delay', '{"retry": {"max_delay": "100000 years"}}', '{"retry": {"max_delay": "99999 years"}}'),
  ('retry.exponent', '{"retry": {"exponent": 2147483647}}', '{"retry": {"exponent": 2147483646}}'),
  ('retry.exponent', '{"timeout": "1s", "retry": {"max_retries": 5, "exponent": 3}}', '{"timeout": "1s", "retry": {"max_retries": 5, "exponent": 2}}');
SELECT fails(format('SELECT sqlstreams.create_group(%L, %L, message_min => %L, message_max => %L)', 's', 'x', low, high), '22023', format('"message_min.%s" must not be greater than "message_max.%1$s"', key),
  format('create_group: %s above %s', low, high)) FROM tap.crossed ORDER BY n;
SELECT fails(format('SELECT sqlstreams.alter_group(%L, %L, message_min => %L, message_max => %L)', 's', 'g', low, high), '22023', format('"message_min.%s"', key), format('alter_group: %s above %s', low, high)) FROM tap.crossed ORDER BY n;
SELECT lives_ok(format('SELECT sqlstreams.create_group(%L, %L, message_min => %L)', 's', 'low' || n, low), 'a lower bound ' || low) FROM tap.crossed ORDER BY n;
SELECT fails(format('SELECT sqlstreams.alter_group(%L, %L, message_max => %L)', 's', 'low' || n, high), '22023', key, format('with an upper one of %s later', high)) FROM tap.crossed ORDER BY n;
SELECT lives_ok(format('SELECT sqlstreams.create_group(%L, %L, message_max => %L)', 's', 'high' || n, high), 'an upper bound ' || high) FROM tap.crossed ORDER BY n;
SELECT fails(format('SELECT sqlstreams.alter_group(%L, %L, message_min => %L)', 's', 'high' || n, low), '22023', key, format('with a lower one of %s later', low)) FROM tap.crossed ORDER BY n;
SELECT lives_ok(format('SELECT sqlstreams.alter_group(%L, %L, message_max => %L, reset => %L)', 's', 'low' || n, high, '{message_min}'), format('%s in place of %s', high, low)) FROM tap.crossed ORDER BY n;
SELECT is_empty($$ SELECT FROM sqlstreams.consumer_groups WHERE consumer_group = 'x' $$, 'what was refused is not there');
SELECT is(settings_of('g') -> 'message_min', 'null'::jsonb, 'nor any part of it');
SELECT lives_ok(format('SELECT sqlstreams.create_group(%L, %L, message_min => %L, message_max => %3$L)', 's', 'same' || n, low), format('bounds that leave no room: %s', low)) FROM tap.crossed ORDER BY n;
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'other', message_min => '{"timeout": "1h"}', message_max => '{"retry": {"base_delay": "1ms"}}') $$, 'bounds on different values, beyond the group''s own');
SELECT fails($$ SELECT sqlstreams.alter_group('s', 'g', message_min => '{"timeout": "2s"}'), sqlstreams.alter_group('s', 'g', message_max => '{"timeout": "1s"}') $$, '22023', 'timeout', 'two calls in one statement');
SELECT is(settings_of('g') -> 'message_min', 'null'::jsonb, 'both undone');
BEGIN;
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', message_min => '{"timeout": "2s"}') $$, 'a lower bound');
SELECT fails($$ SELECT sqlstreams.alter_group('s', 'g', message_max => '{"timeout": "1s"}') $$, '22023', 'timeout', 'two calls in one transaction');
ROLLBACK;
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', message_max => '{"timeout": "1s"}') $$, 'a lower bound that was rolled back is not there');
SELECT results_eq($$ SELECT s -> 'message_min', s -> 'message_max' FROM settings_of('g') s $$, $$ VALUES ('null'::jsonb, '{"timeout": "1s"}'::jsonb) $$, 'but the upper one');

-- a stream
SELECT lives_ok($$ SELECT sqlstreams.create_stream('full', delivery_log => 'all', message_defaults => '{"concurrency": "parallel", "timeout": "10s", "retry": {"max_retries": 0, "max_delays": 1, "base_delay": "1 us", "max_delay": "100000 years", "exponent": 1}}') $$,
  'a stream with every message_default, and a delivery log of all');
SELECT results_eq($$ SELECT delivery_log, message_defaults #>> '{retry,max_delay}' FROM sqlstreams.streams WHERE stream = 'full' $$, $$ VALUES ('all', '100000 years') $$, 'as it was given');
SELECT lives_ok($$ SELECT sqlstreams.alter_stream('full', delivery_log => 'off', message_defaults => '{"retry": {"max_retries": 5}}') $$, 'alter_stream');
SELECT results_eq($$ SELECT delivery_log, message_defaults FROM sqlstreams.streams WHERE stream = 'full' $$, $$ VALUES ('off', '{"retry": {"max_retries": 5}}'::jsonb) $$, 'puts others in their place');

-- an interval in an object is the same in every session: its sign would else depend on the IntervalStyle
SET intervalstyle = sql_standard;
SELECT lives_ok($$ SELECT sqlstreams.produce('s', '1', options => '{"timeout": "-1 day 25:00:00"}') $$, 'an hour, as PostgreSQL''s own style has it');
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"timeout": "-1 day 1:00:00"}') $$, '22023', 'timeout', 'less than nothing, as it has that');
RESET intervalstyle;
SELECT fails($$ SELECT sqlstreams.produce('s', '1', options => '{"timeout": "-1 day 1:00:00"}') $$, '22023', 'timeout', 'there too');

DROP FUNCTION tap.settings_of;
DROP TABLE tap.crossed;
SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
