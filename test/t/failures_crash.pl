# Failures, and crashes of the whole server: what was nacked, rejected, delayed or redriven stays so, with its counts; what was not committed
# comes back; a claim that charged an attempt is not lost by a crash, although it is a transaction of its own.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

# The walwriter must not make a relaxed claim durable before the crash.
my $node = new_node('main', "wal_writer_delay = 10s\nwal_writer_flush_after = 1GB\n");
my $id = sql($node, q{SELECT sqlstreams.create_stream('s', partition_size => 4)});
sql($node, q{SELECT sqlstreams.create_group('s', 'g', initial_backoff => '2 hours', base_delay => '1 hour', max_delay => '1 day', max_reclaims => 0)});

sub crash
{
	$node->stop('immediate');
	$node->start;
}

# Each exception: id, status, attempts, delays, take-overs.
sub is_exceptions
{
	my ($expected, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(sql($node, q{SELECT coalesce(string_agg(format('%s %s %s/%s/%s', message_id, status, attempts, delays, takeovers), ', ' ORDER BY message_id), '') FROM sqlstreams.exceptions('s', 'g')}),
		$expected, $name);
}

# The clock is moved, not waited for.
sub expire
{
	sql($node, "UPDATE sqlstreams.group_cursor_$id SET lease_scan_from = '-infinity'; UPDATE sqlstreams.claim_lease_$id SET expires_at = (SELECT clock_timestamp())");
}

sub make_due
{
	my ($message) = @_;

	sql($node, "UPDATE sqlstreams.exception_queue_$id SET due_at = clock_timestamp() WHERE status = 'r' AND message_id = $message");
}

sub take
{
	my ($max) = @_;

	return sql($node, "SELECT min(claim_id) FROM sqlstreams.claim('s', 'g', $max, '1 hour')");
}

# what was committed stays, what was not comes back
sql($node, q{SELECT count(*) FROM sqlstreams.produce_batch('s', '{1,2,3,4,5,6,7,8}')});
my $claim = take(8);
is(sql($node, "SELECT sqlstreams.nack('s', 'g', $claim, '{1,2}', 'broken')"), 0, 'two nacked');
is(sql($node, "SELECT sqlstreams.reject('s', 'g', $claim, '{3}', 'no account')"), 1, 'one rejected');
is(sql($node, "SELECT sqlstreams.resolve('s', 'g', $claim, '{4,5}', '{ack,delay}', delays => ARRAY[NULL, '1 hour']::interval[])"), 2, 'one acked, one delayed');
my $open = session($node);
$open->query_safe('BEGIN');
is($open->query_safe("SELECT sqlstreams.nack('s', 'g', $claim, '{6}')"), 0, 'one nacked by a transaction that is open');
crash();
is_exceptions('1 ready 1/0/0, 2 ready 1/0/0, 3 dead 1/0/0, 5 ready 0/1/0', 'after a crash what was committed is there');
is(sql($node, q{SELECT string_agg(last_error, ', ' ORDER BY message_id) FROM sqlstreams.exceptions('s', 'g')}), 'broken, broken, no account', 'with its errors');
is(sql($node, q{SELECT string_agg((can_run_after - updated_at)::text, ', ' ORDER BY message_id) FROM sqlstreams.exceptions('s', 'g', 'ready')}), '02:00:00, 02:00:00, 01:00:00', 'and its times');
is(sql($node, q{SELECT string_agg(outcome, ' ' ORDER BY message_id) FROM sqlstreams.deliveries('s', 'g')}), 'nack nack reject delay', 'the delivery log, too');
is(sqlstate($node, "SELECT sqlstreams.nack('s', 'g', $claim, '{1}')"), 'SS004', 'it cannot be nacked again');
is(sql($node, 'SELECT unresolved FROM sqlstreams.leases'), 3, 'what is open in the claim is open');
is(sql($node, "SELECT sqlstreams.ack('s', 'g', $claim)"), 3, 'and its holder acks it, with the one whose nack was lost');

# the next failures count on
make_due(1);
take(1);
crash();
sql($node, q{SELECT count(*) FROM sqlstreams.claim('s', 'g', 5, '1 hour')});
is_exceptions('1 inflight 1/0/0, 2 ready 1/0/0, 3 dead 1/0/0, 5 ready 0/1/0', 'whether the claim of a due message was lost by a crash or not, one has it');
is(sql($node, q{SELECT sqlstreams.nack('s', 'g', claim_id, error => 'again') FROM sqlstreams.leases}), 0, 'who nacks it');
crash();
is_exceptions('1 ready 2/0/0, 2 ready 1/0/0, 3 dead 1/0/0, 5 ready 0/1/0', 'its second failure');
is(sql($node, q{SELECT sqlstreams.redrive('s', 'g')}), 1, 'the dead one redriven');
crash();
is(sql($node, q{SELECT string_agg(message_id || ' ' || attempts, ', ') FROM sqlstreams.claim('s', 'g', 5, '1 hour')}), '3 0', 'it comes after a crash');
is(sql($node, q{SELECT sqlstreams.reject('s', 'g', claim_id) FROM sqlstreams.leases}), 1, 'and dies again');
is(sql($node, q{SELECT sqlstreams.discard('s', 'g', '{3}')}), 1, 'discarded');
crash();
is_exceptions('1 ready 2/0/0, 2 ready 1/0/0, 5 ready 0/1/0', 'it does not come back');

# a claim that charged an attempt is durable, also when it returned nothing
make_due(2);
sql($node, q{SET sqlstreams.relaxed_claim = off; SELECT count(*) FROM sqlstreams.claim('s', 'g', 1, '1 hour')});
expire();
is(sql($node, q{SELECT count(*) FROM sqlstreams.claim('s', 'g', 5, '1 hour')}), 0, 'a lost lease is charged by a claim that returns nothing');
crash();
is_exceptions('1 ready 2/0/0, 2 ready 2/0/1, 5 ready 0/1/0', 'the charge survives a crash');

# one that split a claim may be lost; then the next one splits it
sql($node, q{SELECT count(*) FROM sqlstreams.produce_batch('s', '{9,10,11}')});
sql($node, q{SET sqlstreams.relaxed_claim = off; SELECT count(*) FROM sqlstreams.claim('s', 'g', 3, '1 hour')});
expire();
sql($node, q{SELECT count(*) FROM sqlstreams.claim('s', 'g', 3, '1 hour')});
crash();
expire();
my $acked = 0;
for (1 .. 10)
{
	make_due('ANY (SELECT message_id FROM sqlstreams.peek(\'s\', 9))');
	$acked += sql($node, q{SELECT coalesce(sum(sqlstreams.ack('s', 'g', claim_id, ARRAY[message_id])), 0) FROM sqlstreams.claim('s', 'g', 3, '1 hour')});
}
is($acked, 3, 'a split claim and a crash: each of its messages comes');
is_exceptions('1 ready 2/0/0, 2 ready 2/0/1, 5 ready 0/1/0', 'and is done');

# what a claim stepped over for later
sql($node, q{SELECT sqlstreams.produce('s', '12', deliver_at => '2100-01-01Z')});
sql($node, q{SELECT count(*) FROM sqlstreams.claim('s', 'g', 5, '1 hour')});
crash();
sql($node, q{SELECT count(*) FROM sqlstreams.claim('s', 'g', 5, '1 hour')});
is_exceptions('1 ready 2/0/0, 2 ready 2/0/1, 5 ready 0/1/0, ' . sql($node, q{SELECT max(message_id) FROM sqlstreams.peek('s', 9, 100)}) . ' ready 0/0/0', 'a message for later waits, whatever was lost');

done_testing();
