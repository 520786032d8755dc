# One stream's maintenance fails, in several ways: the others go on, it is logged once, stands in view workers, and is over when its reason is.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $node = new_node('main', "shared_preload_libraries = 'sqlstreams'\nsqlstreams.worker = on\nallow_system_table_mods = on\n");

# Makes a stream with two full partitions, a third one begun, and no maintenance yet.
sub make_stream
{
	my ($stream) = @_;
	my $id = sql($node, "SELECT sqlstreams.create_stream('$stream', partition_size => 2, retention => '1 second')");

	sql($node, "SELECT sqlstreams.suspend_maintenance('$stream')");
	sql($node, "SELECT sqlstreams.produce_batch('$stream', '{1,2,3,4,5}')");
	return $id;
}

# Waits until the full partitions of a stream are gone, and the next two are there.
sub is_maintained
{
	my ($stream, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', "SELECT min(from_id) >= 5 AND max(from_id) >= 9 FROM sqlstreams.partitions WHERE stream = '$stream'"), $name);
}

# What breaks the maintenance of a stream with the id $1, what it says, and what ends that.
my %failures = (
	view => {
		break => 'CREATE VIEW on_partition AS SELECT * FROM sqlstreams.message_log_$1_0',
		error => qr{cannot drop table sqlstreams\.message_log_\d+_0 because other objects depend on it},
		repair => 'DROP VIEW on_partition' },
	event_trigger => {
		break => q{CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS $f$ BEGIN
			IF EXISTS (SELECT FROM pg_event_trigger_dropped_objects() WHERE object_name = 'message_log_$1_0') THEN RAISE 'not this one'; END IF; END $f$;
			CREATE EVENT TRIGGER refuse ON sql_drop EXECUTE FUNCTION refuse()},
		error => qr{not this one},
		repair => 'DROP EVENT TRIGGER refuse' },
	name => {
		break => 'CREATE TABLE sqlstreams.message_log_$1_4 (a int)',
		error => qr{table "message_log_\d+_4" is not a partition of its log},
		repair => 'DROP TABLE sqlstreams.message_log_$1_4' },
	owner => {
		break => q{CREATE ROLE gone; ALTER TABLE sqlstreams.message_log_$1 OWNER TO gone;
			CREATE TABLE saved AS SELECT * FROM pg_authid WHERE rolname = 'gone'; DELETE FROM pg_authid WHERE rolname = 'gone'},
		error => qr{invalid role OID},
		repair => 'INSERT INTO pg_authid SELECT * FROM saved' });

my $good = make_stream('good');
sql($node, q{SELECT sqlstreams.resume_maintenance('good')});
is_maintained('good', 'a stream without failures');
my $pid = worker_pid($node);

for my $failure (sort keys %failures)
{
	my $id = make_stream($failure);
	my ($break, $error, $repair) = @{ $failures{$failure} }{qw(break error repair)};

	s/\$1/$id/g for $break, $repair;
	sql($node, $break);
	sql($node, "SELECT sqlstreams.resume_maintenance('$failure')");
	ok($node->poll_query_until('postgres', qq{SELECT error LIKE 'stream "$failure": %' FROM sqlstreams.workers}), "$failure: the error stands in view workers");

	# another stream
	my $last = sql($node, q{SELECT max(id) FROM sqlstreams.produce_batch('good', '{6,7,8,9}') id});
	ok($node->poll_query_until('postgres', "SELECT min(from_id) > $last - 3 AND max(from_id) > $last FROM sqlstreams.partitions WHERE stream = 'good'"), "$failure: another stream goes on");

	my $since = sql($node, 'SELECT clock_timestamp()');
	ok($node->poll_query_until('postgres', qq{SELECT error LIKE 'stream "$failure": %' AND error_at > '$since' FROM sqlstreams.workers}), "$failure: it is tried again");
	my %times;
	$times{$_}++ for slurp_file($node->logfile) =~ /(maintenance of stream "$failure" failed: [^\n]*)/g;
	is(join(', ', grep { $times{$_} > 1 || !/$error/ } keys %times), '', "$failure: it is logged once");
	cmp_ok(keys %times, '>', 0, "$failure: it is logged");

	sql($node, $repair);
	is_maintained($failure, "$failure: it is over with its reason");
	ok($node->poll_query_until('postgres', 'SELECT error IS NULL AND error_at IS NULL FROM sqlstreams.workers'), "$failure: the error stands no more");
	ok(slurp_file($node->logfile) =~ /LOG: +maintenance of stream "$failure" goes on/, "$failure: the log says so");
}

# a lock is no failure
make_stream('locked');
my $reader = session($node);
$reader->query_safe('BEGIN');
$reader->query_safe(sprintf 'SELECT count(*) FROM sqlstreams.%s', sql($node, q{SELECT min(partition) FROM sqlstreams.partitions WHERE stream = 'locked'}));
my $reader_pid = $reader->query_safe('SELECT pg_backend_pid()');
sql($node, q{SELECT sqlstreams.resume_maintenance('locked')});
ok($node->poll_query_until('postgres', qq{SELECT count(*) = 1 FROM sqlstreams.partitions WHERE stream = 'locked' AND state = 'purged' AND held_by ~ '$reader_pid'}), 'lock: partitions shows who holds one');
my $last = sql($node, q{SELECT max(id) FROM sqlstreams.produce_batch('good', '{6,7,8,9}') id});
ok($node->poll_query_until('postgres', "SELECT min(from_id) > $last - 3 AND max(from_id) > $last FROM sqlstreams.partitions WHERE stream = 'good'"), 'lock: another stream goes on');
is(sql($node, q{SELECT error IS NULL FROM sqlstreams.workers}), 't', 'lock: that is no error');
$reader->query_safe('COMMIT');
$reader->quit;
is_maintained('locked', 'lock: it is over with its reason');
is(worker_pid($node), $pid, 'the worker has survived all that');

done_testing();
