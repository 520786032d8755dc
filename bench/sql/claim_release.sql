SELECT claim_id, message_id, payload FROM sqlstreams.claim(:stream, :group, :n) \aset
SELECT sqlstreams.release(:stream, :group, :claim_id);
