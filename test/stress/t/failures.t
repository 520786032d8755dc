# The checker of the stress program: what nack, reject, delay, resolve and lost
# leases do to a message. Each kind of violation is found in records written by
# hand, and correct ones pass.
#
# The group allows 2 retries, after 1 s and 2 s, 2 delays, and one take-over of a
# claim as a whole. Leases last 5 s.

use strict;
use warnings;
use FindBin ();
use lib $FindBin::RealBin, "$FindBin::RealBin/../lib";
use HandWritten qw(kinds committed produced claimed said acked logged left);
use Test::More;

my $one = produced('p:1', 10, 'p.1' => 1);
my $two = produced('p:1', 10, 'p.1' => 1, 'p.2' => 2);
my %one = (p => $one, main => logged('1=p.1'));
my %two = (p => $two, main => logged('1=p.1', '2=p.2'));

# What the log holds in the end, and these exceptions.
sub ended
{
	my ($log, @left) = @_;
	return logged(@$log) . left(@left);
}

# Makes the transactions of records end in a rollback.
sub rolled_back
{
	my ($records) = @_;
	$records =~ s/commit/rollback/g;
	return $records;
}

# Takes the answer away from the commit of records, which nobody knows then.
sub unknown
{
	my ($records) = @_;
	$records =~ s/reply  commit  (\S+)/lost  commit  $1  -  gone/;
	return $records;
}

my $first = claimed('c:1', 20, 701, '1=p.1=0');
my $nack = said('c:2', 21, 'nack  g  701  1  -  timeout', 0);
my $again = claimed('d:1', 23, 702, '1=p.1=0=1=0') . acked('d:2', 24, 702, 'all', 1);

subtest 'nack' => sub {
	is(kinds(%one, c => $first . $nack . $again), '', 'comes again after its backoff');
	is(kinds(%one, c => $first . $nack), 'lost', 'never comes again');
	is(kinds(%one, c => $first . $nack . claimed('d:1', 23, 702, '1=p.1=0')
			  . acked('d:2', 24, 702, 'all', 1)),
		'wrong attempts', 'is not counted');
	is(kinds(%one, c => $first . $nack . claimed('d:1', 23, 702, '1=p.1=0=2=0')
			  . acked('d:2', 24, 702, 'all', 1)),
		'wrong attempts', 'is counted twice');
	is(kinds(%one, c => $first . $nack . claimed('d:1', 21.5, 702, '1=p.1=0=1=0')
			  . acked('d:2', 24, 702, 'all', 1)),
		'delivered too early', 'comes again before its backoff');
	(my $wait = $nack) =~ s/-  timeout/8  timeout/;
	is(kinds(%one, c => $first . $wait . $again), 'delivered too early', '... or before retry_in');
	is(kinds(%one, c => $first . $wait . claimed('d:1', 29.1, 702, '1=p.1=0=1=0')
			  . acked('d:2', 30, 702, 'all', 1)),
		'', '... or after retry_in');
	is(kinds(%one, c => $first . $nack . claimed('d:1', 23, 702, '1=p.1=1=1=0')
			  . acked('d:2', 24, 702, 'all', 1)),
		'wrong takeovers', 'is no lost lease');
	is(kinds(%one, c => $first . rolled_back($nack) . acked('c:3', 22, 701, 'all', 1)),
		'', 'is rolled back, and the message acked');
	is(kinds(%one, c => $first . rolled_back($nack) . $again),
		'two holders at once', 'is rolled back, and has an effect');
	is(kinds(%one, c => $first . said('c:2', 21, 'nack  g  701  1  -  timeout', 1) . $again),
		'wrong count', 'says that it made the message dead');
	is(kinds(%one, c => $first . $nack . said('c:3', 21.5, 'nack  g  701  all  -  late', 0) . $again),
		'wrong count', 'is accepted twice');
	my $unknown = unknown($nack);
	is(kinds(%one, c => $first . $unknown . $again), '', 'may have happened, and did');
	is(kinds(%one, c => $first . $unknown . acked('c:3', 22, 701, '1', 1)),
		'', 'may have happened, and did not');
	is(kinds(%one, c => $first . $unknown . claimed('d:1', 26, 702, '1=p.1=1')
			  . acked('d:2', 27, 702, 'all', 1)),
		'', 'may have happened, and the lease was lost');
	is(kinds(%one, c => $first . $unknown . claimed('d:1', 26, 702, '1=p.1=0=2=0')
			  . acked('d:2', 27, 702, 'all', 1)),
		'wrong attempts', 'may not have happened twice');
};

