package Stress::Checker::Moved;

# What seeks do to messages and claims.
#
# Claims and seeks of a group wait for each other, and the server's clock was
# read while each kept the others out: so their order is known. A seek waits for
# those who are resolving a claim that it is about to drop: what they committed
# came before it.

use strict;
use warnings;
use List::Util qw(any first max min);
use Stress::Checker::State;
use Stress::History;

# The seeks of a group that were committed, in their order. Each gets low and
# high: the ids after low, to high, are those that it moved over; and reach: the
# last id of which it may change what comes.
sub seeks
{
	my ($history, $group) = @_;
	my @seeks = sort { $a->{clock} <=> $b->{clock} }
	  grep { Stress::History::outcome($_->{call}) ne 'rolled back' }
	  @{ $history->{seeks}{$group} // [] };
	my $has_head = 0;
	foreach my $seek (@seeks)
	{
		$seek->{to_head} = $seek->{target} eq 'head';
		$has_head ||= $seek->{to_head};
		$seek->{low} = min(@$seek{qw(before after)});
		$seek->{high} = max(@$seek{qw(before after)});
		$seek->{reach} = $has_head ? Stress::Checker::State::FOREVER : $seek->{high};
	}
	return @seeks;
}

# Whether the seek moved over this message.
sub is_in_window
{
	my ($seek, $id) = @_;
	return $id > $seek->{low} && $id <= $seek->{high};
}

# Whether the seek may have dropped the claim: it had messages in the window.
sub may_drop
{
	my ($seek, $claim) = @_;
	return $claim->{clock} < $seek->{clock}
	  && $claim->{lowest} <= $seek->{high} && $claim->{highest} > $seek->{low}
	  && any { is_in_window($seek, $_->[0]) } Stress::History::rows($claim);
}

# The first of the seeks that may have dropped the claim.
sub first_to_drop
{
	my ($seeks, $claim) = @_;
	return first { may_drop($_, $claim) } @$seeks;
}

# Whether a message that was done with may come again.
sub may_bring_back
{
	my ($seek, $id) = @_;
	return $id > $seek->{low} && $id <= $seek->{reach};
}

# Whether the seek may change what becomes of this message (of Stress::History),
# which came in these claims. To what is produced later a seek does nothing but
# skip it.
sub concerns
{
	my ($seek, $id, $message, $claims) = @_;
	return 1 if is_in_window($seek, $id);
	return 0 if $message->{call}{sent} > $seek->{call}{received};
	return may_bring_back($seek, $id) || any { may_drop($seek, $_) } @$claims;
}

# What a state of this message can become by the seek.
# is_dropped: whether the claim that holds it certainly was dropped.
sub moved
{
	my ($seek, $state, $id, $message, $is_dropped) = @_;
	my $from = $seek->{call}{transaction}{commit_sent};
	return _left_behind($seek, $state, $from, $is_dropped) if $id <= $seek->{low};
	return _moved_to_head($seek, $state, $id, $message, $from) if $seek->{to_head};

	my @again = Stress::Checker::State::fresh($message->{due}, $from);
	if ($id > $seek->{high})
	{
		return $state->{passed_over} ? @again : $state;
	}
	return @again if $seek->{after} < $seek->{before};
	return $state if $state->{place} =~ /^(dead|gone)$/;
	return Stress::Checker::State::skipped($state, $from);
}

# A message below the window. When its claim was dropped for others, it is as if
# released.
sub _left_behind
{
	my ($seek, $state, $from, $is_dropped) = @_;
	return $state unless $state->{place} eq 'held' && may_drop($seek, $state->{claim});
	my $released = Stress::Checker::State::resolved($state, undef, { outcome => 'release' }, 0,
		$from, Stress::Checker::State::FOREVER);
	return $is_dropped ? $released : ($state, $released);
}

# Of the messages that the group has not had, those come that were not committed
# by then.
sub _moved_to_head
{
	my ($seek, $state, $id, $message, $from) = @_;
	return $state if $state->{place} eq 'dead' && $seek->{after} >= $seek->{before};
	return $state if $id > $seek->{high} && $state->{place} =~ /^(held|dead)$/;
	my $transaction = $message->{call}{transaction};
	my @next;
	push @next, Stress::Checker::State::skipped($state, $from, 1)
	  if ($transaction->{commit_sent} // 0) < $seek->{call}{received};
	push @next, Stress::Checker::State::fresh($message->{due}, $from)
	  if ($transaction->{commit_received} // Stress::Checker::State::FOREVER) > $seek->{call}{sent};
	return @next;
}

1;
