package Stress::Summary;

# What a run has tried, and whether that was enough to mean something.

use strict;
use warnings;
use Stress::Checker::State;
use Stress::History;
use Stress::Producer;

# What is counted: name, and the least that a run of 20 s or more must show, also
# on a slow machine.
my @COUNTS = (
	[ 'messages committed' => 300 ],
	[ 'messages rolled back' => 50 ],
	[ 'messages rolled back to a savepoint' => 20 ],
	[ 'duplicates' => 5 ],
	[ 'produces that failed in a cursor' => 2 ],
	[ 'deadlocks of producers' => 0 ],
	[ 'prepared transactions committed' => 2 ],
	[ 'prepared transactions rolled back' => 1 ],
	[ 'backends terminated' => 3 ],
	[ 'looks and vacuums' => 5 ],
	[ 'commits of unknown outcome' => 0 ],
	[ 'claims with messages' => 50 ],
	[ 'empty claims' => 5 ],
	[ 'claims rolled back' => 3 ],
	[ 'messages taken over' => 5 ],
	[ 'whole acks' => 15 ],
	[ 'partial acks' => 15 ],
	[ 'acks rolled back' => 3 ],
	[ 'acks refused with SS004' => 1 ],
	[ 'releases' => 2 ],
	[ 'extensions' => 1 ],
	[ 'claims that ack' => 5 ],
	[ 'pops' => 10 ],
	[ 'nacks' => 8 ],
	[ 'delays' => 5 ],
	[ 'rejects' => 1 ],
	[ 'resolves with mixed outcomes' => 8 ],
	[ 'failures rolled back' => 5 ],
	[ 'deliveries after a failure' => 30 ],
	[ 'deliveries after a delay' => 20 ],
	[ 'messages with deliver_at' => 30 ],
	[ 'deliveries of poison' => 10 ],
	[ 'messages seen dead' => 2 ],
	[ 'of these, of lost leases' => 1 ],
	[ 'redrives' => 5 ],
	[ 'messages redriven' => 1 ],
	[ 'messages discarded' => 1 ],
	[ 'seeks back' => 1 ],
	[ 'seeks forward' => 1 ],
	[ 'seeks to the head' => 0 ]);

use constant MEANINGFUL_DURATION => 20;

# The counts of a history: name => number.
sub counts
{
	my ($history) = @_;
	my %count = map { $_->[0] => 0 } @COUNTS;
	_count_messages($history, \%count);
	_count_transactions($history, \%count);
	_count_claims($history, \%count);
	_count_uses($history, \%count);
	_count_ends($history, \%count);
	_count_repairs($history, \%count);
	_count_seeks($history, \%count);
	$count{'backends terminated'} = $history->{disturbances}{terminate} // 0;
	$count{'looks and vacuums'} = $history->{disturbances}{administer} // 0;
	$count{'empty claims'} = $history->{empty_claims};
	$count{'produces that failed in a cursor'} = _count_errors($history, 'produce', '22012');
	$count{'deadlocks of producers'} = _count_errors($history, 'produce', '40P01');
	return \%count;
}

# Lines to print, one for each count.
sub lines
{
	my ($counts, $is_prepared_tried) = @_;
	return map {
		my ($name) = @$_;
		my $is_tried = $is_prepared_tried || $name !~ /prepared/;
		sprintf '%10s  %s', $is_tried ? $counts->{$name} : 'not tried', $name
	} @COUNTS;
}

# What was tried too little, as [ kind, detail ]: a run in which it does not
# happen proves nothing about it.
sub shortfalls
{
	my ($counts, $is_prepared_tried, $duration) = @_;
	return if $duration < MEANINGFUL_DURATION;
	return map { [ 'too little tried', "$_->[0]: $counts->{ $_->[0] }, at least $_->[1] wanted" ] }
	  grep { $counts->{ $_->[0] } < $_->[1] && ($is_prepared_tried || $_->[0] !~ /prepared/) }
	  @COUNTS;
}

sub _count_messages
{
	my ($history, $count) = @_;
	foreach my $message (values %{ $history->{messages} })
	{
		my ($id, $call) = @$message{qw(id call)};
		if ($history->is_stored($message))
		{
			$count->{'messages committed'}++;
			$count->{'messages with deliver_at'}++ if defined $message->{due};
		}
		elsif (defined $id && $id == 0) { $count->{'duplicates'}++ }
		elsif ($call->{undone}) { $count->{'messages rolled back to a savepoint'}++ }
		else { $count->{'messages rolled back'}++ }
	}
	return;
}

