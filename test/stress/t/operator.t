# The checker of the stress program: what redrive, discard and seek do. Each kind
# of violation is found in records written by hand, and correct ones pass.
#
# The group is that of failures.t.

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

my $first = claimed('c:1', 20, 701, '1=p.1=0');
my $reject = said('c:2', 21, 'reject  g  701  1  -  refused 7', 1);
my $dead = logged('1=p.1') . left('1=dead=1=0=0=refused 7');
my $again = claimed('d:1', 25, 702, '1=p.1=0') . acked('d:2', 26, 702, 'all', 1);

# A seek that commits: to, and claimed_before and claimed_after.
sub sought
{
	my ($name, $time, $to, $before, $after) = @_;
	return said($name, $time, "seek  g  $to", join '  ', $before, $after, $time + 0.05);
}

sub rolled_back
{
	my ($records) = @_;
	$records =~ s/commit/rollback/g;
	return $records;
}

subtest 'redrive' => sub {
	my $redrive = said('o:1', 23, 'redrive  g  all  -', 1);
	is(kinds(%one, c => $first . $reject . $again, o => $redrive), '', 'of all');
	is(kinds(%one, c => $first . $reject . $again, o => said('o:1', 23, 'redrive  g  1 2  -', 1)), '', 'of some');
	is(kinds(%one, c => $first . $reject . $again, o => said('o:1', 23, 'redrive  g  2  -', 0)),
		'dead message delivered', 'of others');
	is(kinds(%one, c => $first . $reject . $again, o => said('o:1', 23, 'redrive  g  all  refused', 1)),
		'', 'of those with its error');
	is(kinds(%one, c => $first . $reject . $again, o => said('o:1', 23, 'redrive  g  all  broken', 0)),
		'dead message delivered', 'of those with another error');
	is(kinds(%one, c => $first . $reject . $again, o => rolled_back($redrive)),
		'dead message delivered', 'that was rolled back');
	is(kinds(%one, c => $first . $reject . $again, o => said('o:1', 30, 'redrive  g  all  -', 1)),
		'dead message delivered', 'that comes later');
	is(kinds(%one, c => $first . $reject . claimed('d:1', 25, 702, '1=p.1=0=1=0')
			  . acked('d:2', 26, 702, 'all', 1), o => $redrive),
		'wrong attempts', 'that gives no new budget');
	my $lost_first = claimed('b:1', 14, 700, '1=p.1=0') . claimed('c:1', 20, 701, '1=p.1=1');
	is(kinds(%one, c => $lost_first . $reject . $again, o => $redrive), '', 'that forgets lost leases');
	is(kinds(%one, c => $lost_first . $reject . claimed('d:1', 25, 702, '1=p.1=1')
			  . acked('d:2', 26, 702, 'all', 1), o => $redrive),
		'wrong takeovers', 'that remembers lost leases');
	is(kinds(%one, c => $first . $reject, o => $redrive), 'lost', 'that swallows the message');
	is(kinds(%one, c => $first . $reject, o => $redrive, main => $dead), 'dead without a cause', 'that does nothing');
	is(kinds(%one, c => $first . $reject . $again, o => said('o:1', 23, 'redrive  g  all  -', 2)),
		'wrong count', 'that counts too many');
	is(kinds(%one, c => $first . $reject, o => said('o:1', 23, 'redrive  g  all  -', 0), main => $dead),
		'dead without a cause', 'that finds nothing');
	is(kinds(%one, c => $first . $reject . $again, o => $redrive . said('o:2', 23.5, 'redrive  g  all  -', 1)),
		'wrong count', 'that counts again');
	is(kinds(%one, c => $first . $reject . $again, o => said('o:1', 21.05, 'redrive  g  all  -', 0)
			  . said('o:2', 23, 'redrive  g  all  -', 1)),
		'', 'at the same time as what it would find');
};

