# pg_dump and pg_restore keep exceptions and the delivery log: what failed comes back in another cluster when it is due, also what a
# transaction made due that was open when a claim looked last. So does a standby that is promoted.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $node = new_node('main', '', allows_streaming => 1);
my $other = new_node('other');
my $dir = PostgreSQL::Test::Utils::tempdir();
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;

# the other cluster has seen far fewer transactions
sql($node, 'CREATE PROCEDURE burn() LANGUAGE plpgsql AS $$ BEGIN FOR i IN 1 .. 20000 LOOP PERFORM txid_current(); COMMIT; END LOOP; END $$');
$node->safe_psql('postgres', 'SET synchronous_commit = off; CALL burn()');
sql($node, 'DROP PROCEDURE burn');

my $id = sql($node, q{SELECT sqlstreams.create_stream('s', partition_size => 4, delivery_log => 'all')});
sql($node, q{SELECT sqlstreams.create_group('s', 'g', initial_backoff => '2 hours', max_retries => 5)});
sql($node, q{SELECT count(*) FROM sqlstreams.produce_batch('s', '{1,2,3,4,5,6,7,8}')});
sql($node, q{SELECT sqlstreams.produce('s', '9', deliver_at => '2100-01-01Z')});
my $claim = sql($node, q{SELECT min(claim_id) FROM sqlstreams.claim('s', 'g', 8, '1 hour')});
sql($node, "SELECT sqlstreams.resolve('s', 'g', $claim, '{3,4,5,6,7}', '{reject,nack,nack,delay,ack}', '{no account,broken,broken,later,NULL}', ARRAY[NULL, '0', NULL, '3 hours', NULL]::interval[])");
my $second = sql($node, q{SELECT min(claim_id) FROM sqlstreams.claim('s', 'g', 4, '1 hour')});

# a failure that is open while a claim looks, and committed after it; the clock is moved, as if it were from an hour ago
my $open = session($node);
$open->query_safe('BEGIN');
$open->query_safe("SELECT sqlstreams.nack('s', 'g', $claim, '{1}', 'late', '0')");
$open->query_safe("UPDATE sqlstreams.exception_queue_$id SET due_at = due_at - interval '1 hour' WHERE message_id = 1");
sql($node, "UPDATE sqlstreams.group_cursor_$id SET due_from = '-infinity'");
is(claimed($node), '', 'a claim does not get what an open transaction has made due');
$open->query_safe('COMMIT');
# one that is never committed there
$open->query_safe('BEGIN');
$open->query_safe("SELECT sqlstreams.nack('s', 'g', $claim, '{2}', 'never', '0')");

my $exceptions = q{SELECT message_id, status, attempts, delays, takeovers, can_run_after, last_error, claim_id, payload, updated_at FROM sqlstreams.exceptions('s', 'g')};
my $deliveries = q{SELECT * FROM sqlstreams.deliveries('s') ORDER BY message_id, ended_at};
my $groups = 'SELECT consumer_group, claimed, committed, leased, ready, inflight, dead, next_due_at FROM sqlstreams.consumer_groups';
is(sql($node, q{SELECT string_agg(format('%s %s %s/%s', message_id, status, attempts, delays), ', ') FROM sqlstreams.exceptions('s', 'g')}),
	'1 ready 1/0, 3 dead 1/0, 4 inflight 1/0, 5 ready 1/0, 6 ready 0/1, 9 ready 0/0', 'exceptions of every kind');
my %before = map { $_ => sql($node, $_) } $exceptions, $deliveries, $groups;

$node->command_ok([ 'pg_dump', '--format=custom', '--file', "$dir/dump", $node->connstr('postgres') ], 'pg_dump');
sql($other, 'CREATE DATABASE restored');
$other->command_ok([ 'pg_restore', '--exit-on-error', '--dbname', $other->connstr('restored'), "$dir/dump" ], 'pg_restore in another cluster');
sql($node, q{CREATE DATABASE restored});
$node->command_ok([ 'pg_restore', '--exit-on-error', '--dbname', $node->connstr('restored'), "$dir/dump" ], 'pg_restore in the same cluster');
$node->wait_for_catchup($standby);
is(sql($standby, $_), $before{$_}, "standby: $_") for $exceptions, $deliveries, $groups;
for my $call (q{nack('s', 'g', 1)}, q{reject('s', 'g', 1)}, q{delay('s', 'g', 1, '{1}', '1 s')}, q{resolve('s', 'g', 1, '{1}', '{ack}')}, q{redrive('s', 'g')}, q{discard('s', 'g', '{1}')})
{
	(my $name = $call) =~ s/\(.*//;
	is(sqlstate($standby, "SELECT sqlstreams.$call"), '25006', "standby: $name");
}
$node->stop('immediate');
$standby->promote;
$node->start;
$node->poll_query_until('postgres', 'SELECT true');

for my $case ([ 'restored in another cluster', $other, 'restored' ], [ 'restored in the same cluster', $node, 'restored' ], [ 'after a crash', $node, 'postgres' ], [ 'promoted', $standby, 'postgres' ])
{
	my ($name, $where, $database) = @$case;

	is(sql($where, $exceptions, $database), $before{$exceptions}, "$name: exceptions");
	is(sql($where, $deliveries, $database), $before{$deliveries}, "$name: deliveries");
	is(sql($where, $groups, $database), $before{$groups}, "$name: consumer_groups");
	is(sql($where, q{SELECT string_agg(message_id || ' ' || attempts, ', ') FROM sqlstreams.claim('s', 'g', 100)}, $database), '1 1', "$name: what was due comes");
	is(sql($where, "SELECT sqlstreams.nack('s', 'g', $claim, '{2}', 'now', '0')", $database), 0, "$name: what was not committed is still its holder's");
	is(sql($where, q{SELECT string_agg(message_id || ' ' || attempts, ', ') FROM sqlstreams.claim('s', 'g', 100)}, $database), '2 1', "$name: and comes again");
	is(sql($where, "SELECT sqlstreams.reject('s', 'g', $second)", $database), 1, "$name: what was in flight goes on");
	is(sql($where, q{SELECT sqlstreams.redrive('s', 'g')}, $database), 2, "$name: dead ones are redriven");
	is(sql($where, q{SELECT string_agg(message_id || ' ' || attempts, ', ') FROM sqlstreams.claim('s', 'g', 100)}, $database), '3 0, 4 0', "$name: and come");
	is(sql($where, q{SELECT string_agg(message_id || ' ' || status, ', ') FROM sqlstreams.exceptions('s', 'g', 'ready')}, $database), '5 ready, 6 ready, 9 ready', "$name: the others wait");
}
$open->quit;

done_testing();
