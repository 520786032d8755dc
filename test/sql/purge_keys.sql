\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Messages leave the log while others wait for their keys: dropped by retention although the group needs them, or gone with a partition that
-- somebody dropped by hand. What is gone is in nobody's way, and nothing fails.
CREATE FUNCTION pg_temp.id() RETURNS bigint LANGUAGE sql AS $$ SELECT stream_id FROM sqlstreams.streams WHERE stream = 's' $$;
CREATE FUNCTION pg_temp.take(how_many bigint DEFAULT 10, OUT claim bigint, OUT got text) LANGUAGE sql AS $$
  SELECT min(claim_id), coalesce(string_agg(concat(message_id, message_key), ' ' ORDER BY message_id), '') FROM sqlstreams.claim('s', 'g', how_many, '1 hour')
$$;
CREATE FUNCTION pg_temp.state() RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(concat(message_id, ' ', status, ' behind ' || blocked_by), ', ' ORDER BY message_id), '') FROM sqlstreams.exceptions('s', 'g')
$$;
CREATE FUNCTION pg_temp.make_due() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('UPDATE sqlstreams.exception_queue_%s SET due_at = clock_timestamp() WHERE status = ''r''', pg_temp.id());
  EXECUTE format('UPDATE sqlstreams.group_cursor_%s SET due_from = ''-infinity''', pg_temp.id());
