-- bare cursor: a position in bench.raw, nothing else.
CREATE TABLE bench.cursor (position bigint NOT NULL);
INSERT INTO bench.cursor VALUES (0);
