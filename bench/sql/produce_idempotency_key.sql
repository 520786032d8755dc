\set key random(1, 9000000000000000000)
SELECT sqlstreams.produce(:stream, :payload, idempotency_key => 'order-' || :key::text);
