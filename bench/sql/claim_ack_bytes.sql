SELECT claim_id, message_id, body FROM sqlstreams.claim(:stream, :group, :n) \aset
SELECT sqlstreams.ack(:stream, :group, :claim_id);
