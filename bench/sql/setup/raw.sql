-- raw: tables of the log's shape, range-partitioned by id, primary key on id,
-- once with the payload as jsonb and once as text.
CREATE SEQUENCE bench.raw_id;
CREATE TABLE bench.raw (
    id              bigint PRIMARY KEY DEFAULT nextval('bench.raw_id'),
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    deliver_at      timestamptz,
    compaction_rank bigint,
    schema_version  integer NOT NULL DEFAULT 1,
    concurrency     "char",
    message_key     text,
    routing_key     text,
    headers         jsonb,
    options         jsonb,
    payload         jsonb,
    body            bytea
) PARTITION BY RANGE (id);

CREATE SEQUENCE bench.raw_text_id;
CREATE TABLE bench.raw_text (LIKE bench.raw, PRIMARY KEY (id)) PARTITION BY RANGE (id);
ALTER TABLE bench.raw_text ALTER payload TYPE text;
ALTER TABLE bench.raw_text ALTER id SET DEFAULT nextval('bench.raw_text_id');
ALTER TABLE bench.raw_text ALTER created_at SET DEFAULT clock_timestamp();
ALTER TABLE bench.raw_text ALTER schema_version SET DEFAULT 1;

SELECT format('CREATE TABLE bench.%1$s_%2$s PARTITION OF bench.%1$s FOR VALUES FROM (%2$s * 1000000::bigint + 1) TO ((%2$s + 1) * 1000000::bigint + 1)', t, n)
FROM unnest(ARRAY['raw', 'raw_text']) AS t, generate_series(0, 29) AS n
\gexec
