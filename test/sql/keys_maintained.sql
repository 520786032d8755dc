\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- As keys_random, while maintenance forgets keys that nobody uses, and messages leave the log: dropped by retention although the group needs
-- them, or with a partition that somebody dropped by hand. What is gone is in nobody's way.
CREATE TABLE message (message_id bigint PRIMARY KEY, key text, policy text, status text DEFAULT 'waits', claim_id bigint, deliveries int DEFAULT 0, in_log boolean DEFAULT true);
CREATE TABLE fault (what text);
CREATE TABLE op (n bigint GENERATED ALWAYS AS IDENTITY, what text);

CREATE PROCEDURE produce(a_policy text) LANGUAGE plpgsql AS $$
DECLARE
  a_key text := 'k' || floor(random() * 3);
BEGIN
  INSERT INTO message (message_id, key, policy) SELECT sqlstreams.produce('s', '1', a_key, concurrency => a_policy), a_key, a_policy;
END $$;

-- what a claim returns must be free to be delivered
CREATE PROCEDURE claim(how_many int, per_key int, a_lease interval) LANGUAGE plpgsql AS $$
DECLARE
  got record;
  before record;
  claim bigint;
BEGIN
  FOR got IN SELECT c.message_id, c.claim_id, c.message_key, c.concurrency FROM sqlstreams.claim('s', 'g', how_many, a_lease, max_per_key => per_key) c LOOP
    claim := got.claim_id;
    INSERT INTO op (what) VALUES (format('claim %s: message %s of %s', got.claim_id, got.message_id, got.message_key));
    INSERT INTO fault SELECT format('message %s is delivered (%s)', got.message_id, status) FROM message m WHERE m.message_id = got.message_id AND status NOT IN ('waits', 'failed', 'handed back', 'lost');
    FOR before IN SELECT * FROM message m WHERE m.key = got.message_key AND m.message_id <> got.message_id AND m.claim_id IS DISTINCT FROM got.claim_id LOOP
      IF before.status = 'open' THEN
        INSERT INTO fault VALUES (format('message %s is delivered while %s of its key is open', got.message_id, before.message_id));
      ELSIF got.concurrency = 'ordered' AND before.message_id < got.message_id AND before.status NOT IN ('resolved', 'gone') THEN
        INSERT INTO fault VALUES (format('message %s passes %s, which is not resolved (%s)', got.message_id, before.message_id, before.status));
      ELSIF before.message_id < got.message_id AND before.status = 'waits' THEN
        INSERT INTO fault VALUES (format('message %s comes before %s, which has waited longer', got.message_id, before.message_id));
      END IF;
    END LOOP;
    INSERT INTO fault SELECT format('message %s comes after %s', got.message_id, max(m.message_id)) FROM message m WHERE m.claim_id = got.claim_id AND m.key = got.message_key AND m.message_id > got.message_id HAVING count(*) > 0;
    UPDATE message m SET status = 'open', claim_id = got.claim_id, deliveries = deliveries + 1 WHERE m.message_id = got.message_id;
  END LOOP;
  INSERT INTO fault SELECT format('%s messages of %s in a claim of %s', count(*), m.key, per_key) FROM message m WHERE m.claim_id = claim AND status = 'open' GROUP BY m.key HAVING count(*) > per_key;
  IF a_lease < interval '1 second' AND claim IS NOT NULL THEN
    PERFORM tap.wait_for_expiry_of(claim);
    UPDATE message SET status = CASE WHEN in_log THEN 'lost' ELSE 'gone' END, claim_id = NULL WHERE claim_id = claim AND status = 'open';
  END IF;
END $$;
-- maintenance; with it the first partitions may go
CREATE PROCEDURE maintain(a_way text) LANGUAGE plpgsql AS $$
DECLARE
  id bigint := (SELECT s.stream_id FROM sqlstreams.streams s WHERE s.stream = 's');
  head bigint := (SELECT s.messages_head FROM sqlstreams.streams s WHERE s.stream = 's');
  first_partition int;
