\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- What the delivery log says of messages that were not delivered when the group came to them: those that a newer version superseded, and
-- those whose key was busy. The stream's name is the mode of its log.
CREATE PROCEDURE pg_temp.live(a_stream text) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sqlstreams.create_stream(a_stream, partition_size => 4, delivery_log => a_stream), sqlstreams.create_group(a_stream, 'g', initial_backoff => '2 hours');
  -- 1 and 2 are older versions of 3; 4, 5 and 6 share a key
  PERFORM sqlstreams.produce(a_stream, to_jsonb(i), 'version', compaction => true) FROM generate_series(1, 3) i;
  PERFORM sqlstreams.produce(a_stream, to_jsonb(i), 'busy', concurrency => 'exclusive') FROM generate_series(4, 6) i;
  COMMIT;
END $$;
CREATE FUNCTION pg_temp.log(a_stream text) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(message_id || ' ' || outcome, ', ' ORDER BY message_id, ended_at) FROM sqlstreams.deliveries(a_stream, 'g')
$$;
CALL pg_temp.live('off');
CALL pg_temp.live('failures');
CALL pg_temp.live('all');
SELECT is(claimed(s, 'g'), '3 4', s || ': the newest version, and the first of the key') FROM unnest('{off,failures,all}'::text[]) WITH ORDINALITY u (s, n) ORDER BY n;
SELECT is(pg_temp.log('off'), NULL, 'off: nothing is written');
SELECT is(pg_temp.log('failures'), '1 superseded, 2 superseded, 5 deferred, 6 deferred', 'failures: what was superseded or deferred');
SELECT is(pg_temp.log('all'), pg_temp.log('failures'), 'all: the same');
SELECT is((SELECT string_agg(message_id || ' ' || status, ', ') FROM sqlstreams.exceptions('all', 'g')), '5 deferred, 6 deferred', 'the deferred ones wait, the superseded ones do not');
SELECT is((SELECT string_agg(DISTINCT format('%s %s %s', status, attempts, blocked_by), ', ') FROM sqlstreams.exceptions('all', 'g')), 'deferred 0 4', 'they have not failed, and say for what they wait');
SELECT is((SELECT deferred FROM sqlstreams.consumer_groups WHERE stream = 'all'), 2::bigint, 'the view counts them');
SELECT is((SELECT sum(sqlstreams.ack(stream, 'g', claim_id)) FROM sqlstreams.leases), 6::numeric, 'acked');
SELECT is(claimed(s, 'g'), '5', s || ': the next of the key') FROM unnest('{off,failures,all}'::text[]) WITH ORDINALITY u (s, n) ORDER BY n;
SELECT is((SELECT sum(sqlstreams.nack(stream, 'g', claim_id, error => 'e')) FROM sqlstreams.leases), 0::numeric, 'it fails');
SELECT is(claimed(s, 'g'), '6', s || ': which frees the key') FROM unnest('{off,failures,all}'::text[]) WITH ORDINALITY u (s, n) ORDER BY n;
SELECT is((SELECT sum(sqlstreams.ack(stream, 'g', claim_id)) FROM sqlstreams.leases), 3::numeric, 'acked');
SELECT is(pg_temp.log('failures'), '1 superseded, 2 superseded, 5 deferred, 5 nack, 6 deferred', 'failures: and what came of them');
SELECT is(pg_temp.log('all'), '1 superseded, 2 superseded, 3 ack, 4 ack, 5 deferred, 5 nack, 6 deferred, 6 ack', 'all: also acks');
SELECT is(pg_temp.log('off'), NULL, 'off: still nothing');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