subtest 'discard' => sub {
	my $discard = said('o:1', 23, 'discard  g  all  -', 1);
	is(kinds(%one, c => $first . $reject, o => $discard), '', 'of all');
	is(kinds(%one, c => $first . $reject, o => $discard, main => $dead), 'dead without a cause', 'that does nothing');
	is(kinds(%one, c => $first . $reject, o => rolled_back($discard)), 'dead message vanished',
		'that was rolled back');
	is(kinds(%one, c => $first . $reject . $again, o => $discard),
		'delivered after its end', 'of what comes again');
	is(kinds(%one, c => $first, o => said('o:1', 23, 'discard  g  all  -', 0)), 'lost', 'of what is not dead');
};

subtest 'seek back' => sub {
	my $acked = claimed('c:1', 20, 701, '1=p.1=0', '2=p.2=0') . acked('c:2', 21, 701, 'all', 2);
	my $both = claimed('d:1', 25, 702, '1=p.1=0', '2=p.2=0') . acked('d:2', 26, 702, 'all', 2);
	my $second = claimed('d:1', 25, 702, '2=p.2=0') . acked('d:2', 26, 702, 'all', 1);
	is(kinds(%two, c => $acked . $both, o => sought('o:1', 23, 1, 2, 0)), '', 'brings back what was acked');
	is(kinds(%two, c => $acked . $second, o => sought('o:1', 23, 2, 2, 1)), '', '... from an id on');
	is(kinds(%two, c => $acked . $both, o => sought('o:1', 23, 2, 2, 1)), 'acked twice', '... and no more');
	is(kinds(%two, c => $acked, o => sought('o:1', 23, 1, 2, 0)), 'lost', 'but nothing comes');
	is(kinds(%two, c => $acked, o => rolled_back(sought('o:1', 23, 1, 2, 0))), '', 'is rolled back');
	is(kinds(%two, c => $acked . $both, o => rolled_back(sought('o:1', 23, 1, 2, 0))),
		'acked twice', 'is rolled back, and things come again');
	my $nacked = claimed('c:1', 20, 701, '1=p.1=0', '2=p.2=0')
	  . said('c:2', 21, 'nack  g  701  all  60  refused', 0);
	is(kinds(%two, c => $nacked . $both, o => sought('o:1', 23, 1, 2, 0)), '', 'forgets failures');
	(my $remembered = $both) =~ s/1=p\.1=0/1=p.1=0=1=0/;
	is(kinds(%two, c => $nacked . $remembered, o => sought('o:1', 23, 1, 2, 0)),
		'wrong attempts', 'must forget failures');
	my $rejected = claimed('c:1', 20, 701, '1=p.1=0', '2=p.2=0')
	  . said('c:2', 21, 'reject  g  701  all  -  refused', 2);
	is(kinds(%two, c => $rejected . $both, o => sought('o:1', 23, 1, 2, 0)), '', 'brings back what was dead');
	is(kinds(%two, c => $rejected . $both, o => sought('o:1', 23, 1, 2, 0),
			main => logged('1=p.1', '2=p.2') . left('1=dead=1=0=0=refused')),
		'dead without a cause', '... which is not dead then');
};

