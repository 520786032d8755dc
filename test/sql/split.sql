\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- A consumer that claims up to so many, works through them in the order in which it got them and acks them all together, but is killed by
-- the poison message each time it meets it; the lease of a killed one ends at once, and so does every backoff. Each step is a transaction, as
-- it is with real consumers. What was delivered is written down.
CREATE TEMP TABLE delivered (n serial, claim bigint, message_id bigint, attempts int, takeovers int);
CREATE PROCEDURE pg_temp.consume(a_stream text, how_many bigint, poison bigint[], one_by_one boolean DEFAULT false) LANGUAGE plpgsql AS $$
DECLARE
  id bigint := (SELECT stream_id FROM sqlstreams.streams WHERE stream = a_stream);
  before int;
  mine bigint;
  message bigint;
  killed boolean;
  idle int := 0;
BEGIN
  WHILE idle < 3 LOOP
    EXECUTE format('UPDATE sqlstreams.exception_queue_%s SET due_at = (SELECT clock_timestamp()) WHERE status = ''r''', id);
    COMMIT;
    before := (SELECT coalesce(max(n), 0) FROM delivered);
    INSERT INTO delivered (claim, message_id, attempts, takeovers) SELECT c.claim_id, c.message_id, c.attempts, c.takeovers FROM sqlstreams.claim(a_stream, 'g', how_many, '1 hour') c;
    COMMIT;
    mine := (SELECT max(claim) FROM delivered WHERE n > before);
    idle := CASE WHEN mine IS NULL THEN idle + 1 ELSE 0 END;
    killed := false;
    FOR message IN SELECT d.message_id FROM delivered d WHERE d.claim = mine ORDER BY n LOOP
      killed := message = ANY (poison);
      EXIT WHEN killed;
      IF one_by_one THEN
        PERFORM sqlstreams.ack(a_stream, 'g', mine, ARRAY[message]);
        COMMIT;
      END IF;
    END LOOP;
    IF killed THEN
      EXECUTE format('UPDATE sqlstreams.group_cursor_%s SET lease_scan_from = ''-infinity''', id);
      EXECUTE format('UPDATE sqlstreams.claim_lease_%s SET expires_at = (SELECT clock_timestamp())', id);
    ELSIF NOT one_by_one THEN
      PERFORM sqlstreams.ack(a_stream, 'g', mine);
    END IF;
    COMMIT;
  END LOOP;
END $$;
-- how often each message was delivered: in how many claims together with others, and in how many alone
CREATE VIEW pg_temp.deliveries_of AS
  SELECT message_id, count(*) FILTER (WHERE messages > 1) AS together, count(*) FILTER (WHERE messages = 1) AS alone
    FROM (SELECT message_id, claim, count(*) OVER (PARTITION BY claim) AS messages FROM delivered) d GROUP BY message_id;

-- a claim of 250 with one poison message
SELECT lives_ok($$ SELECT sqlstreams.create_stream('s', partition_size => 100), sqlstreams.create_group('s', 'g') $$, 'a stream and a group');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 250) i))), 250::bigint, '250 messages');
CALL pg_temp.consume('s', 250, '{137}');
SELECT results_eq($$ SELECT message_id, status, attempts, delays FROM sqlstreams.exceptions('s', 'g') $$, $$ VALUES (137::bigint, 'dead', 4, 0) $$, 'the poison message is dead');
SELECT is((SELECT last_error LIKE '%lease%' FROM sqlstreams.exceptions('s', 'g')), true, 'because of its lease');
SELECT results_eq($$ SELECT claimed, committed, backlog, leased, ready, inflight, dead FROM sqlstreams.consumer_groups WHERE stream = 's' $$,
  $$ VALUES (250::bigint, 250::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, 1::bigint) $$, 'its 249 neighbours are done, and nothing else is dead');
