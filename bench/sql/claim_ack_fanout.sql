-- each client is the only consumer of a group of its own
SELECT claim_id, message_id, payload FROM sqlstreams.claim(:stream, 'g' || :client_id::text, :n) \aset
SELECT sqlstreams.ack(:stream, 'g' || :client_id::text, :claim_id);
