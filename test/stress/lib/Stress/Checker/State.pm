package Stress::Checker::State;

# A state in which a message may be for a group, and what it can become.
#
#   place         ready: claimable from a time on; held: in an open claim; dead;
#                 gone: acked, discarded or skipped
#   is_exception  whether it is one of the group's exceptions, or as fresh
#   attempts, delays, takeovers
#   suspect       1: it must come alone, 0: it need not, undefined: unknown
#   due           ready: when it may be delivered at the earliest
#   from, by      the earliest and the latest moment at which the state may have
#                 begun
#   error         of a dead one; undefined: unknown
#   claim         held: by this one
#   passed_over   gone because a seek to the head did not want it: whatever
#                 seek comes next may bring it back
#
# States are not changed but replaced.

use strict;
use warnings;

use constant {
	FOREVER => 9e18,
	LEASE_ENDED => 'lease',    # what the error of a lost lease contains
};

# As before the group's first claim of it; due: deliver_at, which makes it an
# exception when it is met earlier.
sub fresh
{
	my ($due, $from) = @_;
	my %state = (
		place => 'ready', is_exception => 0, attempts => 0, delays => 0, takeovers => 0,
		suspect => 0, due => $due // 0, from => $from, by => FOREVER);
	return defined $due ? ({%state}, { %state, is_exception => 1 }) : {%state};
}

# Returned by a claim.
sub held
{
	my ($state, $claim) = @_;
	return { %$state, place => 'held', claim => $claim };
}

# After its holder has said this of it, at the time $said_at or later.
sub resolved
{
	my ($state, $policy, $saying, $said_at, $from, $by) = @_;
	my ($outcome, $seconds, $error) = @$saying{qw(outcome seconds error)};
	my %next = (%$state, from => $from, by => $by);
	return { %next, place => 'gone' } if $outcome eq 'ack';
	return { %next, place => 'ready', due => 0, suspect => undef } if $outcome eq 'release';

	$next{$outcome eq 'delay' ? 'delays' : 'attempts'}++;
	my $is_spent = $outcome eq 'reject'
	  || $outcome eq 'nack' && $policy->is_spent($next{attempts}, 0)
	  || $outcome eq 'delay' && $policy->is_spent(0, $next{delays});
	$next{is_exception} = 1;
	return { %next, place => 'dead', error => $error } if $is_spent;
	return {
		%next, place => 'ready', suspect => 0,
		due => $said_at + ($seconds // $policy->backoff($next{attempts})) };
}

# After its lease was lost, which ended at the time $end. is_alone: whether its
# claim returned nothing else.
sub lost
{
	my ($state, $policy, $is_alone, $end) = @_;
	my %next = (
		%$state, place => 'ready', takeovers => $state->{takeovers} + 1, due => 0,
		from => $end, by => FOREVER);
	if (!$state->{is_exception})
	{
		return \%next if $next{takeovers} <= $policy->{max_reclaims};
		return { %next, is_exception => 1, suspect => 1 };
	}
	return { %next, suspect => 1 } unless $is_alone;
	$next{attempts}++;
	return { %next, place => 'dead', error => LEASE_ENDED }
	  if $policy->is_spent($next{attempts}, 0);
	$next{suspect} = undef unless $state->{suspect};
	return { %next, due => $end + $policy->backoff($next{attempts}) };
}

# A dead one after a redrive or a discard.
sub repaired
{
	my ($state, $verb, $from, $by) = @_;
	return { %$state, place => 'gone', from => $from, by => $by } if $verb eq 'discard';
	return {
		%$state, place => 'ready', attempts => 0, delays => 0, takeovers => 0, suspect => 0,
		due => 0, from => $from, by => $by };
}

# Skipped by a seek; passed_over: to the head.
sub skipped
{
	my ($state, $from, $passed_over) = @_;
	return { %$state, place => 'gone', from => $from, by => FOREVER, passed_over => $passed_over };
}

# States that do not say the same.
sub distinct
{
	my (@states) = @_;
	return @states if @states < 2;
	my %seen;
	return grep { !$seen{ _key($_) }++ } @states;
}

sub _key
{
	my ($state) = @_;
	return join ' ', map { ref ? $_->{index} : $_ // '-' }
	  @$state{qw(place is_exception attempts delays takeovers suspect due from by error claim)};
}

1;
