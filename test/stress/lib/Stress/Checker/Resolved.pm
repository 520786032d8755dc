package Stress::Checker::Resolved;

# What the calls that name a claim did to it, and whether the server answered
# them rightly.

use strict;
use warnings;
use List::Util qw(any max);
use Stress::Checker::Moved;
use Stress::History;
use Stress::Saying;

use constant {
	FOREVER => 9e18,
	TOLERANCE => 0.00001,    # what rounding to microseconds may add up to
};

# Checks the answers to the calls that name a claim. deliveries: group => id =>
# claims; seeks: group => those of Stress::Checker::Moved.
sub check
{
	my ($history, $deliveries, $seeks, $report) = @_;
	foreach my $claim (grep { @{ $_->{uses} } } @{ $history->{claims} })
	{
		my $group = $claim->{group};
		_follow($claim, {
			policy => $history->{groups}{$group},
			taken => _taken_over($claim, $deliveries->{$group}),
			seek => Stress::Checker::Moved::first_to_drop($seeks->{$group}, $claim),
			claim_calls => $history->{claim_calls}{$group},
			seek_calls => [ map { $_->{call} } @{ $history->{seeks}{$group} // [] } ],
		}, $report);
	}
	return;
}

# The moment until which the claim's messages that are not resolved certainly
# belong to it. An ack that succeeded shows that the claim was held until then,
# and nobody takes it over before the acking transaction has ended.
sub lease_end
{
	my ($claim) = @_;
	my $end = $claim->{expires} eq '-' ? 0 : $claim->{expires};
	foreach my $use (grep { defined $_->{result} && !$_->{error} } @{ $claim->{uses} })
	{
		my $outcome = Stress::History::outcome($use);
		if ($use->{verb} eq 'extend')
		{
			$end = max($end, $use->{result}) if $outcome eq 'committed';
		}
		elsif ($outcome ne 'committed' && $use->{verb} ne 'release')
		{
			$end = max($end, Stress::History::undone_at($use));
		}
	}
	return $end;
}

# The calls that spoke of a message of the claim, whatever became of them, in the
# order of time.
sub uses_of_message
{
	my ($claim, $id) = @_;
	my @uses = (@{ $claim->{uses_of_all} // [] }, @{ $claim->{uses_of_message}{$id} // [] });
	return @uses < 2 ? @uses : sort { $a->{sent} <=> $b->{sent} } @uses;
}

# id => claims that may have got a message of this claim later.
sub _taken_over
{
	my ($claim, $deliveries) = @_;
	my %later;
	foreach my $row (Stress::History::rows($claim))
	{
		my $claims = $deliveries->{ $row->[0] };
		next if @$claims == 1;
		my @others = grep {
			$_ != $claim
			  && $_->{call}{received} > $claim->{call}{sent}
			  && Stress::History::outcome($_->{call}) ne 'rolled back'
		} @$claims;
		$later{ $row->[0] } = \@others if @others;
	}
	return \%later;
}

# Goes through the calls that name the claim and keeps account of which of its
# messages are open. around: what may have taken them away.
sub _follow
{
	my ($claim, $around, $report) = @_;
	my @all = map { $_->[0] } Stress::History::rows($claim);
	my @resolving;    # calls that resolved something, with the ids
	foreach my $use (@{ $claim->{uses} })
	{
		my $closed = _closed_before($use, \@resolving);
		my @named = Stress::Saying::named($use);
		my $whole = Stress::Saying::is_whole($use);
		my @meant = $whole ? @all : @named;
		my @open = grep { !$closed->{$_} } @meant;
		my $is_refused = $use->{error} || ($use->{verb} eq 'release' && !($use->{result} // 1));
		if ($is_refused)
		{
			my $has_closed = @named ? grep { $closed->{$_} } @named : !@open;
			_check_refusal($claim, $use, $around, $report) unless $has_closed;
		}
		elsif ($use->{verb} eq 'extend')
		{
			_check_extension($claim, $use, $around, $report);
		}
		elsif (defined $use->{result} || Stress::History::outcome($use) eq 'unknown')
		{
			my @resolved = $whole ? grep { ($closed->{$_} // 0) != 1 } @all : @named;
			my $is_known = !grep { $_ > 1 } values %$closed;
			_check_count($claim, $use, \@resolved, \@open, $around, $report) if $is_known;
			_check_existence($claim, $use, $around, $closed, $report) if defined $use->{result};
			push @resolving, { call => $use, ids => \@resolved };
			_note_use($claim, $use, \@resolved, \@all);
		}
	}
	return;
}

# The ids that earlier calls resolved, as this call sees it: 1 for certain, 2
# when nobody can know.
sub _closed_before
{
	my ($use, $resolving) = @_;
	my %closed;
	foreach my $earlier (@$resolving)
	{
		my $call = $earlier->{call};
		my $outcome = Stress::History::outcome($call);
		if ($call->{transaction} == $use->{transaction})
		{
			next if defined $call->{undone} && $call->{undone} < $use->{sent};
			$outcome = 'committed';
		}
		next if $outcome eq 'rolled back';
		my $is_certain = $outcome eq 'committed' && !$call->{transaction}{prepare};
		foreach my $id (@{ $earlier->{ids} })
		{
			$closed{$id} = 1 if $is_certain;
			$closed{$id} //= 2;
		}
	}
	return \%closed;
}

# A claim is refused to its holder only when it is no longer his: a seek has dropped
# it, or its lease has ended and some claim of the group found that out. That one
# need not have returned any of its messages.
sub _check_refusal
{
	my ($claim, $use, $around, $report) = @_;
	my $received = $use->{received};
	return if $use->{error} && $use->{error} ne 'SS004';
	return if Stress::History::outcome($claim->{call}) ne 'committed';
	return if $around->{seek} && $around->{seek}{call}{sent} < $received;
	my $end = lease_end($claim);
	return if $end < $received && any {
		$_ != $claim->{call} && $_->{sent} < $received
		  && ($_->{received} // FOREVER) > $end
		  && Stress::History::outcome($_) ne 'rolled back'
	} @{ $around->{claim_calls} };
	$report->('refused to its holder',
		"$use->{verb} of claim $claim->{id} of group $claim->{group} at $use->{sent}");
	return;
}

# A claim that was rolled back is known to nobody afterwards, and neither is one
# that a seek has dropped.
sub _check_existence
{
	my ($claim, $use, $around, $closed, $report) = @_;
	my $where = "$use->{verb} of claim $claim->{id} of group $claim->{group} at $use->{sent}";
	$report->('rolled-back claim accepted', $where)
	  if Stress::History::outcome($claim->{call}) eq 'rolled back'
	  && $use->{transaction} != $claim->{call}{transaction};

	my $seek = $around->{seek} or return;
	my $is_dropped = grep {
		Stress::Checker::Moved::is_in_window($seek, $_->[0]) && !$closed->{ $_->[0] }
	} Stress::History::rows($claim);
	$report->('dropped claim accepted', "$where, after a seek at $seek->{clock}")
	  if $is_dropped && ($seek->{call}{transaction}{commit_received} // FOREVER) < $use->{sent};
	return;
}

# The new end is as far away as was asked for, and never before the old one. A
# lease that had ended may be left as it is: somebody is taking the claim over. So
# may one that a seek is about to drop.
sub _check_extension
{
	my ($claim, $use, $around, $report) = @_;
	return unless defined $use->{result};
	my ($seconds) = $use->{fields}[2] =~ /^([\d.]+)/;
	my $is_sought = any {
		$_->{sent} < $use->{received}
		  && ($_->{transaction}{ended_by} // FOREVER) > $use->{sent}
	} @{ $around->{seek_calls} };
	my $may_stay = $is_sought || $use->{result} <= $use->{received};
	$report->('wrong lease',
		"claim $claim->{id} of group $claim->{group}: extended at $use->{sent} to $use->{result}")
	  if ($use->{result} < $use->{sent} + $seconds - TOLERANCE && !$may_stay)
	  || $use->{result} < $claim->{expires} - TOLERANCE;
	return;
}

# A call says how many messages it resolved, or how many are dead now. One that
# finds none is refused.
sub _check_count
{
	my ($claim, $use, $resolved, $open, $around, $report) = @_;
	return if $use->{verb} =~ /claim|pop/ || !defined $use->{result};
	foreach my $others (@{ $around->{taken} }{@$resolved})
	{
		return if grep { $_->{call}{sent} < $use->{received} } @{ $others // [] };
	}
	my $expected = $use->{verb} =~ /^(nack|reject|delay)$/
	  ? grep { _dies($claim, $use, $_, $around->{policy}) } @$resolved
	  : @$open;
	$report->('wrong count',
		"$use->{verb} of claim $claim->{id} of group $claim->{group} at $use->{sent} returned "
		  . "$use->{result} instead of $expected for " . @$open . ' open messages')
	  if $use->{result} != $expected || @$open != @$resolved || !@$open;
	return;
}

# Whether the call makes a message of the claim a dead one.
sub _dies
{
	my ($claim, $use, $id, $policy) = @_;
	my (undef, $attempts, $delays) = @{ $claim->{counts}{$id} // [] };
	return 1 if $use->{verb} eq 'reject';
	return $policy->is_spent(($attempts // 0) + 1, 0) if $use->{verb} eq 'nack';
	return $policy->is_spent(0, ($delays // 0) + 1);
}

# Keeps by message what the call resolved; in one place when that was all.
sub _note_use
{
	my ($claim, $use, $resolved, $all) = @_;
	return push @{ $claim->{uses_of_all} }, $use if @$resolved == @$all;
	push @{ $claim->{uses_of_message}{$_} }, $use for @$resolved;
	return;
}

1;
