SELECT message_id, payload FROM sqlstreams.pop(:stream, :group, :n);