SELECT is((SELECT count(DISTINCT message_id) FROM delivered), 250::bigint, 'each was delivered');
SELECT results_eq($$ SELECT DISTINCT together, alone FROM pg_temp.deliveries_of WHERE message_id <> 137 $$, $$ VALUES (4::bigint, 1::bigint) $$, 'whole once and max_reclaims times more, then alone, once');
SELECT results_eq($$ SELECT together, alone FROM pg_temp.deliveries_of WHERE message_id = 137 $$, $$ VALUES (4::bigint, 4::bigint) $$, 'the poison one by itself as often as it has attempts');
SELECT is((SELECT string_agg(attempts::text, ' ' ORDER BY n) FROM delivered WHERE message_id = 137), '0 0 0 0 0 1 2 3', 'the first ones count for nobody');
SELECT results_eq($$ SELECT DISTINCT attempts FROM delivered WHERE message_id <> 137 $$, '{0}'::int[], 'its neighbours are charged nothing');
SELECT is((SELECT string_agg(takeovers::text, ' ' ORDER BY n) FROM delivered WHERE message_id = 1), '0 1 2 3 4', 'but the leases that they lost are counted');
SELECT results_eq($$ SELECT DISTINCT messages FROM (SELECT count(*) AS messages FROM delivered GROUP BY claim) d ORDER BY 1 $$, '{1,250}'::bigint[], 'each claim was whole or of one');
SELECT is(sqlstreams.redrive('s', 'g'), 1::bigint, 'redriven');
CALL pg_temp.consume('s', 250, '{}');
SELECT is_empty($$ SELECT FROM sqlstreams.exceptions('s', 'g') $$, 'it is processed once it is no poison any more');

-- the same with consumers that ack one by one, and with smaller claims than what was lost
TRUNCATE delivered;
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(251, 500) i))), 250::bigint, '250 more');
CALL pg_temp.consume('s', 250, '{300}', true);
SELECT results_eq($$ SELECT message_id, status, attempts FROM sqlstreams.exceptions('s', 'g') $$, $$ VALUES (300::bigint, 'dead', 4) $$, 'acked one by one: the poison message is dead');
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE stream = 's'), 500::bigint, 'and alone in that');
SELECT results_eq($$ SELECT DISTINCT together, alone FROM pg_temp.deliveries_of WHERE message_id < 300 $$, $$ VALUES (1::bigint, 0::bigint) $$, 'what was acked before it did not come again');
TRUNCATE delivered;
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(501, 600) i))), 100::bigint, 'a hundred more');
SELECT min(claim_id) AS c FROM sqlstreams.claim('s', 'g', 100, '1 microsecond') \gset
CALL pg_temp.consume('s', 30, '{577}');
SELECT results_eq($$ SELECT message_id, status, attempts FROM sqlstreams.exceptions('s', 'g') $$, $$ VALUES (300::bigint, 'dead', 4), (577, 'dead', 4) $$, 'taken over in parts: the poison message is dead');
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE stream = 's'), 600::bigint, 'and alone in that');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 's', 'g', :c), 'SS004', NULL, 'the first holder has lost it all');

-- several poison messages, in one claim and in another
TRUNCATE delivered;
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(601, 700) i))), 100::bigint, 'a hundred more');
CALL pg_temp.consume('s', 40, '{601,602,640,641,700}');
SELECT is((SELECT string_agg(message_id::text, ' ') FROM sqlstreams.exceptions('s', 'g', 'dead', 577) WHERE attempts = 4), '601 602 640 641 700', 'those five are dead');
SELECT results_eq($$ SELECT committed, dead, ready, leased FROM sqlstreams.consumer_groups WHERE stream = 's' $$, $$ VALUES (700::bigint, 7::bigint, 0::bigint, 0::bigint) $$, 'and only those');

