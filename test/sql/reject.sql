\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 7), sqlstreams.create_group('s', 'g', max_retries => 10), sqlstreams.create_group('s', 'h') $$, 'a stream and two groups');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 40) i))), 40::bigint, 'forty messages');
-- the clock is moved, not waited for
SELECT format('UPDATE sqlstreams.group_cursor_%1$s SET lease_scan_from = ''-infinity''; UPDATE sqlstreams.claim_lease_%1$s SET expires_at = (SELECT clock_timestamp())', stream_id) AS expire FROM sqlstreams.streams WHERE stream = 's' \gset
-- the exceptions of a group: id, status, attempts, delays, takeovers, error
CREATE FUNCTION pg_temp.state(a_group text) RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(format('%s %s %s/%s/%s %s', message_id, status, attempts, delays, takeovers, coalesce(last_error, '-')), ', ' ORDER BY message_id), '')
    FROM sqlstreams.exceptions('s', a_group, max_messages => 1000)
$$;

-- one message, several, all of a claim
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 6, '1 hour') \gset
SELECT is(sqlstreams.reject('s', 'g', :c, '{2}', 'no such account'), 1::bigint, 'reject says how many are dead by it');
SELECT is(pg_temp.state('g'), '2 dead 1/0/0 no such account', 'whatever retries there were left');
SELECT is((SELECT claim_id FROM sqlstreams.exceptions('s', 'g')), NULL, 'nobody holds it');
SELECT is((SELECT messages || ' ' || unresolved FROM sqlstreams.leases), '6 5', 'the others are still the claim''s');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s, %L)', 's', 'g', :c, '{2}'), 'SS004', NULL, 'not a second time');
SELECT is(sqlstreams.reject('s', 'g', :c, '{5,4,4,5}'), 2::bigint, 'several, without an error; an id given twice counts once');
SELECT is(sqlstreams.reject('s', 'g', :c, '{}', 'nothing'), 0::bigint, 'no ids');
SELECT is(sqlstreams.ack('s', 'g', :c, '{1}'), 1::bigint, 'one acked');
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'), 2::bigint, 'a dead one does not hold back the cursor');
SELECT is(sqlstreams.reject('s', 'g', :c, error => 'the rest'), 2::bigint, 'all that is open');
SELECT is(pg_temp.state('g'), '2 dead 1/0/0 no such account, 3 dead 1/0/0 the rest, 4 dead 1/0/0 -, 5 dead 1/0/0 -, 6 dead 1/0/0 the rest', 'and nothing else');
SELECT is_empty($$ SELECT FROM sqlstreams.leases $$, 'the claim is gone');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'and cannot be rejected again');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s, %L)', 's', 'g', :c, '{}'), 'SS004', NULL, 'nor for no ids');
SELECT results_eq($$ SELECT claimed, committed, ready, inflight, dead FROM sqlstreams.consumer_groups WHERE consumer_group = 'g' $$, $$ VALUES (6::bigint, 6::bigint, 0::bigint, 0::bigint, 5::bigint) $$, 'the view counts them');
SELECT is(pg_temp.state('h'), '', 'the other group has none of it');
SELECT is(claimed('s', 'g', 2), '7 8', 'dead ones do not come again');

-- one that had failed before, with others in its claim
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 2, '1 hour') \gset
SELECT is(sqlstreams.nack('s', 'g', :c, '{9}', 'first', '0'), 0::bigint, 'a failure');
SELECT is(sqlstreams.delay('s', 'g', :c, '{10}', '0'), 0::bigint, 'and a delay');
SELECT min(claim_id) AS c, string_agg(message_id::text, ' ' ORDER BY message_id) AS ids FROM sqlstreams.claim('s', 'g', 4, '1 hour') \gset
SELECT is(:'ids'::text, '9 10 11 12', 'come again');
SELECT is(sqlstreams.reject('s', 'g', :c, '{9,10,12}', 'second'), 3::bigint, 'rejected, with a fresh one');
SELECT is(sqlstreams.ack('s', 'g', :c), 1::bigint, 'what is left of the claim');
SELECT is((SELECT string_agg(message_id || ' ' || attempts || ' ' || delays || ' ' || last_error, ', ') FROM sqlstreams.exceptions('s', 'g', 'dead', 6)), '9 2 0 second, 10 1 1 second, 12 1 0 second', 'a reject is an attempt more');

-- the text is kept whole
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 3, '1 hour') \gset
SELECT is(sqlstreams.reject('s', 'g', :c, '{13}', repeat(U&'\00e4', 524288)), 1::bigint, 'an error of 1 MB');
SELECT is((SELECT last_error = repeat(U&'\00e4', 524288) FROM sqlstreams.exceptions('s', 'g', 'dead', 12)), true, 'to the last letter');
SELECT is(sqlstreams.reject('s', 'g', :c, '{14}', ''), 1::bigint, 'an empty one');
SELECT is((SELECT last_error FROM sqlstreams.exceptions('s', 'g', 'dead', 13)), '', 'is not none');

