# The checker of the stress program: message keys. Each kind of violation is found
# in records written by hand, and correct ones pass.
#
# Group asking does what messages ask for, overriding makes them all ordered. A
# failed message is dead after two retries.

use strict;
use warnings;
use FindBin ();
use lib $FindBin::RealBin, "$FindBin::RealBin/../lib";
use HandWritten qw(kinds_keyed committed produced said);
use Stress::Keyed::Message;
use Test::More;

# A claim by group asking that commits, with a lease of 5 s; more: further fields of
# the call.
sub claimed
{
	my ($name, $time, $claim, $more, @rows) = @_;
	my $sent = "$time  send  claim  $name  asking  10  5 seconds  -$more\n";
	my $reply = sprintf "%s  reply  claim  %s  %s  %s  %s  %s\n",
	  $time + 0.1, $name, $claim, $time + 5.05, $time + 0.05, join '  ', @rows;
	return committed($name, $time + 0.2, $time + 0.3, $sent . $reply);
}

sub acked
{
	my ($name, $time, $claim, $ids, $count) = @_;
	return said($name, $time, "ack  asking  $claim  $ids", $count);
}

sub nacked
{
	my ($name, $time, $claim, $ids) = @_;
	return said($name, $time, "nack  asking  $claim  $ids  -  broken", 0);
}