BEGIN
  INSERT INTO op (what) VALUES (a_way);
  IF a_way = 'by hand' THEN
    SELECT min((from_id - 1) / 5) INTO first_partition FROM sqlstreams.partitions WHERE to_id < head AND stream = 's' AND state <> 'purged';
    IF first_partition IS NULL THEN
      RETURN;
    END IF;
    EXECUTE format('DROP TABLE sqlstreams.message_log_%s_%s', id, first_partition);
    UPDATE message SET status = CASE status WHEN 'open' THEN 'open' ELSE 'gone' END, in_log = false WHERE message_id <= (first_partition + 1) * 5 AND status <> 'resolved';
    RETURN;
  END IF;
  CALL sqlstreams.maintain();
  IF a_way = 'retention' THEN
    UPDATE sqlstreams.log_partition SET sealed_at = sealed_at - interval '2 hours' WHERE sealed_at IS NOT NULL AND dropped_at IS NULL AND number = (SELECT min(number) FROM sqlstreams.log_partition WHERE dropped_at IS NULL);
    CALL sqlstreams.maintain();
    UPDATE message SET status = 'gone', in_log = false, claim_id = NULL WHERE message_id <= (SELECT purged_through FROM sqlstreams.stream) AND status <> 'resolved';
  END IF;
