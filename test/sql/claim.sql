\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 5), sqlstreams.create_group('s', 'g') $$, 'a stream and a group');
SELECT is_empty($$ SELECT * FROM sqlstreams.claim('s', 'g') $$, 'nothing to claim');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 20) i))), 20::bigint, 'twenty messages');

SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('s', 'g')), '{1}'::bigint[], 'a claim takes one message');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('s', 'g', 3)), '{2,3,4}'::bigint[], 'or as many as it says, in order');
SELECT results_eq($$ SELECT count(*), count(DISTINCT claim_id), bool_and(claim_id BETWEEN 1 AND 9007199254740991) FROM sqlstreams.claim('s', 'g', 4) $$,
  $$ VALUES (4::bigint, 1::bigint, true) $$, 'all with one claim_id of at most 53 bits');
SELECT results_eq($$ SELECT message_id, payload, attempts, delays, takeovers, concurrency, (options ->> 'timeout')::interval, deliver_at IS NULL, created_at <= clock_timestamp(),
    lease_expires_at - clock_timestamp() BETWEEN '40 seconds' AND '45 seconds' FROM sqlstreams.claim('s', 'g') $$,
  $$ VALUES (9::bigint, '9'::jsonb, 0, 0, 0, 'parallel', '30 seconds'::interval, true, true, true) $$, 'what a claim says of a message');
SELECT is((SELECT count(DISTINCT claim_id) FROM (SELECT claim_id FROM sqlstreams.leases) l), 4::bigint, 'every claim has an id of its own');
SELECT is((SELECT array_agg(message_id) FROM (SELECT * FROM sqlstreams.claim('s', 'g', 2) LIMIT 1) c), '{10}'::bigint[], 'LIMIT hides rows');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('s', 'g')), '{12}'::bigint[], 'but does not unclaim them');
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'g', 100000)), 8::bigint, 'the rest');
SELECT is_empty($$ SELECT * FROM sqlstreams.claim('s', 'g', 100) $$, 'nothing twice');

-- max_messages and the other numbers
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', NULL) $$, '22004', 'max_messages', 'max_messages NULL never means all');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', 0) $$, '22023', 'max_messages', 'max_messages 0');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', -1) $$, '22023', 'max_messages', 'max_messages -1');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', 100001) $$, '22023', 'max_messages', 'max_messages 100,001');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', 2147483647) $$, '22023', 'max_messages', 'max_messages 2^31-1');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', 9223372036854775807) $$, '22023', 'max_messages', 'max_messages 2^63-1');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', max_per_key => 0) $$, '22023', 'max_per_key', 'max_per_key 0');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', max_per_key => -1) $$, '22023', 'max_per_key', 'max_per_key -1');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', max_bytes => 0) $$, '22023', 'max_bytes', 'max_bytes 0');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', max_bytes => -1) $$, '22023', 'max_bytes', 'max_bytes -1');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', lease => '0') $$, '22023', 'lease', 'a lease of 0');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', lease => '-1 second') $$, '22023', 'lease', 'a negative lease');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', lease => '178000000 years') $$, '22023', 'lease', 'a lease that no clock reaches');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g', ack => 0) $$, 'SS004', NULL, 'a claim that cannot be');
SELECT fails($$ SELECT * FROM sqlstreams.claim(NULL, 'g') $$, '22004', 'stream', 'a NULL stream');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', NULL) $$, '22004', 'consumer_group', 'a NULL group');
SELECT fails($$ SELECT * FROM sqlstreams.claim('nope', 'g') $$, 'SS001', 'stream "nope"', 'an unknown stream');
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'nope') $$, 'SS002', 'consumer group "nope"', 'an unknown group');
BEGIN READ ONLY;
SELECT fails($$ SELECT * FROM sqlstreams.claim('s', 'g') $$, '25006', 'claim', 'in a read-only transaction');
COMMIT;

-- leases
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'lease', timeout => '1 minute') $$, 'a group with a timeout of its own');
SELECT ok((SELECT lease_expires_at - clock_timestamp() BETWEEN '70 seconds' AND '75 seconds' FROM sqlstreams.claim('s', 'lease')), 'a lease is its timeout and 15 seconds');
SELECT ok((SELECT lease_expires_at - clock_timestamp() BETWEEN '59 minutes' AND '1 hour' FROM sqlstreams.claim('s', 'lease', lease => '1 hour')), 'or what the claim says');
SELECT ok((SELECT lease_expires_at - clock_timestamp() BETWEEN '29 days 23 hours' AND '30 days' FROM sqlstreams.claim('s', 'lease', lease => '1 month')), 'a month is 30 days');
SET TimeZone = 'Europe/Berlin';
SELECT is((SELECT round(extract(epoch FROM lease_expires_at - clock_timestamp()) / 3600) FROM sqlstreams.claim('s', 'lease', lease => '200 days')), 4800::numeric, 'a day is 24 hours in every time zone');
RESET TimeZone;

