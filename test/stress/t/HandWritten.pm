package HandWritten;

# Records of a run, written by hand for the tests of the checker.

use strict;
use warnings;
use Exporter 'import';
use File::Temp ();
use Stress::Checker;
use Stress::History;

our @EXPORT_OK = qw(kinds kinds_keyed committed produced claimed said acked logged left);

# What group g allows a message.
my $GROUP = '1  reply  group  -  g  timeout=1  base_delay=2  max_delay=3  initial_backoff=1'
  . "  max_retries=2  max_delays=2  exponent=2  max_reclaims=1\n";

# The kinds of violations, sorted, that are found in records of several
# processes (label => text; two spaces or more between fields).
sub kinds
{
	return _kinds(\&Stress::Checker::check, groups => $GROUP, @_);
}

# The same for records of the keyed stream, with group asking.
sub kinds_keyed
{
	(my $group = $GROUP) =~ s/  g  /  asking  /;
	return _kinds(\&Stress::Checker::check_keyed, groups => $group, @_);
}

sub _kinds
{
	my ($check, %records) = @_;
	my $directory = File::Temp::tempdir(CLEANUP => 1);
	foreach my $label (keys %records)
	{
		open my $file, '>', "$directory/$label.records" or die $!;
		foreach my $line (grep { /\S/ } split /\n/, $records{$label})
		{
			$line =~ s/^\s+//;
			print {$file} join("\t", split / {2,}/, $line), "\n";
		}
		close $file;
	}
	my %found = map { $_->[0] => 1 } $check->(Stress::History->read($directory));
	return join ', ', sort keys %found;
}

# Records of a transaction that commits: its calls between time $from and $to.
sub committed
{
	my ($name, $from, $to, $calls) = @_;
	return $calls . sprintf "%s  send  commit  %s\n%s  reply  commit  %s\n", $from, $name, $to, $name;
}

# A producer's transaction with one message a call: token, id, ... .
sub produced
{
	my ($name, $time, %messages) = @_;
	my $calls = '';
	foreach my $token (sort { abs $messages{$a} <=> abs $messages{$b} } keys %messages)
	{
		(my $bare = $token) =~ s/=.*//;
		$calls .= ($time += 0.01) . "  send  produce  $name  $token\n";
		$calls .= ($time += 0.01) . "  reply  produce  $name  $messages{$token}\n";
	}
	return committed($name, $time + 0.01, $time + 0.02, $calls);
}

# A claim that commits, with a lease of 5 s.
sub claimed
{
	my ($name, $time, $claim, @rows) = @_;
	my $sent = "$time  send  claim  $name  g  10  5 seconds  -\n";
	my $reply = sprintf "%s  reply  claim  %s  %s  %s  %s  %s\n",
	  $time + 0.1, $name, $claim, $time + 5.05, $time + 0.05, join '  ', @rows;
	return committed($name, $time + 0.2, $time + 0.3, $sent . $reply);
}

# A call about a claim, or about dead messages, that commits: its verb, group and
# further fields in one string, and its answer.
sub said
{
	my ($name, $time, $call, $answer) = @_;
	my ($verb) = $call =~ /^(\w+)/;
	$call =~ s/^(\w+)/$1  $name/;
	return committed($name, $time + 0.2, $time + 0.3,
		"$time  send  $call\n" . ($time + 0.1) . "  reply  $verb  $name  $answer\n");
}

sub acked
{
	my ($name, $time, $claim, $ids, $count) = @_;
	return said($name, $time, "ack  g  $claim  $ids", $count);
}

# The rows of the log in the end; no exception is left.
sub logged
{
	my (@rows) = @_;
	return '900  reply  log  -  ' . join('  ', @rows) . "\n900  reply  log  -\n" . left();
}

# The exceptions in the end.
sub left
{
	my (@rows) = @_;
	return '900  reply  exceptions  -  g' . join('', map { "  $_" } @rows) . "\n";
}

1;
