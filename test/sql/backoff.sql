\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- When a failed message is tried again and when it is dead (F1, F2), by what the group gives and what the message asks for (F4). Nothing sleeps: a
-- message gets to its later failures by hand, and when it is due is counted from its last change.

-- Makes a stream with a group of these settings and one message, and claims that.
CREATE FUNCTION tap.start(settings text, defaults jsonb, asked jsonb, OUT id bigint, OUT claim_id bigint, OUT options jsonb) LANGUAGE plpgsql AS $$
BEGIN
  id := sqlstreams.create_stream('f', message_defaults => defaults);
  EXECUTE 'SELECT sqlstreams.create_group(' || concat_ws(', ', '''f''', '''g''', settings) || ')';
  PERFORM sqlstreams.produce('f', '1', options => asked);
  SELECT c.claim_id, c.options INTO claim_id, options FROM sqlstreams.claim('f', 'g') c;
END $$;

-- What becomes of a message that fails after so many failures.
CREATE FUNCTION tap.failed(settings text, defaults jsonb, asked jsonb, failures_before integer) RETURNS text LANGUAGE plpgsql SET intervalstyle = postgres AS $$
DECLARE
  id bigint;
  claim bigint;
  dead bigint;
  e record;
BEGIN
  SELECT s.id, s.claim_id INTO id, claim FROM tap.start(settings, defaults, asked) s;
  dead := sqlstreams.nack('f', 'g', claim);
  IF failures_before > 0 THEN
    EXECUTE format('UPDATE sqlstreams.exception_queue_%s SET attempts = %s, due_at = clock_timestamp()', id, failures_before);
    SELECT c.claim_id INTO claim FROM sqlstreams.claim('f', 'g') c;
    dead := sqlstreams.nack('f', 'g', claim);
  END IF;
  SELECT * INTO e FROM sqlstreams.exceptions('f');
  PERFORM sqlstreams.drop_stream('f');
  RETURN concat_ws(' ', e.status, e.attempts, CASE
    WHEN dead <> CASE e.status WHEN 'dead' THEN 1 ELSE 0 END THEN 'though nack returned ' || dead
    WHEN e.status = 'dead' THEN NULL
    WHEN e.can_run_after >= '294276-12-31 23:59:59.999999+00' THEN 'at the end of time'
    ELSE 'after ' || (e.can_run_after - e.updated_at) END);
END $$;

-- What becomes of a message that is delayed after so many delays.
CREATE FUNCTION tap.delayed(settings text, defaults jsonb, asked jsonb, delays_before integer) RETURNS text LANGUAGE plpgsql SET intervalstyle = postgres AS $$
DECLARE
  id bigint;
  claim bigint;
  dead bigint;
  e record;
BEGIN
  SELECT s.id, s.claim_id INTO id, claim FROM tap.start(settings, defaults, asked) s;
  dead := sqlstreams.delay('f', 'g', claim, '{1}', '1 minute');
  IF delays_before > 0 THEN
    EXECUTE format('UPDATE sqlstreams.exception_queue_%s SET delays = %s, due_at = clock_timestamp()', id, delays_before);
    SELECT c.claim_id INTO claim FROM sqlstreams.claim('f', 'g') c;
    dead := sqlstreams.delay('f', 'g', claim, '{1}', '1 minute');
  END IF;
  SELECT * INTO e FROM sqlstreams.exceptions('f');
  PERFORM sqlstreams.drop_stream('f');
  RETURN concat_ws(' ', e.status, e.delays, CASE
    WHEN dead <> CASE e.status WHEN 'dead' THEN 1 ELSE 0 END THEN 'though delay returned ' || dead
    WHEN e.status = 'dead' THEN NULL
    ELSE 'after ' || (e.can_run_after - e.updated_at) END);
END $$;

-- Options in one line: timeout, max_retries, max_delays, base_delay, max_delay, exponent.
CREATE FUNCTION tap.in_line(options jsonb) RETURNS text LANGUAGE sql AS $$
  SELECT concat_ws(' ', options ->> 'timeout', r ->> 'max_retries', r ->> 'max_delays', r ->> 'base_delay', r ->> 'max_delay', r ->> 'exponent')
    FROM (SELECT options -> 'retry' AS r) x