subtest 'the last retry' => sub {
	my $second = claimed('d:1', 23, 702, '1=p.1=0=1=0') . said('d:2', 24, 'nack  g  702  all  -  refused', 0);
	my $third = claimed('d:3', 27, 703, '1=p.1=0=2=0') . said('d:4', 28, 'nack  g  703  all  -  broken', 1);
	my $records = $first . $nack . $second . $third;
	my $dead = ended([ '1=p.1' ], '1=dead=3=0=0=broken');
	is(kinds(%one, c => $records, main => $dead), '', 'makes it dead');
	is(kinds(%one, c => $records), 'dead message vanished', 'makes it vanish');
	is(kinds(%one, c => $first . $nack . $second, main => ended([ '1=p.1' ], '1=dead=2=0=0=refused')),
		'dead without a cause', 'is not the second');
	is(kinds(%one, c => $records, main => ended([ '1=p.1' ], '1=ready=3=0=0=broken')),
		'not finished', 'leaves it ready');
	is(kinds(%one, c => $records, main => ended([ '1=p.1' ], '1=dead=2=0=0=broken')),
		'wrong attempts', 'is counted in the end');
	is(kinds(%one, c => $records, main => ended([ '1=p.1' ], '1=dead=3=0=0=refused')),
		'wrong error', 'keeps its error');
	is(kinds(%one, c => $records . claimed('d:5', 40, 704, '1=p.1=0=3=0')
			  . acked('d:6', 41, 704, 'all', 1)),
		'dead message delivered', 'is followed by another');
	(my $no = $records) =~ s/reply  nack  d:4  1/reply  nack  d:4  0/;
	is(kinds(%one, c => $no, main => $dead), 'wrong count', 'says how many are dead');
	is(kinds(%one, c => claimed('c:1', 20, 701, '1=p.1=0') . acked('c:2', 21, 701, 'all', 1),
			main => $dead),
		'dead without a cause', 'is never that of an acked message');
};

subtest 'reject' => sub {
	my $reject = said('c:2', 21, 'reject  g  701  1  -  refused', 1);
	my $dead = ended([ '1=p.1' ], '1=dead=1=0=0=refused');
	is(kinds(%one, c => $first . $reject, main => $dead), '', 'makes it dead');
	is(kinds(%one, c => $first . $reject . $again), 'dead message delivered', 'and not due');
	is(kinds(%one, c => $first . $reject), 'dead message vanished', 'and shown');
	is(kinds(%one, c => $first . said('c:2', 21, 'reject  g  701  1  -  refused', 0), main => $dead),
		'wrong count', 'counts one');
	is(kinds(%one, c => $first . unknown($reject), main => $dead), '', 'may have happened, and did');
};

subtest 'delay' => sub {
	my $delay = said('c:2', 21, 'delay  g  701  1  2  later', 0);
	my $rest = acked('d:2', 27, 702, 'all', 1);
	is(kinds(%one, c => $first . $delay . claimed('d:1', 23.1, 702, '1=p.1=0=0=1') . $rest),
		'', 'comes again when it is over');
	is(kinds(%one, c => $first . $delay . claimed('d:1', 22.5, 702, '1=p.1=0=0=1') . $rest),
		'delivered too early', 'comes again before that');
	is(kinds(%one, c => $first . $delay . claimed('d:1', 23.1, 702, '1=p.1=0') . $rest),
		'wrong delays', 'is not counted');
	is(kinds(%one, c => $first . $delay . claimed('d:1', 23.1, 702, '1=p.1=0=1=1') . $rest),
		'wrong attempts', 'is counted as a failure');
	my $second = claimed('d:1', 23.1, 702, '1=p.1=0=0=1') . said('d:2', 24, 'delay  g  702  1  1  later', 0);
	my $third = claimed('d:3', 26, 703, '1=p.1=0=0=2') . said('d:4', 27, 'delay  g  703  1  1  enough', 1);
	is(kinds(%one, c => $first . $delay . $second . $third,
			main => ended([ '1=p.1' ], '1=dead=0=3=0=enough')),
		'', 'is one too many');
	is(kinds(%one, c => $first . $delay . $second, main => ended([ '1=p.1' ], '1=dead=0=2=0=later')),
		'dead without a cause', 'is not one too many');
};

