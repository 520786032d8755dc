\if :loaded
\else
SELECT payloads FROM bench.payload \gset
\set loaded 1
\endif
\set key random(1, :keys)
SELECT * FROM sqlstreams.produce_batch(:stream, :payloads, compaction => true, message_keys =>
    ARRAY(SELECT 'customer-' || (:key::integer + i) % :keys::integer FROM generate_series(1, 250) AS i));