$$;

-- The options that a message is claimed with.
CREATE FUNCTION tap.given(settings text, defaults jsonb, asked jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  options jsonb;
BEGIN
  SELECT s.options INTO options FROM tap.start(settings, defaults, asked) s;
  PERFORM sqlstreams.drop_stream('f');
  RETURN tap.in_line(options);
END $$;

CREATE FUNCTION tap.about(settings text, defaults jsonb, asked jsonb, what text) RETURNS text LANGUAGE sql AS $$
  SELECT concat_ws('; ', settings, 'defaults ' || defaults::text, 'asked ' || asked::text, what)
$$;

-- the group's own policy, by its defaults
SELECT is(failed(NULL, NULL, NULL, n), want, 'failure ' || n + 1)
  FROM (VALUES (0, 'ready 1 after 00:00:05'), (1, 'ready 2 after 00:00:01'), (2, 'ready 3 after 00:00:02'), (3, 'dead 4')) v (n, want) ORDER BY n;

-- and by its settings
CREATE TEMP TABLE cases (n serial, settings text, defaults jsonb, asked jsonb, before integer, want text);
INSERT INTO cases (settings, before, want) VALUES
  ('max_retries => 0', 0, 'dead 1'),
  ('max_retries => 1', 0, 'ready 1 after 00:00:05'),
  ('max_retries => 1', 1, 'dead 2'),
  ('max_retries => 10', 8, 'ready 9 after 00:02:08'),
  ('max_retries => 10', 9, 'ready 10 after 00:04:16'),
  ('max_retries => 10', 10, 'dead 11'),
  ('max_retries => 20', 10, 'ready 11 after 00:05:00'),
  ('max_retries => 100', 63, 'ready 64 after 00:05:00'),
  ('max_retries => 100', 64, 'ready 65 after 00:05:00'),
  ('max_retries => 100', 65, 'ready 66 after 00:05:00'),
  ('max_retries => 2147483647', 2147483646, 'ready 2147483647 after 00:05:00'),
  ('max_retries => 2147483646', 2147483646, 'dead 2147483647'),
  ('initial_backoff => ''0''', 0, 'ready 1 after 00:00:00'),
  ('initial_backoff => ''0''', 1, 'ready 2 after 00:00:01'),
  ('initial_backoff => ''1 us''', 0, 'ready 1 after 00:00:00.000001'),
  ('initial_backoff => ''10 min'', max_delay => ''1 s''', 0, 'ready 1 after 00:10:00'),
  ('initial_backoff => ''1 month''', 0, 'ready 1 after 30 days'),
  ('initial_backoff => ''100000 years''', 0, 'ready 1 after 36000000 days'),
  ('initial_backoff => ''296520 years''', 0, 'ready 1 at the end of time'),
  ('exponent => 3', 2, 'ready 3 after 00:00:03'),
  ('exponent => 3, max_retries => 9', 3, 'ready 4 after 00:00:09'),
  ('exponent => 3, max_retries => 9', 6, 'ready 7 after 00:04:03'),
  ('exponent => 3, max_retries => 9', 7, 'ready 8 after 00:05:00'),
  ('exponent => 1, base_delay => ''7 s''', 1, 'ready 2 after 00:00:07'),
  ('exponent => 1, base_delay => ''7 s''', 2, 'ready 3 after 00:00:07'),
  ('exponent => 1, base_delay => ''7 s'', max_retries => 2147483647', 2147483646, 'ready 2147483647 after 00:00:07'),
  ('exponent => 1, base_delay => ''7 s'', max_delay => ''6 s''', 1, 'ready 2 after 00:00:06'),
  ('exponent => 2147483647', 1, 'ready 2 after 00:00:01'),
  ('exponent => 2147483647', 2, 'ready 3 after 00:05:00'),
  ('exponent => 2147483647, base_delay => ''1 us'', max_delay => ''200000 years'', max_retries => 9', 2, 'ready 3 after 00:35:47.483647'),
  ('exponent => 2147483647, base_delay => ''1 us'', max_delay => ''200000 years'', max_retries => 9', 3, 'ready 4 after 53375995 days 12:48:52.420609'),
  ('exponent => 2147483647, base_delay => ''1 us'', max_delay => ''200000 years'', max_retries => 9', 4, 'ready 5 after 72000000 days'),
  ('exponent => 2147483647, base_delay => ''100000 years'', max_delay => ''200000 years''', 2, 'ready 3 after 72000000 days'),
  ('base_delay => ''1.5 s'', exponent => 3, max_delay => ''10 s''', 2, 'ready 3 after 00:00:04.5'),
  ('base_delay => ''1.5 s'', exponent => 3, max_delay => ''10 s'', max_retries => 9', 3, 'ready 4 after 00:00:10'),
  ('base_delay => ''1 us'', max_delay => ''1 us'', max_retries => 9', 8, 'ready 9 after 00:00:00.000001'),
  ('base_delay => ''1 us'', max_delay => ''100000 years'', max_retries => 100', 62, 'ready 63 after 26687997 days 19:00:13.693952'),
  ('base_delay => ''1 us'', max_delay => ''100000 years'', max_retries => 100', 63, 'ready 64 after 36000000 days'),
  ('base_delay => ''1 hour'', max_delay => ''1 minute''', 1, 'ready 2 after 00:01:00'),
  ('base_delay => ''1 hour'', max_delay => ''1 minute''', 2, 'ready 3 after 00:01:00'),
  ('base_delay => ''1 day'', max_delay => ''1 month''', 1, 'ready 2 after 1 day'),
  ('base_delay => ''100000 years''', 1, 'ready 2 after 00:05:00'),
  ('base_delay => ''100000 years'', max_delay => ''100000 years''', 2, 'ready 3 after 36000000 days'),
  ('base_delay => ''296520 years'', max_delay => ''296520 years''', 2, 'ready 3 at the end of time');

-- a message's own: without bounds every message gets the group's values
INSERT INTO cases (asked, before, want) VALUES
  ('{"retry": {"max_retries": 0}}', 0, 'ready 1 after 00:00:05'),
  ('{"retry": {"max_retries": 100}}', 3, 'dead 4'),
  ('{"retry": {"base_delay": "1 hour", "max_delay": "1 hour", "exponent": 9}}', 2, 'ready 3 after 00:00:02');

-- an upper bound: up to that, but not below the group's own
INSERT INTO cases (settings, asked, before, want) VALUES
  ('message_max => ''{"retry": {"max_retries": 10}}''', NULL, 3, 'dead 4'),
  ('message_max => ''{"retry": {"max_retries": 10}}''', '{}', 3, 'dead 4'),
  ('message_max => ''{"retry": {"max_retries": 10}}''', '{"timeout": "1 s"}', 3, 'dead 4'),
  ('message_max => ''{"retry": {"max_retries": 10}}''', '{"retry": {"max_retries": 10}}', 9, 'ready 10 after 00:04:16'),
  ('message_max => ''{"retry": {"max_retries": 10}}''', '{"retry": {"max_retries": 10}}', 10, 'dead 11'),
  ('message_max => ''{"retry": {"max_retries": 10}}''', '{"retry": {"max_retries": 2147483647}}', 10, 'dead 11'),
  ('message_max => ''{"retry": {"max_retries": 10}}''', '{"retry": {"max_retries": 0}}', 2, 'ready 3 after 00:00:02'),
  ('message_max => ''{"retry": {"max_retries": 10}}''', '{"retry": {"max_retries": 0}}', 3, 'dead 4'),
  ('message_max => ''{"retry": {"max_retries": 2147483647}}''', '{"retry": {"max_retries": 2147483647}}', 2147483646, 'ready 2147483647 after 00:05:00'),
  ('message_max => ''{"retry": {"max_retries": 1}}''', NULL, 1, 'dead 2'),
  ('message_max => ''{"retry": {"max_retries": 1}}''', '{"retry": {"max_retries": 5}}', 1, 'dead 2'),
  ('message_max => ''{"retry": {"max_retries": 1}}''', '{"retry": {"max_retries": 0}}', 0, 'ready 1 after 00:00:05'),
  ('message_max => ''{"retry": {"max_retries": 0}}''', NULL, 0, 'dead 1'),
  ('message_max => ''{"retry": {"base_delay": "1 min"}}''', '{"retry": {"base_delay": "10 s"}}', 2, 'ready 3 after 00:00:20'),
  ('message_max => ''{"retry": {"base_delay": "1 min"}}''', '{"retry": {"base_delay": "100000 years"}}', 2, 'ready 3 after 00:02:00'),
  ('message_max => ''{"retry": {"base_delay": "1 min"}}''', '{"retry": {"base_delay": "1 us"}}', 2, 'ready 3 after 00:00:02'),
  ('message_max => ''{"retry": {"base_delay": "10 ms"}}''', NULL, 2, 'ready 3 after 00:00:00.02'),
  ('message_max => ''{"retry": {"max_delay": "1 day"}}'', base_delay => ''1 hour''', '{"retry": {"max_delay": "90 min"}}', 2, 'ready 3 after 01:30:00'),
  ('message_max => ''{"retry": {"max_delay": "1 day"}}'', base_delay => ''1 hour''', '{"retry": {"max_delay": "1 us"}}', 2, 'ready 3 after 00:05:00'),
  ('message_max => ''{"retry": {"max_delay": "100000 years", "base_delay": "100000 years"}}''', '{"retry": {"max_delay": "100000 years", "base_delay": "100000 years"}}', 2, 'ready 3 after 36000000 days'),
  ('message_max => ''{"retry": {"exponent": 5}}''', '{"retry": {"exponent": 4}}', 2, 'ready 3 after 00:00:04'),
  ('message_max => ''{"retry": {"exponent": 5}}''', '{"retry": {"exponent": 2147483647}}', 2, 'ready 3 after 00:00:05'),
  ('message_max => ''{"retry": {"exponent": 5}}''', '{"retry": {"exponent": 1}}', 2, 'ready 3 after 00:00:02'),
  ('message_max => ''{"retry": {"max_retries": 10, "base_delay": "1 hour", "max_delay": "1 day", "exponent": 3}}''', '{"retry": {"max_retries": 4, "base_delay": "2 s", "max_delay": "10 min", "exponent": 3}}', 3, 'ready 4 after 00:00:18'),
  ('message_max => ''{"retry": {"base_delay": "1 hour"}}''', '{"retry": {"base_delay": "1 hour"}}', 0, 'ready 1 after 00:00:05');

-- a lower bound: down to that, but not above the group's own; both
INSERT INTO cases (settings, asked, before, want) VALUES
  ('message_min => ''{"retry": {"max_retries": 0}}''', NULL, 2, 'ready 3 after 00:00:02'),
  ('message_min => ''{"retry": {"max_retries": 0}}''', '{"retry": {"max_retries": 0}}', 0, 'dead 1'),
  ('message_min => ''{"retry": {"max_retries": 0}}''', '{"retry": {"max_retries": 9}}', 3, 'dead 4'),
  ('message_min => ''{"retry": {"max_retries": 5}}''', NULL, 4, 'ready 5 after 00:00:08'),
  ('message_min => ''{"retry": {"max_retries": 5}}''', NULL, 5, 'dead 6'),
  ('message_min => ''{"retry": {"max_retries": 5}}''', '{"retry": {"max_retries": 9}}', 5, 'dead 6'),
  ('message_min => ''{"retry": {"base_delay": "10 ms"}}''', '{"retry": {"base_delay": "1 ms"}}', 2, 'ready 3 after 00:00:00.02'),
  ('message_min => ''{"retry": {"base_delay": "100000 years"}}''', '{"retry": {"base_delay": "1 ms"}}', 2, 'ready 3 after 00:05:00'),
  ('message_min => ''{"retry": {"max_delay": "1 us"}}''', '{"retry": {"max_delay": "1500 ms"}}', 2, 'ready 3 after 00:00:01.5'),
  ('message_min => ''{"retry": {"exponent": 1}}''', '{"retry": {"exponent": 1}}', 2, 'ready 3 after 00:00:01'),
  ('message_min => ''{"retry": {"max_retries": 1}}'', message_max => ''{"retry": {"max_retries": 5}}''', NULL, 3, 'dead 4'),
  ('message_min => ''{"retry": {"max_retries": 1}}'', message_max => ''{"retry": {"max_retries": 5}}''', '{"retry": {"max_retries": 0}}', 1, 'dead 2'),
  ('message_min => ''{"retry": {"max_retries": 1}}'', message_max => ''{"retry": {"max_retries": 5}}''', '{"retry": {"max_retries": 2}}', 2, 'dead 3'),
  ('message_min => ''{"retry": {"max_retries": 1}}'', message_max => ''{"retry": {"max_retries": 5}}''', '{"retry": {"max_retries": 9}}', 5, 'dead 6'),
  ('message_min => ''{"retry": {"max_retries": 4}}'', message_max => ''{"retry": {"max_retries": 5}}''', NULL, 4, 'dead 5'),
  ('message_min => ''{"retry": {"max_retries": 1}}'', message_max => ''{"retry": {"max_retries": 2}}''', NULL, 2, 'dead 3'),
  ('message_min => ''{"retry": {"exponent": 7}}'', message_max => ''{"retry": {"exponent": 7}}''', '{"retry": {"exponent": 3}}', 2, 'ready 3 after 00:00:07');

-- the stream's message_defaults: for what the message does not say, in the same bounds
INSERT INTO cases (settings, defaults, asked, before, want) VALUES
  (NULL, '{"retry": {"max_retries": 0}}', NULL, 0, 'ready 1 after 00:00:05'),
  ('message_max => ''{"retry": {"max_retries": 10}}''', '{"retry": {"max_retries": 5}}', NULL, 4, 'ready 5 after 00:00:08'),
  ('message_max => ''{"retry": {"max_retries": 10}}''', '{"retry": {"max_retries": 5}}', NULL, 5, 'dead 6'),
  ('message_max => ''{"retry": {"max_retries": 10}}''', '{"retry": {"max_retries": 50}}', NULL, 10, 'dead 11'),
  ('message_max => ''{"retry": {"max_retries": 10}}''', '{"retry": {"max_retries": 5}}', '{"retry": {"max_retries": 4}}', 4, 'dead 5'),
  ('message_max => ''{"retry": {"max_retries": 10}}''', '{"retry": {"max_retries": 5}}', '{"retry": {"max_retries": 6}}', 5, 'ready 6 after 00:00:16'),
  ('message_max => ''{"retry": {"max_retries": 10}}''', '{"retry": {"max_retries": 5}}', '{"retry": {"exponent": 2}}', 5, 'dead 6'),
  ('message_min => ''{"retry": {"max_retries": 0}}''', '{"retry": {"max_retries": 0}}', '{"timeout": "1 s"}', 0, 'dead 1'),
  ('message_max => ''{"retry": {"base_delay": "1 hour", "exponent": 9}}''', '{"retry": {"exponent": 3, "base_delay": "3 s"}}', '{"retry": {"base_delay": "2 s"}}', 2, 'ready 3 after 00:00:06'),
  ('message_max => ''{"retry": {"base_delay": "1 hour", "exponent": 9}}''', '{"retry": {"exponent": 3, "base_delay": "3 s"}}', '{"retry": {"exponent": 9}}', 2, 'ready 3 after 00:00:27');

SELECT is(failed(settings, defaults, asked, before), want, about(settings, defaults, asked, 'failure ' || before::bigint + 1)) FROM cases ORDER BY n;

-- delays: no limit is more than any
TRUNCATE cases;
INSERT INTO cases (settings, defaults, asked, before, want) VALUES
  (NULL, NULL, NULL, 0, 'ready 1 after 00:01:00'),
  (NULL, NULL, NULL, 2147483646, 'ready 2147483647 after 00:01:00'),
  (NULL, NULL, '{"retry": {"max_delays": 1}}', 1, 'ready 2 after 00:01:00'),
  ('max_delays => 1', NULL, NULL, 0, 'ready 1 after 00:01:00'),
  ('max_delays => 1', NULL, NULL, 1, 'dead 2'),
  ('max_delays => 1, max_retries => 0', NULL, NULL, 0, 'ready 1 after 00:01:00'),
  ('max_delays => 2147483647', NULL, NULL, 2147483646, 'ready 2147483647 after 00:01:00'),
  ('max_delays => 2147483646', NULL, NULL, 2147483646, 'dead 2147483647'),
  ('max_delays => 2', NULL, '{"retry": {"max_delays": 0}}', 2, 'dead 3'),
  ('max_delays => 2, message_max => ''{"retry": {"max_delays": 5}}''', NULL, NULL, 2, 'dead 3'),
  ('max_delays => 2, message_max => ''{"retry": {"max_delays": 5}}''', NULL, '{"retry": {"max_delays": 0}}', 4, 'ready 5 after 00:01:00'),
  ('max_delays => 2, message_max => ''{"retry": {"max_delays": 5}}''', NULL, '{"retry": {"max_delays": 0}}', 5, 'dead 6'),
  ('max_delays => 2, message_max => ''{"retry": {"max_delays": 5}}''', NULL, '{"retry": {"max_delays": 1}}', 1, 'ready 2 after 00:01:00'),
  ('max_delays => 2, message_max => ''{"retry": {"max_delays": 0}}''', NULL, NULL, 2, 'dead 3'),
  ('max_delays => 2, message_max => ''{"retry": {"max_delays": 0}}''', NULL, '{"retry": {"max_delays": 7}}', 6, 'ready 7 after 00:01:00'),
  ('max_delays => 2, message_max => ''{"retry": {"max_delays": 0}}''', NULL, '{"retry": {"max_delays": 7}}', 7, 'dead 8'),
  ('max_delays => 2, message_max => ''{"retry": {"max_delays": 0}}''', NULL, '{"retry": {"max_delays": 0}}', 2147483646, 'ready 2147483647 after 00:01:00'),
  ('max_delays => 2, message_max => ''{"retry": {"max_delays": 0}}''', '{"retry": {"max_delays": 0}}', NULL, 1000, 'ready 1001 after 00:01:00'),
  ('message_max => ''{"retry": {"max_delays": 4}}''', NULL, NULL, 4, 'dead 5'),
  ('message_max => ''{"retry": {"max_delays": 4}}''', NULL, '{"retry": {"max_delays": 1}}', 3, 'ready 4 after 00:01:00'),
  ('message_min => ''{"retry": {"max_delays": 4}}''', NULL, NULL, 1000, 'ready 1001 after 00:01:00'),
  ('message_min => ''{"retry": {"max_delays": 4}}''', NULL, '{"retry": {"max_delays": 2}}', 3, 'ready 4 after 00:01:00'),
  ('message_min => ''{"retry": {"max_delays": 4}}''', NULL, '{"retry": {"max_delays": 2}}', 4, 'dead 5'),
  ('message_min => ''{"retry": {"max_delays": 4}}''', '{"retry": {"max_delays": 6}}', NULL, 6, 'dead 7'),
  ('max_delays => 2, message_min => ''{"retry": {"max_delays": 0}}''', NULL, '{"retry": {"max_delays": 1}}', 1000, 'ready 1001 after 00:01:00');
SELECT is(delayed(settings, defaults, asked, before), want, about(settings, defaults, asked, 'delay ' || before::bigint + 1)) FROM cases ORDER BY n;

-- the options that claim returns
TRUNCATE cases;
INSERT INTO cases (settings, defaults, asked, want) VALUES
  (NULL, NULL, NULL, '00:00:30 3 0 00:00:01 00:05:00 2'),
  (NULL, '{"timeout": "1 s"}', '{"timeout": "2 s", "retry": {"max_retries": 9, "max_delays": 9, "base_delay": "9 s", "max_delay": "9 s", "exponent": 9}}', '00:00:30 3 0 00:00:01 00:05:00 2'),
  ('timeout => ''1 us'', max_retries => 0, base_delay => ''1 us'', max_delay => ''1 us'', exponent => 1', NULL, NULL, '00:00:00.000001 0 0 00:00:00.000001 00:00:00.000001 1'),
  ('timeout => ''1 month'', max_retries => 2147483647, max_delays => 2147483647, base_delay => ''1 day'', max_delay => ''100000 years'', exponent => 2147483647', NULL, NULL,
   '720:00:00 2147483647 2147483647 24:00:00 864000000:00:00 2147483647'),
  ('message_max => ''{"timeout": "1 hour"}''', NULL, '{"timeout": "45s"}', '00:00:45 3 0 00:00:01 00:05:00 2'),
  ('message_max => ''{"timeout": "1 hour"}''', NULL, '{"timeout": "PT50M"}', '00:50:00 3 0 00:00:01 00:05:00 2'),
  ('message_max => ''{"timeout": "1 hour"}''', NULL, '{"timeout": "2 hours"}', '01:00:00 3 0 00:00:01 00:05:00 2'),
  ('message_max => ''{"timeout": "1 hour"}''', NULL, '{"timeout": "1 s"}', '00:00:30 3 0 00:00:01 00:05:00 2'),
  ('message_max => ''{"timeout": "10 s"}''', NULL, NULL, '00:00:10 3 0 00:00:01 00:05:00 2'),
  ('message_min => ''{"timeout": "1 s"}''', NULL, '{"timeout": "1 ms"}', '00:00:01 3 0 00:00:01 00:05:00 2'),
  ('message_min => ''{"timeout": "1 s"}''', '{"timeout": "2 s"}', NULL, '00:00:02 3 0 00:00:01 00:05:00 2'),
  ('message_min => ''{"timeout": "1 s"}''', '{"timeout": "2 s", "concurrency": "parallel"}', '{"timeout": "3 s"}', '00:00:03 3 0 00:00:01 00:05:00 2'),
  ('message_min => ''{"timeout": "1 min"}''', NULL, '{"timeout": "1 s"}', '00:01:00 3 0 00:00:01 00:05:00 2'),
  ('message_min => ''{"timeout": "1 min"}''', NULL, NULL, '00:01:00 3 0 00:00:01 00:05:00 2'),
  ('message_min => ''{"retry": {"max_retries": 1, "max_delays": 2, "base_delay": "3 s", "max_delay": "4 s", "exponent": 5}}''', NULL, '{"retry": {"max_retries": 0, "max_delays": 1, "base_delay": "1 s", "max_delay": "1 s", "exponent": 1}}', '00:00:30 1 2 00:00:03 00:00:04 5'),
  ('message_max => ''{"retry": {"max_retries": 11, "max_delays": 12, "base_delay": "13 s", "max_delay": "14 min", "exponent": 15}}''', NULL, '{"retry": {"max_retries": 99, "max_delays": 0, "base_delay": "99 s", "max_delay": "99 min", "exponent": 99}}', '00:00:30 11 12 00:00:13 00:14:00 15'),
  ('message_max => ''{"timeout": "1 day", "retry": {"max_retries": 11, "max_delays": 12, "base_delay": "13 s", "max_delay": "14 min", "exponent": 15}}''',
   '{"timeout": "50 s", "retry": {"max_retries": 5, "base_delay": "5 s", "exponent": 5}}', '{"retry": {"max_retries": 7, "max_delay": "7 min"}}', '00:00:50 7 12 00:00:05 00:07:00 5');
SELECT is(given(settings, defaults, asked), want, about(settings, defaults, asked, 'claimed')) FROM cases ORDER BY n;

-- several messages in one claim, each with its own; what is changed applies from the next claim on
SELECT sqlstreams.create_stream('s') AS id \gset
SELECT sqlstreams.create_group('s', 'g', message_min => '{"timeout": "1 s", "retry": {"exponent": 1}}', message_max => '{"timeout": "1 day", "retry": {"max_retries": 9, "exponent": 9}}'),
  sqlstreams.create_group('s', 'later', message_min => '{"timeout": "1 s"}', message_max => '{"timeout": "1 day"}'), sqlstreams.create_group('s', 'fixed') \g /dev/null
SELECT is((SELECT count(sqlstreams.produce('s', '1', options => o)) FROM unnest(ARRAY['{"timeout": "1 min"}', NULL, '{}', '{"timeout": "1 ms"}', '{"retry": {"exponent": 3}}']::jsonb[]) WITH ORDINALITY u (o, n)), 5::bigint, 'five messages');
SELECT results_eq($$ SELECT options ->> 'timeout' FROM sqlstreams.claim('s', 'g', 9) $$, '{00:01:00,00:00:30,00:00:30,00:00:01,00:00:30}'::text[], 'each gets its own');
SELECT results_eq($$ SELECT options ->> 'timeout' FROM sqlstreams.pop('s', 'fixed', 9) $$, '{00:00:30,00:00:30,00:00:30,00:00:30,00:00:30}'::text[], 'in each group what that gives; pop returns the same');
SELECT sqlstreams.alter_stream('s', message_defaults => '{"timeout": "2 hours"}') \g /dev/null
SELECT results_eq($$ SELECT options ->> 'timeout' FROM sqlstreams.claim('s', 'later', 3) $$, '{00:01:00,02:00:00,02:00:00}'::text[], 'new message_defaults hold for messages that are there');
SELECT sqlstreams.alter_group('s', 'later', message_max => '{"timeout": "1 hour"}', reset => '{message_min}') \g /dev/null
SELECT results_eq($$ SELECT options ->> 'timeout' FROM sqlstreams.claim('s', 'later', 3) $$, '{00:00:30,01:00:00}'::text[], 'so do new bounds');

-- what cannot be read was not asked for, and keeps nobody from claiming
SELECT is((SELECT count(sqlstreams.produce('s', '1', options => '{"timeout": "40 s"}')) FROM generate_series(1, 5)), 5::bigint, 'five more');
UPDATE sqlstreams.message_log_:id SET options = o
  FROM unnest(ARRAY['[]', '{"timeout": 5, "retry": []}', '{"timeout": "soon", "retry": {"exponent": 1e30, "max_retries": "9"}}', '{"timeout": "-1 s", "nope": {}, "retry": {"exponent": -1, "max_retries": 8}}']::jsonb[])
       WITH ORDINALITY u (o, n) WHERE id = 5 + n;
SELECT results_eq($$ SELECT message_id, in_line(options) FROM sqlstreams.claim('s', 'g', 9) $$,
  $$ VALUES (6::bigint, '02:00:00 3 0 00:00:01 00:05:00 2'), (7, '02:00:00 3 0 00:00:01 00:05:00 2'), (8, '02:00:00 3 0 00:00:01 00:05:00 2'), (9, '02:00:00 8 0 00:00:01 00:05:00 2'), (10, '00:00:40 3 0 00:00:01 00:05:00 2') $$,
  'options that somebody has spoilt');

-- the same in every session
SET intervalstyle = sql_standard;
SELECT sqlstreams.produce('s', '1', options => '{"timeout": "-1 day 25:00:00"}') \g /dev/null
SELECT is((SELECT options ->> 'timeout' FROM sqlstreams.claim('s', 'g')), '01:00:00', 'an interval with two signs, claimed with one IntervalStyle');
SET intervalstyle = iso_8601;
SELECT sqlstreams.produce('s', '1', options => '{"timeout": "-1 day 25:00:00"}') \g /dev/null
SELECT is((SELECT options ->> 'timeout' FROM sqlstreams.claim('s', 'g')), '01:00:00', 'and with another');
RESET intervalstyle;

-- a failure is held against what the group gives by then
SELECT sqlstreams.create_stream('now') AS id \gset
SELECT sqlstreams.create_group('now', 'g', initial_backoff => '0'), sqlstreams.produce('now', '1') \g /dev/null
SELECT is((SELECT sqlstreams.nack('now', 'g', claim_id) FROM sqlstreams.claim('now', 'g')), 0::bigint, 'a failure');
SELECT min(claim_id) AS c FROM sqlstreams.claim('now', 'g') \gset
SELECT sqlstreams.alter_group('now', 'g', max_retries => 1) \g /dev/null
SELECT is(sqlstreams.nack('now', 'g', :c), 1::bigint, 'and one after max_retries has become less');
SELECT results_eq($$ SELECT status, attempts FROM sqlstreams.exceptions('now') $$, $$ VALUES ('dead', 2) $$, 'is the last');

DROP TABLE cases;
DROP FUNCTION tap.start, tap.failed, tap.delayed, tap.in_line, tap.given, tap.about;
SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
