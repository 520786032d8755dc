-- PgQ: a queue with a tick after every 250 events.
CREATE EXTENSION pgq;
SELECT pgq.create_queue('bench');
SELECT pgq.set_queue_config('bench', 'ticker_max_count', '250');
SELECT pgq.set_queue_config('bench', 'ticker_max_lag', '1 hour');
SELECT pgq.set_queue_config('bench', 'ticker_idle_period', '1 hour');
