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

-- Which partitions there are, and in what state, but for those that are made ahead of a stream which is as fast as a test.
CREATE FUNCTION tap.partition_states(a_stream text) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(from_id || '-' || to_id || ' ' || state, ', ' ORDER BY from_id)
    FROM sqlstreams.partitions p JOIN sqlstreams.streams s USING (stream)
   WHERE p.stream = a_stream AND from_id <= messages_head + 1 + 2 * partition_size
$$;
-- Why those that should have gone on are still there.
CREATE FUNCTION tap.partitions_held(a_stream text) RETURNS text LANGUAGE sql AS $$
  SELECT string_agg(from_id || '-' || to_id || ': ' || held_by, ', ' ORDER BY from_id) FROM sqlstreams.partitions p WHERE p.stream = a_stream AND held_by IS NOT NULL
$$;
-- As if so much time had gone by since they were sealed.
CREATE FUNCTION tap.age_partitions(a_stream text, how_long interval) RETURNS void LANGUAGE sql AS $$
  UPDATE sqlstreams.log_partition l SET sealed_at = l.sealed_at - how_long
    FROM sqlstreams.streams s WHERE s.stream = a_stream AND l.stream_id = s.stream_id
$$;
-- Produces so many messages.
CREATE FUNCTION tap.fill(a_stream text, how_many int) RETURNS bigint LANGUAGE sql AS $$
  SELECT max(id) FROM sqlstreams.produce_batch(a_stream, (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, how_many) i)) id
$$;

SELECT extname FROM pg_extension WHERE extname IN ('pgtap', 'sqlstreams') ORDER BY extname COLLATE "C";
