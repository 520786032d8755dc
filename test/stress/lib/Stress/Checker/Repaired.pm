package Stress::Checker::Repaired;

# What redrives and discards did to the dead messages of a group. A dead message may
# be dropped at any time.

use strict;
use warnings;
use List::Util qw(all any);
use Stress::Checker::State;
use Stress::History;

# repairs: of Stress::History, in the order in which they were made; upkeep: a
# Stress::History::Upkeep.
sub new
{
	my ($class, $repairs, $upkeep) = @_;
	my @repairs = grep { Stress::History::outcome($_->{call}) ne 'rolled back' } @{ $repairs // [] };
	@$_{qw(certain possible)} = (0, 0) for @repairs;
	return bless { repairs => \@repairs, upkeep => $upkeep }, $class;
}

# What the states of a message may be at a later moment, by what was done to it
# if it is dead. is_counted: whether it counts for the answers to the calls.
sub states
{
	my ($self, $id, $states, $now, $is_counted) = @_;
	my @states = @$states;
	return @states unless any { $_->{place} eq 'dead' } @states;
	foreach my $repair (@{ $self->{repairs} })
	{
		last if $repair->{call}{sent} > $now;
		next if $repair->{ids} && !$repair->{ids}{$id};
		my $is_there = !$self->{upkeep}->may_be_dropped($id, $repair->{call}{received} // Stress::Checker::State::FOREVER);
		my @effects = map { _effect($repair, $_, $now, $is_there) } @states;
		_count($repair, $id, \@effects) if $is_counted;
		@states = map { @{ $_->{states} } } @effects;
	}
	return @states;
}

# A call returns how many messages it repaired.
sub check_counts
{
	my ($self, $group, $report) = @_;
	foreach my $repair (grep { defined $_->{call}{result} } @{ $self->{repairs} })
	{
		my $count = $repair->{call}{result};
		$report->('wrong count', sprintf
			  '%s of group %s at %.6f returned %d for %d dead messages, or up to %d',
			$repair->{verb}, $group, $repair->{call}{sent}, $count, @$repair{qw(certain possible)})
		  if $count < $repair->{certain} || $count > $repair->{possible};
	}
	return;
}

# What a repair may make of a state: { states, may, must }. is_there: whether the
# message was certainly not dropped.
sub _effect
{
	my ($repair, $state, $now, $is_there) = @_;
	my ($verb, $call) = @$repair{qw(verb call)};
	my ($sent, $received) = @$call{qw(sent received)};
	my ($from, $by) = @{ $call->{transaction} }{qw(commit_sent commit_received)};
	$by //= Stress::Checker::State::FOREVER;
	my $finds = _finds($repair, $state);
	return { states => [$state], may => 0, must => 0 }
	  if $state->{place} ne 'dead' || !$finds
	  || $state->{from} > ($received // Stress::Checker::State::FOREVER);

	my $next = Stress::Checker::State::repaired($state, $verb, $from, $by);
	my $must = $is_there && $finds == 1 && $state->{by} < $sent
	  && Stress::History::outcome($call) eq 'committed';
	return { states => [ $must && $by <= $now ? $next : ($next, $state) ], may => 1, must => $must };
}

# Whether the error of a dead message is what the repair looks for: 1 certainly,
# 2 perhaps, 0 not.
sub _finds
{
	my ($repair, $state) = @_;
	return 1 unless defined $repair->{pattern};
	return 2 unless defined $state->{error};
	return index($state->{error}, $repair->{pattern}) >= 0 ? 1 : 0;
}

# Counts a message once for each call.
sub _count
{
	my ($repair, $id, $effects) = @_;
	$repair->{possible}++
	  if (any { $_->{may} } @$effects) && !$repair->{counted_possible}{$id}++;
	$repair->{certain}++
	  if (all { $_->{must} } @$effects) && !$repair->{counted_certain}{$id}++;
	return;
}

1;
