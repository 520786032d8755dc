package Stress::Checker::Endings;

# How the deliveries of keyed messages ended, by the calls that named their claims;
# and whether the server answered these calls rightly.
#
# An ending is { use, outcome }. The outcome is one that a call may give, or
# deferred: a nack or delay of a message sends those of its key behind it in the
# claim back to wait.

use strict;
use warnings;
use List::Util qw(any max);
use Stress::Checker::Resolved;
use Stress::History;
use Stress::Saying;

use constant FOREVER => 9e18;

# Sets $claim->{endings}, id => ending, of a claim that was committed, and reports
# wrong answers. key_of: id => key, of messages whose policy is not parallel; later:
# id => all claims that returned it.
sub find
{
	my ($claim, $key_of, $later, $claim_calls, $report) = @_;
	my @ids = sort { $a <=> $b } map { $_->[0] } Stress::History::rows($claim);
	my @said;    # { use, outcomes }, in order
	foreach my $use (grep { $_->{verb} ne 'extend' } @{ $claim->{uses} })
	{
		my %closed = map { $_ => 1 } map { keys %{ $_->{outcomes} } } grep { _counts_for($use, $_->{use}) } @said;
		my @named = Stress::Saying::named($use);
		my @meant = Stress::Saying::is_whole($use) ? grep { !$closed{$_} } @ids : @named;
		my $where = "$use->{verb} of claim $claim->{id} of group $claim->{group} at $use->{sent}";
		if ($use->{error} || $use->{verb} eq 'release' && !($use->{result} // 1))
		{
			$report->('refused to its holder', $where)
			  if @meant && !(any { $closed{$_} } @named) && !_may_be_lost($claim, $use, $claim_calls);
			next;
		}
		next unless defined $use->{result};
		$report->('accepted after its end', "$where: message $_") foreach grep { $closed{$_} } @named;
		$report->('accepted from a former holder', "$where: message $_")
		  foreach grep { _is_with_another($claim, $use, $later->{$_}) } @meant;
		push @said, { use => $use, outcomes => _outcomes($use, \@meant, \@ids, \%closed, $key_of) };
	}
	foreach my $said (grep { Stress::History::outcome($_->{use}) eq 'committed' } @said)
	{
		my ($use, $outcomes) = @$said{qw(use outcomes)};
		$claim->{endings}{$_} = { use => $use, outcome => $outcomes->{$_} } foreach keys %$outcomes;
	}
	return;
}

# When a call took effect, as others may see it; those of its own transaction see
# it at once.
sub time_of
{
	my ($use, $transaction) = @_;
	return $use->{sent} if $use->{transaction} == $transaction;
	return max($use->{sent}, $use->{transaction}{commit_sent} // FOREVER);
}

# Whether an earlier call is done as far as a later one is concerned.
sub _counts_for
{
	my ($use, $earlier) = @_;
	return !defined $earlier->{undone} || $earlier->{undone} > $use->{sent}
	  if $earlier->{transaction} == $use->{transaction};
	return Stress::History::outcome($earlier) eq 'committed';
}

# What a call makes of messages of a claim: id => outcome.
sub _outcomes
{
	my ($use, $meant, $ids, $closed, $key_of) = @_;
	my %outcomes = map { $_ => Stress::Saying::of_message($use, $_)->{outcome} } @$meant;
	my %has_failed;
	foreach my $id (grep { defined $key_of->{$_} && !$closed->{$_} } @$ids)
	{
		my $key = $key_of->{$id};
		if ($has_failed{$key}) { $outcomes{$id} = 'deferred' }
		elsif (($outcomes{$id} // '') =~ /^(nack|delay)$/) { $has_failed{$key} = 1 }
	}
	return \%outcomes;
}

# Whether the lease may have ended and some claim found that out.
sub _may_be_lost
{
	my ($claim, $use, $claim_calls) = @_;
	return 1 if Stress::History::outcome($claim->{call}) ne 'committed';
	my $end = Stress::Checker::Resolved::lease_end($claim);
	return $end < $use->{received} && any {
		$_ != $claim->{call} && $_->{sent} < $use->{received} && ($_->{received} // FOREVER) > $end
		  && Stress::History::outcome($_) ne 'rolled back'
	} @$claim_calls;
}

# Whether another claim certainly had taken the message over when the call was made.
sub _is_with_another
{
	my ($claim, $use, $claims) = @_;
	return any {
		$_->{clock} > $claim->{clock}
		  && Stress::History::outcome($_->{call}) eq 'committed'
		  && $_->{call}{transaction}{commit_received} < $use->{sent}
	} @$claims;
}

1;
