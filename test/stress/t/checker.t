# The checker of the stress program: each kind of violation of what holds for
# produce, claim, ack, release and extend is found in records written by hand, and
# correct ones pass.

use strict;
use warnings;
use FindBin ();
use lib $FindBin::RealBin, "$FindBin::RealBin/../lib";
use File::Temp ();
use HandWritten qw(kinds committed produced claimed acked logged left);
use Stress::History;
use Stress::Summary;
use Test::More;

my $producer = produced('p:1', 10, 'p.1' => 1, 'p.2' => 2);
my $claim = claimed('c:1', 20, 777, '1=p.1=0', '2=p.2=0');
my $ack = acked('c:2', 21, 777, 'all', 2);
my $log = logged('1=p.1', '2=p.2');
my %clean = (p => $producer, c => $claim . $ack, main => $log);

is(kinds(%clean), '', 'a clean run passes');

subtest 'messages' => sub {
	is(kinds(%clean, c => claimed('c:1', 20, 777, '1=p.1=0') . acked('c:2', 21, 777, 'all', 1)),
		'skipped', 'a message that never comes');
	is(kinds(%clean, c => $claim . acked('c:2', 21, 777, '1', 1)), 'lost', 'a message never acked');
	is(kinds(%clean, main => logged('1=p.1')), 'lost', 'a message that is not in the log');
	is(kinds(%clean, main => logged('1=p.1', '2=p.2', '3=x.1')), 'invented', 'a log row from nowhere');
	is(kinds(%clean, main => logged('1=p.1', '3=p.2')), 'wrong id', 'a log row with another id');
	is(kinds(%clean, main => left()), 'no log', 'a log that was not read');
	(my $no_exceptions = $log) =~ s/.*exceptions.*\n//;
	is(kinds(%clean, main => $no_exceptions), 'no exceptions', 'exceptions that were not read');
	is(kinds(%clean, c => claimed('c:1', 20, 777, '1=p.1=0', '2=p.2=0', '3=x.1=0')
			  . acked('c:2', 21, 777, 'all', 3)),
		'invented', 'a delivery from nowhere');
	is(kinds(%clean, c => claimed('c:1', 20, 777, '1=p.2=0', '2=p.1=0') . $ack),
		'wrong id', 'payloads swapped');
	is(kinds(%clean, c => claimed('c:1', 9, 777, '1=p.1=0', '2=p.2=0') . $ack),
		'delivered before its commit', 'an early delivery');
};

subtest 'transactions' => sub {
	my $rolled_back = $producer;
	$rolled_back =~ s/commit/rollback/g;
	is(kinds(p => $rolled_back, c => '', main => logged()), '', 'a rollback leaves nothing');
	is(kinds(p => $rolled_back, c => $claim . $ack, main => logged()),
		'invented', 'a delivery of what was rolled back');
	is(kinds(p => $rolled_back, c => '', main => $log), 'invented', 'a row of what was rolled back');

	my $undone = <<'TXT' . committed('p:2', 12, 12.1, '');
		11.1  send  savepoint  p:2  s1
		11.2  reply  savepoint  p:2
		11.3  send  produce  p:2  p.3
		11.4  reply  produce  p:2  3
		11.5  send  rollback_to  p:2  s1
		11.6  reply  rollback_to  p:2
TXT
	my $delivered = claimed('c:1', 20, 777, '1=p.1=0', '2=p.2=0', '3=p.3=0')
	  . acked('c:2', 21, 777, 'all', 3);
	is(kinds(%clean, p => $producer . $undone), '', 'a savepoint rolled back leaves nothing');
	is(kinds(%clean, p => $producer . $undone, c => $delivered),
		'invented', 'a delivery of what was rolled back to a savepoint');

	my $failed = <<'TXT' . committed('p:2', 12, 12.1, '');
		11.3  send  produce  p:2  p.3
		11.4  error  produce  p:2  22012  division by zero
TXT
	is(kinds(%clean, p => $producer . $failed, c => $delivered),
		'invented', 'a delivery of what failed');

	my $unknown = <<'TXT';
		11.1  send  produce  p:2  p.3  p.4
		11.2  reply  produce  p:2  3  4
		11.3  send  commit  p:2
		11.4  lost  commit  p:2  -  gone
TXT
	is(kinds(%clean, p => $producer . $unknown), '', 'a lost commit that did not happen');
	is(kinds(%clean, p => $producer . $unknown, main => logged('1=p.1', '2=p.2', '3=p.3', '4=p.4')),
		'skipped', 'a lost commit that happened counts');
	is(kinds(%clean, p => $producer . $unknown, main => logged('1=p.1', '2=p.2', '3=p.3')),
		'skipped, torn transaction', 'half a transaction');

	my $prepared = <<'TXT';
		11.1  send  produce  p:2  p.3
		11.2  reply  produce  p:2  3
		11.3  send  prepare  p:2
		11.4  reply  prepare  p:2
TXT
	my %rolled_back_later =
	  (f => "12  send  rollback  p:2\n12.1  reply  rollback  p:2\n", p => $producer . $prepared);
	my %committed_later = (f => committed('p:2', 12, 12.1, ''), p => $producer . $prepared,
		main => logged('1=p.1', '2=p.2', '3=p.3'));
	is(kinds(%clean, %rolled_back_later), '', 'a prepared transaction that was rolled back');
	is(kinds(%clean, %rolled_back_later, c => $delivered), 'invented', '... and delivered');
	is(kinds(%clean, %committed_later), 'skipped', 'a prepared transaction that was committed');
	is(kinds(%clean, %committed_later, c => $delivered), '', '... and delivered');
};

