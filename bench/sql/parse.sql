\if :loaded
\else
SELECT payloads FROM bench.payload \gset
\set loaded 1
\endif
SELECT cardinality(:payloads::jsonb[]);