subtest 'resolve' => sub {
	my $claim = claimed('c:1', 20, 701, '1=p.1=0', '2=p.2=0');
	my $resolve = sub {
		my ($others, $count, @said) = @_;
		return said('c:2', 21, join('  ', 'resolve  g  701', $others, @said), $count);
	};
	my $again = claimed('d:1', 23, 702, '2=p.2=0=1=0') . acked('d:2', 24, 702, 'all', 1);
	is(kinds(%two, c => $claim . $resolve->('keep', 2, '1=ack=-=-', '2=nack=-=timeout') . $again),
		'', 'of each its own');
	is(kinds(%two, c => $claim . $resolve->('keep', 2, '1=ack=-=-', '2=ack=-=-') . $again),
		'acked twice', 'of an acked one that comes again');
	is(kinds(%two, c => $claim . $resolve->('ack', 2, '2=nack=-=timeout') . $again), '', 'and acks the others');
	is(kinds(%two, c => $claim . $resolve->('keep', 1, '2=nack=-=timeout') . $again),
		'lost', 'and keeps the others');
	is(kinds(%two, c => $claim . $resolve->('keep', 1, '2=nack=-=timeout')
			  . acked('c:3', 22, 701, 'all', 1) . $again),
		'', '... until they are acked');
	is(kinds(%two, c => $claim . $resolve->('release', 2, '2=reject=-=broken')
			  . claimed('d:1', 22, 702, '1=p.1=0') . acked('d:2', 23, 702, 'all', 1),
			main => ended([ '1=p.1', '2=p.2' ], '2=dead=1=0=0=broken')),
		'', 'and releases the others');
	is(kinds(%two, c => $claim . $resolve->('ack', 1, '2=nack=-=timeout') . $again),
		'wrong count', 'and counts the others');
	is(kinds(%two, c => $claim . $resolve->('keep', 2, '1=delay=4=-', '2=nack=-=timeout')
			  . $again . claimed('d:3', 24.5, 703, '1=p.1=0=0=1') . acked('d:4', 26, 703, 'all', 1)),
		'delivered too early', 'with a delay');
};

subtest 'lost leases of fresh messages' => sub {
	my $claim = claimed('c:1', 20, 701, '1=p.1=0', '2=p.2=0');
	my $whole = claimed('c:2', 26, 702, '1=p.1=1', '2=p.2=1');
	my @alone = map { claimed("d:$_", 26 + 6 * $_, 710 + $_, "$_=p.$_=2")
		  . acked("e:$_", 27 + 6 * $_, 710 + $_, 'all', 1) } 1, 2;
	is(kinds(%two, c => $claim . $whole . join('', @alone)), '', 'are split after the second');
	is(kinds(%two, c => $claim . $whole . claimed('d:1', 32, 703, '1=p.1=2', '2=p.2=2')
			  . acked('d:2', 33, 703, 'all', 2)),
		'suspect in company', 'are together after the second');
	is(kinds(%two, c => $claim . claimed('d:1', 26, 703, '1=p.1=0', '2=p.2=0')
			  . acked('d:2', 27, 703, 'all', 2)),
		'wrong takeovers', 'are not counted');
	is(kinds(%two, c => $claim . $whole . claimed('d:1', 32, 703, '1=p.1=2=1=0')
			  . acked('d:2', 33, 703, 'all', 1) . $alone[1]),
		'wrong attempts', 'are charged');
};

