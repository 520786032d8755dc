WITH taken AS (
    UPDATE bench.queue SET taken_at = now()
    WHERE id IN (SELECT id FROM bench.queue WHERE taken_at IS NULL ORDER BY id LIMIT :n FOR UPDATE SKIP LOCKED)
    RETURNING id, payload
)
SELECT id, payload, NULL::bigint[] AS ids FROM taken
UNION ALL
SELECT NULL, NULL, array_agg(id) FROM taken \aset
DELETE FROM bench.queue WHERE id = ANY (:ids::bigint[]);