-- the consumer's label
SET application_name = 'the application';
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'lease', consumer => 'me; DROP')), 1::bigint, 'a claim with a label');
SELECT is((SELECT count(*) FROM sqlstreams.claim('s', 'lease')), 1::bigint, 'a claim without');
RESET application_name;
SELECT results_eq($$ SELECT consumer FROM sqlstreams.leases WHERE consumer_group = 'lease' AND consumer IN ('me; DROP', 'the application') ORDER BY 1 $$, ARRAY['me; DROP', 'the application'], 'shown in the view');

-- max_bytes
SELECT lives_ok($$ SELECT sqlstreams.create_stream('bytes'), sqlstreams.create_group('bytes', 'g') $$, 'a stream of large messages');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('bytes', (SELECT array_agg(to_jsonb(repeat('x', 1000))) FROM generate_series(1, 9)))), 9::bigint, 'nine of 1,000 bytes');
SELECT is((SELECT count(*) FROM sqlstreams.claim('bytes', 'g', 10, max_bytes => 1)), 1::bigint, 'one message at least');
SELECT is((SELECT count(*) FROM sqlstreams.claim('bytes', 'g', 10, max_bytes => 2500)), 3::bigint, 'up to the message that reaches it');
SELECT is((SELECT count(*) FROM sqlstreams.claim('bytes', 'g', 2, max_bytes => 9223372036854775807)), 2::bigint, 'never more than max_messages');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('bytes', 'g', 10, max_bytes => NULL)), '{7,8,9}'::bigint[], 'NULL is no limit');
SELECT is((SELECT count(*) FROM sqlstreams.produce_bytes_batch('bytes', (SELECT array_agg(decode(repeat('ab', 1000), 'hex')) FROM generate_series(1, 4)))), 4::bigint, 'four bodies of 1,000 bytes');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('bytes', 'g', 10, max_bytes => 1500)), '{10,11}'::bigint[], 'bodies count as payloads do');

-- rolled back (D7)
SELECT lives_ok($$ SELECT sqlstreams.create_group('s', 'back') $$, 'another group');
BEGIN;
SELECT min(claim_id) AS lost, count(*) AS n FROM sqlstreams.claim('s', 'back', 5) \gset
SELECT is(:n, 5, 'five claimed');
SELECT is(sqlstreams.ack('s', 'back', :lost, '{1,2}'), 2::bigint, 'two of them acked');
ROLLBACK;
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'back', :lost), 'SS004', NULL, 'the claim of a rolled back transaction never was');
SELECT results_eq($$ SELECT message_id, takeovers, attempts FROM sqlstreams.claim('s', 'back', 5) $$, $$ VALUES (1::bigint, 0, 0), (2, 0, 0), (3, 0, 0), (4, 0, 0), (5, 0, 0) $$,
  'its messages can be claimed at once, nothing is counted');
BEGIN;
SAVEPOINT a;
SELECT is(claimed('s', 'back', 2), '6 7', 'in a savepoint');
ROLLBACK TO a;
SELECT is(claimed('s', 'back', 2), '6 7', 'rolled back with it');
COMMIT;

-- produce and claim together
SELECT lives_ok($$ SELECT sqlstreams.create_stream('tx', partition_size => 2), sqlstreams.create_group('tx', 'g') $$, 'another stream');
BEGIN;
SELECT is(sqlstreams.produce('tx', '1'), 1::bigint, 'produced');
SELECT is(claimed('tx', 'g'), '1', 'and claimed in one transaction');
SELECT is(sqlstreams.produce('tx', '2'), 2::bigint, 'and again');
SELECT is(claimed('tx', 'g'), '2', 'and again');
COMMIT;
SELECT results_eq($$ SELECT sqlstreams.produce('tx', '3'), (SELECT count(*) FROM sqlstreams.claim('tx', 'g', 10)) $$, $$ VALUES (3::bigint, 1::bigint) $$, 'in one statement');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('tx', '{4,5,6,7}')), 4::bigint, 'four more');
SELECT results_eq($$ SELECT (SELECT array_agg(message_id) FROM sqlstreams.claim('tx', 'g', 2)), (SELECT array_agg(message_id) FROM sqlstreams.claim('tx', 'g', 2)) $$,
  $$ VALUES ('{4,5}'::bigint[], '{6,7}'::bigint[]) $$, 'two claims in one statement take different messages');
BEGIN;
SELECT is(sqlstreams.produce('tx', '8'), 8::bigint, 'produced');
SELECT is(claimed('tx', 'g'), '8', 'claimed');
ROLLBACK;
SELECT is(sqlstreams.produce('tx', '9'), 9::bigint, 'both rolled back');
SELECT is(claimed('tx', 'g'), '9', 'the hole that they left is passed');

