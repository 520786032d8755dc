-- What every other file relies on: the extension, pgTAP in a schema of its own, and a few helpers beside it.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS sqlstreams;
CREATE SCHEMA tap;
CREATE EXTENSION pgtap SCHEMA tap;

-- Runs a statement that must fail with this SQLSTATE; its message must name "about" (when given) and keep to PostgreSQL's error style
-- (which PostgreSQL's own messages about JSON do not).
CREATE FUNCTION tap.fails(statement text, code text, about text, description text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  state text := 'no error';
  message text := '';
  detail text := '';
  hint text := '';
  good boolean;
BEGIN
  BEGIN
    EXECUTE statement;
  EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
                            detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
  END;
  good := state = code
      AND (about IS NULL OR position(about IN message) > 0)
      AND (code LIKE '22P%' OR message ~ '^[a-z0-9"]' AND message !~ '\.$'
                               AND (detail = '' OR detail ~ '^[A-Z"(].*\.$')
                               AND (hint = '' OR hint ~ '^[A-Z].*\.$'));
  RETURN tap.ok(good, description)
      || CASE WHEN good THEN '' ELSE E'\n' || tap.diag(format(
           E'wanted: %s naming %L\nhave: %s: %s\ndetail: %s\nhint: %s', code, about, state, message, detail, hint)) END;
END $$;

-- Returns once every lease of the group has ended; no sleeping, no guessing.
CREATE FUNCTION tap.wait_for_expiry(a_stream text, a_group text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  WHILE EXISTS (SELECT FROM sqlstreams.leases l
                 WHERE l.stream = a_stream AND l.consumer_group = a_group AND l.expires_at >= clock_timestamp()) LOOP
    NULL;
  END LOOP;
END $$;

-- The payloads that a claim returns, in the order in which it returns them.
CREATE FUNCTION tap.claimed(a_stream text, a_group text, how_many bigint DEFAULT 100, a_lease interval DEFAULT '1 hour')
RETURNS text LANGUAGE sql AS $$
  SELECT coalesce(string_agg(c.payload::text, ' '), '')
    FROM sqlstreams.claim(a_stream, a_group, how_many, a_lease) c
$$;

SELECT extname FROM pg_extension WHERE extname IN ('pgtap', 'sqlstreams') ORDER BY extname COLLATE "C";
