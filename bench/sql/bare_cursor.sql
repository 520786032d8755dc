WITH at AS (
    SELECT position FROM bench.cursor FOR UPDATE
), messages AS MATERIALIZED (
    SELECT id, payload FROM bench.raw WHERE id > (SELECT position FROM at) ORDER BY id LIMIT :n
), moved AS (
    UPDATE bench.cursor SET position = (SELECT max(id) FROM messages)
)
SELECT id, payload FROM messages;
