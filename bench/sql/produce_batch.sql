\if :loaded
\else
SELECT payloads FROM bench.payload \gset
\set loaded 1
\endif
SELECT * FROM sqlstreams.produce_batch(:stream, :payloads);
