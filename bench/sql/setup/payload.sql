-- What every side sends: one payload, and 250 of them as an array in text
-- form, which reads both as jsonb[] and as text[] or bytea[] of the same bytes.
CREATE SCHEMA bench;
CREATE TABLE bench.payload AS
    SELECT json AS payload, array_fill(json, ARRAY[250])::text AS payloads
    FROM (VALUES (:'payload'::text)) AS p (json);
