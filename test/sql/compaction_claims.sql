\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- What groups get of compacted keys: the head, when they come to it; what is older and still waits is superseded.
CREATE FUNCTION pg_temp.take(a_stream text, how_many bigint, a_group text DEFAULT 'g', OUT claim bigint, OUT got text) LANGUAGE sql AS $$
  SELECT min(claim_id), coalesce(string_agg(concat(message_id, message_key, CASE WHEN attempts > 0 THEN ' failed' END, CASE WHEN takeovers > 0 THEN ' lost' END), ' ' ORDER BY message_id), '') FROM sqlstreams.claim(a_stream, a_group, how_many, '1 hour')
$$;
CREATE FUNCTION pg_temp.state(a_stream text, a_group text DEFAULT 'g') RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(concat(message_id, ' ', status, ' behind ' || blocked_by), ', ' ORDER BY message_id), '') FROM sqlstreams.exceptions(a_stream, a_group)
$$;
CREATE FUNCTION pg_temp.put(a_stream text, key text, rank bigint DEFAULT 0, version bigint DEFAULT 1) RETURNS bigint LANGUAGE sql AS $$
  SELECT sqlstreams.produce(a_stream, '1', key, compaction => true, compaction_rank => rank, schema_version => version)
$$;
-- which the log says were superseded, and how many were counted
CREATE FUNCTION pg_temp.superseded(a_stream text, a_group text DEFAULT 'g') RETURNS text LANGUAGE sql AS $$
  SELECT concat_ws(' of ', (SELECT coalesce(string_agg(message_id::text, ' ' ORDER BY message_id), '') FROM sqlstreams.deliveries(a_stream, a_group) WHERE outcome = 'superseded'), (SELECT superseded FROM sqlstreams.consumer_groups WHERE stream = a_stream AND consumer_group = a_group))
$$;
CREATE PROCEDURE pg_temp.make_due(a_stream text) LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('UPDATE sqlstreams.exception_queue_%s SET due_at = clock_timestamp() WHERE status = ''r''', (SELECT stream_id FROM sqlstreams.streams WHERE stream = a_stream));
END $$;

-- a group that reads history gets heads only, and all that is not compacted
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 4), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours'), sqlstreams.create_group('s', 'off') $$, 'a stream');
SELECT results_eq($$ SELECT pg_temp.put('s', 'a'), pg_temp.put('s', 'b'), pg_temp.put('s', 'a'), sqlstreams.produce('s', '4', 'a'), sqlstreams.produce('s', '5'), pg_temp.put('s', 'a', -1), pg_temp.put('s', 'a', 0, 2), pg_temp.put('s', 'a', 9, 1) $$,
  $$ VALUES (1::bigint, 2::bigint, 3::bigint, 4::bigint, 5::bigint, 6::bigint, 7::bigint, 8::bigint) $$, 'six versions of two keys, two other messages');
SELECT claim AS c, got FROM pg_temp.take('s', 10) \gset
SELECT is(:'got'::text, '2b 4a 5 7a', 'heads, and what is not compacted');
SELECT is(pg_temp.superseded('s'), '1 3 6 8 of 4', 'older versions, and those that lost on rank or version, are superseded');
SELECT is(pg_temp.state('s'), '', 'they are no exceptions');
SELECT is((SELECT format('%s %s', claimed, leased) FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = 'g'), '8 4', 'nor leased');
SELECT is(sqlstreams.ack('s', 'g', :c), 4::bigint, 'acked');
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE stream = 's' AND consumer_group = 'g'), 8::bigint, 'all is resolved');
SELECT is(pg_temp.superseded('s', 'off'), ' of 0', 'the other group has not come so far');
SELECT is(pg_temp.put('s', 'b'), 9::bigint, 'another version');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '9b', 'is delivered as the head, though the one before was');
SELECT is((SELECT got FROM pg_temp.take('s', 10, 'off')), '4a 5 7a 9b', 'the other group gets one of them');
SELECT is(pg_temp.superseded('s', 'off'), '1 2 3 6 8 of 5', 'and counts for itself');
SELECT is((SELECT claimed_after FROM sqlstreams.seek('s', 'g', 'beginning')), 0::bigint, 'back to the beginning');
SELECT is((SELECT got FROM pg_temp.take('s', 10)), '4a 5 7a 9b', 'heads only');
SELECT is(sqlstreams.create_group('s', 'new') > 0, true, 'a new group');
SELECT is((SELECT got FROM pg_temp.take('s', 2, 'new')), '4a 5', 'two of it');
SELECT is(pg_temp.put('s', 'a', 0, 2), 10::bigint, 'a newer version before it gets there');
SELECT is((SELECT got FROM pg_temp.take('s', 10, 'new')), '9b 10a', 'the rest');
SELECT is((SELECT string_agg(message_id::text, ' ' ORDER BY message_id) FROM sqlstreams.pop('s', 'off', 10)), '10', 'pop gets heads as well');
SELECT is((SELECT array_agg(DISTINCT outcome || ' ' || coalesce(error, '-')) FROM sqlstreams.deliveries('s', 'new')), ARRAY['superseded -'], 'the delivery log of the new group');

