# The checker of the stress program: what maintenance and crashes may do to messages
# and keys. Each kind of violation is found in records written by hand, and correct
# ones pass.
#
# The group is that of failures.t.

use strict;
use warnings;
use FindBin ();
use lib $FindBin::RealBin, "$FindBin::RealBin/../lib";
use File::Temp ();
use HandWritten qw(kinds committed produced claimed said acked logged left);
use Stress::History;
use Stress::Upkeep::Summary;
use Test::More;

my $one = produced('p:1', 10, 'p.1' => 1);
my $two = produced('p:1', 10, 'p.1' => 1, 'p.2' => 2);
my $claim = claimed('c:1', 20, 701, '1=p.1=0', '2=p.2=0');
my $ack = acked('c:2', 21, 701, 'all', 2);

# A look at how far messages are dropped.
sub dropped
{
	my ($time, $through) = @_;
	return "$time  send  dropped  -\n$time  reply  dropped  -  $through\n";
}

# A setting from the beginning, and what it is changed to later.
sub set
{
	my ($name, @changes) = @_;
	my $records = '';
	while (my ($time, $value) = splice @changes, 0, 2)
	{
		$records .= "$time  send  setting  -  $name  $value\n$time.1  reply  setting  -  $name\n";
	}
	return $records;
}

# The server crashed, and was there again a second later.
sub crashed
{
	my ($time) = @_;
	return sprintf "%s  send  crash  -\n%s  reply  crash  -\n", $time, $time + 1;
}

subtest 'messages that are dropped' => sub {
	my %gone = (p => $two, c => $claim . $ack, main => logged());
	my %one_gone = (p => $two, c => $claim . $ack, main => logged('2=p.2'));
	is(kinds(%gone), 'lost', 'nobody knows of it');
	is(kinds(%gone, w => dropped(30, 2)), '', 'all of them');
	is(kinds(%one_gone, w => dropped(30, 1)), '', 'the first');
	is(kinds(%gone, w => dropped(30, 1)), 'lost', 'the first, and the second is gone');
	is(kinds(%gone, c => claimed('c:1', 20, 701, '1=p.1=0') . acked('c:2', 21, 701, 'all', 1), w => dropped(30, 2)),
		'skipped', 'one that a group had not met');
	is(kinds(%gone, c => $claim . acked('c:2', 21, 701, '1', 1), w => dropped(30, 2)),
		'lost', 'one that a group had not acked');
	my $nacked = said('c:2', 21, 'nack  g  701  2  1  broken', 0) . acked('c:3', 22, 701, '1', 1);
	is(kinds(%gone, c => $claim . $nacked, w => dropped(30, 2)), 'lost', 'one that was to come again');
	my $rejected = said('c:2', 21, 'reject  g  701  2  -  broken', 1) . acked('c:3', 22, 701, '1', 1);
	is(kinds(%gone, c => $claim . $rejected, w => dropped(30, 2)), '', 'one that was dead');
	is(kinds(%gone, c => $claim . $rejected, main => logged('2=p.2'), w => dropped(30, 1)),
		'dead message vanished', 'another than the one that was dead');
	is(kinds(%gone, p => $two . produced('p:2', 11, 'p.3' => 3), w => dropped(30, 2)),
		'lost, skipped', 'not the last one, which is gone');
};

subtest 'what was read of the log' => sub {
	my $unknown = <<'TXT';
		11.1  send  produce  p:2  p.3
		11.2  reply  produce  p:2  3
		11.3  send  commit  p:2
		11.4  lost  commit  p:2  -  gone
TXT
	my %clean = (p => $two . $unknown, c => $claim . $ack, main => logged());
	my $drop = dropped(30, 3);
	is(kinds(%clean, w => $drop), '', 'a lost commit of which nothing is known');
	is(kinds(%clean, w => $drop . "12  reply  seen  -  3=p.3\n"), 'skipped', '... and whose message was seen');
	is(kinds(%clean, w => $drop, c => $claim . $ack . claimed('c:3', 22, 702, '3=p.3=0')),
		'lost', '... or given to somebody');
	is(kinds(%clean, w => $drop . "12  reply  seen  -  4=p.3\n"), 'wrong id', '... or seen under another id');
	(my $rolled_back = $unknown) =~ s/commit/rollback/g;
	is(kinds(%clean, p => $two . $rolled_back, w => $drop . "12  reply  seen  -  3=p.3\n"),
		'invented', 'a message that was rolled back, and seen');
};