END $$;
CREATE FUNCTION wait_for_expiry_of(a_claim bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE EXISTS (SELECT FROM sqlstreams.leases l WHERE l.claim_id = a_claim AND l.expires_at >= clock_timestamp()) LOOP NULL; END LOOP;
END $$;

-- one message of an open claim, or all of it, ends in some way
CREATE PROCEDURE resolve() LANGUAGE plpgsql AS $$
DECLARE
  claim bigint;
  ids bigint[];
  way text := (ARRAY['ack', 'ack', 'ack', 'nack', 'delay', 'reject', 'release'])[1 + floor(random() * 7)];
BEGIN
  SELECT claim_id INTO claim FROM message WHERE status = 'open' GROUP BY claim_id ORDER BY random() LIMIT 1;
  IF claim IS NULL THEN
    RETURN;
  END IF;
  SELECT array_agg(message_id ORDER BY message_id) INTO ids FROM (SELECT message_id FROM message WHERE claim_id = claim AND status = 'open' ORDER BY random() LIMIT 1 + floor(random() * 4)) m;
  INSERT INTO op (what) VALUES (format('%s %s of %s', way, ids, claim));
  CASE way
    WHEN 'ack' THEN PERFORM sqlstreams.ack('s', 'g', claim, ids);
    WHEN 'nack' THEN PERFORM sqlstreams.nack('s', 'g', claim, ids, retry_in => '0');
    WHEN 'delay' THEN PERFORM sqlstreams.delay('s', 'g', claim, ids, '0');
    WHEN 'reject' THEN PERFORM sqlstreams.reject('s', 'g', claim, ids);
    WHEN 'release' THEN PERFORM sqlstreams.release('s', 'g', claim, ids);
  END CASE;
  -- those behind one that failed wait again
  IF way IN ('nack', 'delay') THEN
    UPDATE message m SET status = CASE WHEN in_log THEN 'waits' ELSE 'gone' END, claim_id = NULL
     WHERE m.claim_id = claim AND m.status = 'open' AND EXISTS (SELECT FROM message f WHERE f.message_id = ANY (ids) AND f.key = m.key AND f.message_id < m.message_id);
  END IF;
  UPDATE message SET status = CASE WHEN way IN ('ack', 'reject') THEN 'resolved' WHEN NOT in_log THEN 'gone' WHEN way = 'release' THEN 'handed back' ELSE 'failed' END, claim_id = NULL
   WHERE message_id = ANY (ids) AND claim_id = claim;
END $$;

CREATE PROCEDURE run(a_policy text, seed float8, ops int) LANGUAGE plpgsql AS $$
DECLARE
  chance float8;
  progress timestamptz;
  faults bigint;
BEGIN
  PERFORM setseed(seed);
  TRUNCATE message, op;
  SELECT count(*) INTO faults FROM fault;
  PERFORM sqlstreams.drop_stream('s', if_exists => true);
  PERFORM sqlstreams.create_stream('s', partition_size => 5, retention => '1 hour', allow_drop_past_committed => true), sqlstreams.create_group('s', 'g', initial_backoff => '0', base_delay => '1 millisecond', max_delay => '1 millisecond', max_retries => 1000, max_reclaims => floor(random() * 3)::int);
  COMMIT;
  FOR i IN 1 .. ops LOOP
    chance := random();
    IF chance < 0.3 THEN CALL tap.produce(a_policy);
    ELSIF chance < 0.55 THEN CALL tap.claim(1 + floor(random() * 8)::int, 1 + floor(random() * 3)::int, '1 hour');
    ELSIF chance < 0.58 THEN CALL tap.claim(1 + floor(random() * 8)::int, 1 + floor(random() * 3)::int, '1 millisecond');
    ELSIF chance < 0.63 THEN CALL tap.maintain('sweep');
    ELSIF chance < 0.65 THEN CALL tap.maintain('retention');
    ELSIF chance < 0.67 THEN CALL tap.maintain('by hand');
    ELSE CALL tap.resolve();
    END IF;
    COMMIT;
    EXIT WHEN (SELECT count(*) FROM fault) > faults;
  END LOOP;
  -- all must come; a minute without any is the end of the patience
  progress := clock_timestamp();
  WHILE clock_timestamp() < progress + interval '1 minute' AND EXISTS (SELECT FROM message WHERE status NOT IN ('resolved', 'gone'))
      AND (SELECT count(*) FROM fault) = faults LOOP
    CALL tap.claim(10, 2, '1 hour');
    progress := CASE WHEN EXISTS (SELECT FROM message WHERE status = 'open') THEN clock_timestamp() ELSE progress END;
    PERFORM sqlstreams.ack('s', 'g', claim_id) FROM (SELECT DISTINCT claim_id FROM message WHERE status = 'open') m;
    UPDATE message SET status = 'resolved', claim_id = NULL WHERE status = 'open';
    COMMIT;
  END LOOP;
  -- two claims follow the last wake-ups, then nothing is left of the keys
  PERFORM tap.claimed('s', 'g');
  PERFORM tap.claimed('s', 'g');
  COMMIT;
  CALL tap.maintain('sweep');
  EXECUTE format('INSERT INTO fault SELECT ''left of the keys: '' || k.message_key FROM sqlstreams.message_key_lease_%1$s k WHERE NOT EXISTS (SELECT FROM sqlstreams.exception_queue_%1$s e WHERE e.message_id = ANY (k.holders))',
                 (SELECT stream_id FROM sqlstreams.streams WHERE stream = 's'));
  INSERT INTO fault SELECT format('message %s never comes (%s)', message_id, status) FROM message WHERE status NOT IN ('resolved', 'gone');
END $$;

CALL run('exclusive', 0.1, 400);
CALL run('exclusive', 0.2, 400);
CALL run('exclusive', 0.3, 400);
CALL run('ordered', 0.1, 400);
CALL run('ordered', 0.2, 400);
CALL run('ordered', 0.3, 400);
SELECT is_empty($$ SELECT what FROM fault LIMIT 10 $$, 'nothing was delivered that was not free, and all came that was there');
SELECT cmp_ok((SELECT sum(deliveries) FROM message)::numeric, '>', 50::numeric, 'there were deliveries');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
DROP TABLE message, fault, op;
DROP FUNCTION wait_for_expiry_of;
DROP PROCEDURE run, maintain, resolve, claim, produce;
SELECT * FROM finish();