-- what cannot be rejected; nothing changes by it
SELECT min(claim_id) AS other FROM sqlstreams.claim('s', 'h', 2, '1 hour') \gset
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'h', 5, '1 hour') \gset
SELECT lives_ok($$ SELECT sqlstreams.create_stream('t'), sqlstreams.create_group('t', 'h') $$, 'another stream');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s, %L)', 's', 'h', :c, '{3,8}'), 'SS004', NULL, 'a message that nobody has');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s, %L)', 's', 'h', :c, '{3,2}'), 'SS004', NULL, 'another claim''s message');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s, %L)', 's', 'h', :c, '{0}'), 'SS004', NULL, 'id 0');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s, %L)', 's', 'h', :c, '{3,NULL}'), '22004', 'message_ids', 'a NULL id');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s, %L)', 's', 'h', :c, '{{3},{4}}'), '22023', 'message_ids', 'a two-dimensional array');
SELECT fails($$ SELECT sqlstreams.reject('s', 'h', NULL) $$, '22004', 'claim_id', 'a NULL claim');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s)', 's', 'h', v), 'SS004', NULL, 'claim ' || v) FROM unnest(ARRAY[0, -1, 9223372036854775807, 12345]) WITH ORDINALITY u (v, n) ORDER BY n;
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'another group''s claim');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s)', 't', 'h', :c), 'SS004', NULL, 'another stream''s');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s)', 'nope', 'h', :c), 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s)', 's', 'nope', :c), 'SS002', 'consumer group "nope"', 'an unknown group');
SELECT fails(format('SELECT sqlstreams.reject(NULL, %L, %s)', 'h', :c), '22004', 'stream', 'a NULL stream');
SELECT fails(format('SELECT sqlstreams.reject(%L, NULL, %s)', 's', :c), '22004', 'consumer_group', 'a NULL group');
BEGIN READ ONLY;
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s)', 's', 'h', :c), '25006', 'reject', 'in a read-only transaction');
COMMIT;
SELECT is(pg_temp.state('h'), '', 'no exception came of all this');
SELECT is((SELECT string_agg(unresolved::text, ' ' ORDER BY unresolved) FROM sqlstreams.leases WHERE stream = 's' AND consumer_group = 'h'), '2 5', 'and the claims are whole');

-- transactions
BEGIN;
SELECT is(sqlstreams.reject('s', 'h', :c, '{3}', 'x'), 1::bigint, 'rejected in a transaction');
SAVEPOINT a;
SELECT is(sqlstreams.reject('s', 'h', :c, '{4}', 'x'), 1::bigint, 'and in a savepoint');
ROLLBACK TO a;
SELECT is(pg_temp.state('h'), '3 dead 1/0/0 x', 'rolled back with it');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s, %L)', 's', 'h', :c, '{3}'), 'SS004', NULL, 'the other one stays');
COMMIT;
BEGIN;
SELECT is(sqlstreams.reject('s', 'h', :c), 4::bigint, 'the rest');
ROLLBACK;
SELECT is(pg_temp.state('h'), '3 dead 1/0/0 x', 'rolled back');
SELECT is((SELECT unresolved FROM sqlstreams.leases WHERE claim_id = :c), 4::bigint, 'all of it is open');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT is(sqlstreams.reject('s', 'h', :c, '{4}'), 1::bigint, 'at REPEATABLE READ');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT is(sqlstreams.reject('s', 'h', :c, '{5}'), 1::bigint, 'at SERIALIZABLE');
COMMIT;
SELECT is((SELECT sum(sqlstreams.reject('s', 'h', claim_id, ARRAY[message_id])) FROM sqlstreams.claim('s', 'h', 2)), 2::numeric, 'in the statement that made the claim');

-- after the lease's end
:expire WHERE claim_id = :c;
SELECT is(sqlstreams.reject('s', 'h', :c, '{6}', 'late'), 1::bigint, 'an expired claim that nobody took over is still its holder''s');
SELECT min(claim_id) AS taken, string_agg(message_id || ' ' || takeovers, ', ' ORDER BY message_id) AS ids FROM sqlstreams.claim('s', 'h', 1, '1 hour') \gset
SELECT is(:'ids'::text, '7 1', 'what is open in it is taken over');
SELECT fails(format('SELECT sqlstreams.reject(%L, %L, %s)', 's', 'h', :c), 'SS004', NULL, 'then its holder has lost it');
SELECT is(sqlstreams.reject('s', 'h', :taken), 1::bigint, 'the new one rejects');
SELECT is((SELECT string_agg(message_id::text, ' ' ORDER BY message_id) FROM sqlstreams.exceptions('s', 'h', 'dead')), '3 4 5 6 7 8 9', 'all of them are dead');
SELECT is(sqlstreams.ack('s', 'h', :other), 2::bigint, 'the other claim is untouched');
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = 'h'), 9::bigint, 'and the cursor is past them');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
