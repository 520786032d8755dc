package Stress::Policy;

# What a consumer group allows a message before it gives it up, and how long it
# waits between two tries. Times are in seconds.

use strict;
use warnings;
use List::Util qw(min);

use constant LEASE_MARGIN => 15;    # what a default lease adds to the timeout

my @INTERVALS = qw(timeout base_delay max_delay initial_backoff);
my @NUMBERS = qw(max_retries max_delays exponent max_reclaims);

# The settings of a run's groups, which take turns: short, so that a run sees
# messages through to their end.
my @OF_GROUPS = (
	{ max_retries => 2, max_delays => 3, initial_backoff => 0.02, base_delay => 0.04,
		exponent => 2, max_delay => 0.06, max_reclaims => 1, timeout => 1 },
	{ max_retries => 1, max_delays => 0, initial_backoff => 0, base_delay => 0.05,
		exponent => 1, max_delay => 0.2, max_reclaims => 1, timeout => 1 },
	{ max_retries => 3, max_delays => 2, initial_backoff => 0.05, base_delay => 0.02,
		exponent => 3, max_delay => 0.1, max_reclaims => 2, timeout => 1 });

# The policy of the group with this number, from 1.
sub of_group
{
	my ($class, $number) = @_;
	return bless { %{ $OF_GROUPS[ ($number - 1) % @OF_GROUPS ] } }, $class;
}

# The policy of a group of the keyed stream: no delay makes a message dead.
sub of_keyed_group
{
	my ($class) = @_;
	return bless { max_retries => 2, max_delays => 0, initial_backoff => 0.05, base_delay => 0.05,
		exponent => 2, max_delay => 0.2, max_reclaims => 1, timeout => 1 }, $class;
}

# The policy that fields() wrote down.
sub from_fields
{
	my ($class, @fields) = @_;
	return bless { map { split /=/ } @fields }, $class;
}

# name=value for each setting.
sub fields
{
	my ($self) = @_;
	return map { "$_=$self->{$_}" } @INTERVALS, @NUMBERS;
}

# The settings as arguments of create_group.
sub arguments
{
	my ($self) = @_;
	return join ', ',
	  (map { "$_ => '$self->{$_} seconds'" } @INTERVALS),
	  map { "$_ => $self->{$_}" } @NUMBERS;
}

# How long a lease is that was not asked for.
sub default_lease
{
	my ($self) = @_;
	return $self->{timeout} + LEASE_MARGIN;
}

# How long a message waits after its failure number $attempts.
sub backoff
{
	my ($self, $attempts) = @_;
	return $self->{initial_backoff} if $attempts == 1;
	return min($self->{base_delay} * $self->{exponent}**($attempts - 2), $self->{max_delay});
}

# Whether a message is given up with so many failures, or so many delays.
sub is_spent
{
	my ($self, $attempts, $delays) = @_;
	return $attempts > $self->{max_retries}
	  || $self->{max_delays} && $delays > $self->{max_delays};
}

1;
