\set ECHO none
\pset format unaligned
\pset tuples_only true
SET client_min_messages = warning;
SET search_path = tap, pg_catalog;
SELECT * FROM no_plan();

-- Who may fail messages, and see and redrive what has failed: whoever may consume. Whose rows a call can name does not matter.
CREATE ROLE regress_sqlstreams_owner;
CREATE ROLE regress_sqlstreams_consumer;
CREATE ROLE regress_sqlstreams_reader;
GRANT USAGE ON SCHEMA tap TO PUBLIC;
GRANT EXECUTE ON FUNCTION sqlstreams.create_stream TO regress_sqlstreams_owner;
CREATE FUNCTION pg_temp.denied(role_name text, statement text, description text) RETURNS text LANGUAGE sql AS $$
  SELECT fails(format('SET LOCAL ROLE %I; %s', role_name, statement), '42501', 'stream "s"', description)
$$;
CREATE FUNCTION pg_temp.allowed(role_name text, statement text, description text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE problem text;
BEGIN
  BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role_name);
    EXECUTE statement;
    SET LOCAL ROLE NONE;
  EXCEPTION WHEN OTHERS THEN problem := SQLERRM;
  END;
  RETURN ok(problem IS NULL, description) || coalesce(E'\n' || diag(problem), '');
END $$;
SET ROLE regress_sqlstreams_owner;
SELECT sqlstreams.create_stream('s', partition_size => 7, delivery_log => 'all') AS id \gset
SELECT sqlstreams.create_group('s', 'g') \g /dev/null
SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, 60) i)) \g /dev/null
GRANT UPDATE ON sqlstreams.group_cursor_:id TO regress_sqlstreams_consumer;
GRANT SELECT, INSERT (payload) ON sqlstreams.message_log_:id TO regress_sqlstreams_reader;
RESET ROLE;
SELECT is((SELECT string_agg(DISTINCT relowner::regrole::text, ' ') FROM pg_class WHERE relnamespace = 'sqlstreams'::regnamespace AND relname ~ ('^[a-z_]+_' || :id || '(_|$)')), 'regress_sqlstreams_owner', 'every table of it is the owner''s');

SELECT pg_temp.allowed(who, statement, format('%s: %s', split_part(who, '_', 3), what))
  FROM (VALUES (1, 'nack', $$ SELECT sqlstreams.nack('s', 'g', min(claim_id), error => 'e', retry_in => '0') FROM sqlstreams.claim('s', 'g', 2) $$),
               (2, 'nack of what was due', $$ SELECT sqlstreams.nack('s', 'g', min(claim_id), error => 'e', retry_in => '0') FROM sqlstreams.claim('s', 'g', 2) $$),
               (3, 'reject', $$ SELECT sqlstreams.reject('s', 'g', min(claim_id)) FROM sqlstreams.claim('s', 'g', 4) $$),
               (4, 'delay', $$ SELECT sqlstreams.delay('s', 'g', min(claim_id), array_agg(message_id), '0') FROM sqlstreams.claim('s', 'g', 2) $$),
               (5, 'resolve', $$ SELECT sqlstreams.resolve('s', 'g', min(claim_id), array_agg(message_id), '{nack,reject,ack}', others => 'release') FROM sqlstreams.claim('s', 'g', 3) $$),
               (6, 'exceptions', $$ SELECT FROM sqlstreams.exceptions('s', 'g', 'dead') $$),
               (7, 'deliveries', $$ SELECT FROM sqlstreams.deliveries('s') $$),
               (8, 'redrive', $$ SELECT sqlstreams.redrive('s', 'g', (SELECT array_agg(message_id) FROM sqlstreams.exceptions('s', 'g', 'dead', max_messages => 2))) $$),
               (9, 'discard', $$ SELECT sqlstreams.discard('s', 'g', (SELECT array_agg(message_id) FROM sqlstreams.exceptions('s', 'g', 'dead', max_messages => 1))) $$),
               (10, 'pop', $$ SELECT FROM sqlstreams.pop('s', 'g', 10) $$)) u (n, what, statement),
       (VALUES (1, 'regress_sqlstreams_owner'), (2, 'regress_sqlstreams_consumer')) w (m, who) ORDER BY m, n;
SELECT pg_temp.denied(who, 'SELECT * FROM sqlstreams.' || call, format('who may read and produce: %s', split_part(call, '(', 1)))
  FROM (VALUES (1, $$nack('s', 'g', 1)$$), (2, $$reject('s', 'g', 1)$$), (3, $$delay('s', 'g', 1, '{1}', '1 s')$$), (4, $$resolve('s', 'g', 1, '{1}', '{ack}')$$), (5, $$exceptions('s')$$), (6, $$exceptions('s', 'g')$$),
               (7, $$deliveries('s')$$), (8, $$redrive('s', 'g')$$), (9, $$discard('s', 'g', '{1}')$$)) u (n, call), (VALUES ('regress_sqlstreams_reader')) w (who) ORDER BY n;
-- without rights on the tables themselves
SELECT fails(format('SET LOCAL ROLE regress_sqlstreams_consumer; SELECT * FROM sqlstreams.%s_%s', t, :id), '42501', t, 'the consumer cannot read ' || t) FROM unnest(ARRAY['exception_queue', 'delivery_log']) WITH ORDINALITY u (t, n) ORDER BY n;
SELECT fails(format('SET LOCAL ROLE regress_sqlstreams_consumer; UPDATE sqlstreams.%s_%s SET attempts = 0', 'exception_queue', :id), '42501', 'exception_queue', 'nor change it');
-- not in another's name, whatever its search_path has in stock
SET search_path = pg_temp, tap, pg_catalog;
CREATE TEMP TABLE seen (who text);
GRANT ALL ON seen TO PUBLIC;
CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (current_user); RETURN 'epoch'; END $$;
CREATE FUNCTION pg_temp.texteq(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (current_user); RETURN true; END $$;
CREATE OPERATOR pg_temp.~~ (LEFTARG = text, RIGHTARG = text, FUNCTION = pg_temp.texteq);
CREATE OPERATOR pg_temp.= (LEFTARG = text, RIGHTARG = text, FUNCTION = pg_temp.texteq);
SELECT sqlstreams.reject('s', 'g', min(claim_id), error => 'mine') FROM sqlstreams.claim('s', 'g', 5) \g /dev/null
SELECT sqlstreams.redrive('s', 'g', error_like => 'm_n%'), sqlstreams.discard('s', 'g', error_like => 'nobody''s') \g /dev/null
SELECT count(*) FROM sqlstreams.exceptions('s', 'g', 'ready') \g /dev/null
SELECT count(*) FROM sqlstreams.deliveries('s', 'g') \g /dev/null
SELECT is((SELECT count(*) FROM seen), 0::bigint, 'nothing of it was called');
SET search_path = tap, pg_catalog;
DROP OPERATOR pg_temp.= (text, text);

SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams \g /dev/null
REVOKE USAGE ON SCHEMA tap FROM PUBLIC;
DROP OWNED BY regress_sqlstreams_owner, regress_sqlstreams_consumer, regress_sqlstreams_reader;
DROP ROLE regress_sqlstreams_owner, regress_sqlstreams_consumer, regress_sqlstreams_reader;
SELECT * FROM finish();
