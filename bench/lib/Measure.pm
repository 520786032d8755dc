# Runs SQL and pgbench, measures sides in interleaved rounds, prints the result.
#
# A side is a hash:
#   name       what the result calls it
#   script     a file of bench/sql, or text => the script itself
#   vars       pgbench variables for it; n is written into the script
#   per        messages in one transaction (default 1)
#   clients    default 1
#   before, after   code that runs untimed around each round
#   left       SQL that counts what there still is to consume: 0 after a round
#   grow       spoils the round, which is then repeated after this code ran
#   run        code that returns the figure itself, instead of a pgbench rate
#   unit       of the figure (default messages a second)
package Measure;

use strict;
use warnings;
use Exporter 'import';
use File::Basename qw(dirname);
use File::Temp qw(tempdir);
use List::Util qw(max min);
use Time::HiRes qw(sleep time);

our @EXPORT = qw(%options sql query sql_file background stop_background
  pgbench copy_rate measure report ratio median each_client_count clients_in_words);

our %options = (rounds => 5, seconds => 10);

my $sql_dir = dirname(__FILE__) . '/../sql';
my $scratch = tempdir(CLEANUP => 1);
my ($cores) = `getconf _NPROCESSORS_ONLN` =~ /(\d+)/;

# Debian keeps pgbench out of the PATH.
chomp(my $bindir = `@{[ $ENV{PG_CONFIG} || 'pg_config' ]} --bindir 2>/dev/null`);
my ($psql, $pgbench) = map { -x "$bindir/$_" ? "$bindir/$_" : $_ } qw(psql pgbench);
my @psql = ($psql, qw(-XAtq -v ON_ERROR_STOP=1));

# A JSON document of exactly 1,000 bytes, as an application would send it.
my $payload = do
{
	my @lines = map { sprintf '{"sku": "AB-%05d", "quantity": %d, "price": %.2f, "gift": %s}',
		  7919 * $_ % 100000, $_ % 7 + 1, $_ * 13.37, $_ % 2 ? 'true' : 'false' } 1 .. 9;
	my $json = '{"order_id": 123456789, "customer": {"id": 4711, "name": "Ada Example", '
	  . '"email": "ada@example.com", "country": "NL"}, "currency": "EUR", '
	  . '"created_at": "2024-02-29T12:34:56.789Z", "paid": true, "discount": null, '
	  . '"lines": [' . join(', ', @lines) . '], "note": "%s"}';
	sprintf $json, 'x' x (1000 - length($json) + 2);
};

sub run_psql
{
	my ($file, %vars) = @_;
	my $pid = open(my $out, '-|', @psql, (map { ('-v', "$_=$vars{$_}") } sort keys %vars), '-f', $file)
	  or die "psql: $!\n";
	my $result = do { local $/; <$out> };
	close $out or die "psql failed on $file\n";
	chomp $result if defined $result;
	return $result;
}

sub sql
{
	my ($text) = @_;
	my $file = write_scratch('psql.sql', $text);
	return run_psql($file);
}

sub query { return sql("$_[0];") }

sub sql_file
{
	my ($name) = @_;
	return run_psql("$sql_dir/$name", payload => $payload);
}

sub write_scratch
{
	my ($name, $text) = @_;
	open my $file, '>', "$scratch/$name" or die "$scratch/$name: $!\n";
	print $file $text;
	close $file or die "$scratch/$name: $!\n";
	return "$scratch/$name";
}

# Starts a session that runs the statements and then stays as it is, with its
# transaction open, until stop_background.
sub background
{
	my ($text) = @_;
	my $name = "bench_background_$$";
	my $pid = open(my $in, '|-', @psql, '-o', '/dev/null') or die "psql: $!\n";
	$in->autoflush(1);
	print $in "SET application_name = '$name';\n$text\nSET application_name = '$name ready';\n";
	until (query("SELECT count(*) FROM pg_stat_activity WHERE application_name = '$name ready' AND state LIKE 'idle%'"))
	{
		sleep 0.1;
	}
	return $in;
}

sub stop_background { close $_[0]; return }

