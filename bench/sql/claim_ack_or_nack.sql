-- one claim in ten fails and is due again at once
SELECT claim_id, message_id, payload FROM sqlstreams.claim(:stream, :group, :n) \aset
\set failed random(1, 10)
\if :failed = 1
SELECT sqlstreams.nack(:stream, :group, :claim_id, error => 'no', retry_in => '0');
\else
SELECT sqlstreams.ack(:stream, :group, :claim_id);
\endif
