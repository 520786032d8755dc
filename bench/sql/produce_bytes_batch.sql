\if :loaded
\else
SELECT payloads FROM bench.payload \gset
\set loaded 1
\endif
SELECT * FROM sqlstreams.produce_bytes_batch(:stream, :payloads);
