INSERT INTO bench.queue (payload) VALUES (:payload);