subtest 'ids' => sub {
	my %swapped = (c => claimed('c:1', 20, 777, '1=p.2=0', '2=p.1=0') . $ack,
		main => logged('2=p.1', '1=p.2'));
	is(kinds(%clean, %swapped, p => <<'TXT' . committed('p:1', 12, 12.1, '')),
		10  send  produce  p:1  p.1  p.2
		11  reply  produce  p:1  2  1
TXT
		'ids out of order', 'within a batch');
	is(kinds(%clean, %swapped, p => <<'TXT' . committed('p:1', 12, 12.1, '')),
		10  send  produce  p:1  p.1
		10.1  reply  produce  p:1  2
		11  send  produce  p:1  p.2
		11.1  reply  produce  p:1  1
TXT
		'ids out of order', 'from one call to the next');
	is(kinds(%clean, p => <<'TXT' . committed('p:1', 12, 12.1, '')),
		10  send  produce  p:1  p.1  p.2
		11  reply  produce  p:1  1  2  3
TXT
		'wrong number of ids', 'one too many');
};

subtest 'idempotency keys' => sub {
	my $again = produced('q:1', 12, 'q.1=k' => 0);
	is(kinds(%clean, p => produced('p:1', 10, 'p.1=k' => 1, 'p.2' => 2), q => $again),
		'', 'a duplicate');
	is(kinds(%clean, q => $again), 'duplicate without an original', 'a key that nobody had');
	is(kinds(%clean, q => produced('q:1', 12, 'q.1' => 0)),
		'duplicate without an original', 'a message without a key');
	my $early = produced('q:1', 9, 'q.1=k' => 0);
	is(kinds(%clean, p => produced('p:1', 10, 'p.1=k' => 1, 'p.2' => 2), q => $early),
		'duplicate without an original', 'a duplicate of what comes later');
	is(kinds(%clean, p => produced('p:1', 10, 'p.1=k' => 1, 'p.2=k' => 2)),
		'key given twice', 'two messages of one key');
	my $undone = produced('q:1', 12, 'q.1=k' => 3);
	$undone =~ s/commit/rollback/g;
	is(kinds(%clean, p => produced('p:1', 10, 'p.1=k' => 1, 'p.2' => 2), q => $undone),
		'key given twice', 'a second holder that is rolled back');
	my $before = produced('q:1', 8, 'q.1=k' => 1);
	$before =~ s/commit/rollback/g;
	my %rest = (c => claimed('c:1', 20, 777, '2=p.1=0') . acked('c:2', 21, 777, 'all', 1),
		main => logged('2=p.1'));
	is(kinds(p => produced('p:1', 10, 'p.1=k' => 2), q => $before, %rest),
		'', 'a second holder after the first was rolled back');
	my $failed = <<'TXT';
		9  send  produce  q:1  q.1=k
		9.1  reply  produce  q:1  1
		9.2  send  produce  q:1  q.2=m
		10.5  error  produce  q:1  40P01  deadlock
		10.6  send  rollback  q:1
		10.7  reply  rollback  q:1
TXT
	is(kinds(p => produced('p:1', 10, 'p.1=k' => 2), q => $failed, %rest),
		'', 'a second holder after the first had failed');
	my $gone = <<'TXT';
		9  send  produce  q:1  q.1=k
		10.5  reply  produce  q:1  1
		10.6  send  rollback  q:1
		10.7  lost  rollback  q:1  -  gone
TXT
	is(kinds(p => produced('p:1', 10, 'p.1=k' => 2), q => $gone, %rest),
		'', 'a second holder after the first had been taken away');
};

