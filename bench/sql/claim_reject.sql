SELECT claim_id, message_id, payload FROM sqlstreams.claim(:stream, :group, :n) \aset
SELECT sqlstreams.reject(:stream, :group, :claim_id, error => 'it failed');
