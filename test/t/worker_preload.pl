# Where the library is preloaded: a worker for each database that has the extension, as databases, extensions and settings come and go.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $databases = 50;
my $node = new_node('main', "shared_preload_libraries = 'sqlstreams'\nsqlstreams.worker = on\nmax_worker_processes = 8\nfsync = off\n");

sub stop_ok
{
	my ($mode) = @_;

	$node->command_ok([ 'pg_ctl', '--pgdata', $node->data_dir, '--mode', $mode, '--wait', '--timeout', 10, 'stop' ], "$mode shutdown does not wait for the worker");
	$node->_update_pid(0);
	$node->start;
	has_worker($node, 'postgres', "after a $mode shutdown and a start it is back, without being asked");
}

# extensions
sql($node, q{SELECT sqlstreams.create_stream('s')});
has_worker($node, 'postgres', 'a worker in the database with the extension');
is(sql($node, q{SELECT state IN ('idle', 'working'), error FROM sqlstreams.workers WHERE database = 'postgres' AND last_turn IS NOT NULL}), 't|', 'it shows in view workers');
sql($node, q{SELECT sqlstreams.drop_stream('s'); DROP EXTENSION sqlstreams});
has_no_worker($node, 'postgres', 'DROP EXTENSION: it goes');
sql($node, q{CREATE EXTENSION sqlstreams; SELECT sqlstreams.create_stream('s')});
has_worker($node, 'postgres', 'CREATE EXTENSION and a stream: it comes');

# databases
sql($node, 'CREATE DATABASE plain');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM sqlstreams.workers WHERE database = 'plain'}), 'none in a database without the extension');
sql($node, 'CREATE EXTENSION sqlstreams', 'template1');
sql($node, 'CREATE DATABASE cloned');
has_worker($node, 'cloned', 'CREATE DATABASE from a template with the extension: one comes, without being asked');
has_no_worker($node, 'template1', 'none in a template');
sql($node, 'DROP DATABASE cloned');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM sqlstreams.workers WHERE database NOT IN ('postgres')}), 'DROP DATABASE: it goes, and so does its row');

# settings, without a restart
set_and_reload($node, 'sqlstreams.naptime', q{'1h'});
ok($node->poll_query_until('postgres', q{SELECT next_turn = last_turn + '1 hour' FROM sqlstreams.workers}), 'naptime: the next turn is that far');
set_and_reload($node, 'sqlstreams.naptime', q{'100ms'});
ok($node->poll_query_until('postgres', q{SELECT next_turn <= last_turn + '100 ms' FROM sqlstreams.workers}), 'naptime: and near again, at once');
set_and_reload($node, 'sqlstreams.worker', 'off');
has_no_worker($node, 'postgres', 'worker = off: it goes');
is(sql($node, q{SELECT sqlstreams.produce('s', '1'); SELECT count(*) FROM sqlstreams.workers}), "1\n0", 'worker = off: no use starts one');
set_and_reload($node, 'sqlstreams.worker', 'on');
has_worker($node, 'postgres', 'worker = on: it comes');
sql($node, 'CREATE DATABASE "Odd, name"');
has_worker($node, 'Odd, name', 'a second worker');
set_and_reload($node, 'sqlstreams.databases', q{'nosuch, "Odd, name"'});
has_no_worker($node, 'postgres', 'databases: one that is not listed loses its worker');
has_worker($node, 'Odd, name', 'databases: one that is keeps it');
is(sqlstate($node, q{ALTER SYSTEM SET sqlstreams.databases = 'a,,b'}), '22023', 'databases: what is no list is refused');
set_and_reload($node, 'sqlstreams.databases', q{'postgres'});
has_worker($node, 'postgres', 'databases: and gets it back');
has_no_worker($node, 'Odd, name', 'databases: the other one loses it');
sql($node, 'DROP DATABASE "Odd, name"');
sql($node, 'ALTER SYSTEM RESET ALL');

# shutdown, while the worker sleeps for long
for my $mode ('fast', 'smart')
{
	set_and_reload($node, 'sqlstreams.naptime', q{'1h'});
	ok($node->poll_query_until('postgres', q{SELECT next_turn = last_turn + '1 hour' FROM sqlstreams.workers}), "the worker sleeps for an hour");
	stop_ok($mode);
}
sql($node, 'ALTER SYSTEM RESET ALL');
$node->reload;

# many databases, few slots; each has a message, whose partition is to be ended, sealed and, half a minute later, dropped
sql($node, q{SELECT sqlstreams.create_stream('s', partition_interval => '1 millisecond', retention => '20 seconds'), sqlstreams.produce('s', '1')}, 'template1');
sql($node, join(";\n", map { "CREATE DATABASE d$_" } 1 .. $databases));
ok($node->poll_query_until('postgres', "SELECT count(*) = $databases FROM sqlstreams.workers WHERE database LIKE 'd%' AND last_turn IS NOT NULL"),
	"$databases databases, 8 slots: all get their turn");
my $done = grep { $node->poll_query_until("d$_", q{SELECT count(*) = 0 FROM sqlstreams.peek('s')}) } 1 .. $databases;
is($done, $databases, 'and another one when something is due');
like(sql($node, q{SELECT sqlstreams.create_stream('t', partition_size => 2); SELECT count(*) FROM (SELECT sqlstreams.produce('t', '1') FROM generate_series(1, 9)) p}, 'd7'),
	qr/\n9$/, 'there is a slot left for what a producer needs at once');
stop_ok('fast');

done_testing();
