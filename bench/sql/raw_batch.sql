\if :loaded
\else
SELECT payloads FROM bench.payload \gset
\set loaded 1
\endif
INSERT INTO bench.raw (payload) SELECT unnest(:payloads::jsonb[]);