END $$;
CREATE FUNCTION pg_temp.rows_of(kind text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  result bigint;
BEGIN
  EXECUTE format('SELECT count(*) FROM sqlstreams.%s_%s', kind, pg_temp.id()) INTO result;
  RETURN result;
END $$;
-- eight messages, two in a partition: a and b have odd ids, others even ones
CREATE PROCEDURE pg_temp.begin(a_concurrency text, a_deliver_at timestamptz DEFAULT NULL) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM sqlstreams.drop_stream('s', if_exists => true);
  PERFORM sqlstreams.create_stream('s', partition_size => 2, retention => '1 hour', allow_drop_past_committed => true), sqlstreams.create_group('s', 'g', initial_backoff => '2 hours');
  PERFORM sqlstreams.produce('s', '1', 'a', concurrency => a_concurrency, deliver_at => a_deliver_at);
  PERFORM sqlstreams.produce_batch('s', '{2,3,4,5,6,7,8}', '{c,a,d,b,e,b,f}', concurrency => a_concurrency);
END $$;
-- the first partition is over
CREATE PROCEDURE pg_temp.expire() LANGUAGE plpgsql AS $$
BEGIN
  CALL sqlstreams.maintain();
  UPDATE sqlstreams.log_partition SET sealed_at = sealed_at - interval '2 hours' WHERE stream_id = pg_temp.id() AND number = (SELECT min(number) FROM sqlstreams.log_partition WHERE stream_id = pg_temp.id() AND dropped_at IS NULL);
  CALL sqlstreams.maintain();
END $$;
CREATE FUNCTION pg_temp.drop_by_hand(a_number int DEFAULT 0) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('DROP TABLE sqlstreams.message_log_%s_%s', pg_temp.id(), a_number);
END $$;

-- dropped while it was worked on: the next of its key comes
CALL pg_temp.begin('exclusive');
SELECT claim AS c, got FROM pg_temp.take() \gset
SELECT is(:'got'::text, '1a 2c 4d 5b 6e 8f', 'the first of each key');
SELECT is(pg_temp.state(), '3 deferred behind 1, 7 deferred behind 5', 'others wait');
CALL pg_temp.expire();
SELECT is((SELECT purged_through FROM sqlstreams.stream WHERE stream_id = pg_temp.id()), 2::bigint, 'two are dropped');
SELECT is((SELECT got FROM pg_temp.take()), '3a', 'the one that waited behind one of them comes');
SELECT is(pg_temp.state(), '3 inflight, 7 deferred behind 5', 'the other waits');
SELECT fails(format($$ SELECT sqlstreams.ack('s', 'g', %s, '{1}') $$, :c), 'SS004', NULL, 'the dropped one is lost');
SELECT is(sqlstreams.ack('s', 'g', :c), 4::bigint, 'the others of the claim are not');
SELECT is((SELECT got FROM pg_temp.take()), '7b', 'and go on');

-- ordered, having failed: nobody waits for it to be tried again
CALL pg_temp.begin('ordered');
SELECT claim AS c FROM pg_temp.take() \gset
SELECT is(sqlstreams.nack('s', 'g', :c, '{1,5}'), 0::bigint, 'two fail');
SELECT is(sqlstreams.ack('s', 'g', :c), 4::bigint, 'the others do not');
SELECT is((SELECT got FROM pg_temp.take()), '', 'their keys are kept');
SELECT is(pg_temp.state(), '1 ready, 3 deferred behind 1, 5 ready, 7 deferred behind 5', 'for hours');
CALL pg_temp.expire();
SELECT is((SELECT got FROM pg_temp.take()), '3a', 'but not by one that is dropped');
SELECT is((SELECT got FROM pg_temp.take()), '', 'the other still keeps its key');
SELECT is(pg_temp.state(), '3 inflight, 5 ready, 7 deferred behind 5', 'and is waited for');

-- ordered, to be delivered later
CALL pg_temp.begin('ordered', now() + interval '1 day');
SELECT is((SELECT got FROM pg_temp.take()), '2c 4d 5b 6e 8f', 'the first is for later');
SELECT is(pg_temp.state(), '1 ready, 3 deferred behind 1, 7 deferred behind 5', 'its key is waited for');
CALL pg_temp.expire();
SELECT is((SELECT got FROM pg_temp.take()), '3a', 'dropped, it is not');

-- dropped while it waited itself
CALL pg_temp.begin('exclusive');
SELECT claim AS c FROM pg_temp.take() \gset
SELECT is(pg_temp.rows_of('deferred_message'), 2::bigint, 'two wait');
CALL pg_temp.expire();
CALL pg_temp.expire();
CALL pg_temp.expire();
SELECT is(pg_temp.rows_of('deferred_message'), 1::bigint, 'one of them is gone');
SELECT is((SELECT got FROM pg_temp.take()), '7b', 'the other comes: the one before it was dropped');
CALL pg_temp.expire();
SELECT is((SELECT got FROM pg_temp.take()), '', 'nothing is left');
CALL sqlstreams.maintain();
SELECT is(ARRAY[pg_temp.rows_of('deferred_message'), pg_temp.rows_of('message_key_lease'), pg_temp.rows_of('exception_queue'), pg_temp.rows_of('claim_lease')], '{0,0,0,0}', 'not a row');
SELECT is(sqlstreams.produce('s', '9', 'b', concurrency => 'exclusive'), 9::bigint, 'a new message');
SELECT is((SELECT got FROM pg_temp.take()), '9b', 'comes');

-- purge_stream takes all that is settled, and with it whoever waits
CALL pg_temp.begin('ordered');
SELECT claim AS c FROM pg_temp.take() \gset
SELECT is(sqlstreams.nack('s', 'g', :c, '{1}'), 0::bigint, 'one fails');
SELECT is(sqlstreams.purge_stream('s'), 8::bigint, 'purged');
SELECT is(sqlstreams.produce('s', '9', 'a', concurrency => 'ordered'), 9::bigint, 'a new message');
SELECT is((SELECT got FROM pg_temp.take()), '9a', 'comes');
SELECT is(sqlstreams.produce('s', '10', 'a', concurrency => 'ordered'), 10::bigint, 'a second');
SELECT is((SELECT got FROM pg_temp.take()), '', 'waits');
SELECT is(pg_temp.state(), '10 deferred behind 9', 'behind the first');

-- a partition dropped by hand: an ordered message that has failed keeps its key until it is due
CALL pg_temp.begin('ordered');
CALL sqlstreams.maintain();
SELECT claim AS c FROM pg_temp.take() \gset
SELECT is(sqlstreams.nack('s', 'g', :c, '{1}'), 0::bigint, 'one fails');
SELECT pg_temp.drop_by_hand() \g /dev/null
SELECT is((SELECT got FROM pg_temp.take()), '', 'its key is kept');
SELECT is(pg_temp.state(), '1 ready, 3 deferred behind 1, 7 deferred behind 5', 'as before');
SELECT pg_temp.make_due() \g /dev/null
SELECT is((SELECT got FROM pg_temp.take()), '', 'it is gone, as is found out when it is due');
SELECT is((SELECT got FROM pg_temp.take()), '3a', 'then the next one comes');
SELECT is(pg_temp.state(), '3 inflight, 7 deferred behind 5', 'nothing is left of it');
SELECT is(sqlstreams.ack('s', 'g', :c), 5::bigint, 'the claim is as it was, also for the one that is gone with its partition');
SELECT is((SELECT got FROM pg_temp.take()), '7b', 'and frees keys');

-- resolved by itself, when nobody knows its key any more
CALL pg_temp.begin('exclusive');
CALL sqlstreams.maintain();
SELECT claim AS c FROM pg_temp.take() \gset
SELECT pg_temp.drop_by_hand() \g /dev/null
SELECT is(sqlstreams.ack('s', 'g', :c, '{1}'), 1::bigint, 'acked');
SELECT is((SELECT got FROM pg_temp.take()), '3a', 'its key is free');
SELECT is(sqlstreams.nack('s', 'g', :c, '{2,4}'), 0::bigint, 'two fail');
SELECT is(pg_temp.state(), '2 ready, 3 inflight, 4 ready, 7 deferred behind 5', 'one of them is gone');
SELECT is(sqlstreams.reject('s', 'g', :c, '{5}'), 1::bigint, 'one is given up');
SELECT is((SELECT got FROM pg_temp.take()), '7b', 'so the next comes');
SELECT pg_temp.drop_by_hand(2) \g /dev/null
SELECT is(pg_temp.state(), '2 ready, 3 inflight, 4 ready, 5 dead, 7 inflight', 'a dead one is gone, too');
SELECT is(sqlstreams.redrive('s', 'g', '{5}'), 1::bigint, 'it can be brought back');
SELECT pg_temp.make_due() \g /dev/null
SELECT is((SELECT got FROM pg_temp.take()), '4d', 'what is there is delivered');
SELECT is(pg_temp.state(), '3 inflight, 4 inflight, 7 inflight', 'the rest is forgotten');
SELECT is((SELECT count(*) FROM sqlstreams.deliveries('s', 'g')), 5::bigint, 'the delivery log is not');

-- never claimed: the cursor passes over it
CALL pg_temp.begin('ordered');
CALL sqlstreams.maintain();
SELECT pg_temp.drop_by_hand() \g /dev/null
SELECT pg_temp.drop_by_hand(2) \g /dev/null
SELECT is((SELECT got FROM pg_temp.take()), '3a 4d 7b 8f', 'what is left comes');
SELECT is((SELECT (claimed, committed, settled_head, leased) FROM sqlstreams.consumer_groups WHERE stream = 's'), (8::bigint, 2::bigint, 8::bigint, 4::bigint), 'all is claimed');
SELECT is((SELECT array_agg(message_id) FROM sqlstreams.peek('s')), '{3,4,7,8}', 'and can be read');

-- a message that somebody deleted is gone where others of its partition are there; while a dump is restored, all are missing
CALL pg_temp.begin('ordered');
SELECT claim AS c FROM pg_temp.take() \gset
SELECT is(sqlstreams.nack('s', 'g', :c, '{1,5}'), 0::bigint, 'two fail');
SELECT format('DELETE FROM sqlstreams.message_log_%s WHERE id IN (1, 5, 6)', pg_temp.id()) \gexec
SELECT pg_temp.make_due() \g /dev/null
SELECT is((SELECT got FROM pg_temp.take()), '', 'neither comes');
SELECT is(pg_temp.state(), '3 deferred, 5 ready, 7 deferred behind 5', 'one may still');
SELECT is((SELECT got FROM pg_temp.take()), '3a', 'the other is not waited for');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
