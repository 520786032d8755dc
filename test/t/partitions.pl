# Partitions that are made on the spot: by a worker while many producers stand at the boundary, and by a producer itself where no worker
# can be started.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $node = new_node('main', "max_connections = 100\n");
my $clients = 16;
my $transactions = 40;
my $total = $clients * $transactions;

sub produce_at_boundaries
{
	my ($stream, $label) = @_;

	sql($node, "SELECT sqlstreams.create_stream('$stream', partition_size => 3), sqlstreams.create_group('$stream', 'g')");
	$node->pgbench(
		"-n -c $clients -j 2 -t $transactions -M prepared",
		0, [qr{processed: $total/$total}], [qr{^$}m], "$label: $clients producers at every boundary",
		{ "$stream.sql" => "SELECT sqlstreams.produce('$stream', '1');" });
	is(sql($node, "SELECT messages_head, settled_head FROM sqlstreams.streams WHERE stream = '$stream'"), "$total|$total", "$label: no id was lost");
	is(sql($node, "SELECT count(*), count(DISTINCT message_id), max(message_id) FROM sqlstreams.claim('$stream', 'g', 100000)"), "$total|$total|$total", "$label: all arrive");
}

produce_at_boundaries('worker', 'with workers');

# nobody waits for a transaction that stood at the boundary before
my $open = session($node);
$open->query_safe('BEGIN');
$open->query_safe(q{SELECT sqlstreams.produce('worker', '1') FROM generate_series(1, 10)});
is(sql($node, q{SET lock_timeout = '2s'; SELECT count(*) FROM (SELECT sqlstreams.produce('worker', '1') FROM generate_series(1, 10)) p}), 10, 'with workers: an open transaction at the boundary makes nobody wait');
$open->query_safe('ROLLBACK');
$open->quit;
is(sql($node, q{SELECT count(*) FROM sqlstreams.claim('worker', 'g', 100000)}), 10, 'with workers: its rollback takes no partition away');

# what keeps a partition from being made
sub produce_in_the_way
{
	my ($stream, $label) = @_;
	my $id = sql($node, "SELECT sqlstreams.create_stream('$stream', partition_size => 2)");

	sql($node, "SELECT sqlstreams.create_group('$stream', 'g')");
	sql($node, "SELECT sqlstreams.produce('$stream', '1') FROM generate_series(1, 2)");
	my $locker = session($node);
	$locker->query_safe("BEGIN; LOCK TABLE sqlstreams.message_log_$id IN SHARE UPDATE EXCLUSIVE MODE");
	is(sqlstate($node, "SET lock_timeout = '50ms'; SELECT sqlstreams.produce('$stream', '1')"), 'SS006', "$label: a lock on the log that is not had in time");
	$locker->query_safe('ROLLBACK');
	$locker->quit;
	sql($node, "CREATE TABLE sqlstreams.message_log_${id}_1 (a int)");
	is(sqlstate($node, "SELECT sqlstreams.produce('$stream', '1')"), 'SS005', "$label: a table of that name which is no partition");
	sql($node, "DROP TABLE sqlstreams.message_log_${id}_1");
	cmp_ok(sql($node, "SELECT sqlstreams.produce('$stream', '2')"), '>', 2, "$label: with both out of the way it is made");
	is(sql($node, "SELECT string_agg(payload::text, ' ') FROM sqlstreams.claim('$stream', 'g', 9)"), '1 1 2', "$label: and the message arrives");
}

produce_in_the_way('blocked', 'with workers');

# no worker at all
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->restart;
produce_at_boundaries('alone', 'without workers');

$open = session($node);
$open->query_safe('BEGIN');
$open->query_safe(q{SELECT sqlstreams.produce('alone', '1') FROM generate_series(1, 10)});
is(sqlstate($node, q{SET lock_timeout = '50ms'; SELECT sqlstreams.produce('alone', '1') FROM generate_series(1, 10)}), 'SS006', 'without workers: others wait for it, at most lock_timeout');
$open->query_safe('ROLLBACK');
is(sql($node, q{SELECT count(*) FROM (SELECT sqlstreams.produce('alone', '1') FROM generate_series(1, 10)) p}), 10, 'without workers: after its rollback they make their own');
is(sql($node, q{SELECT count(*) FROM sqlstreams.claim('alone', 'g', 100000)}), 10, 'without workers: all arrive');
$open->query_safe('BEGIN');
$open->query_safe(q{SELECT sqlstreams.produce('alone', '1') FROM generate_series(1, 10)});
my $waiter = session($node);
$waiter->query_until(qr/^$/, q{SELECT 'produced ' || count(*) FROM (SELECT sqlstreams.produce('alone', '1') FROM generate_series(1, 10)) p;} . "\n");
$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_locks WHERE NOT granted});
$open->query_safe('COMMIT');
is($waiter->query_safe('SELECT 1'), "produced 10\n1", 'without workers: whoever waits goes on after the commit');
$waiter->quit;
$open->quit;
is(sql($node, q{SELECT count(*) FROM sqlstreams.claim('alone', 'g', 100000)}), 20, 'without workers: all arrive again');

produce_in_the_way('blocked_alone', 'without workers');

# slots taken by others
$node->append_conf('postgresql.conf', 'max_worker_processes = 1');
$node->restart;
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'logical replication launcher'});
produce_at_boundaries('taken', 'with every slot taken');

done_testing();
