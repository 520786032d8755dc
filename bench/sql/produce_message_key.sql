\set key random(1, 1000)
SELECT sqlstreams.produce(:stream, :payload, message_key => 'customer-' || :key::text);
