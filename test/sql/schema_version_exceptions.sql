\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- A group's schema_version holds among its exceptions, too: those of other versions are stepped over, and come when it is theirs.
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours'), sqlstreams.create_group('s', 'h') $$, 'a stream and two groups');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', '{1,2,3,4}')), 4::bigint, 'four messages of the first version');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', '{5,6,7,8}', schema_version => 2)), 4::bigint, 'four of the second');
SELECT is(sqlstreams.produce('s', '9', deliver_at => '2100-01-01Z'), 9::bigint, 'one of the first for later');
SELECT is(sqlstreams.produce('s', '10', schema_version => 2, deliver_at => '2100-01-01Z'), 10::bigint, 'one of the second for later');
-- the clock is moved, not waited for
SELECT format('UPDATE sqlstreams.exception_queue_%s SET due_at = (SELECT clock_timestamp()) WHERE status IN (''r'', ''p'')', stream_id) AS make_due,
       format('UPDATE sqlstreams.group_cursor_%1$s SET lease_scan_from = ''-infinity''; UPDATE sqlstreams.claim_lease_%1$s SET expires_at = (SELECT clock_timestamp())', stream_id) AS expire FROM sqlstreams.streams WHERE stream = 's' \gset
-- the exceptions of a group: id, status, attempts
CREATE FUNCTION pg_temp.state(a_group text DEFAULT 'g') RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(format('%s %s %s', message_id, status, attempts), ', ' ORDER BY message_id), '') FROM sqlstreams.exceptions('s', a_group, max_messages => 1000)
$$;
SELECT is((SELECT sqlstreams.nack('s', 'g', min(claim_id), error => 'x') FROM sqlstreams.claim('s', 'g', 10, '1 hour')), 0::bigint, 'all fail');
SELECT is(pg_temp.state(), '1 ready 1, 2 ready 1, 3 ready 1, 4 ready 1, 5 ready 1, 6 ready 1, 7 ready 1, 8 ready 1, 9 ready 0, 10 ready 0', 'or wait');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', schema_version => 2) $$, 'the group is for the second version now');
:make_due AND message_id NOT IN (4, 8);
SELECT is((SELECT string_agg(message_id::text, ' ' ORDER BY message_id) FROM sqlstreams.claim('s', 'g', 2, '1 hour')), '5 6', 'gets those of its version');
SELECT is((SELECT string_agg(message_id::text, ' ' ORDER BY message_id) FROM sqlstreams.claim('s', 'g', 100, '1 hour')), '7 10', 'all of them');
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'g', 100)), 0::bigint, 'and no others');
SELECT is(pg_temp.state(), '1 ready 1, 2 ready 1, 3 ready 1, 4 ready 1, 5 inflight 1, 6 inflight 1, 7 inflight 1, 8 ready 1, 9 ready 0, 10 inflight 0', 'which are as they were');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'g', 'ready')), '1 2 3 4 8 9', 'ready');
SELECT results_eq($$ SELECT ready, inflight FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$, $$ VALUES (6::bigint, 4::bigint) $$, 'the view counts them as ready');
:make_due AND message_id IN (4, 8);
SELECT is(claimed('s', 'g', 1), '8', 'what becomes due later: the same');
SELECT is((SELECT sum(sqlstreams.ack('s', 'g', claim_id)) FROM sqlstreams.leases), 5::numeric, 'acked');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.pop('s', 'g', 100)), NULL, 'pop gets none either');

-- the other version again
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', schema_version => 1) $$, 'the first version');
SELECT is((SELECT string_agg(message_id || ' ' || attempts, ', ' ORDER BY message_id) FROM sqlstreams.claim('s', 'g', 100, '1 hour')), '1 1, 2 1, 3 1, 4 1, 9 0', 'now they come');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', schema_version => 3) $$, 'a third version');
SELECT is((SELECT sqlstreams.nack('s', 'g', claim_id, retry_in => '0') FROM sqlstreams.leases), 0::bigint, 'what is in flight can fail');
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'g', 100)), 0::bigint, 'then it does not come either');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', reset => '{schema_version}') $$, 'every version');
SELECT is((SELECT string_agg(message_id || ' ' || attempts, ', ' ORDER BY message_id) FROM sqlstreams.claim('s', 'g', 100, '1 hour')), '1 2, 2 2, 3 2, 4 2, 9 1', 'all of them');

-- dead ones
SELECT is((SELECT sqlstreams.reject('s', 'g', claim_id) FROM sqlstreams.leases), 5::bigint, 'all dead');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', schema_version => 2) $$, 'the second version');
SELECT is(sqlstreams.redrive('s', 'g', '{1,2}'), 2::bigint, 'two of the first redriven');
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'g', 100)), 0::bigint, 'do not come');
SELECT is(sqlstreams.discard('s', 'g', '{3}'), 1::bigint, 'one discarded');
SELECT is((SELECT string_agg(message_id || ' ' || status, ', ') FROM sqlstreams.exceptions('s', 'g')), '1 ready, 2 ready, 4 dead, 9 dead', 'ready all the same');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', schema_version => 1) $$, 'the first version');
SELECT is((SELECT string_agg(message_id || ' ' || attempts, ', ' ORDER BY message_id) FROM sqlstreams.claim('s', 'g', 100, '1 hour')), '1 0, 2 0', 'now they do');

-- a lost lease
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', schema_version => 2) $$, 'the second version');
:expire WHERE group_id = (SELECT group_id FROM sqlstreams.consumer_groups WHERE consumer_group = 'g');
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'g', 100)), 0::bigint, 'what is lost does not come');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('s', 'g', schema_version => 1) $$, 'the first version');
SELECT is((SELECT sum(sqlstreams.ack('s', 'g', claim_id)) FROM sqlstreams.claim('s', 'g', 100)), 1::numeric, 'a suspect alone');
SELECT is((SELECT sum(sqlstreams.ack('s', 'g', claim_id)) FROM sqlstreams.claim('s', 'g', 100)), 1::numeric, 'and the other');

-- many of another version do not hide one
SELECT lives_ok($$ SELECT sqlstreams.create_stream('many'), sqlstreams.create_group('many', 'g') $$, 'another stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('many', array_fill('1'::jsonb, ARRAY[15000]))), 15000::bigint, '15,000 messages');
SELECT is(sqlstreams.produce('many', '2', schema_version => 2), 15001::bigint, 'one of another version behind them');
SELECT is((SELECT sqlstreams.nack('many', 'g', min(claim_id), retry_in => '0') FROM sqlstreams.claim('many', 'g', 20000)), 0::bigint, 'all due');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('many', 'g', schema_version => 2) $$, 'the second version');
SELECT is((SELECT string_agg(c.message_id::text, ' ') FROM generate_series(1, 10) i, LATERAL (SELECT * FROM sqlstreams.claim('many', 'g', 1 + i - i, '1 hour')) c), '15001', 'found by one of a few claims');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('many', 'g', reset => '{schema_version}') $$, 'every version');
SELECT is((SELECT count(*) FROM sqlstreams.claim('many', 'g', 20000)), 15000::bigint, 'all the others');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
