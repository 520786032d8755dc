package Stress::Options;

# The command line.

use strict;
use warnings;
use Getopt::Long ();

my %DEFAULTS = (
	duration => 20,
	seed => undef,
	producers => 6,
	consumers => 9,
	groups => 3,
	'partition-size' => 1000,
	rate => 1500,
	'keyed-producers' => 2,
	'keyed-consumers' => 6,
	'keyed-rate' => 200,
	keepers => 2,
	crashes => 1,
	'drain-limit' => 120,
	records => undef,
	keep => 0);

my $USAGE = <<'TEXT';
Usage: test/stress/run [option ...]

Produces to and consumes from a stream with many clients at once, in every way
that SQL allows, and then checks from the records of the clients that nothing
was lost, skipped, invented or given to two holders at once, and that each
message was tried again, put off and given up exactly as it should be. At the
same time, on another stream, it does so with message keys, and checks also from
the server's delivery log that no exclusive key was with two holders, no ordered
message passed one before it, and no superseded one was delivered.

Meanwhile messages and idempotency keys live for a few seconds only, and the worker
that looks after them is terminated, switched off and on for the whole server, and
killed, which makes the server recover: so use a server that nobody else needs. The
database is the one of the libpq environment variables, as a superuser; the streams
are the run's own.

  --duration=SECONDS     how long producers work (20)
  --seed=N               of the random choices; they also depend on timing
  --producers=N          processes that produce (6)
  --consumers=N          processes that consume (9), dealt out to the groups
  --groups=N             consumer groups (3), and one more that pops
  --partition-size=N     message ids per partition (1000)
  --rate=N               messages a second, at most (1500)
  --keyed-producers=N    processes that produce messages with keys (2)
  --keyed-consumers=N    processes that consume them, in three groups (6)
  --keyed-rate=N         messages with keys a second, about (200)
  --keepers=N            processes with streams of their own, of which they know at
                         any moment what must be in them (2)
  --crashes=N            how often the worker is killed, which makes the server
                         recover (1)
  --drain-limit=SECONDS  how long consumers may take for the rest (120)
  --records=DIRECTORY    where to keep the records (a temporary directory,
                         removed when all is well)
  --keep                 keep the stream and the records also then

The exit status is 0 when all is well, 1 after a violation, 2 when the run could
not be made. With max_prepared_transactions at 0 none are prepared.
TEXT

# Parses the arguments into a hash; exits after --help, dies when they are bad.
sub parse
{
	my (@arguments) = @_;
	my %options = %DEFAULTS;
	my $parser = Getopt::Long::Parser->new;
	my $is_good = $parser->getoptionsfromarray(\@arguments, \%options, 'duration=f', 'seed=i',
		'producers=i', 'consumers=i', 'groups=i', 'partition-size=i', 'rate=f',
		'keyed-producers=i', 'keyed-consumers=i', 'keyed-rate=f', 'keepers=i', 'crashes=i', 'drain-limit=f', 'records=s', 'keep', 'help');
	if ($options{help})
	{
		print $USAGE;
		exit 0;
	}
	die $USAGE if !$is_good || @arguments;
	foreach my $name (qw(duration producers consumers groups rate drain-limit), grep { /^keyed/ } keys %DEFAULTS)
	{
		die "--$name must be positive\n" unless $options{$name} > 0;
	}
	die "--consumers must be more than --groups, as one group more pops\n"
	  unless $options{consumers} > $options{groups};
	die "--keyed-consumers must be 3 or more, one for each group\n" unless $options{'keyed-consumers'} >= 3;
	$options{seed} //= int rand 1_000_000;
	return %options;
}

1;