# What is there in the end: rows of the log, exceptions, superseded messages.
sub ended
{
	my ($log, $exceptions, $superseded) = @_;
	return join '  ', "900  reply  log  -", @$log, "\n900  reply  exceptions  -  asking", @{ $exceptions // [] },
	  "\n900  reply  superseded  -  asking", @{ $superseded // [] }, "\n";
}

my @exclusive = ('1=p.1/x1', '2=p.2/x1');
my @ordered = ('1=p.1/o1', '2=p.2/o1');
my @versions = ('1=p.1/n1/1.0', '2=p.2/n1/1.0');

# Records of two messages, in one claim each, and what goes before, between and after.
sub two
{
	my ($rows, %records) = @_;
	my %messages = map { my ($id, $token) = split /=/; $token => $id } @$rows;
	return kinds_keyed(p => produced('p:1', 10, %messages), main => ended($rows), %records);
}

subtest 'tokens' => sub {
	is_deeply(Stress::Keyed::Message::parse(7, 'p.1'), { id => 7, key => undef, version => undef, rank => undef }, 'no key');
	is_deeply(Stress::Keyed::Message::parse(7, Stress::Keyed::Message::token('p.1', 'x3', 2, 5)),
		{ id => 7, key => 'x3', version => 2, rank => 5 }, 'compacted');
	my %policies = map { my $g = $_; $g => join ' ', map { Stress::Keyed::Message::policy($g, $_) } undef, qw(o1 x1 n1) }
	  qw(asking defaulting overriding);
	is_deeply(\%policies, {
		asking => 'parallel ordered exclusive parallel', defaulting => 'parallel ordered exclusive exclusive',
		overriding => 'parallel ordered ordered ordered' }, 'policies');
	my $supersedes = sub {
		my ($first, $second) = map { Stress::Keyed::Message::parse(split /=/) } @_;
		return Stress::Keyed::Message::supersedes($first, $second) ? 1 : 0;
	};
	is($supersedes->('1=a/n1/2.0', '2=b/n1/1.9'), 1, 'a higher version supersedes');
	is($supersedes->('1=a/n1/1.9', '2=b/n1/1.0'), 1, 'then a higher rank');
	is($supersedes->('1=a/n1/1.0', '2=b/n1/1.0'), 0, 'then a higher id');
};

subtest 'one holder' => sub {
	my $first = claimed('c:1', 20, 701, '', '1=p.1/x1=0');
	my $acked = acked('c:2', 21, 701, 'all', 1);
	my $second = sub {
		my ($time) = @_;
		return claimed('d:1', $time, 702, '', '2=p.2/x1=0') . acked('d:2', $time + 1, 702, 'all', 1);
	};
	is(two(\@exclusive, c => $first . $acked, d => $second->(22)), '', 'one after the other');
	is(two(\@exclusive, c => $first . $acked, d => $second->(20.5)), 'key with two holders', 'both at once');
	is(two(\@exclusive, c => $first . $acked, d => $second->(21.22)), '', 'at the commit of the ack');
	is(two(\@exclusive, c => $first . nacked('c:2', 21, 701, 'all') . claimed('e:1', 30, 703, '', '1=p.1/x1=0=1=0')
			  . acked('e:2', 31, 703, 'all', 1), d => $second->(22)),
		'', 'while the first is put off');
	is(two(\@exclusive, c => $first, d => $second->(25.1) . claimed('e:1', 30, 703, '', '1=p.1/x1=1')
			  . acked('e:2', 31, 703, 'all', 1)),
		'', 'when the lease of the first has ended');
	is(two(\@exclusive, c => $first, d => $second->(24.9) . claimed('e:1', 30, 703, '', '1=p.1/x1=1')
			  . acked('e:2', 31, 703, 'all', 1)),
		'key with two holders', '... or not yet');
	my @parallel = ('1=p.1/n1', '2=p.2/n1');
	s/x1/n1/g foreach my ($free, $other) = ($first . $acked, $second->(20.5));
	is(two(\@parallel, c => $free, d => $other), '', 'parallel messages');
	is(two(\@parallel, c => $free, d => $other . claimed('e:1', 20.8, 703, '', '1=p.1/n1=0')),
		'two holders at once', '... but one message is with one holder');
	is(two(\@parallel, c => $free, d => $other . claimed('e:1', 28, 703, '', '1=p.1/n1=0')),
		'delivered after its ack', '... and not after its ack');
};

subtest 'several of a key in a claim' => sub {
	my $both = claimed('c:1', 20, 701, '  2', '1=p.1/o1=0', '2=p.2/o1=0');
	is(two(\@ordered, c => $both . acked('c:2', 21, 701, 'all', 2)), '', 'as many as it may carry');
	is(two(\@ordered, c => claimed('c:1', 20, 701, '  1', '1=p.1/o1=0', '2=p.2/o1=0') . acked('c:2', 21, 701, 'all', 2)),
		'too many of a key', 'more than that');
	is(two(\@ordered, c => claimed('c:1', 20, 701, '  2', '2=p.2/o1=0', '1=p.1/o1=0') . acked('c:2', 21, 701, 'all', 2)),
		'key out of order', 'not by id');
	my $again = claimed('d:1', 22, 702, '  2', '1=p.1/o1=0=1=0', '2=p.2/o1=0') . acked('d:2', 23, 702, 'all', 2);
	is(two(\@ordered, c => $both . nacked('c:2', 21, 701, 1), d => $again), '', 'a failed one sends the next back');
	is(two(\@ordered, c => $both . nacked('c:2', 21, 701, 1) . acked('c:3', 21.5, 701, 2, 1), d => $again),
		'accepted after its end, delivered after its ack, several ends', '... which its holder cannot ack then');
	is(two(\@ordered, c => $both . acked('c:3', 20.5, 701, 2, 1) . nacked('c:2', 21, 701, 1),
			d => claimed('d:1', 22, 702, '  2', '1=p.1/o1=0=1=0') . acked('d:2', 23, 702, 'all', 1)),
		'', '... but may before');
	my $at_once = said('c:2', 21, 'resolve  asking  701  keep  1=nack=-=broken  2=ack=-=-', 2);
	is(two(\@ordered, c => $both . $at_once, d => $again), '', '... or in the same call to no effect');
	is(two(\@ordered, c => $both . $at_once, d => claimed('d:1', 22, 702, '  2', '1=p.1/o1=0=1=0') . acked('d:2', 23, 702, 'all', 1)),
		'lost', '... after which it must come again');
	my $refused = <<'TXT';
		21.5  send  ack  c:9  asking  701  2
		21.6  error  ack  c:9  SS004  lost
		21.7  send  rollback  c:9
		21.8  reply  rollback  c:9
TXT
	is(two(\@ordered, c => $both . nacked('c:2', 21, 701, 1) . $refused, d => $again), '', '... as it is told');
	is(two(\@ordered, c => $both . said('c:2', 21, 'reject  asking  701  1  -  broken', 1) . $refused
			  . acked('c:3', 22, 701, 2, 1), main => ended(\@ordered, ['1=dead=1=0=0=broken'])),
		'refused to its holder', 'a dead one does not');
};

subtest 'order' => sub {
	my $first = claimed('c:1', 20, 701, '', '1=p.1/o1=0');
	my $second = claimed('d:1', 22, 702, '', '2=p.2/o1=0') . acked('d:2', 23, 702, 'all', 1);
	my $late = claimed('e:1', 30, 703, '', '1=p.1/o1=0=1=0') . acked('e:2', 31, 703, 'all', 1);
	my $dead = ended(\@ordered, ['1=dead=1=0=0=broken']);
	is(two(\@ordered, c => $first . acked('c:2', 21, 701, 'all', 1), d => $second), '', 'after an ack');
	is(two(\@ordered, c => $first . acked('c:2', 21.9, 701, 'all', 1), d => $second),
		'key with two holders, predecessor passed', 'before the ack');
	is(two(\@ordered, c => $first . nacked('c:2', 21, 701, 'all') . $late, d => $second),
		'predecessor passed', 'while the first is put off');
	is(two(\@ordered, c => $first . said('c:2', 21, 'release  asking  701  all', 1) . $late, d => $second),
		'predecessor passed', 'when the first was handed back');
	is(two(\@ordered, d => $second, e => claimed('e:1', 30, 703, '', '1=p.1/o1=0') . acked('e:2', 31, 703, 'all', 1)),
		'predecessor passed', 'before the first came');
	is(two(\@ordered, c => $first . said('c:2', 21, 'reject  asking  701  all  -  broken', 1), d => $second, main => $dead),
		'', 'after one that is dead');
	my $last = claimed('c:1', 20, 701, '', '1=p.1/o1=0=2=0') . nacked('c:2', 21, 701, 'all');
	is(two(\@ordered, c => $last, d => $second, main => $dead), '', '... by its last failure');
	is(two(\@ordered, c => $first . said('c:2', 21, 'reject  asking  701  all  -  broken', 1), d => $second,
			o => said('o:1', 25, 'redrive  asking  all  -', 1), e => $late),
		'', '... and is redriven later');
	is(two(\@ordered, c => $first, d => $second . $late), 'key with two holders, predecessor passed', 'with the first still out');
};

subtest 'versions' => sub {
	my $newest = claimed('c:1', 20, 701, '', '2=p.2/n1/1.0=0') . acked('c:2', 21, 701, 'all', 1);
	my $superseded = ended(\@versions, [], [1]);
	is(two(\@versions, c => $newest, main => $superseded), '', 'the head alone');
	is(two(\@versions, c => $newest), 'skipped', '... and nobody says why');
	is(two(\@versions, c => $newest, main => ended(\@versions, [], [2])),
		'several ends, skipped, superseded without a newer version', '... or what is wrong');
	my $both = claimed('c:1', 20, 701, '', '1=p.1/n1/1.0=0', '2=p.2/n1/1.0=0') . acked('c:2', 21, 701, 'all', 2);
	is(two(\@versions, c => $both), 'superseded message delivered', 'an older version with it');
	my %apart = (p => produced('p:1', 10, 'p.1/n1/1.0' => 1), q => produced('q:1', 15, 'p.2/n1/1.0' => 2));
	my $older = claimed('b:1', 12, 700, '', '1=p.1/n1/1.0=0');
	is(two(\@versions, %apart, b => $older . acked('b:2', 13, 700, 'all', 1), c => $newest), '', 'an older one before');
	is(two(\@versions, %apart, b => $older . nacked('b:2', 16, 700, 'all'), c => $newest, main => $superseded),
		'', '... which failed, and is superseded then');
	my $again = claimed('b:3', 18, 703, '', '1=p.1/n1/1.0=0=1=0') . acked('b:4', 18.5, 703, 'all', 1);
	is(two(\@versions, %apart, b => $older . nacked('b:2', 13, 700, 'all') . $again, c => $newest),
		'superseded message delivered', '... and must not come again');
	is(two(\@versions, %apart, b => $older . acked('b:2', 13, 700, 'all', 1), main => ended(\@versions, [], [2])),
		'head not delivered last, superseded without a newer version', 'a head that does not come');
	is(two([ '1=p.1/n1/1.7', '2=p.2/n1/1.0' ], c => claimed('c:1', 20, 701, '', '1=p.1/n1/1.7=0')
			  . acked('c:2', 21, 701, 'all', 1), main => ended([ '1=p.1/n1/1.7', '2=p.2/n1/1.0' ], [], [2])),
		'', 'a head by its rank');
};

subtest 'a crash' => sub {
	my $crash = "30  send  crash  -\n31  reply  crash  -\n";
	my %one = (p => produced('p1:1', 10, 'p.1/x1' => 1), k => $crash);
	my $out = claimed('c2:1', 20, 701, '', '1=p.1/x1=0') . acked('c2:2', 21, 701, 'all', 1);
	my $again = claimed('d1:1', 32, 702, '', '1=p.1/x1=0') . acked('d1:2', 33, 702, 'all', 1);
	my $log = ended([ '1=p.1/x1' ]);
	my $by = "900  reply  ended  -  asking  ";
	is(kinds_keyed(%one, c2 => $out, main => $log . $by . "701=1=ack\n"), '', 'an ack that the delivery log has');
	is(kinds_keyed(%one, c2 => $out, main => $log . $by . "700=9=ack\n"), 'lost', '... or has not');
	is(kinds_keyed(%one, c2 => $out, d1 => $again, main => $log . $by . "702=1=ack\n"), '', '... and which is made again');
	is(kinds_keyed(%one, c2 => $out, d1 => $again, main => $log . $by . "701=1=ack  702=1=ack\n"),
		'delivered after its ack, several ends', '... although it was there');
	(my $popped = claimed('c2:1', 20, '-', '', '1=p.1/x1=0')) =~ s/\bclaim\b/pop/g;
	is(kinds_keyed(%one, c2 => $popped, main => $log . $by . "999=1=ack\n"), '', 'a pop');
	is(kinds_keyed(%one, c2 => $popped, main => $log . $by . "999=2=ack\n"), 'lost', '... that is lost');
};

subtest 'the end' => sub {
	my $first = claimed('c:1', 20, 701, '', '1=p.1/x1=0') . acked('c:2', 21, 701, 'all', 1);
	is(two(\@exclusive, c => $first), 'skipped', 'a message that does not come');
	is(two(\@exclusive, c => $first, main => ended(\@exclusive, ['2=deferred=0=0=0='])),
		'not finished', 'one that waits for ever');
	is(two(\@exclusive, c => $first, main => ended(\@exclusive, [ '1=dead=0=0=0=', '2=dead=1=0=0=' ])),
		'several ends', 'one that was acked and is dead');
	is(two(\@exclusive, c => $first, main => ended(\@exclusive, [ '2=dead=1=0=0=', '9=dead=1=0=0=' ])),
		'invented', 'one that nobody produced');
};

done_testing();