subtest 'seeks and dropped messages' => sub {
	my $seek = said('o:1', 23, 'seek  g  1', join '  ', 2, 0, 23.05);
	my %moved = (p => $two, c => $claim . $ack, o => $seek, main => logged('2=p.2'));
	my $second = claimed('d:1', 25, 702, '2=p.2=0') . acked('d:2', 26, 702, 'all', 1);
	my $both = claimed('d:1', 25, 702, '1=p.1=0', '2=p.2=0') . acked('d:2', 26, 702, 'all', 2);
	is(kinds(%moved, c => $claim . $ack . $second, w => dropped(22, 1)), '', 'what was dropped before does not come');
	is(kinds(%moved, c => $claim . $ack . $both, w => dropped(22, 1)), 'delivered after its end', '... and must not');
	is(kinds(%moved, c => $claim . $ack . $second, w => dropped(22, 0) . dropped(24, 1)),
		'', 'what is dropped about the time of the seek need not come');
	is(kinds(%moved, c => $claim . $ack . $both, w => dropped(22, 0) . dropped(30, 1)), '', '... and may');
	is(kinds(%moved, c => $claim . $ack . $second, w => dropped(22, 0) . dropped(24, 0) . dropped(30, 1)),
		'lost', 'what is dropped later must come before');
	is(kinds(%moved, c => $claim . $ack, w => dropped(22, 1)), 'lost', 'what is not dropped must come');
	my $refused = <<'TXT';
		23  send  seek  o:1  g  1
		23.1  error  seek  o:1  22023  gone
		23.2  send  rollback  o:1
		23.3  reply  rollback  o:1
TXT
	is(kinds(%moved, o => $refused, w => dropped(22, 1)), '', 'a seek to what is dropped is refused');
	is(kinds(%moved, o => $refused, w => dropped(22, 0) . dropped(24, 0) . dropped(30, 1)),
		'unexpected error', '... and to nothing else');
};

subtest 'repairs of dropped messages' => sub {
	my $dead = claimed('c:1', 20, 701, '1=p.1=0') . said('c:2', 21, 'reject  g  701  1  -  refused', 1);
	my %gone = (p => $one, c => $dead, main => logged());
	my $none = said('o:1', 25, 'redrive  g  all  -', 0);
	is(kinds(%gone, o => $none, w => dropped(24, 1)), '', 'a redrive that finds nothing');
	is(kinds(%gone, o => $none, w => dropped(24, 0) . dropped(26, 0) . dropped(30, 1)),
		'lost', '... although it was there');
	my $redrive = said('o:1', 25, 'redrive  g  all  -', 1);
	is(kinds(%gone, o => $redrive, w => dropped(24, 0) . dropped(26, 0) . dropped(30, 1)),
		'lost', 'one that was redriven, and then dropped');
};

subtest 'keys used again' => sub {
	my %rest = (c => $claim . $ack, main => logged('1=p.1', '2=p.2'), s => set(idempotency_key_ttl => 1, 2));
	my $first = produced('p:1', 10, 'p.1=k' => 1);
	my %clean = (%rest, p => $first);
	is(kinds(%clean, q => produced('q:1', 12.2, 'p.2=k' => 2)), '', 'after the time to live');
	is(kinds(%clean, q => produced('q:1', 11.9, 'p.2=k' => 2)), 'key given twice', 'before that');
	is(kinds(%clean, q => produced('q:1', 11.9, 'p.2=k' => 2), s => set(idempotency_key_ttl => 11, 1, 13, 2) . set(idempotency_key_ttl => 1, 2)),
		'', 'after a time to live that was shortened for a while');
	is(kinds(%clean, q => produced('q:1', 11.9, 'p.2=k' => 2), s => set(idempotency_key_ttl => 1, 1, 5, 2, 13, 1)),
		'key given twice', '... although it was shorter once, and will be');
	is(kinds(%clean, q => produced('q:1', 12.2, 'p.2=k' => 2), s => set(idempotency_key_ttl => 1, 3)),
		'key given twice', 'before the end of a longer one');
	my $open = <<'TXT' . committed('p:1', 14, 14.1, '');
		10  send  produce  p:1  p.1=k
		10.1  reply  produce  p:1  1
TXT
	is(kinds(%rest, p => $open, q => produced('q:1', 13, 'p.2=k' => 2)),
		'key given twice', 'of a transaction that is still open');
	is(kinds(%rest, p => $open, q => produced('q:1', 14.2, 'p.2=k' => 2)), '', '... and that has ended');
	my %overlapping = (q => <<'TXT' . committed('q:1', 13.1, 13.2, ''));
		9  send  produce  q:1  p.2=k
		13  reply  produce  q:1  2
TXT
	is(kinds(%clean, %overlapping), '', 'by a call that waited for the first to end');
	my $duplicate = produced('q:1', 12.2, 'q.1=k' => 0);
	my %one = (p => $first, c => claimed('c:1', 20, 701, '1=p.1=0') . acked('c:2', 21, 701, 'all', 1),
		main => logged('1=p.1'), s => set(idempotency_key_ttl => 1, 2));
	is(kinds(%one, q => $duplicate), '', 'a key that protects a little longer');
	is(kinds(%one, q => produced('q:1', 150, 'q.1=k' => 0)), 'key refused for too long', '... and much longer');
};

