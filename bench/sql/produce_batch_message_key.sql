\if :loaded
\else
SELECT payloads FROM bench.payload \gset
\set loaded 1
\endif
\set key random(1, 1000)
SELECT * FROM sqlstreams.produce_batch(:stream, :payloads, message_keys =>
    ARRAY(SELECT 'customer-' || (:key::integer + i) % 1000 FROM generate_series(1, 250) AS i));
