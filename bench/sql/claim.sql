SELECT claim_id, message_id, payload FROM sqlstreams.claim(:stream, :group, :n, lease => '1 day');
