\if :loaded
\else
SELECT payloads FROM bench.payload \gset
\set loaded 1
\endif
SELECT count(pgq.insert_event('bench', 'order', body)) FROM unnest(:payloads::text[]) AS body;
