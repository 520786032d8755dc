-- One error of each kind, as a user reads it.
\set VERBOSITY default
\set SHOW_CONTEXT never
SET client_min_messages = notice;
CREATE FUNCTION tap.show(statement text) RETURNS TABLE (state text, message text, detail text, hint text) LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
  GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
  RETURN NEXT;
END $$;
SELECT sqlstreams.create_stream('orders') > 0 AS made;
SELECT sqlstreams.create_stream('orders', if_not_exists => true) > 0 AS made;
SELECT sqlstreams.create_group('orders', 'billing') > 0 AS made;
SELECT sqlstreams.create_group('orders', 'billing', if_not_exists => true) > 0 AS made;
SELECT sqlstreams.drop_group('orders', 'shipping', if_exists => true) AS dropped;
SELECT sqlstreams.drop_stream('parcels', if_exists => true) AS dropped;
\x
SELECT * FROM tap.show($$ SELECT sqlstreams.produce('Orders', '1') $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.produce('something.else', '1') $$);
SELECT * FROM tap.show($$ SELECT * FROM sqlstreams.claim('orders', 'biling') $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.create_stream('orders') $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.create_group('orders', 'billing') $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.create_stream('Orders') $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.create_stream('__system.x') $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.ack('orders', 'billing', 4711) $$);
SELECT sqlstreams.produce('orders', '1') AS id;
SELECT claim_id AS claim FROM sqlstreams.claim('orders', 'billing') \gset
SELECT state, replace(message, :'claim', 'CLAIM') AS message, detail, hint FROM tap.show(format($$ SELECT sqlstreams.ack('orders', 'billing', %s, '{1,2}') $$, :claim));
SELECT * FROM tap.show($$ SELECT * FROM sqlstreams.claim('orders', 'billing', 0) $$);
SELECT * FROM tap.show($$ SELECT * FROM sqlstreams.claim('orders', 'billing', NULL) $$);
SELECT * FROM tap.show($$ SELECT * FROM sqlstreams.claim('orders', 'billing', lease => '-1 s') $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.produce('orders', NULL) $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.produce('orders', '1', options => '{"tiemout": "1s"}') $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.produce('orders', '1', concurrency => 'serial') $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.produce('orders', '1', compaction => true) $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.lock_compaction_head('orders', '') $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.produce('orders', '1', repeat('k', 1025)) $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.produce_batch('orders', '{1,2}', message_keys => '{a}') $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.produce_batch('orders', '{{1,2}}') $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.produce_batch('orders', array_fill('1'::jsonb, ARRAY[100001])) $$);
SELECT * FROM tap.show($$ SELECT sqlstreams.alter_stream('orders', reset => '{nope}') $$);
SELECT * FROM tap.show($$ SET LOCAL transaction_read_only = on; SELECT sqlstreams.produce('orders', '1') $$);
CREATE ROLE regress_sqlstreams_user;
SELECT * FROM tap.show($$ SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.produce('orders', '1') $$);
SELECT * FROM tap.show($$ SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.drop_stream('orders') $$);
SELECT * FROM tap.show($$ SET LOCAL ROLE regress_sqlstreams_user; SELECT sqlstreams.create_stream('x') $$);
DROP ROLE regress_sqlstreams_user;
DROP FUNCTION tap.show;
SELECT sqlstreams.drop_stream('orders') AS dropped;