-- versions that wait as exceptions
SELECT lives_ok($$ SELECT sqlstreams.create_stream('w', partition_size => 4), sqlstreams.create_group('w', 'g', initial_backoff => '2 hours', max_retries => 5), sqlstreams.create_group('w', 'x', concurrency_override => 'exclusive') $$, 'a stream for exceptions');
SELECT is(array_agg(pg_temp.put('w', k)), ARRAY[1, 2, 3, 4, 5, 6]::bigint[], 'six keys') FROM unnest('{ready,delayed,dead,claimed,acked,nacked}'::text[]) k;
SELECT claim AS c, got FROM pg_temp.take('w', 10) \gset
SELECT is(:'got'::text, '1ready 2delayed 3dead 4claimed 5acked 6nacked', 'claimed');
SELECT is(sqlstreams.resolve('w', 'g', :c, '{1,2,3}', '{nack,delay,reject}', NULL, '{NULL,1 hour,NULL}'), 3::bigint, 'ready, delayed, dead');
SELECT is(array_agg(pg_temp.put('w', k)), ARRAY[7, 8, 9, 10, 11, 12]::bigint[], 'a newer version of each') FROM unnest('{ready,delayed,dead,claimed,acked,nacked}'::text[]) k;
SELECT is(sqlstreams.ack('w', 'g', :c, '{5}'), 1::bigint, 'what was claimed is not called back: acked');
SELECT is(sqlstreams.nack('w', 'g', :c, '{6}', retry_in => '0'), 0::bigint, 'or failed');
CALL pg_temp.make_due('w');
SELECT claim AS d, got FROM pg_temp.take('w', 100) \gset
SELECT is(:'got'::text, '7ready 8delayed 9dead 10claimed 11acked 12nacked', 'the newer ones alone, though the older ones were due');
SELECT is(pg_temp.superseded('w'), '1 2 6 of 3', 'ready, delayed and failed ones are superseded');
SELECT is(pg_temp.state('w'), '3 dead', 'a dead one stays');
SELECT is(sqlstreams.redrive('w', 'g'), 1::bigint, 'redriven');
SELECT is((SELECT got FROM pg_temp.take('w', 100)), '', 'it is not delivered');
SELECT is(pg_temp.superseded('w'), '1 2 3 6 of 4', 'but superseded');
SELECT is(pg_temp.state('w'), '', 'and gone');
SELECT is(sqlstreams.release('w', 'g', :c), 1::bigint, 'one that was claimed, handed back');
SELECT is((SELECT got FROM pg_temp.take('w', 100)), '', 'is not delivered again');
SELECT is(pg_temp.superseded('w'), '1 2 3 4 6 of 5', 'it is superseded, too');
-- the head, failing, stays the head
SELECT is(sqlstreams.nack('w', 'g', :d, '{7}', retry_in => '0'), 0::bigint, 'a head fails');
SELECT is(pg_temp.put('w', 'ready', -1), 13::bigint, 'a lower rank comes');
SELECT is((SELECT got FROM pg_temp.take('w', 100)), '7ready failed', 'the head is tried again');
SELECT is(pg_temp.superseded('w'), '1 2 3 4 6 13 of 6', 'the lower rank is superseded at once');

-- a lost lease
SELECT lives_ok($$ SELECT sqlstreams.create_stream('l', partition_size => 4), sqlstreams.create_group('l', 'g') $$, 'a stream for lost leases');
SELECT is(array_agg(pg_temp.put('l', k)), ARRAY[1, 2]::bigint[], 'two keys') FROM unnest('{a,b}'::text[]) k;
SELECT is((SELECT count(*) FROM sqlstreams.claim('l', 'g', 10, '1 millisecond')), 2::bigint, 'claimed');
SELECT is(pg_temp.put('l', 'a'), 3::bigint, 'a newer version of one');
SELECT lives_ok($$ SELECT wait_for_expiry('l', 'g') $$, 'the lease ends');
SELECT is((SELECT string_agg(got, ' ') FROM (SELECT got FROM pg_temp.take('l', 10) UNION ALL SELECT got FROM pg_temp.take('l', 10)) t WHERE got <> ''), '2b lost 3a', 'the older version is not delivered again');
SELECT is(pg_temp.superseded('l'), '1 of 1', 'it is superseded');

