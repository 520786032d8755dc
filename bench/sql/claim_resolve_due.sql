-- acks fresh messages and delays those that were due, so that as many are due afterwards
WITH claimed AS MATERIALIZED (
    SELECT claim_id, message_id, payload, delays FROM sqlstreams.claim(:stream, :group, :n)
)
SELECT claim_id, message_id, payload, NULL::bigint[] AS due FROM claimed
UNION ALL
SELECT max(claim_id), NULL, NULL, coalesce(array_agg(message_id) FILTER (WHERE delays > 0), '{}') FROM claimed \aset
SELECT sqlstreams.resolve(:stream, :group, :claim_id, :due::bigint[],
    array_fill('delay'::text, ARRAY[cardinality(:due::bigint[])]),
    delays => array_fill('0'::interval, ARRAY[cardinality(:due::bigint[])]), others => 'ack');
