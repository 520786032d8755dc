-- each client has dead messages of its own, n at a time
\set first :first + :n * :client_count
\set mine :first + :n * :client_id
SELECT sqlstreams.redrive(:stream, :group, ARRAY(SELECT generate_series(:mine::bigint, :mine::bigint + :n - 1)));
