# The worker is terminated, cancelled, killed, and finds the disk full: it comes back, and what it had begun is done.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my %nodes = map { $_ => new_node($_, "sqlstreams.worker = on\n" . ($_ eq 'preloaded' ? "shared_preload_libraries = 'sqlstreams'\n" : ''), extra => [ '--wal-segsize', 1 ]) } 'preloaded', 'loaded';

# Waits until another process than this is the worker.
sub comes_back
{
	my ($node, $pid, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'sqlstreams worker' AND datname = 'postgres' AND pid <> $pid"), "$name: it comes back");
}

# Produces, and waits until the worker has done what follows from that.
sub works
{
	my ($node, $name) = @_;
	my $last = sql($node, q{SELECT max(id) FROM sqlstreams.produce_batch('s', '{1,2,3,4}') id});

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', "SELECT min(from_id) > $last - 3 AND max(from_id) > $last FROM sqlstreams.partitions WHERE stream = 's'"), "$name: it works");
}

for my $kind (sort keys %nodes)
{
	my $node = $nodes{$kind};

	sql($node, q{SELECT sqlstreams.create_stream('s', partition_size => 2, retention => '1 second')});
	works($node, "$kind, at first");
	for my $time (1 .. 3)
	{
		my $pid = worker_pid($node);

		sql($node, "SELECT pg_terminate_backend($pid)");
		comes_back($node, $pid, "$kind, terminated $time");
	}
	works($node, "$kind, terminated");

	sql($node, 'SELECT pg_cancel_backend(' . worker_pid($node) . ')');
	works($node, "$kind, cancelled");
	has_worker($node, 'postgres', "$kind, cancelled: it is there");

	# in the middle of a step: the statement that drops a partition waits
	sql($node, q{CREATE FUNCTION linger() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN IF current_setting('application_name') = '' THEN PERFORM pg_sleep(600); END IF; END $$;
		CREATE EVENT TRIGGER linger ON sql_drop EXECUTE FUNCTION linger()});
	my $last = sql($node, q{SELECT max(id) FROM sqlstreams.produce_batch('s', '{1,2,3,4}') id});
	ok($node->poll_query_until('postgres', q{SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE backend_type = 'sqlstreams worker'}), "$kind: it is in the middle of a step");
	is(sql($node, q{SELECT state, last_action IS NOT NULL FROM sqlstreams.workers}), 'working|t', "$kind: view workers says so");
	sql($node, 'ALTER EVENT TRIGGER linger DISABLE');
	my $pid = worker_pid($node);
	kill 'KILL', $pid;
	wait_until_up($node);
	sql($node, 'SELECT count(*) FROM sqlstreams.workers');
	comes_back($node, $pid, "$kind, killed");
	ok($node->poll_query_until('postgres', "SELECT min(from_id) > $last - 3 FROM sqlstreams.partitions WHERE stream = 's'"), "$kind, killed: the step is done");
	works($node, "$kind, killed");

	# shutdown in the middle of a step
	for my $mode ('fast', 'smart')
	{
		sql($node, 'ALTER EVENT TRIGGER linger ENABLE');
		sql($node, q{SELECT max(id) FROM sqlstreams.produce_batch('s', '{1,2,3,4}') id});
		ok($node->poll_query_until('postgres', q{SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE backend_type = 'sqlstreams worker'}), "$kind: it is in the middle of a step");
		sql($node, 'ALTER EVENT TRIGGER linger DISABLE');
		$node->command_ok([ 'pg_ctl', '--pgdata', $node->data_dir, '--mode', $mode, '--wait', '--timeout', 10, 'stop' ], "$kind: a $mode shutdown waits for none");
		$node->_update_pid(0);
		$node->start;
		works($node, "$kind, after a $mode shutdown");
	}
}

# The disk is full for the worker: its files end at the size of a WAL segment, which a catalog is made to reach.
my $node = $nodes{preloaded};
my $pid = worker_pid($node);
sql($node, 'CREATE TABLE wide' . $_ . ' (' . join(', ', map { "a$_ int" } 1 .. 1500) . ')') for 1 .. 4;
cmp_ok(sql($node, q{SELECT pg_relation_size('pg_attribute')}), '>', 1024 * 1024, 'a catalog is large');
run_log([ 'prlimit', '--pid', $pid, '--fsize=' . 1024 * 1024 . ':' ]) or die 'could not limit the size of files';
my $last = sql($node, q{SELECT max(id) FROM sqlstreams.produce_batch('s', ARRAY(SELECT '1'::jsonb FROM generate_series(1, 40))) id});
ok($node->poll_query_until('postgres', q{SELECT error ~ 'could not extend file' FROM sqlstreams.workers}), 'disk full: the error stands in view workers');
is(sql($node, q{SELECT sqlstreams.produce('s', '1')}) > $last, 1, 'disk full: producers go on');
is(worker_pid($node), $pid, 'disk full: the worker lives');
run_log([ 'prlimit', '--pid', $pid, '--fsize=unlimited:' ]) or die 'could not lift the limit';
works($node, 'disk full no more');
ok($node->poll_query_until('postgres', 'SELECT error IS NULL FROM sqlstreams.workers'), 'disk full no more: no error stands');
is(worker_pid($node), $pid, 'disk full no more: the worker is the same');

done_testing();
