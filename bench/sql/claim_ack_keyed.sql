-- a claim may get nothing, while every key is busy
\set claim_id 0
SELECT claim_id, message_id, payload FROM sqlstreams.claim(:stream, :group, :n) \aset
\if :claim_id
SELECT sqlstreams.ack(:stream, :group, :claim_id);
\else
\sleep 1 ms
\endif
