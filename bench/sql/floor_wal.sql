SELECT pg_logical_emit_message(true, 'bench', :payload::text);
