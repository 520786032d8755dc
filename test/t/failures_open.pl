# More transactions that have failed messages and are still open than a group's cursor remembers: whichever end first, each message comes
# once its transaction has committed, and only then.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $count = 150;
my $node = new_node('main', "max_prepared_transactions = 200\n");
my $id = sql($node, q{SELECT sqlstreams.create_stream('s')});
sql($node, q{SELECT sqlstreams.create_group('s', 'g', initial_backoff => '2 hours')});
sql($node, qq{SELECT count(*) FROM sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i) ORDER BY i) FROM generate_series(1, $count) i))});
my $claim = sql($node, qq{SELECT min(claim_id) FROM sqlstreams.claim('s', 'g', $count, '1 day')});

# The clock is moved, as if each transaction had failed its message so many minutes ago; message 1 was the first.
sql($node, join "\n", map {
	my $minutes = $count - $_;
	"BEGIN; SELECT sqlstreams.nack('s', 'g', $claim, '{$_}', retry_in => '0');"
	  . " UPDATE sqlstreams.exception_queue_$id SET due_at = due_at - interval '$minutes minutes' WHERE message_id = $_; PREPARE TRANSACTION 'p$_';"
} 1 .. $count);
sql($node, "UPDATE sqlstreams.group_cursor_$id SET due_from = '-infinity'");
is_claimed($node, '', 'nothing comes while they are open');
is_claimed($node, '', 'nor the next time');

# What a claim returns, all of it acked.
my $taken = q{SELECT coalesce(string_agg(message_id::text, ' ' ORDER BY message_id), 'nothing') FROM (SELECT message_id, sqlstreams.ack('s', 'g', claim_id, ARRAY[message_id]) FROM sqlstreams.claim('s', 'g', 100)) c;};

# every third rolled back; the others committed from both ends to the middle, with a claim after each
my (@statements, @expected, @lost);
for my $step (0 .. $count - 1)
{
	my $message = $step % 2 ? $count - int($step / 2) : 1 + int($step / 2);
	my $rolled_back = $message % 3 == 0;

	push @lost, $message if $rolled_back;
	push @statements, ($rolled_back ? 'ROLLBACK' : 'COMMIT') . " PREPARED 'p$message'; $taken";
	push @expected, $rolled_back ? 'nothing' : $message;
}
is(sql($node, join "\n", @statements), join("\n", @expected), 'each comes with the next claim after its commit, and no other');
is(sql($node, $taken), 'nothing', 'nothing comes twice');
is(sql($node, "SELECT sqlstreams.ack('s', 'g', $claim)"), scalar @lost, 'what was rolled back is its holder\'s');
is(sql($node, q{SELECT count(*) FROM sqlstreams.exceptions('s', 'g')}), 0, 'nothing is left');

done_testing();
