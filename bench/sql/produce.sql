SELECT sqlstreams.produce(:stream, :payload);