subtest 'holders' => sub {
	my $other = claimed('d:1', 22, 888, '1=p.1=1');
	is(kinds(%clean, d => $other), 'delivered after its ack', 'a message that was acked');
	is(kinds(%clean, d => $other . acked('d:2', 23, 888, 'all', 1)), 'acked twice', '... and again');
	is(kinds(%clean, c => $claim . acked('c:2', 23, 777, 'all', 2), d => $other),
		'two holders at once', 'a message in two claims, the first acked');
	is(kinds(%clean, c => $claim, d => claimed('d:1', 22, 888, '1=p.1=1', '2=p.2=1')
			  . acked('d:2', 23, 888, 'all', 2)),
		'two holders at once', 'a message in two claims, the second acked');
	my $takeover = claimed('d:1', 26, 888, '1=p.1=1', '2=p.2=1') . acked('d:2', 27, 888, 'all', 2);
	is(kinds(%clean, c => $claim, d => $takeover), '', 'a lease that ended');
	is(kinds(%clean, c => $claim . acked('c:2', 28, 777, 'all', 2), d => $takeover),
		'acked twice', 'a stale ack that is accepted');
	(my $take_over_undone = claimed('d:1', 26, 888, '1=p.1=1', '2=p.2=1')) =~ s/commit/rollback/g;
	is(kinds(%clean, c => $claim . acked('c:2', 28, 777, 'all', 2), d => $take_over_undone),
		'', 'a late ack after a take-over that was rolled back');
	(my $early_undone = claimed('d:1', 22, 888, '1=p.1=0', '2=p.2=0')) =~ s/commit/rollback/g;
	is(kinds(%clean, c => $claim . acked('c:2', 24, 777, 'all', 2), d => $early_undone),
		'two holders at once', 'a claim within a lease, though it was rolled back');
	is(kinds(%clean, c => $claim . <<'TXT', d => $takeover), '', 'a stale ack that is refused');
		28  send  ack  c:2  g  777  all
		28.1  error  ack  c:2  SS004  lost
		28.2  send  rollback  c:2
		28.3  reply  rollback  c:2
TXT
	is(kinds(%clean, c => $claim . <<'TXT' . committed('c:2', 24.2, 24.3, ''), d => $takeover),
		24  send  extend  c:2  g  777  5 seconds
		24.1  reply  extend  c:2  29.05
TXT
		'two holders at once', 'a lease that was extended');
	is(kinds(%clean, c => $claim . <<'TXT', d => $takeover),
		24  send  ack  c:2  g  777  all
		24.1  reply  ack  c:2  2
		27.5  send  rollback  c:2
		27.6  reply  rollback  c:2
TXT
		'two holders at once', 'a lease that ended while its ack was open');
	is(kinds(%clean, c => $claim . <<'TXT' . committed('c:2', 21.2, 21.3, ''), d => <<'TXT2'),
		21  send  release  c:2  g  777  all
		21.1  reply  release  c:2  2
TXT
		22  send  commit  d:1
		22  send  pop  d:1  g  10    -
		22.1  reply  pop  d:1  888  24  22.05  1=p.1=0  2=p.2=0
		22.2  reply  commit  d:1
TXT2
		'', 'messages that were released');
	(my $undone = $claim) =~ s/commit/rollback/g;
	is(kinds(%clean, c => $undone, d => claimed('d:1', 22, 888, '1=p.1=0', '2=p.2=0')
			  . acked('d:2', 23, 888, 'all', 2)),
		'', 'a claim that was rolled back');
	is(kinds(%clean, c => $undone . $ack, d => claimed('d:1', 22, 888, '1=p.1=0', '2=p.2=0')
			  . acked('d:2', 23, 888, 'all', 2)),
		'rolled-back claim accepted', 'an ack of a claim that was rolled back');
	my $inside = claimed('d:1', 20.05, 888, '1=p.1=0');
	$inside =~ s/commit/rollback/g;
	is(kinds(%clean, d => $inside), 'two holders at once', 'a claim within an open one');
};

