# The worker is out of the way of whoever wants its database, while it is busy: each command succeeds within the five seconds that PostgreSQL waits
# for others to leave a database, and what is left of the work is done afterwards.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $partitions = 150;
my $node = new_node('main', "shared_preload_libraries = 'sqlstreams'\nsqlstreams.worker = on\nsqlstreams.naptime = '1h'\n"
	  . "allow_in_place_tablespaces = on\nlog_min_messages = debug1\nfsync = off\n");

# a template, which has no worker, with many partitions that are to be dropped at once
sql($node, 'CREATE DATABASE busy IS_TEMPLATE true');
sql($node, q{CREATE EXTENSION sqlstreams; CREATE ROLE streamer;
	SELECT sqlstreams.create_stream('s', partition_size => 2, retention => '1 second'), sqlstreams.create_stream('untouched')}, 'busy');
sql($node, "SELECT count(*) FROM sqlstreams.produce_batch('s', array_fill('1'::jsonb, ARRAY[2 * $partitions]))", 'busy');
sql($node, q{SELECT sqlstreams.create_stream('kept', partition_size => 2, retention => '1 second'), sqlstreams.suspend_maintenance('kept');
	SELECT count(*) FROM sqlstreams.produce_batch('kept', array_fill('1'::jsonb, ARRAY[19]))}, 'busy');
is(sql($node, q{SELECT partitions FROM sqlstreams.streams WHERE stream = 's'}, 'busy'), $partitions, 'a template with much to do');

# Makes a database and waits until its worker is at work; on a fast machine it can be done by then.
sub make_busy
{
	my ($database) = @_;

	sql($node, "CREATE DATABASE $database TEMPLATE busy");
	$node->poll_query_until('postgres', "SELECT state = 'working' OR last_turn IS NOT NULL FROM sqlstreams.workers WHERE database = '$database'")
	  or die "the worker of $database is not at work";
}

# Waits until the worker has done what was to do in a database.
sub is_done
{
	my ($database, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until($database, q{SELECT partitions < 5 FROM sqlstreams.streams WHERE stream = 's'}), "$name: the worker goes on");
}