subtest 'crashes' => sub {
	my $crash = crashed(30);
	my %lost = (c => '', main => logged());
	is(kinds(%lost, 'p2' => produced('p2:1', 29, 'p.1' => 1), k => $crash), '', 'a commit that did not wait for the disk');
	is(kinds(%lost, 'p1' => produced('p1:1', 29, 'p.1' => 1), k => $crash), 'lost, skipped', '... that did wait');
	is(kinds(%lost, 'p2' => produced('p2:1', 29, 'p.1' => 1), p1 => produced('p1:1', 29.5, 'p.2' => 2),
			k => $crash, main => logged('2=p.2'), c => claimed('c:1', 40, 701, '2=p.2=0') . acked('c:2', 41, 701, 'all', 1)),
		'lost, skipped', '... that another had waited for later');
	is(kinds(%lost, 'p2' => produced('p2:1', 32, 'p.1' => 1), k => $crash), 'lost, skipped', '... after the crash');
	is(kinds(%lost, 'p2' => produced('p2:1', 29, 'p.1' => 1), k => $crash, main => logged('1=p.1')),
		'skipped', '... that is there nevertheless');
	my $reused = produced('p1:1', 32, 'p.2' => 1);
	my %reused = (p1 => $reused, k => $crash, main => logged('1=p.2'),
		c => claimed('c:1', 40, 701, '1=p.2=0') . acked('c:2', 41, 701, 'all', 1));
	is(kinds('p2' => produced('p2:1', 29, 'p.1' => 1), %reused), '', 'an id that nobody remembers');
	(my $undone = produced('p5:1', 29.5, 'p.3' => 2)) =~ s/commit/rollback/g;
	is(kinds('p2' => produced('p2:1', 29, 'p.1' => 1), p5 => $undone, %reused), '', '... with others about');
	is(kinds('p3' => produced('p3:1', 29, 'p.1' => 1), %reused),
		'ids out of order, lost', 'an id that was on disk');
	my $seen = "29.5  reply  seen  -  1=p.1\n";
	is(kinds(%lost, 'p2' => produced('p2:1', 29, 'p.1' => 1), k => $crash, w => $seen . dropped(50, 5)),
		'', 'a message that was seen before only');
	is(kinds(%lost, 'p2' => produced('p2:1', 29, 'p.1' => 1), k => $crash,
			w => $seen . "31.5  reply  seen  -  1=p.1\n" . dropped(50, 5)),
		'skipped', '... and after it');
	my $one_claim = claimed('c:1', 29, 701, '1=p.1=0');
	my $again = claimed('d:1', 32, 702, '1=p.1=0') . acked('d:2', 33, 702, 'all', 1);
	is(kinds(p => $one, c => $one_claim, d => $again, k => $crash, main => logged('1=p.1')),
		'', 'a claim that did not wait for the disk');
	is(kinds(p => $one, c => $one_claim, d => $again, main => logged('1=p.1')),
		'two holders at once', '... without a crash');
	is(kinds(p => $one, c => $one_claim, d => $again, k => $crash, main => logged('1=p.1'),
			p1 => produced('p1:1', 29.5, 'p.2' => 0)),
		'duplicate without an original', '... a duplicate flushes nothing');
};

subtest 'what was tried' => sub {
	my $directory = File::Temp::tempdir(CLEANUP => 1);
	open my $file, '>', "$directory/w.records" or die $!;
	print {$file} "1\treply\t$_\n" foreach "partitions\t-\t0\t1", "partitions\t-\t1\t2", "rotation\t-\tboth\t3\t2",
	  "rotation\t-\tprobe\t3\t0", "upkeep\t-\tworkers killed";
	close $file;
	my $counts = Stress::Upkeep::Summary::counts(Stress::History->read($directory));
	is($counts->{'partitions dropped'}, 1, 'partitions');
	is($counts->{'rotations of key tables'}, 2, 'rotations');
	is_deeply([ map { $counts->{"looks at producers in phase $_"} } qw(one both probe) ], [ 0, 1, 0 ],
		'only looks that found a producer count');
	my @short = map { $_->[1] } Stress::Upkeep::Summary::shortfalls($counts, 20, 1);
	ok((grep { /partitions dropped: 1, at least/ } @short), 'too little is told');
	ok(!(grep { /workers killed/ } @short), 'enough is not');
	is_deeply([ Stress::Upkeep::Summary::shortfalls($counts, 5, 1) ], [], 'a short run need not show anything');
};

done_testing();
