INSERT INTO bench.raw (payload) VALUES (:payload);
