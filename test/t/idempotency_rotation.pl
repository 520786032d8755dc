# The rotation of idempotency keys goes on in each phase after a crash, in a restored dump on another server and in a copy of the
# database: keys are known, prepared producers are waited for, those that a crash has ended are not.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $node = new_node('main');
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';

sub phases
{
	my ($of, $database) = @_;

	return sql($of, q{SELECT string_agg(stream_name || ' ' || idempotency_phase || coalesce(' ' || cardinality(idempotency_waits_for), ''), ', ' ORDER BY stream_id) FROM sqlstreams.stream}, $database);
}

# Which of these keys are known to a stream?
sub known
{
	my ($of, $stream, $keys, $database) = @_;

	return sql($of, qq{SELECT string_agg(k, ' ' ORDER BY k) FROM unnest(string_to_array('$keys', ' ')) k WHERE sqlstreams.produce('$stream', '0', idempotency_key => k) = 0}, $database);
}

sql($node, qq{SELECT sqlstreams.create_stream('$_'), sqlstreams.produce('$_', '1', idempotency_key => 'before')}) for qw(one both probe lost);
sql($node, q{UPDATE sqlstreams.stream SET idempotency_since = clock_timestamp() - interval '2 days' WHERE stream_name <> 'one'});
sql($node, q{BEGIN; SELECT sqlstreams.produce('both', '2', idempotency_key => 'prepared'); PREPARE TRANSACTION 'holder'});
my $open = session($node);
$open->query_safe('BEGIN');
$open->query_safe(q{SELECT sqlstreams.produce('lost', '2', idempotency_key => 'open')});
sql($node, 'CALL sqlstreams.maintain()');
is(phases($node), 'one one, both both 1, probe probe, lost both 1', 'a stream in each phase');
sql($node, qq{SELECT sqlstreams.produce('$_', '3', idempotency_key => 'after')}) for qw(one both probe lost);
$node->command_ok([ 'pg_dump', '--format=custom', '--file', $dump, $node->connstr('postgres') ], 'pg_dump');

# a crash
$node->stop('immediate');
$node->start;
is(phases($node), 'one one, both both 1, probe probe, lost both 1', 'a crash changes no phase');
sql($node, 'CALL sqlstreams.maintain()');
is(phases($node), 'one one, both both 1, probe probe, lost probe', 'a prepared producer is waited for, not one that the crash has ended');
is(known($node, $_, 'before after new'), 'after before', "stream $_ knows its keys") for qw(one both probe lost);
is(known($node, 'lost', 'open'), '', 'the key of the producer that the crash has ended is free');
is(sqlstate($node, q{SET lock_timeout = '10ms'; SELECT sqlstreams.produce('both', '4', idempotency_key => 'prepared')}), '55P03', 'that of the prepared one is taken');
sql($node, q{COMMIT PREPARED 'holder'});

# a copy of the database, made before anybody has seen that the prepared producer has ended
$node->safe_psql('template1', 'CREATE DATABASE copied TEMPLATE postgres');
for my $database (qw(postgres copied))
{
	sql($node, 'CALL sqlstreams.maintain()', $database);
	is(phases($node, $database), 'one one, both probe, probe probe, lost probe', "$database: when it has ended the next phase begins");
	is(known($node, 'both', 'before after prepared new newer', $database), 'after before new prepared', "$database: every key is known");
	sql($node, q{UPDATE sqlstreams.stream SET idempotency_since = clock_timestamp() - interval '2 days'}, $database);
	sql($node, 'CALL sqlstreams.maintain()', $database);
	is(phases($node, $database), 'one probe, both probe, probe probe, lost probe', "$database: all rotate");
	is(sql($node, q{SELECT string_agg(idempotency_generation::text, ' ' ORDER BY stream_id) FROM sqlstreams.stream}, $database), '2 3 3 3', "$database: those that can have dropped a table");
	is(known($node, $_, 'after', $database), 'after', "$database: stream $_ knows what is not over") for qw(one both probe lost);
}

# another server
my $other = new_node('other');
sql($other, 'DROP EXTENSION sqlstreams');
$other->command_ok([ 'pg_restore', '--exit-on-error', '--dbname', $other->connstr('postgres'), $dump ], 'pg_restore');
is(phases($other), 'one one, both both 1, probe probe, lost both 1', 'restored: each phase as it was');
is(known($other, $_, 'before after new'), 'after before', "restored: stream $_ knows its keys") for qw(one both probe lost);
is(known($other, 'both', 'prepared') . known($other, 'lost', 'open'), '', 'restored: what was not committed is free');
sql($other, 'CALL sqlstreams.maintain()');
is(phases($other), 'one one, both probe, probe probe, lost probe', 'restored: nobody is waited for');
is(known($other, $_, 'before after new newer'), 'after before new', "restored: stream $_ knows its keys afterwards") for qw(one both probe lost);
is(sql($other, q{SELECT bool_and(sqlstreams.drop_stream(stream)) FROM sqlstreams.streams}), 't', 'restored: the streams can be dropped');
is(sql($other, q{SELECT count(*) FROM pg_class WHERE relname LIKE 'idempotency%'}), 0, 'restored: and leave no table');

$open->quit;
done_testing();
