# CALL maintain() where there is no worker: it does everything, by itself or as part of a transaction, of the streams that the caller may maintain.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

# not one background process
my $node = new_node('main', "max_worker_processes = 0\nmax_logical_replication_workers = 0\n");

# Makes a stream, as a role, with two full partitions whose messages have expired, if time has passed, and a third one begun.
sub make_stream
{
	my ($stream, $role) = @_;

	sql($node, qq{SET ROLE $role; SELECT sqlstreams.create_stream('$stream', partition_size => 2, retention => '1 hour', idempotency_key_ttl => '1 hour')});
	sql($node, qq{SET ROLE $role; SELECT sqlstreams.produce_batch('$stream', '{1,2,3,4,5}', idempotency_keys => '{a,b,c,d,e}')});
}

sub let_time_pass
{
	sql($node, q{UPDATE sqlstreams.log_partition SET created_at = created_at - interval '1 day', sealed_at = sealed_at - interval '1 day';
		UPDATE sqlstreams.stream SET idempotency_since = idempotency_since - interval '1 day'});
}

# Which partitions a stream has, by their first ids.
sub partitions
{
	my ($stream) = @_;

	return sql($node, "SELECT string_agg(from_id::text, ' ' ORDER BY from_id) FROM sqlstreams.partitions WHERE stream = '$stream'");
}

sub notices
{
	my ($query) = @_;
	my ($status, $stdout, $stderr) = $node->psql('postgres', $query);

	return $stderr =~ s/^psql:<stdin>:\d+: //mgr;
}

sql($node, q{CREATE ROLE alice; CREATE ROLE bob; CREATE ROLE manager; CREATE ROLE stranger; GRANT EXECUTE ON FUNCTION sqlstreams.create_stream TO alice, bob});
make_stream('a', 'alice');
make_stream('b', 'bob');
is(partitions('a'), '1 3 5', 'nobody maintains the streams');
is(sqlstate($node, 'SELECT sqlstreams.start_worker()'), 'SS007', 'there is no slot for a worker');

# by one who owns some streams, by one who owns none, by the owner of the database
is(notices('SET ROLE alice; CALL sqlstreams.maintain()'), 'NOTICE:  skipped 1 stream that the current role does not own', 'by the owner of a stream: a notice of the others');
is(partitions('a'), '1 3 5 7 9', 'by the owner of a stream: partitions are made ahead');
is(partitions('b'), '1 3 5', 'by the owner of a stream: not of another');
is(notices('SET ROLE stranger; CALL sqlstreams.maintain()'), 'NOTICE:  skipped 2 streams that the current role does not own', 'by a stranger');
is(partitions('b'), '1 3 5', 'by a stranger: nothing is done');
sql($node, 'ALTER DATABASE postgres OWNER TO manager');
is(notices('SET ROLE manager; CALL sqlstreams.maintain()'), '', 'by the owner of the database: no notice');
is(partitions('b'), '1 3 5 7 9', 'by the owner of the database: all streams');
is(sql($node, q{SELECT string_agg(tableowner, ' ' ORDER BY tablename) FROM pg_tables WHERE tablename ~ '_4$'}), 'alice bob', 'by the owner of the database: what is made belongs to the streams\' owners');

# everything
let_time_pass();
is(notices('CALL sqlstreams.maintain()'), '', 'by a superuser');
is(join(', ', map { partitions($_) } 'a', 'b'), '5 7 9, 5 7 9', 'expired messages are dropped');
for my $pass (1 .. 4)
{
	let_time_pass();
	sql($node, 'CALL sqlstreams.maintain()');
}
is(sql($node, q{SELECT sqlstreams.produce('a', '6', idempotency_key => 'a')}), 6, 'keys are forgotten');

# in a transaction block, and from a function
make_stream($_, 'alice') for 'block', 'function';
like(notices('BEGIN; CALL sqlstreams.maintain(); COMMIT'), qr/^NOTICE:  some maintenance was left out\n/, 'in a transaction block: a notice of what it leaves');
is(partitions('block'), '1 3 5', 'in a transaction block: tables are neither made nor dropped');
let_time_pass();
sql($node, q{CREATE FUNCTION tidy() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CALL sqlstreams.maintain(); END $$});
notices('BEGIN; SELECT tidy(); ROLLBACK');
is(sql($node, q{SELECT count(*) FROM sqlstreams.peek('function')}), 5, 'from a function: it is part of the transaction');
like(notices('SELECT tidy()'), qr/^NOTICE:  some maintenance was left out\n/, 'from a function: a notice of what it leaves');
is(sql($node, q{SELECT string_agg(message_id::text, ' ') FROM sqlstreams.peek('function')}), '5', 'from a function: expired messages go');
is(notices('CALL sqlstreams.maintain()'), '', 'by itself again');
is(partitions('function'), '5 7 9', 'by itself again: with their partitions');

# what fails is a warning, and the rest is done
my $id = sql($node, q{SELECT stream_id FROM sqlstreams.streams WHERE stream = 'a'});
sql($node, q{SELECT sqlstreams.produce_batch('a', '{7,8,9}'), sqlstreams.produce_batch('b', '{6,7,8,9}')});
sql($node, "CREATE TABLE sqlstreams.message_log_${id}_6 (a int)");
like(notices('CALL sqlstreams.maintain()'), qr/^WARNING:  table "message_log_${id}_6" is not a partition of its log\nHINT:  [^\n]*$/, 'what fails is a warning');
like(partitions('b'), qr/ 13$/, 'and the other streams are done');

# one that somebody is changing
my $session = session($node);
$session->query_safe('BEGIN');
$session->query_safe(q{SELECT sqlstreams.alter_stream('b', retention => '2 hours')});
sql($node, q{SELECT sqlstreams.produce_batch('b', '{10,11}')});
is(notices("DROP TABLE sqlstreams.message_log_${id}_6; CALL sqlstreams.maintain()"), '', 'a stream that is being changed is left out');
like(partitions('a'), qr/ 13$/, 'and the others are done');
$session->query_safe('ROLLBACK');
$session->quit;

# refused
is(sqlstate($node, 'BEGIN READ ONLY; CALL sqlstreams.maintain()'), '25006', 'a read-only transaction');

done_testing();