sub _count_transactions
{
	my ($history, $count) = @_;
	foreach my $transaction (values %{ $history->{transactions} })
	{
		my $outcome = $transaction->{outcome};
		$count->{'commits of unknown outcome'}++ if $outcome eq 'unknown';
		$count->{"prepared transactions $outcome"}++
		  if ($transaction->{prepare} // '') eq 'done';
	}
	return;
}

sub _count_claims
{
	my ($history, $count) = @_;
	foreach my $claim (@{ $history->{claims} })
	{
		$count->{'claims with messages'}++;
		$count->{'pops'}++ if $claim->{call}{verb} eq 'pop';
		$count->{'claims rolled back'}++
		  if Stress::History::outcome($claim->{call}) eq 'rolled back';
		_count_row($count, @$_) for Stress::History::rows($claim);
	}
	return;
}

sub _count_row
{
	my ($count, $id, $token, $takeovers, $attempts, $delays) = @_;
	$count->{'messages taken over'}++ if $takeovers;
	$count->{'deliveries after a failure'}++ if $attempts;
	$count->{'deliveries after a delay'}++ if $delays;
	$count->{'deliveries of poison'}++ if Stress::Producer::is_poison($token);
	return;
}

sub _count_uses
{
	my ($history, $count) = @_;
	foreach my $use (@{ $history->{uses} })
	{
		my ($verb, $error) = @$use{qw(verb error)};
		if ($error) { $count->{'acks refused with SS004'}++ if $error eq 'SS004' }
		elsif (!defined $use->{result}) { next }
		elsif ($verb eq 'release') { $count->{'releases'}++ }
		elsif ($verb eq 'extend') { $count->{'extensions'}++ }
		elsif ($verb eq 'claim') { $count->{'claims that ack'}++ }
		elsif (Stress::History::outcome($use) eq 'rolled back')
		{
			my $failed = $verb =~ /^(nack|reject|delay|resolve)$/;
			$count->{ $failed ? 'failures rolled back' : 'acks rolled back' }++;
		}
		elsif ($verb eq 'resolve') { $count->{'resolves with mixed outcomes'}++ }
		elsif ($verb =~ /^(nack|delay|reject)$/) { $count->{"${verb}s"}++ }
		elsif ($use->{fields}[2] eq 'all') { $count->{'whole acks'}++ }
		else { $count->{'partial acks'}++ }
	}
	return;
}

sub _count_ends
{
	my ($history, $count) = @_;
	my %dead = %{ $history->{upkeep}{dead} };
	foreach my $group (keys %{ $history->{exceptions} })
	{
		my $left = $history->{exceptions}{$group};
		$dead{"$group=$_"} ||= index($left->{$_}{error}, Stress::Checker::State::LEASE_ENDED) >= 0 foreach keys %$left;
	}
	$count->{'messages seen dead'} = keys %dead;
	$count->{'of these, of lost leases'} = grep { $_ } values %dead;
	return;
}

sub _count_repairs
{
	my ($history, $count) = @_;
	foreach my $repair (map { @$_ } values %{ $history->{repairs} })
	{
		my ($verb, $call) = @$repair{qw(verb call)};
		next if Stress::History::outcome($call) eq 'rolled back';
		$count->{'redrives'}++ if $verb eq 'redrive';
		$count->{ $verb eq 'redrive' ? 'messages redriven' : 'messages discarded' } += $call->{result};
	}
	return;
}

sub _count_seeks
{
	my ($history, $count) = @_;
	foreach my $seek (map { @$_ } values %{ $history->{seeks} })
	{
		next if Stress::History::outcome($seek->{call}) eq 'rolled back';
		$count->{'seeks to the head'}++ if $seek->{target} eq 'head';
		$count->{'seeks back'}++ if $seek->{after} < $seek->{before};
		$count->{'seeks forward'}++ if $seek->{after} > $seek->{before};
	}
	return;
}

sub _count_errors
{
	my ($history, $verb, $state) = @_;
	return scalar grep { $_->{verb} eq $verb && $_->{error} eq $state } @{ $history->{errors} };
}

1;
