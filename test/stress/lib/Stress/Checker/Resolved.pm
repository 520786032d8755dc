package Stress::Checker::Resolved;

# What the calls that name a claim did to it, and whether the server answered
# them rightly.

use strict;
use warnings;
use List::Util qw(max);
use Stress::History;

use constant TOLERANCE => 0.00001;    # what rounding to microseconds may add up to

# Checks the answers to ack, release, extend and claim(ack => ...). deliveries:
# group => id => claims.
sub check
{
	my ($history, $deliveries, $report) = @_;
	foreach my $claim (@{ $history->{claims} })
	{
		my $taken = _taken_over($claim, $deliveries->{ $claim->{group} });
		_follow($claim, $taken, $report) if @{ $claim->{uses} };
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

# The calls that acked or released a message of the claim, whatever became of
# them.
sub uses_of_message
{
	my ($claim, $id) = @_;
	return @{ $claim->{uses_of_all} // [] }, @{ $claim->{uses_of_message}{$id} // [] };
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
# messages are open.
sub _follow
{
	my ($claim, $taken, $report) = @_;
	my @all = map { $_->[0] } Stress::History::rows($claim);
	my @resolving;    # calls that resolved something, with the ids
	foreach my $use (@{ $claim->{uses} })
	{
		my $closed = _closed_before($use, \@resolving);
		my @named = _named($use, \@all);
		my @open = grep { !$closed->{$_} } @named;
		my $whole = _is_whole($use);
		my $is_refused = $use->{error} || ($use->{verb} eq 'release' && !($use->{result} // 1));
		if ($is_refused)
		{
			_check_refusal($claim, $use, $whole, \@named, \@open, $taken, $report);
		}
		elsif ($use->{verb} eq 'extend')
		{
			_check_extension($claim, $use, $report);
		}
		elsif (defined $use->{result} || Stress::History::outcome($use) eq 'unknown')
		{
			my $resolved = $whole ? \@open : \@named;
			my $is_known = !grep { $_ > 1 } values %$closed;
			_check_count($claim, $use, $resolved, \@open, $taken, $report) if $is_known;
			_check_existence($claim, $use, $report);
			push @resolving, { call => $use, ids => $resolved };
			_note_use($claim, $use, $resolved, \@all);
		}
	}
	return;
}

# Whether a call speaks of the whole claim.
sub _is_whole
{
	my ($use) = @_;
	return $use->{verb} !~ /^(ack|release)$/ || $use->{fields}[2] eq 'all';
}

# The ids that a call speaks of.
sub _named
{
	my ($use, $all) = @_;
	return @$all if _is_whole($use);
	my %seen;
	return grep { !$seen{$_}++ } split / /, $use->{fields}[2];
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
		$closed{$_} //= $is_certain ? 1 : 2 for @{ $earlier->{ids} };
	}
	return \%closed;
}

# A claim is refused to its holder only when it is no longer his.
sub _check_refusal
{
	my ($claim, $use, $whole, $named, $open, $taken, $report) = @_;
	return if $use->{error} && $use->{error} ne 'SS004';
	return if Stress::History::outcome($claim->{call}) ne 'committed';
	return if $whole ? !@$open : @$open < @$named;
	foreach my $id (@$named)
	{
		return if grep { $_->{call}{sent} < $use->{received} } @{ $taken->{$id} // [] };
	}
	$report->('refused to its holder',
		"$use->{verb} of claim $claim->{id} of group $claim->{group} at $use->{sent}");
	return;
}

# A claim that was rolled back is known to nobody afterwards.
sub _check_existence
{
	my ($claim, $use, $report) = @_;
	$report->('rolled-back claim accepted',
		"$use->{verb} of claim $claim->{id} of group $claim->{group} at $use->{sent}")
	  if Stress::History::outcome($claim->{call}) eq 'rolled back'
	  && $use->{transaction} != $claim->{call}{transaction};
	return;
}

# The new end is as far away as was asked for, and never before the old one. A
# lease that had ended may be left as it is: somebody is taking the claim over.
sub _check_extension
{
	my ($claim, $use, $report) = @_;
	return unless defined $use->{result};
	my ($seconds) = $use->{fields}[2] =~ /^(\d+)/;
	$report->('wrong lease',
		"claim $claim->{id} of group $claim->{group}: extended at $use->{sent} to $use->{result}")
	  if ($use->{result} < $use->{sent} + $seconds - TOLERANCE && $use->{result} > $use->{received})
	  || $use->{result} < $claim->{expires} - TOLERANCE;
	return;
}

# A call says how many messages it resolved.
sub _check_count
{
	my ($claim, $use, $resolved, $open, $taken, $report) = @_;
	return if $use->{verb} =~ /claim|pop/ || !defined $use->{result};
	return if grep { @{ $taken->{$_} // [] } } @$resolved;
	$report->('wrong count',
		"$use->{verb} of claim $claim->{id} of group $claim->{group} at $use->{sent} returned "
		  . "$use->{result} for " . @$open . ' open messages')
	  if $use->{result} != @$open || @$open != @$resolved;
	return;
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