subtest 'lost leases of exceptions' => sub {
	my $claim = claimed('c:1', 20, 701, '1=p.1=0', '2=p.2=0')
	  . said('c:2', 21, 'nack  g  701  all  -  timeout', 0);
	my $together = claimed('d:1', 23, 702, '1=p.1=0=1=0', '2=p.2=0=1=0');
	my @alone = map { claimed("e:$_", 23 + 6 * $_, 710 + $_, "$_=p.$_=1=1=0") } 1, 2;
	my @acked = map { acked("f:$_", 24 + 6 * $_, 710 + $_, 'all', 1) } 1, 2;
	is(kinds(%two, c => $claim . $together . join('', @alone, @acked)), '', 'make suspects of several');
	is(kinds(%two, c => $claim . $together . claimed('e:1', 29, 703, '1=p.1=1=1=0', '2=p.2=1=1=0')
			  . acked('f:1', 30, 703, 'all', 2)),
		'suspect in company', 'make suspects, which come alone');
	is(kinds(%two, c => $claim . $together . claimed('e:1', 29, 703, '1=p.1=1=2=0')
			  . acked('f:1', 30, 703, 'all', 1) . $alone[1] . $acked[1]),
		'wrong attempts', 'are not charged to several');
	my $charged = claimed('g:1', 37, 720, '1=p.1=2=2=0') . acked('g:2', 38, 720, 'all', 1);
	is(kinds(%two, c => $claim . $together . join('', @alone, $acked[1]) . $charged),
		'', 'are charged to one that was alone');
	my $uncharged = claimed('g:1', 37, 720, '1=p.1=2=1=0') . acked('g:2', 38, 720, 'all', 1);
	is(kinds(%two, c => $claim . $together . join('', @alone, $acked[1]) . $uncharged),
		'wrong attempts', 'are forgiven to one that was alone');
	my $early = claimed('g:1', 35, 720, '1=p.1=2=2=0') . acked('g:2', 38, 720, 'all', 1);
	is(kinds(%two, c => $claim . $together . join('', @alone, $acked[1]) . $early),
		'delivered too early', 'wait for their backoff');
	$charged =~ s/.*  (send|reply)  (ack|commit)  g:2.*\n//g;
	is(kinds(%two, c => $claim . $together . join('', @alone, $acked[1]) . $charged,
			main => ended([ '1=p.1', '2=p.2' ], '1=dead=3=0=3=the lease ended')),
		'', 'make it dead by itself');
	is(kinds(%two, c => $claim . $together . join('', @alone, $acked[1]) . $charged,
			main => ended([ '1=p.1', '2=p.2' ], '1=dead=3=0=3=timeout')),
		'wrong error', '... which its error says');
	is(kinds(%two, c => $claim . $together . join('', @alone) . $charged,
			main => ended([ '1=p.1', '2=p.2' ], '1=dead=3=0=3=the lease ended',
				'2=dead=2=0=2=the lease ended')),
		'dead without a cause', '... and nothing else with it');
	my $refused = <<'TXT';
		29  send  ack  c:9  g  702  all
		29.1  error  ack  c:9  SS004  lost
		29.2  send  rollback  c:9
		29.3  reply  rollback  c:9
TXT
	is(kinds(%two, c => $claim . $together . $refused . join('', @alone, @acked)),
		'', 'may be refused to the holder, though nobody else has it yet');
	$refused =~ s/29/27/g;
	is(kinds(%two, c => $claim . $together . $refused . join('', @alone, @acked)),
		'refused to its holder', '... but not before they end');
};

subtest 'claims of unknown outcome' => sub {
	my $unknown = unknown($first);
	is(kinds(%one, c => $unknown . claimed('d:1', 21, 702, '1=p.1=0') . acked('d:2', 22, 702, 'all', 1)),
		'', 'a claim that was not committed');
	is(kinds(%one, c => $unknown . claimed('d:1', 26, 702, '1=p.1=1') . acked('d:2', 27, 702, 'all', 1)),
		'', 'a claim that was committed');
	is(kinds(%one, c => $unknown . claimed('d:1', 26, 702, '1=p.1=2') . acked('d:2', 27, 702, 'all', 1)),
		'wrong takeovers', 'a claim that counts twice');
	my $unseen = <<'TXT';
		20  send  commit  c:1
		20  send  claim  c:1  g  10  5 seconds  -
		20.1  lost  claim  c:1  -  gone
TXT
	my $after = claimed('d:1', 26, 702, '1=p.1=1') . acked('d:2', 27, 702, 'all', 1);
	is(kinds(%one, c => $unseen . $after), '', 'a claim without an answer');
	is(kinds(%one, c => $after), 'wrong takeovers', '... or none at all');
};

subtest 'deliver_at' => sub {
	my $due = produced('p:1', 10, 'p.1==30' => 1);
	is(kinds(%one, p => $due, c => claimed('c:1', 31, 701, '1=p.1=0') . acked('c:2', 32, 701, 'all', 1)),
		'', 'comes in time');
	is(kinds(%one, p => $due, c => claimed('c:1', 29, 701, '1=p.1=0') . acked('c:2', 32, 701, 'all', 1)),
		'delivered too early', 'comes early');
	is(kinds(%one, p => $due, c => ''), 'skipped', 'never comes');
	my $lost = claimed('c:1', 31, 701, '1=p.1=0');
	is(kinds(%one, p => $due, c => $lost . claimed('c:2', 38, 702, '1=p.1=1=1=0')
			  . acked('c:3', 39, 702, 'all', 1)),
		'', 'is an exception, charged with a lost lease');
	is(kinds(%one, p => $due, c => $lost . claimed('c:2', 38, 702, '1=p.1=1')
			  . acked('c:3', 39, 702, 'all', 1)),
		'', 'or was due when the group met it');
};

done_testing();