-- max_reclaims
SELECT lives_ok($$ SELECT sqlstreams.create_stream('r'), sqlstreams.create_group('r', 'g', max_reclaims => 0, max_retries => 0) $$, 'a group without reclaims and retries');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('r', '{1,2,3,4}')), 4::bigint, 'four messages');
TRUNCATE delivered;
CALL pg_temp.consume('r', 4, '{2}');
SELECT results_eq($$ SELECT * FROM pg_temp.deliveries_of ORDER BY message_id $$, $$ VALUES (1::bigint, 1::bigint, 1::bigint), (2, 1, 1), (3, 1, 1), (4, 1, 1) $$, 'delivered whole once, then each alone');
SELECT results_eq($$ SELECT message_id, status, attempts FROM sqlstreams.exceptions('r', 'g') $$, $$ VALUES (2::bigint, 'dead', 1) $$, 'the first failure is the last');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('r', 'g', max_reclaims => 1) $$, 'one reclaim');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('r', '{5,6,7,8}')), 4::bigint, 'four messages');
TRUNCATE delivered;
CALL pg_temp.consume('r', 4, '{8}');
SELECT results_eq($$ SELECT * FROM pg_temp.deliveries_of ORDER BY message_id $$, $$ VALUES (5::bigint, 2::bigint, 1::bigint), (6, 2, 1), (7, 2, 1), (8, 2, 1) $$, 'delivered whole twice, then each alone');
SELECT lives_ok($$ SELECT sqlstreams.alter_group('r', 'g', reset => '{max_reclaims}') $$, 'the default');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('r', '{9,10}')), 2::bigint, 'two messages');
TRUNCATE delivered;
CALL pg_temp.consume('r', 2, '{9}');
SELECT results_eq($$ SELECT * FROM pg_temp.deliveries_of ORDER BY message_id $$, $$ VALUES (9::bigint, 4::bigint, 1::bigint), (10, 4, 1) $$, 'four times, then each alone');

-- what a split makes of a claim, and who has lost it
SELECT lives_ok($$ SELECT sqlstreams.create_stream('t'), sqlstreams.create_group('t', 'g', max_reclaims => 0), sqlstreams.create_group('t', 'h', max_reclaims => 0) $$, 'another stream');
SELECT is((SELECT count(*) FROM sqlstreams.produce_batch('t', '{1,2,3,4,5,6}')), 6::bigint, 'six messages');
SELECT format('UPDATE sqlstreams.group_cursor_%1$s SET lease_scan_from = ''-infinity''; UPDATE sqlstreams.claim_lease_%1$s SET expires_at = (SELECT clock_timestamp())', stream_id) AS expire FROM sqlstreams.streams WHERE stream = 't' \gset
SELECT min(claim_id) AS c FROM sqlstreams.claim('t', 'g', 4, '1 hour') \gset
SELECT is(sqlstreams.ack('t', 'g', :c, '{2}'), 1::bigint, 'one of four acked');
:expire WHERE claim_id = :c;
BEGIN;
SELECT is((SELECT count(*) FROM sqlstreams.claim('t', 'g', 4)), 1::bigint, 'split: one alone');
ROLLBACK;
SELECT is_empty($$ SELECT FROM sqlstreams.exceptions('t', 'g') $$, 'rolled back, nothing was split');
SELECT is(sqlstreams.ack('t', 'g', :c, '{3}'), 1::bigint, 'and its holder still has it');
SELECT message_id AS m, claim_id AS d FROM sqlstreams.claim('t', 'g', 4, '1 hour') \gset
SELECT results_eq($$ SELECT message_id, attempts, delays, takeovers FROM sqlstreams.exceptions('t', 'g') $$, $$ VALUES (1::bigint, 0, 0, 1), (4, 0, 0, 1) $$, 'split: an exception each for what was open, charged nothing');
SELECT is((SELECT bool_and(can_run_after <= clock_timestamp()) FROM sqlstreams.exceptions('t', 'g', 'ready')), true, 'due at once');
SELECT is(:m IN (1, 4), true, 'the claim got one of them alone');
SELECT fails(format('SELECT sqlstreams.ack(%L, %L, %s)', 't', 'g', :c), 'SS004', NULL, 'its holder has lost the claim');
SELECT fails(format('SELECT sqlstreams.nack(%L, %L, %s, %L)', 't', 'g', :c, '{4}'), 'SS004', NULL, 'every message of it');
SELECT is(sqlstreams.release('t', 'g', :c), 0::bigint, 'it has nothing to hand back');
SELECT is((SELECT committed FROM sqlstreams.consumer_groups WHERE stream = 't' AND consumer_group = 'g'), 4::bigint, 'the cursor is past them');
SELECT is(sqlstreams.ack('t', 'g', :d), 1::bigint, 'the new holder acks');

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
SELECT * FROM finish();
