# A dump is restored while the worker is at work in the database: it drops nothing before all is there, and everything goes on afterwards.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $node = new_node('main', "shared_preload_libraries = 'sqlstreams'\nsqlstreams.naptime = '100ms'\nfsync = off\n");
my $dir = PostgreSQL::Test::Utils::tempdir();

# all of it has expired; a group needs the half of "held", and nobody needs "free"
sql($node, q{SELECT sqlstreams.create_stream(s, partition_size => 100, retention => '1 millisecond') FROM unnest('{held,free}'::text[]) s});
sql($node, q{SELECT sqlstreams.create_group('held', 'g')});
sql($node, qq{SELECT count(*) FROM sqlstreams.produce_batch('$_', array_fill(to_jsonb(repeat('x', 1000)), ARRAY[2000]), idempotency_keys => (SELECT array_agg(i::text) FROM generate_series(1, 2000) i))}) for 'held', 'free';
my $claim = sql($node, q{SELECT DISTINCT claim_id FROM sqlstreams.claim('held', 'g', 1000, '1 hour')});
sql($node, q{UPDATE sqlstreams.log_partition SET sealed_at = '2001-01-01' WHERE number < 20});
my %files = map { $_ => "$dir/$_" } 'plain', 'custom';
$node->command_ok([ 'pg_dump', "--format=$_", '--file', $files{$_}, $node->connstr('postgres') ], "$_: pg_dump") for sort keys %files;

# the worker is there before the restore begins
set_and_reload($node, 'sqlstreams.worker', 'on');
sub new_database
{
	my ($database) = @_;

	sql($node, "CREATE DATABASE $database");
	sql($node, 'CREATE EXTENSION sqlstreams; SELECT count(*) FROM sqlstreams.workers', $database);
	has_worker($node, $database, "$database: the worker is there before the restore");
}

# Waits until a worker has looked at all there is: a new one, which has put nothing off.
sub has_looked
{
	my ($database) = @_;
	my $pid = worker_pid($node, $database);

	sql($node, "SELECT pg_terminate_backend($pid)");
	$node->poll_query_until('postgres', "SELECT pid <> $pid AND last_turn IS NOT NULL FROM sqlstreams.workers WHERE database = '$database'") or die 'the worker does not come back';
}

sub goes_on
{
	my ($database) = @_;

	is(sql($node, q{SELECT purged_through FROM sqlstreams.stream WHERE stream_name = 'held'}, $database), 0, "$database: what a group needs is kept");
	is(sql($node, q{SELECT count(*) FROM sqlstreams.peek('held', 1, 5000)}, $database), 2000, "$database: all of it");
	ok($node->poll_query_until($database, q{SELECT purged_through >= 1900 FROM sqlstreams.stream WHERE stream_name = 'free'}), "$database: what nobody needs is dropped");
	is(sql($node, "SELECT sqlstreams.ack('held', 'g', $claim)", $database), 1000, "$database: a claim goes on");
	ok($node->poll_query_until($database, q{SELECT count(*) = 0 FROM sqlstreams.partitions WHERE stream = 'held' AND to_id <= 1000}), "$database: what was resolved is dropped");
	is(sql($node, q{SELECT min(message_id), count(*) FROM sqlstreams.claim('held', 'g', 5000)}, $database), '1001|1000', "$database: the cursor goes on");
	is(sql($node, q{SELECT sqlstreams.produce('held', '1', idempotency_key => '7')}, $database), 0, "$database: keys are known");
	ok($node->poll_query_until($database, q{SELECT max(to_id) >= 2200 FROM sqlstreams.partitions WHERE stream = 'held'}), "$database: partitions are made ahead");
	is(sql($node, "SELECT error FROM sqlstreams.workers WHERE database = '$database'"), '', "$database: no error");
}

new_database('plain');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $files{plain}, $node->connstr('plain') ], 'plain: psql');
goes_on('plain');

new_database('custom');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--jobs=2', '--dbname', $node->connstr('custom'), $files{custom} ], 'custom: pg_restore in two jobs');
goes_on('custom');

# in the worst order: the worker looks around after each part
new_database('parts');
my ($list) = run_command([ 'pg_restore', '--list', $files{custom} ]);
my @entries = grep { !/^;/ } split /\n/, $list;
my %parts = map { $_ => [] } 1 .. 7;
for my $entry (@entries)
{
	# a table's keys are made after its rows have come, and nothing else is sure
	my $part =
	    $entry =~ /TABLE DATA sqlstreams (stream|log_partition) / ? 2
	  : $entry =~ /TABLE DATA sqlstreams message_log|SEQUENCE SET/ ? 3
	  : $entry =~ /(CONSTRAINT|INDEX|INDEX ATTACH) sqlstreams message_log/ ? 4
	  : $entry =~ /TABLE DATA sqlstreams consumer_group/ ? 7
	  : $entry =~ /TABLE DATA/ ? 5
	  : $entry =~ /INDEX|CONSTRAINT|TRIGGER/ ? 6
	  : 1;
	push @{ $parts{$part} }, $entry;
}
for my $part (sort keys %parts)
{
	append_to_file("$dir/list$part", join '', map { "$_\n" } @{ $parts{$part} });
	$node->command_ok([ 'pg_restore', '--exit-on-error', '--use-list', "$dir/list$part", '--dbname', $node->connstr('parts'), $files{custom} ], "parts: part $part");
	has_looked('parts');
}
goes_on('parts');

done_testing();
