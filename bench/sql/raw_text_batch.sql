\if :loaded
\else
SELECT payloads FROM bench.payload \gset
\set loaded 1
\endif
INSERT INTO bench.raw_text (payload) SELECT unnest(:payloads::text[]);
