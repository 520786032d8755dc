package Stress::Random;

# Random choices, the same again for the same seed and process.

use strict;
use warnings;
use Exporter 'import';
our @EXPORT_OK = qw(pick between chance);

# One of the keys of %weights, each as often as its weight says.
sub pick
{
	my (%weights) = @_;
	my $total = 0;
	$total += $_ for values %weights;
	my $point = rand $total;
	foreach my $name (sort keys %weights)
	{
		$point -= $weights{$name};
		return $name if $point < 0;
	}
	die "no weights given\n";
}

# A whole number from $low to $high, both included.
sub between
{
	my ($low, $high) = @_;
	return $low + int rand($high - $low + 1);
}

# True with the given probability.
sub chance
{
	my ($probability) = @_;
	return rand() < $probability;
}

1;