sub succeeds
{
	my ($command, $name, $database) = @_;
	my ($status, $stdout, $stderr) = $node->psql($database // 'postgres', $command);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($stderr, '', $name);
	return is($status, 0, "$name: it succeeds");
}

# commands that want the database for themselves
make_busy('dropped');
succeeds('DROP DATABASE dropped', 'DROP DATABASE');

make_busy('original');
sql($node, 'CREATE DATABASE other');
succeeds('DROP DATABASE other', 'DROP DATABASE, of another one');
succeeds('CREATE DATABASE cloned TEMPLATE original', 'CREATE DATABASE ... TEMPLATE');
is_done($_, "CREATE DATABASE ... TEMPLATE: $_") for 'original', 'cloned';

make_busy('named');
succeeds('ALTER DATABASE named RENAME TO renamed', 'ALTER DATABASE ... RENAME');
is_done('renamed', 'ALTER DATABASE ... RENAME');
is(sql($node, q{SELECT count(*) FROM sqlstreams.workers WHERE database = 'renamed'}), 1, 'ALTER DATABASE ... RENAME: view workers shows the new name');

sql($node, q{CREATE TABLESPACE there LOCATION ''});
make_busy('moved');
succeeds('ALTER DATABASE moved SET TABLESPACE there', 'ALTER DATABASE ... SET TABLESPACE');
is_done('moved', 'ALTER DATABASE ... SET TABLESPACE');

# a worker that sleeps, for an hour
succeeds('DROP DATABASE moved', 'DROP DATABASE, when the worker sleeps');
succeeds('CREATE DATABASE moved TEMPLATE renamed', 'CREATE DATABASE ... TEMPLATE, when the worker sleeps');
sql($node, 'DROP TABLESPACE there');

# commands inside of the database
make_busy('emptied');
is(sqlstate($node, 'DROP EXTENSION sqlstreams', 'emptied'), '2BP01', 'DROP EXTENSION is refused while there are streams');
succeeds(q{SELECT sqlstreams.drop_stream(stream) FROM sqlstreams.streams; DROP EXTENSION sqlstreams}, 'DROP EXTENSION', 'emptied');
set_and_reload($node, 'sqlstreams.naptime', q{'1s'});
has_no_worker($node, 'emptied', 'DROP EXTENSION: the worker goes when it looks');
set_and_reload($node, 'sqlstreams.naptime', q{'1h'});

make_busy('owned');
succeeds(q{ALTER TABLE sqlstreams.message_log_1 OWNER TO streamer}, 'ALTER TABLE ... OWNER TO', 'owned');
succeeds(q{REASSIGN OWNED BY streamer TO CURRENT_USER}, 'REASSIGN OWNED', 'owned');
is_done('owned', 'REASSIGN OWNED');
sql($node, q{ALTER TABLE sqlstreams.message_log_2 OWNER TO streamer}, 'owned');
is(sql($node, q{SELECT sqlstreams.produce('untouched', '1')}, 'owned'), 1, 'ALTER TABLE ... OWNER TO: the stream works');
succeeds('DROP OWNED BY streamer CASCADE', 'DROP OWNED', 'owned');
is(sqlstate($node, q{SELECT sqlstreams.produce('untouched', '1')}, 'owned'), '55000', 'DROP OWNED: the log is gone');
sql($node, q{SELECT sqlstreams.drop_stream('untouched')}, 'owned');
is(sql($node, q{SELECT sqlstreams.produce_batch('s', '{1,2,3,4}'); SELECT error FROM sqlstreams.workers WHERE database = 'owned'}, 'owned') =~ /\n$/, 1, 'DROP OWNED: the worker has no trouble with it');

# partitions
make_busy('parted');
succeeds('ALTER TABLE sqlstreams.message_log_3 DETACH PARTITION sqlstreams.message_log_3_5', 'DETACH PARTITION', 'parted');
sql($node, q{SELECT sqlstreams.resume_maintenance('kept')}, 'parted');
succeeds("VACUUM FULL sqlstreams.$_", "VACUUM FULL $_", 'parted') for 'message_log_1', 'message_log_2_0';
is(sql($node, q{SELECT sqlstreams.produce('untouched', '1')}, 'parted'), 1, 'a first message wakes the worker');
ok($node->poll_query_until('parted', q{SELECT partitions < 5 FROM sqlstreams.streams WHERE stream = 'kept'}), 'DETACH PARTITION: the others go');
is_done('parted', 'DETACH PARTITION, VACUUM FULL');
is(sql($node, 'SELECT count(*) FROM sqlstreams.message_log_3_5', 'parted'), 2, 'DETACH PARTITION: the table is left alone');
is(sql($node, q{SELECT error FROM sqlstreams.workers WHERE database = 'parted'}), '', 'DETACH PARTITION, VACUUM FULL: no error');

# pg_upgrade
ok(slurp_file($node->logfile) =~ /sqlstreams worker of database/, 'the log tells when a worker starts');
$node->stop;
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init;
my $bindir = $node->config_data('--bindir');
chdir PostgreSQL::Test::Utils::tempdir() or die;
command_ok([ 'pg_upgrade', '--check', '--retain', '--old-datadir', $node->data_dir, '--new-datadir', $new->data_dir, '--old-bindir', $bindir, '--new-bindir', $bindir,
	'--old-port', $node->port, '--new-port', $new->port, '--socketdir', $node->host ], 'pg_upgrade --check');
my $logs = join '', map { slurp_file($_) } grep { -f } glob($new->data_dir . '/pg_upgrade_output.d/*/log/*');
like($logs, qr/server started/, 'pg_upgrade --check: it has left its logs');
unlike($logs, qr/sqlstreams (worker|launcher)/, 'pg_upgrade --check: no worker');

done_testing();
