\if :loaded
\else
SELECT payloads FROM bench.payload \gset
\set loaded 1
\endif
\set key random(1, 9000000000000000000)
SELECT * FROM sqlstreams.produce_batch(:stream, :payloads, idempotency_keys =>
    ARRAY(SELECT 'order-' || :key::text || '-' || i FROM generate_series(1, 250) AS i));