-- deferred ones: exclusive, compacted
SELECT claim AS c, got FROM pg_temp.take('w', 100, 'x') \gset
SELECT is(pg_temp.superseded('w', 'x'), '1 2 3 4 5 6 13 of 7', 'in another group');
SELECT is(pg_temp.put('w', 'ready'), 14::bigint, 'a newer one');
SELECT is((SELECT got FROM pg_temp.take('w', 100, 'x')), '', 'has to wait');
SELECT is(pg_temp.state('w', 'x'), '14 deferred behind 7', 'deferred');
SELECT is(pg_temp.put('w', 'ready'), 15::bigint, 'a newer one still');
SELECT is(sqlstreams.ack('w', 'x', :c), 6::bigint, 'the key is free');
SELECT is((SELECT got FROM pg_temp.take('w', 100, 'x')), '15ready', 'the newest comes');
SELECT is(pg_temp.superseded('w', 'x'), '1 2 3 4 5 6 13 14 of 8', 'the deferred one is superseded');
SELECT is(pg_temp.state('w', 'x'), '', 'and gone');

-- one head a stream and key, whatever a group's bindings and versions
SELECT lives_ok($$ SELECT sqlstreams.create_stream('v', partition_size => 4), sqlstreams.create_group('v', 'one', schema_version => 1), sqlstreams.create_group('v', 'eu', bindings => '{eu.*}'), sqlstreams.create_group('v', 'all') $$, 'groups with a version and with bindings');
SELECT is(sqlstreams.produce('v', '1', 'a', 'eu.a', compaction => true), 1::bigint, 'a version for each');
SELECT is(sqlstreams.produce('v', '2', 'a', 'us.a', compaction => true, schema_version => 2), 2::bigint, 'a newer one for one');
SELECT is((SELECT got FROM pg_temp.take('v', 10, 'one')), '', 'the group of the old version gets none');
SELECT is((SELECT got FROM pg_temp.take('v', 10, 'eu')), '', 'nor that with the binding');
SELECT is((SELECT got FROM pg_temp.take('v', 10, 'all')), '2a', 'the whole stream gets the head');
SELECT is((SELECT string_agg(consumer_group || ' ' || superseded, ', ' ORDER BY consumer_group COLLATE "C") FROM sqlstreams.consumer_groups WHERE stream = 'v'), 'all 1, eu 1, one 1', 'superseded for each');

-- without a delivery log it is counted all the same
SELECT lives_ok($$ SELECT sqlstreams.create_stream('q', delivery_log => 'off'), sqlstreams.create_group('q', 'g') $$, 'a stream without a delivery log');
SELECT is(array_agg(pg_temp.put('q', k)), ARRAY[1, 2, 3]::bigint[], 'three versions') FROM unnest('{a,a,a}'::text[]) k;
SELECT is((SELECT got FROM pg_temp.take('q', 1)), '3a', 'the head');
SELECT is(pg_temp.superseded('q'), ' of 2', 'counted');
BEGIN;
SELECT is(array_agg(pg_temp.put('q', k)), ARRAY[4, 5]::bigint[], 'two more') FROM unnest('{a,a}'::text[]) k;
SELECT is((SELECT got FROM pg_temp.take('q', 1)), '5a', 'claimed in the transaction that produced them');
SELECT is(pg_temp.superseded('q'), ' of 3', 'counted');
ROLLBACK;
SELECT is(pg_temp.superseded('q'), ' of 2', 'and rolled back with it');
-- more than a claim steps over
SET sqlstreams.max_scan = 1000;
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('q', array_fill('1'::jsonb, ARRAY[3000]), array_fill('b'::text, ARRAY[3000]), compaction => true)), 3000::bigint, 'three thousand versions of a key');
SELECT ok(EXISTS (SELECT FROM generate_series(1, 5) i, LATERAL pg_temp.take('q', 1 + i - i) t WHERE t.got LIKE '%b'), 'a few claims get to the head');
SELECT is(pg_temp.superseded('q'), ' of 3001', 'all others are counted');
RESET sqlstreams.max_scan;

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
