package Stress::Upkeep::Summary;

# What a run has tried of maintenance, and whether that was enough to mean something.

use strict;
use warnings;
use Stress::Checker::Idempotency;
use Stress::Summary;

# What is counted: name, and the least that a run of 20 s or more must show.
my @COUNTS = (
	[ 'partitions seen' => 10 ],
	[ 'partitions dropped' => 2 ],
	[ 'messages dropped' => 2000 ],
	[ 'keys used again' => 10 ],
	[ 'rotations of key tables' => 1 ],
	[ 'looks at producers in phase one' => 1 ],
	[ 'looks at producers in phase both' => 0 ],
	[ 'looks at producers in phase probe' => 1 ],
	[ 'settings changed' => 2 ],
	[ 'suspensions of maintenance' => 0 ],
	[ 'calls of maintain' => 5 ],
	[ 'workers terminated' => 2 ],
	[ 'workers switched off and on' => 1 ],
	[ 'purges' => 0 ],
	[ 'groups made' => 5 ],
	[ 'groups dropped' => 0 ],
	[ 'groups moved' => 0 ],
	[ 'producers that outlast retention' => 0 ],
	[ 'older versions after their head was dropped' => 0 ],
	[ 'ids dropped of the keepers\' streams' => 50 ],
	[ 'workers killed' => 1 ],
	[ 'commits in doubt after that' => 0 ]);

# The counts of a history: name => number.
sub counts
{
	my ($history) = @_;
	my $upkeep = $history->{upkeep};
	my %count = map { $_->[0] => $upkeep->{deeds}{ $_->[0] } // 0 } @COUNTS;
	$count{'partitions seen'} = keys %{ $upkeep->{partitions} };
	$count{'partitions dropped'} = keys %{ $upkeep->{gone} };
	$count{'messages dropped'} = $upkeep->dropped_in_the_end;
	$count{'keys used again'} = Stress::Checker::Idempotency::count_used_again($history);
	$count{'rotations of key tables'} = $upkeep->{generation} - 1;
	$count{"looks at producers in phase $_"} = $upkeep->{rotations}{$_} // 0 foreach qw(one both probe);
	$count{'commits in doubt after that'} = grep { $_->{is_doubtful} } values %{ $history->{transactions} };
	return \%count;
}

# Lines to print, one for each count.
sub lines
{
	my ($counts) = @_;
	return map { sprintf '%10s  %s', $counts->{ $_->[0] }, $_->[0] } @COUNTS;
}

# What was tried too little, as [ kind, detail ]. crashes: whether the worker was to
# be killed.
sub shortfalls
{
	my ($counts, $duration, $crashes) = @_;
	return if $duration < Stress::Summary::MEANINGFUL_DURATION;
	return map { [ 'too little tried', "of maintenance, $_->[0]: $counts->{ $_->[0] }, at least $_->[1] wanted" ] }
	  grep { $counts->{ $_->[0] } < $_->[1] && ($crashes || $_->[0] ne 'workers killed') } @COUNTS;
}

1;
