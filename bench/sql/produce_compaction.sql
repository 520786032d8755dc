\set key random(1, :keys)
SELECT sqlstreams.produce(:stream, :payload, message_key => 'customer-' || :key::text, compaction => true);
