\if :loaded
\else
SELECT payloads FROM bench.payload \gset
\set loaded 1
\endif
SELECT count(pg_logical_emit_message(true, 'bench', body)) FROM unnest(:payloads::text[]) AS body;
