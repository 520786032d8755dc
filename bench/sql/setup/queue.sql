-- skip locked: the textbook queue.
CREATE TABLE bench.queue (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payload  jsonb NOT NULL,
    taken_at timestamptz
);
CREATE INDEX queue_waiting ON bench.queue (id) WHERE taken_at IS NULL;
