\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- How long a lease is where the claim does not say: the largest effective timeout among its messages, and 15 seconds.
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'plain'), sqlstreams.create_group('s', 'wide', timeout => '1 minute', message_min => '{"timeout": "10 s"}', message_max => '{"timeout": "1 hour"}'),
    sqlstreams.create_group('s', 'low', timeout => '20 seconds', message_min => '{"timeout": "1 s"}') $$, 'a stream and three groups');
-- a claim: its messages' timeouts, and the lease, in seconds; five of them may pass in between
CREATE FUNCTION pg_temp.take(a_stream text, a_group text, how_many bigint, a_lease interval DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
  SELECT format('%s: %s', string_agg(extract(epoch FROM (c.options ->> 'timeout')::interval)::int::text, ' ' ORDER BY c.message_id), ceil(extract(epoch FROM min(c.lease_expires_at - clock_timestamp())) / 5) * 5)
    FROM sqlstreams.claim(a_stream, a_group, how_many, a_lease) c
$$;
SELECT is(sqlstreams.produce('s', '1'), 1::bigint, 'a message that asks for nothing');
SELECT is(sqlstreams.produce('s', '2', options => '{"timeout": "5 minutes"}'), 2::bigint, 'one that asks for five minutes');
SELECT is(sqlstreams.produce('s', '3', options => '{"timeout": "2 s"}'), 3::bigint, 'for two seconds');
SELECT is(sqlstreams.produce('s', '4', options => '{"timeout": "1 day"}'), 4::bigint, 'for a day');
SELECT is(sqlstreams.produce('s', '5', options => '{"retry": {"max_retries": 5}}'), 5::bigint, 'for something else');
SELECT is(sqlstreams.produce('s', '6', options => '{"timeout": "45.5 s"}'), 6::bigint, 'for a fraction');
SELECT is(pg_temp.take('s', 'plain', 5), '30 30 30 30 30: 45', 'a group that sets no bounds gives all of them its own timeout');
SELECT is(pg_temp.take('s', 'wide', 1), '60: 75', 'nothing asked for: the group''s');
SELECT is(pg_temp.take('s', 'wide', 1), '300: 315', 'what the message asks for');
SELECT is(pg_temp.take('s', 'wide', 1), '10: 25', 'not less than message_min');
SELECT is(pg_temp.take('s', 'wide', 1), '3600: 3615', 'not more than message_max');
SELECT is((SELECT sum(sqlstreams.release('s', 'wide', claim_id)) FROM sqlstreams.leases WHERE consumer_group = 'wide'), 4::numeric, 'released');
SELECT is(pg_temp.take('s', 'wide', 3), '60 300 10: 315', 'of several the largest');
SELECT is(pg_temp.take('s', 'wide', 1), '3600: 3615', 'what is left');
SELECT is(pg_temp.take('s', 'low', 3), '20 20 2: 35', 'of another group, by its own bounds');
SELECT is(pg_temp.take('s', 'low', 1), '20: 35', 'each of them');

-- what the claim says
SELECT is(pg_temp.take('s', 'low', 1, '10 minutes'), '20: 600', 'what the claim says is what it gets');
SELECT is(pg_temp.take('s', 'low', 1, '10 seconds'), '20: 10', 'also when it is less than the timeout');
SELECT is((SELECT round(extract(epoch FROM expires_at - claimed_at)) FROM sqlstreams.leases WHERE consumer_group = 'wide' AND messages = 3), 315::numeric, 'the view shows the lease');

-- extend without a lease: as long as it was made for
SELECT claim_id AS c FROM sqlstreams.leases WHERE consumer_group = 'wide' AND messages = 3 \gset
SELECT format('UPDATE sqlstreams.group_cursor_%1$s SET lease_scan_from = ''-infinity''; UPDATE sqlstreams.claim_lease_%1$s SET expires_at = (SELECT clock_timestamp())', stream_id) AS expire,
       format('UPDATE sqlstreams.exception_queue_%s SET due_at = (SELECT clock_timestamp()) WHERE status = ''r''', stream_id) AS make_due FROM sqlstreams.streams WHERE stream = 's' \gset
:expire WHERE claim_id = :c;
SELECT is(ceil(extract(epoch FROM sqlstreams.extend('s', 'wide', :c) - clock_timestamp()) / 5) * 5, 315::numeric, 'extended by as much');

-- taken over, and due again
:expire WHERE claim_id = :c;
SELECT is(pg_temp.take('s', 'wide', 1), '60: 75', 'taken over: by the messages that come');
SELECT is(pg_temp.take('s', 'wide', 2), '300 10: 315', 'each time');
SELECT is((SELECT sum(sqlstreams.nack('s', 'wide', claim_id, retry_in => '0')) FROM sqlstreams.leases WHERE consumer_group = 'wide'), 0::numeric, 'all fail');
SELECT is((SELECT ceil(extract(epoch FROM max(lease_expires_at) - clock_timestamp()) / 5) * 5 FROM sqlstreams.claim('s', 'wide', 6)), 3615::numeric, 'due and fresh ones: the largest of both');
SELECT is((SELECT count(*) FROM sqlstreams.leases WHERE consumer_group = 'wide' AND messages = 6), 1::bigint, 'in one claim');

-- a change of the group applies to what is claimed after it
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'change', timeout => '10 s'), sqlstreams.create_group('s', 'max', message_max => '{"timeout": "10 minutes"}') $$, 'two groups more');
SELECT is(pg_temp.take('s', 'change', 1), '10: 25', 'the timeout of now');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'change', timeout => '20 s', message_max => '{"timeout": "30 s"}') $$, 'changed');
SELECT is(pg_temp.take('s', 'change', 1), '30: 45', 'the next claim');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'change', reset => '{timeout,message_max}') $$, 'reset');
SELECT is(pg_temp.take('s', 'change', 1), '30: 45', 'the default');
SELECT is(pg_temp.take('s', 'max', 6), '30 300 30 600 30 46: 615', 'with a maximum only, the minimum is the group''s own timeout');

-- what the stream asks for in the messages' name
SELECT lives_ok($$ SELECT sqlstreams.create_stream('d', message_defaults => '{"timeout": "2 minutes"}'), sqlstreams.create_group('d', 'g', message_min => '{"timeout": "1 s"}', message_max => '{"timeout": "1 hour"}'), sqlstreams.create_group('d', 'plain') $$,
  'a stream with defaults');
SELECT is(sqlstreams.produce('d', '1'), 1::bigint, 'a message that asks for nothing');
SELECT is(sqlstreams.produce('d', '2', options => '{"timeout": "3 minutes"}'), 2::bigint, 'one that asks for three minutes');
SELECT is(pg_temp.take('d', 'g', 1), '120: 135', 'the stream''s default');
SELECT is(pg_temp.take('d', 'g', 1), '180: 195', 'or what the message asks for');
SELECT is(pg_temp.take('d', 'plain', 2), '30 30: 45', 'not where the group sets no bounds');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
