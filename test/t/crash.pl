# A crash of the whole server: what was committed is there, what was claimed and not resolved comes back when its lease ends, ids go on
# rising, and a claim that the crash lost can never touch what another consumer holds.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

# The walwriter must not make a relaxed claim durable before the crash.
my $node = new_node('main', "wal_writer_delay = 10s\nwal_writer_flush_after = 1GB\n");
sql($node, q{SELECT sqlstreams.create_stream('s', partition_size => 4), sqlstreams.create_group('s', 'g')});

sub crash
{
	$node->stop('immediate');
	$node->start;
}

# committed work
is(sql($node, q{SELECT array_agg(id) FROM sqlstreams.produce_batch('s', '{1,2,3,4,5,6,7,8}', idempotency_keys => '{a,b,c,d,e,f,g,h}') id}), '{1,2,3,4,5,6,7,8}', 'eight messages');
my $open = session($node);
$open->query_safe('BEGIN');
is($open->query_safe(q{SELECT sqlstreams.produce('s', '9')}), 9, 'one that is not committed');
my $claim = sql($node, q{SET sqlstreams.relaxed_claim = off; SELECT min(claim_id) FROM sqlstreams.claim('s', 'g', 4, '1 second')});
is(sql($node, "SELECT sqlstreams.ack('s', 'g', $claim, '{2,3}')"), 2, 'four claimed, two of them acked');
crash();
is(sql($node, q{SELECT string_agg(payload::text, ' ') FROM sqlstreams.peek('s')}), '1 2 3 4 5 6 7 8', 'after a crash the log is what was committed');
is(sql($node, 'SELECT unresolved FROM sqlstreams.leases'), 2, 'the claim is there, with what is open in it');
is(sql($node, q{SELECT sqlstreams.produce('s', '"again"', idempotency_key => 'h')}), 0, 'keys are known');
cmp_ok(sql($node, q{SELECT sqlstreams.produce('s', '10')}), '>', 8, 'ids go on rising');
ok(wait_for_expiry($node, $claim), 'the lease ends');
is_claimed($node, '1 4 5 6 7 8 10', 'what was open comes back first, what was acked does not');
is(sqlstate($node, "SELECT sqlstreams.ack('s', 'g', $claim)"), 'SS004', 'the old holder has lost it');

# an ack, a claim with ack and a pop are durable
sql($node, q{SELECT sqlstreams.create_group('s', 'durable', start_id => 1)});
$claim = sql($node, q{SELECT min(claim_id) FROM sqlstreams.claim('s', 'durable', 2, '1 hour')});
is(sql($node, "SELECT string_agg(payload::text, ' ') FROM sqlstreams.claim('s', 'durable', 2, '1 hour', ack => $claim)"), '3 4', 'a claim that acks the one before');
crash();
is(sqlstate($node, "SELECT sqlstreams.ack('s', 'durable', $claim)"), 'SS004', 'its ack survives a crash');
is(sql($node, q{SELECT string_agg(payload::text, ' ') FROM sqlstreams.pop('s', 'durable', 2)}), '5 6', 'so does the claim: pop goes on behind it');
crash();
is(sql($node, q{SELECT string_agg(payload::text, ' ') FROM sqlstreams.pop('s', 'durable', 1)}), '7', 'a pop survives a crash');

# a relaxed claim may be lost; then its holder has nothing, and another gets the messages
sql($node, q{SELECT sqlstreams.create_stream('relaxed'), sqlstreams.create_group('relaxed', 'g')});
my $lost = 0;
for my $attempt (1 .. 10)
{
	sql($node, qq{SELECT sqlstreams.produce('relaxed', '$attempt')});
	my ($stale, $payload) = split /\|/, sql($node, q{SELECT claim_id, payload FROM sqlstreams.claim('relaxed', 'g', 1, '1 hour')});
	crash();
	my $there = sql($node, "SELECT count(*) FROM sqlstreams.leases WHERE claim_id = $stale");

	if ($there)
	{
		sql($node, "SELECT sqlstreams.ack('relaxed', 'g', $stale)");
		next;
	}
	$lost = 1;
	is(sqlstate($node, "SELECT sqlstreams.ack('relaxed', 'g', $stale)"), 'SS004', 'the ack of a lost claim raises');
	my ($fresh, $again) = split /\|/, sql($node, q{SELECT claim_id, payload FROM sqlstreams.claim('relaxed', 'g', 1, '1 hour')});
	is($again, $payload, 'the message comes at once to somebody else');
	isnt($fresh, $stale, 'under another claim_id');
	is(sqlstate($node, "SELECT sqlstreams.ack('relaxed', 'g', $stale)"), 'SS004', 'which the stale one does not touch');
	is(sql($node, "SELECT sqlstreams.ack('relaxed', 'g', $fresh)"), 1, 'its holder acks it');
	last;
}
ok($lost, 'a relaxed claim was lost by a crash');

# a claim that is not relaxed never is
for my $attempt (1 .. 3)
{
	sql($node, qq{SELECT sqlstreams.produce('relaxed', '$attempt')});
	my $held = sql($node, q{SET sqlstreams.relaxed_claim = off; SELECT claim_id FROM sqlstreams.claim('relaxed', 'g', 1, '1 hour')});
	crash();
	is(sql($node, "SELECT sqlstreams.ack('relaxed', 'g', $held)"), 1, "a claim that waited for its WAL survives ($attempt)");
}

# nor one that is part of a transaction that wrote something else
sql($node, q{CREATE TABLE work (claim_id bigint)});
sql($node, q{SELECT sqlstreams.produce('relaxed', '"work"')});
sql($node, q{INSERT INTO work SELECT claim_id FROM sqlstreams.claim('relaxed', 'g', 1, '1 hour')});
crash();
is(sql($node, q{SELECT sqlstreams.ack('relaxed', 'g', claim_id) FROM work}), 1, 'a claim with other work in its transaction survives with it');
for my $order ('SELECT FROM claimed; INSERT INTO work VALUES (0)', 'INSERT INTO work VALUES (0); SELECT FROM claimed', 'SAVEPOINT a; INSERT INTO work VALUES (0); RELEASE a; SELECT FROM claimed')
{
	sql($node, q{SELECT sqlstreams.produce('relaxed', '"work"')});
	sql($node, 'TRUNCATE work');
	(my $transaction = $order) =~ s/SELECT FROM claimed/SELECT FROM sqlstreams.claim('relaxed', 'g', 1, '1 hour')/;
	sql($node, "BEGIN; $transaction; COMMIT");
	crash();
	is(sql($node, 'SELECT count(*) FROM work'), 1, "whatever their order: $order");
}

# a message that is produced and claimed in one transaction, with the holes that the crashes left out of the way
sql($node, q{SELECT sqlstreams.produce('relaxed', '"before"')});
sql($node, q{SELECT count(*) FROM sqlstreams.pop('relaxed', 'g', 100)});
is(sql($node, q{BEGIN; SELECT sqlstreams.produce('relaxed', '"both"') > 0; SELECT count(*) FROM sqlstreams.claim('relaxed', 'g', 1, '1 hour'); COMMIT}), "t\n1", 'produced and claimed at once');
crash();
is(sql($node, q{SELECT payload FROM sqlstreams.peek('relaxed', (SELECT max(message_id) FROM sqlstreams.peek('relaxed', 1, 1000)))}), '"both"', 'is as durable as any');

done_testing();
