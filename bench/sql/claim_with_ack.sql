SELECT claim_id, message_id, payload FROM sqlstreams.claim(:stream, :group, :n, ack => nullif(:claim_id::bigint, 0)) \aset
