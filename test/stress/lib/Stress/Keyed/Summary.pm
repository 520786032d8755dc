package Stress::Keyed::Summary;

# What the part of a run about message keys has tried, and whether that was enough
# to mean something.

use strict;
use warnings;
use Stress::History;
use Stress::Keyed::Message;
use Stress::Summary;

# What is counted: name, and the least that a run of 20 s or more must show.
my @COUNTS = (
	[ 'messages committed' => 200 ],
	[ 'of these, compacted' => 50 ],
	[ 'deliveries, keyless or parallel' => 50 ],
	[ 'deliveries, exclusive' => 50 ],
	[ 'deliveries, ordered' => 100 ],
	[ 'messages that had to wait for their key' => 50 ],
	[ 'messages superseded' => 50 ],
	[ 'claims with several of a key' => 10 ],
	[ 'messages sent back behind a failed one' => 3 ],
	[ 'failures of exclusive and ordered messages' => 20 ],
	[ 'leases of them lost' => 5 ],
	[ 'messages redriven' => 1 ],
	[ 'messages dead in the end' => 0 ]);

# The counts of a history that was checked, with what the delivery log has: 'policy
# outcome' => number. Returns name => number.
sub counts
{
	my ($history, %logged) = @_;
	my %count = map { $_->[0] => 0 } @COUNTS;
	foreach my $message (grep { $history->is_stored($_) } values %{ $history->{messages} })
	{
		$count{'messages committed'}++;
		$count{'of these, compacted'}++
		  if defined Stress::Keyed::Message::parse(0, $message->{token})->{version};
	}
	foreach my $claim (grep { Stress::History::outcome($_->{call}) eq 'committed' } @{ $history->{claims} })
	{
		_count_claim($claim, \%count);
	}
	foreach my $outcome (keys %logged)
	{
		$count{'messages that had to wait for their key'} += $logged{$outcome} if $outcome =~ / deferred$/;
		$count{'messages superseded'} += $logged{$outcome} if $outcome =~ / superseded$/;
		next if $outcome =~ /^parallel/;
		$count{'failures of exclusive and ordered messages'} += $logged{$outcome}
		  if $outcome =~ / (nack|reject|delay)$/;
		$count{'leases of them lost'} += $logged{$outcome} if $outcome =~ / (expired|split)$/;
	}
	foreach my $repair (map { @$_ } values %{ $history->{repairs} })
	{
		$count{'messages redriven'} += $repair->{call}{result}
		  if Stress::History::outcome($repair->{call}) eq 'committed';
	}
	$count{'messages dead in the end'} += keys %$_ foreach values %{ $history->{exceptions} };
	return \%count;
}

# Lines to print, one for each count.
sub lines
{
	my ($counts) = @_;
	return map { sprintf '%10s  %s', $counts->{ $_->[0] }, $_->[0] } @COUNTS;
}

# What was tried too little, as [ kind, detail ].
sub shortfalls
{
	my ($counts, $duration) = @_;
	return if $duration < Stress::Summary::MEANINGFUL_DURATION;
	return map { [ 'too little tried', "with keys, $_->[0]: $counts->{ $_->[0] }, at least $_->[1] wanted" ] }
	  grep { $counts->{ $_->[0] } < $_->[1] } @COUNTS;
}

sub _count_claim
{
	my ($claim, $count) = @_;
	my %of_key;
	foreach my $row (Stress::History::rows($claim))
	{
		my $key = Stress::Keyed::Message::parse(@$row[ 0, 1 ])->{key};
		my $policy = Stress::Keyed::Message::policy($claim->{group}, $key);
		$count->{ $policy eq 'parallel' ? 'deliveries, keyless or parallel' : "deliveries, $policy" }++;
		$of_key{$key}++ if $policy ne 'parallel';
	}
	$count->{'claims with several of a key'}++ if grep { $_ > 1 } values %of_key;
	$count->{'messages sent back behind a failed one'} +=
	  grep { $_->{outcome} eq 'deferred' } values %{ $claim->{endings} // {} };
	return;
}

1;
