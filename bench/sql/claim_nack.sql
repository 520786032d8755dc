SELECT claim_id, message_id, payload FROM sqlstreams.claim(:stream, :group, :n) \aset
SELECT sqlstreams.nack(:stream, :group, :claim_id, error => 'it failed', retry_in => '1 day');