# The script of a side as a file for pgbench.
sub script_file
{
	my ($side) = @_;
	my $text = $side->{text};
	if (!defined $text)
	{
		open my $in, '<', "$sql_dir/$side->{script}.sql" or die "$side->{script}: $!\n";
		$text = do { local $/; <$in> };
	}
	$text =~ s/(?<!:):n\b/$side->{vars}{n}/g;
	return write_scratch(($side->{script} // 'text') . "-$side->{name}.sql" =~ s/[^\w.-]+/_/gr, $text);
}

# Runs pgbench on one or more sides' scripts (weights by their weight) and
# returns transactions a second. Any of -T, -t may be given as how.
sub pgbench
{
	my ($how, @sides) = @_;
	my $clients = $sides[0]{clients} // 1;
	my %vars = (loaded => 0, payload => $payload, map { %{ $_->{vars} // {} } } @sides);
	my @command = ($pgbench, qw(-n -M prepared), '-c', $clients, '-j', min($clients, $cores), @$how);
	push @command, '-D', "$_=$vars{$_}" foreach sort keys %vars;
	push @command, '-f', script_file($_) . '@' . ($_->{weight} // 1) foreach @sides;

	my $pid = open(my $out, '-|') // die "fork: $!\n";
	if (!$pid)
	{
		open STDERR, '>&', \*STDOUT;
		exec @command or die "$pgbench: $!\n";
	}
	my $said = do { local $/; <$out> };
	my ($rate) = close($out) ? $said =~ /^tps = ([\d.]+)/m : ();
	return ($rate, $said);
}

# COPY FROM STDIN of the payload as text for so many seconds, a commit after
# every $rows rows (undef: one at the end); returns rows a second.
sub copy_rate
{
	my ($table_and_column, $rows) = @_;
	(my $line = $payload) =~ s/\\/\\\\/g;
	my $block = "$line\n" x ($rows // 250);
	my ($begin, $end) = ("COPY $table_and_column FROM STDIN;\n", "\\.\n");
	my $count = 0;
	my $start = time;
	open my $in, '|-', @psql, '-o', '/dev/null' or die "psql: $!\n";
	print $in $begin if !$rows;
	while (time < $start + $options{seconds})
	{
		print $in $rows ? ($begin, $block, $end) : $block;
		$count += $rows // 250;
	}
	print $in $end if !$rows;
	close $in or die "COPY failed\n";
	return $count / (time - $start);
}

# One round of one side; undef when it ran out of messages.
sub one_round
{
	my ($side) = @_;
	$side->{before}->() if $side->{before};
	query('CHECKPOINT');
	my ($rate, $said);
	if ($side->{run})
	{
		$rate = $side->{run}->();
	}
	else
	{
		($rate, $said) = pgbench([ '-T', $options{seconds} ], $side);
		$rate *= $side->{per} // 1 if defined $rate;
	}
	my $is_dry = $side->{left} && query($side->{left}) <= 0;
	$side->{after}->() if $side->{after};
	return if $is_dry;
	die "$side->{name}: pgbench failed:\n$said\n" if !defined $rate;
	return $rate;
}

# Measures the sides in turn, round after round, into their figures.
sub measure
{
	my (@sides) = @_;
	foreach my $round (1 .. $options{rounds})
	{
		foreach my $side (@sides)
		{
			print STDERR "\r\e[Kround $round of $options{rounds}: $side->{name}" if -t STDERR;
			my $figure = one_round($side);
			foreach my $attempt (1 .. 8)
			{
				last if defined $figure;
				$side->{grow}->();
				$figure = one_round($side);
			}
			die "$side->{name}: its messages run out however many there are\n" if !defined $figure;
			push @{ $side->{figures} }, $figure;
		}
	}
	print STDERR "\r\e[K" if -t STDERR;
	return;
}

# Calls the code with each of the client counts that were asked for, by default
# with these.
sub each_client_count
{
	my ($defaults, $code) = @_;
	foreach my $clients (@{ $options{clients} // $defaults })
	{
		$code->($clients);
	}
	return;
}

sub clients_in_words { return $_[0] == 1 ? '1 client' : "$_[0] clients" }

sub median
{
	my @sorted = sort { $a <=> $b } @_;
	return @sorted % 2 ? $sorted[ $#sorted / 2 ] : ($sorted[ @sorted / 2 - 1 ] + $sorted[ @sorted / 2 ]) / 2;
}

sub figure
{
	my ($value) = @_;
	return sprintf '%.3g', $value if $value < 100;
	my $text = sprintf '%.0f', $value;
	1 while $text =~ s/^(\d+)(\d{3})/$1,$2/;
	return $text;
}

# A line of the report: one side's figure against another's, with its goal.
sub ratio
{
	my ($over, $under, $goal) = @_;
	return { label => "$over / $under", goal => $goal, value => sub { $_[0]{$over} / $_[0]{$under} } };
}

# Prints the median and the spread of every side, then what the checks make of
# each round's figures. A check is {label, value => code on {side => figure},
# goal, at_most => 1 where less is better}.
sub report
{
	my ($title, $sides, @checks) = @_;
	my $width = max(map { length } (map { $_->{name} } @$sides), (map { $_->{label} } @checks));
	print "\n$title\n";
	foreach my $side (@$sides)
	{
		my @figures = @{ $side->{figures} };
		printf "  %-${width}s %12s %-10s (%s .. %s)\n", $side->{name}, figure(median(@figures)),
		  $side->{unit} // 'messages/s', figure(min(@figures)), figure(max(@figures));
	}
	foreach my $check (@checks)
	{
		my @values = map {
			my $round = $_;
			$check->{value}->({ map { $_->{name} => $_->{figures}[$round] } @$sides });
		} 0 .. $#{ $sides->[0]{figures} };
		my $value = median(@values);
		my $verdict = '';
		if (defined $check->{goal})
		{
			my $reached = $check->{at_most} ? $value <= $check->{goal} : $value >= $check->{goal};
			$verdict = sprintf '  goal: at %s %s, %s', $check->{at_most} ? 'most' : 'least', $check->{goal},
			  $reached ? 'reached' : 'missed';
		}
		printf "  %-${width}s %12.2f            (%.2f .. %.2f)%s\n", $check->{label}, $value, min(@values),
		  max(@values), $verdict;
	}
	$| = 1;
	return;
}

1;