subtest 'seek and open claims' => sub {
	my $open = claimed('c:1', 20, 701, '1=p.1=0', '2=p.2=0');
	my $both = claimed('d:1', 23, 702, '1=p.1=0', '2=p.2=0') . acked('d:2', 24, 702, 'all', 2);
	my $first = claimed('d:1', 23, 702, '1=p.1=0') . acked('d:2', 23.5, 702, 'all', 1);
	my $refused = <<'TXT';
		22.8  send  ack  c:9  g  701  all
		22.9  error  ack  c:9  SS004  lost
		22.91  send  rollback  c:9
		22.92  reply  rollback  c:9
TXT
	is(kinds(%two, c => $open . $refused . $both, o => sought('o:1', 22, 1, 2, 0)), '', 'drops a claim');
	is(kinds(%two, c => $open . $refused . $both), 'refused to its holder, two holders at once',
		'... which nobody else does');
	is(kinds(%two, c => $open . acked('c:3', 24, 701, 'all', 2), o => sought('o:1', 22, 1, 2, 0)),
		'dropped claim accepted, lost', '... whose ack comes too late');
	is(kinds(%two, c => $open . <<'TXT' . $both, o => sought('o:1', 22, 1, 2, 0)),
		22.6  send  commit  c:3
		22.6  send  ack  c:3  g  701  all
		22.7  lost  ack  c:3  -  gone
TXT
		'', '... whose ack may have been refused');
	is(kinds(%two, c => $open . $both, o => sought('o:1', 22, 2, 2, 1)), '', 'drops the rest of the claim');
	(my $charged = $both) =~ s/1=p\.1=0/1=p.1=1/;
	is(kinds(%two, c => $open . $charged, o => sought('o:1', 22, 2, 2, 1)),
		'delivered too early', '... without counting it as lost');
	is(kinds(%two, c => $open . $first, o => sought('o:1', 22, 2, 2, 1)), 'lost', '... and brings back its part');
	my $extended = said('c:3', 22.01, 'extend  g  701  5 seconds', 25.05) . $refused;
	is(kinds(%two, c => $open . $extended . $both, o => sought('o:1', 22, 1, 2, 0)),
		'', 'keeps its end while it is being dropped');
	is(kinds(%two, c => $open . $extended . acked('c:9', 24, 701, 'all', 2)),
		'refused to its holder, wrong lease', '... and not otherwise');
	my $prepared = <<'TXT' . committed('c:3', 24, 24.1, '');
		21  send  nack  c:3  g  701  all  -  refused
		21.1  reply  nack  c:3  0
		21.2  send  prepare  c:3
		21.3  reply  prepare  c:3
TXT
	my $nacked = claimed('d:1', 26, 702, '1=p.1=0=1=0', '2=p.2=0=1=0') . acked('d:2', 27, 702, 'all', 2);
	is(kinds(%two, c => $open . $prepared . $nacked, o => sought('o:1', 22, 3, 2, 2)),
		'', 'leaves alone a claim that it does not reach');
};

subtest 'seek forward' => sub {
	my $first = claimed('c:1', 20, 701, '1=p.1=0') . acked('c:2', 21, 701, 'all', 1);
	my $second = claimed('d:1', 25, 702, '2=p.2=0') . acked('d:2', 26, 702, 'all', 1);
	is(kinds(%two, c => $first, o => sought('o:1', 23, 3, 1, 2)), '', 'skips');
	is(kinds(%two, c => $first, o => sought('o:1', 23, 2, 1, 1)), 'skipped', 'does not skip the place itself');
	is(kinds(%two, c => $first . $second, o => sought('o:1', 23, 3, 1, 2)),
		'delivered after its end', 'skips, and it comes');
	is(kinds(%two, c => $first . $second, o => sought('o:1', 23, 3, 1, 2) . sought('o:2', 24, 2, 2, 1)),
		'', 'and back');
	my $rejected = claimed('c:1', 20, 701, '1=p.1=0') . said('c:2', 21, 'reject  g  701  all  -  refused', 1);
	is(kinds(%two, c => $rejected, o => sought('o:1', 23, 3, 1, 2),
			main => logged('1=p.1', '2=p.2') . left('1=dead=1=0=0=refused')),
		'', 'keeps the dead');
};

subtest 'seek to the head' => sub {
	my $first = claimed('c:1', 20, 701, '1=p.1=0') . acked('c:2', 21, 701, 'all', 1);
	my $head = sought('o:1', 23, 'head', 1, 1);
	my $second = claimed('d:1', 35, 702, '2=p.2=0') . acked('d:2', 36, 702, 'all', 1);
	is(kinds(%two, c => $first, o => $head), '', 'skips what was committed');
	is(kinds(%two, c => $first . $second, o => $head), 'delivered after its end', '... which must not come');
	my %late = (%two, p => $one, q => <<'TXT' . committed('q:1', 30, 30.1, ''));
		15  send  produce  q:1  p.2
		15.1  reply  produce  q:1  2
TXT
	is(kinds(%late, c => $first . $second, o => $head), '', 'brings what commits later');
	is(kinds(%late, c => $first, o => $head), 'skipped', '... which must come');
	is(kinds(%two, c => $first . $second, o => $head . sought('o:2', 24, 2, 1, 1)),
		'', 'is forgotten by the next');
};

done_testing();