subtest 'claims' => sub {
	is(kinds(%clean, c => claimed('c:1', 20, '776+777', '1=p.1=0', '2=p.2=0')
			  . acked('c:2', 21, '776+777', 'all', 2)),
		'several claim ids', 'rows of two claims');
	my $repeated = claimed('d:1', 30, 777, '1=p.1=0');
	$repeated =~ s/commit/rollback/g;
	is(kinds(%clean, d => $repeated), 'claim id used twice, delivered after its ack',
		'a claim id that comes back');
	(my $small = $claim) =~ s/g  10/g  1/;
	is(kinds(%clean, c => $small . $ack), 'too many messages', 'more than were asked for');
	is(kinds(%clean, c => claimed('c:1', 20, 777, '1=p.1=0', '2=p.2=0', '2=p.2=0')
			  . acked('c:2', 21, 777, 'all', 2)),
		'acked twice, message twice in a claim, wrong count', 'a message twice in one claim');
	(my $short = $claim) =~ s/25\.05/22.05/;
	is(kinds(%clean, c => $short . $ack), 'wrong lease', 'a lease that is too short');
	(my $long = $claim) =~ s/25\.05/25.5/;
	is(kinds(%clean, c => $long . $ack), 'wrong lease', 'a lease that is too long');
	is(kinds(%clean, c => claimed('c:1', 20, 777, '1=p.1=1', '2=p.2=0') . $ack),
		'wrong takeovers', 'a take-over from nobody');
};

subtest 'answers' => sub {
	is(kinds(%clean, c => $claim . acked('c:2', 21, 777, 'all', 1)), 'wrong count', 'a wrong count');
	is(kinds(%clean, c => $claim . acked('c:2', 21, 777, '1', 1) . acked('c:3', 22, 777, 'all', 1)),
		'', 'an ack of the rest');
	is(kinds(%clean, c => $claim . acked('c:2', 21, 777, '1', 1) . acked('c:3', 22, 777, '1 2', 2)),
		'wrong count', 'an ack of what was acked before');
	my $refused = <<'TXT';
		20.5  send  ack  c:9  g  777  all
		20.6  error  ack  c:9  SS004  lost
		20.7  send  rollback  c:9
		20.8  reply  rollback  c:9
TXT
	is(kinds(%clean, c => $claim . $refused . $ack), 'refused to its holder', 'an ack refused');
	(my $later = $refused) =~ s/^(\s*)20/${1}26/gm;
	my $late_ack = acked('c:3', 28, 777, 'all', 2);
	is(kinds(%clean, c => $claim . $later . $late_ack), 'refused to its holder',
		'... when its lease has ended and nobody has claimed');
	my $empty = committed('d:1', 25.6, 25.7, <<'TXT');
		25.4  send  claim  d:1  g  10  5 seconds  -
		25.5  reply  claim  d:1  -  -  -
TXT
	is(kinds(%clean, c => $claim . $later . claimed('d:2', 33, 778, '1=p.1=1', '2=p.2=1')
			  . acked('d:3', 34, 778, 'all', 2), d => $empty),
		'', '... but not when somebody has, and got nothing');
	(my $deadlock = $refused) =~ s/SS004/40P01/;
	is(kinds(%clean, c => $claim . $deadlock . $ack), 'unexpected error', 'another error');
	is(kinds(%clean, c => $claim . <<'TXT' . committed('c:2', 21.2, 21.3, '') . acked('c:3', 22, 777, 'all', 2)),
		21  send  release  c:2  g  777  all
		21.1  reply  release  c:2  0
TXT
		'refused to its holder', 'a release that finds nothing');
	is(kinds(%clean, c => $claim . <<'TXT' . committed('c:2', 21.2, 21.3, '') . acked('c:3', 22, 777, 'all', 2)),
		21  send  extend  c:2  g  777  5 seconds
		21.1  reply  extend  c:2  23
TXT
		'wrong lease', 'an extension that shortens');
	my $late = <<'TXT' . committed('c:2', 26.2, 26.3, '');
		24  send  extend  c:2  g  777  5 seconds
		26.1  reply  extend  c:2  25.05
TXT
	is(kinds(%clean, c => $claim . $late . acked('c:3', 27, 777, 'all', 2)),
		'', 'an extension that comes after the end');
	$late =~ s/26\.1  reply/25  reply/;
	is(kinds(%clean, c => $claim . $late . acked('c:3', 27, 777, 'all', 2)),
		'wrong lease', 'an extension that does nothing');
};

subtest 'a run that tries nothing' => sub {
	my $directory = File::Temp::tempdir(CLEANUP => 1);
	open my $file, '>', "$directory/main.records" or die $!;
	print {$file} "1\treply\tlog\t-\n";
	close $file;
	my $counts = Stress::Summary::counts(Stress::History->read($directory));
	my @shortfalls = Stress::Summary::shortfalls($counts, 1, 20);
	cmp_ok(scalar @shortfalls, '>', 15, 'is no proof');
	my @without_prepared = grep { /prepared/ } map { $_->[1] } Stress::Summary::shortfalls($counts, 0, 20);
	is(@without_prepared, 0, 'but prepared transactions may be off');
	my @short_run = Stress::Summary::shortfalls($counts, 1, 5);
	is(@short_run, 0, 'and a short run need not show all');
};

done_testing();