-- holes
BEGIN;
SELECT is((SELECT max(id) FROM sqlstreams.produce_batch('tx', (SELECT array_agg(to_jsonb(i)) FROM generate_series(10, 29) i)) id), 29::bigint, 'a batch over ten partitions');
ROLLBACK;
SELECT is(claimed('tx', 'g'), '', 'rolled back: a hole at the end');
SELECT is((SELECT settled_head FROM sqlstreams.consumer_groups WHERE stream = 'tx'), 29::bigint, 'which is settled');
SELECT is(sqlstreams.produce('tx', '30'), 30::bigint, 'one behind it');
SELECT is(claimed('tx', 'g'), '30', 'is found');

-- what an expired lease brings back (D5, D8)
SELECT lives_ok($$ SELECT sqlstreams.create_stream('exp', partition_size => 3), sqlstreams.create_group('exp', 'g') $$, 'another stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('exp', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 10) i))), 10::bigint, 'ten messages');
SELECT min(claim_id) AS first, count(*) AS n FROM sqlstreams.claim('exp', 'g', 5, '1 millisecond') \gset
SELECT is(sqlstreams.ack('exp', 'g', :first, '{2,4}'), 2::bigint, 'five claimed, two of them acked');
SELECT wait_for_expiry('exp', 'g') \g /dev/null
SELECT results_eq($$ SELECT message_id, takeovers, attempts FROM sqlstreams.claim('exp', 'g', 2, '1 millisecond') $$, $$ VALUES (1::bigint, 1, 0), (3, 1, 0) $$,
  'a claim takes over as much of an expired one as fits, not what was acked');
SELECT wait_for_expiry('exp', 'g') \g /dev/null
SELECT results_eq($$ SELECT message_id, takeovers, attempts FROM sqlstreams.claim('exp', 'g', 5, '1 millisecond') ORDER BY message_id $$,
  $$ VALUES (1::bigint, 2, 0), (3, 2, 0), (5, 1, 0), (6, 0, 0), (7, 0, 0) $$, 'the next one takes over again, what was left, and fills up with fresh ones');
SELECT is((SELECT count(*) FROM sqlstreams.leases WHERE stream = 'exp'), 1::bigint, 'in one claim');
SELECT wait_for_expiry('exp', 'g') \g /dev/null
SELECT results_eq($$ SELECT message_id FROM sqlstreams.claim('exp', 'g', 100, '1 hour') $$, '{1,3,5,6,7,8,9,10}'::bigint[], 'messages of expired leases come first');
SELECT is(claimed('exp', 'g'), '', 'a lease that has not ended is left alone');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 'exp', 'g', :first), 'SS004', NULL, 'the first holder has lost it');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s, %L)', 'exp', 'g', :first, '{1}'), 'SS004', NULL, 'each message of it');

-- claim with ack
SELECT lives_ok($$ SELECT sqlstreams.create_stream('ack', partition_size => 3), sqlstreams.create_group('ack', 'g'), sqlstreams.create_group('ack', 'h') $$, 'another stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('ack', '{1,2,3,4,5,6}')), 6::bigint, 'six messages');
SELECT min(claim_id) AS c1 FROM sqlstreams.claim('ack', 'g', 2) \gset
SELECT min(claim_id) AS h1 FROM sqlstreams.claim('ack', 'h', 2) \gset
SELECT min(claim_id) AS c2, array_agg(message_id) AS ids FROM sqlstreams.claim('ack', 'g', 2, ack => :c1) \gset
SELECT is(:'ids'::bigint[], '{3,4}'::bigint[], 'claim acks the claim before');
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE stream = 'ack' AND consumer_group = 'g'), 2::bigint, 'whole');
SELECT fails(format('SELECT * FROM sqlstreams.claim(%L, %L, 2, ack => %s)', 'ack', 'g', :c1), 'SS004', NULL, 'not a second time');
SELECT fails(format('SELECT * FROM sqlstreams.claim(%L, %L, 2, ack => %s)', 'ack', 'g', :h1), 'SS004', NULL, 'not another group''s');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('ack', 'g', 1, ack => NULL)), '{5}'::bigint[], 'NULL acks nothing; what failed claimed nothing');
SELECT is((SELECT count(*) FROM sqlstreams.claim('ack', 'g', 9, '1 millisecond', ack => :c2)), 1::bigint, 'the last message');
SELECT min(claim_id) AS c3 FROM sqlstreams.leases WHERE stream = 'ack' AND consumer_group = 'g' AND expires_at < clock_timestamp() + '30 seconds' \gset
SELECT is((SELECT count(*) FROM sqlstreams.claim('ack', 'g', 9, ack => :c3)), 0::bigint, 'nothing more to claim; an expired claim that nobody took over can be acked');
SELECT is((SELECT sum(unresolved) FROM sqlstreams.leases WHERE stream = 'ack' AND consumer_group = 'g'), 1::numeric, 'it was acked all the same');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('ack', 'h', 2)), '{3,4}'::bigint[], 'the other group is where it was');

-- with every claim durable
SET sqlstreams.relaxed_claim = off;
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.claim('ack', 'h', 2)), '{5,6}'::bigint[], 'relaxed_claim off');
RESET sqlstreams.relaxed_claim;

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
