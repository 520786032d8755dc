package Stress::Checker::Delivered;

# What must be true of claims, acks and leases.

use strict;
use warnings;
use List::Util qw(first max min);
use Stress::Checker::Course;
use Stress::Checker::Moved;
use Stress::Checker::Resolved;
use Stress::History;
use Stress::Saying;

use constant {
	FOREVER => 9e18,
	TOLERANCE => 0.00001,   # what rounding to microseconds may add up to
};

sub check
{
	my ($history, $report) = @_;
	my @groups = sort keys %{ $history->{groups} };
	my %deliveries = %{ check_claims($history, $report) };
	my %seeks = map { $_ => [ Stress::Checker::Moved::seeks($history, $_) ] } @groups;
	Stress::Checker::Resolved::check($history, \%deliveries, \%seeks, $report);
	foreach my $group (@groups)
	{
		my $troubled = _check_holders($group, $deliveries{$group}, $seeks{$group}, $report);
		Stress::Checker::Course->new(
			history => $history, group => $group, deliveries => $deliveries{$group},
			seeks => $seeks{$group}, report => $report)->check($troubled);
	}
	return;
}

# Checks each claim by itself, and what it returned against what was produced.
# Returns group => id => the claims that returned it.
sub check_claims
{
	my ($history, $report) = @_;
	_check_claim_ids($history, $report);
	my %deliveries = map { $_ => {} } keys %{ $history->{groups} };
	foreach my $claim (@{ $history->{claims} })
	{
		_check_claim($claim, $history->{groups}{ $claim->{group} }, $report);
		my @rows = Stress::History::rows($claim);
		foreach my $row (@rows)
		{
			_check_row($history, $claim, $row, $report);
			push @{ $deliveries{ $claim->{group} }{ $row->[0] } }, $claim;
		}
		$claim->{lowest} = min(map { $_->[0] } @rows);
		$claim->{highest} = max(map { $_->[0] } @rows);
	}
	return \%deliveries;
}

# A claim id names one claim.
sub _check_claim_ids
{
	my ($history, $report) = @_;
	foreach my $name (sort keys %{ $history->{claims_by_name} })
	{
		my $claims = $history->{claims_by_name}{$name};
		$report->('claim id used twice', "claim $name") if @$claims > 1;
	}
	return;
}

# A claim has one id, as many rows as were asked for, each once, and a lease
# that is as long as was asked for.
sub _check_claim
{
	my ($claim, $policy, $report) = @_;
	my $call = $claim->{call};
	my (undef, $max, $lease) = @{ $call->{fields} };
	my $name = "claim $claim->{id} of group $claim->{group}";
	my %rows = map { $_->[0] => 1 } Stress::History::rows($claim);
	$report->('several claim ids', $name) if $claim->{id} =~ /\+/;
	$report->('too many messages', "$name: $call->{result} instead of $max")
	  if $call->{result} > $max;
	$report->('message twice in a claim', $name) if keys %rows < $call->{result};
	return if $call->{verb} eq 'pop';
	my $seconds = $lease =~ /^([\d.]+)/ ? $1 : $policy->default_lease;
	$report->('wrong lease', "$name: ends at $claim->{expires}, asked for '$lease' at $call->{sent}")
	  if $claim->{expires} < $call->{sent} + $seconds - TOLERANCE
	  || $claim->{expires} > $call->{received} + $seconds + TOLERANCE;
	return;
}

# What is delivered was produced under this id, and was committed by then or
# is the work of the claiming transaction itself.
sub _check_row
{
	my ($history, $claim, $row, $report) = @_;
	my ($id, $token, @counts) = @$row;
	my $where = "message $id in claim $claim->{id} of group $claim->{group}";
	$claim->{counts}{$id} = \@counts if @counts > 1 || $counts[0];
	my $message = $history->{messages}{$token};
	return $report->('invented', "$where: nobody produced '$token'") unless $message;
	my $true_id = $message->{id} // $history->stored_tokens->{$token} // $id;
	return $report->('wrong id', "$where: message $token was given id $true_id")
	  if $true_id != $id;
	my ($produce, $call) = ($message->{call}, $claim->{call});
	my $transaction = $produce->{transaction};
	if ($transaction == $call->{transaction})
	{
		$report->('invented', "$where: message $token had been rolled back to a savepoint")
		  if $produce->{error} || ($produce->{undone} // FOREVER) < $call->{sent};
	}
	elsif (!$history->is_stored($message))
	{
		$report->('invented', "$where: message $token was never committed")
		  unless _is_lost_with($transaction, $call);
	}
	elsif ($transaction->{commit_sent} > $call->{received})
	{
		$report->('delivered before its commit', "$where: message $token");
	}
	return;
}

# Whether a claim was given a message before a crash that took both.
sub _is_lost_with
{
	my ($transaction, $call) = @_;
	my $crash = $transaction->{is_doubtful} or return 0;
	return $call->{sent} < $crash->{recovered} && Stress::History::outcome($call) ne 'committed';
}

# No message is with two holders at once, and none comes back after its ack unless
# the group was moved back. Returns the ids for which that was not so.
sub _check_holders
{
	my ($group, $deliveries, $seeks, $report) = @_;
	my %troubled;
	foreach my $id (sort { $a <=> $b } grep { @{ $deliveries->{$_} } > 1 } keys %$deliveries)
	{
		my @holds = map { _hold($_, $id, $seeks) } @{ $deliveries->{$id} };
		@holds = sort { $a->{from} <=> $b->{from} } @holds;
		my $first = shift @holds;
		foreach my $next (@holds)
		{
			next if _is_take_over_undone($first, $next);
			if ($next->{from} < $first->{to} && $next->{from} < $next->{to})
			{
				_report_overlap($group, $id, $first, $next, $report);
				$troubled{$id} = 1;
			}
			$first = $next if $next->{to} > $first->{to};
		}
	}
	return \%troubled;
}

# A take-over that is rolled back never was: a claim whose lease had ended before
# it, and which nobody was acking, is still its holder's.
sub _is_take_over_undone
{
	my ($first, $next) = @_;
	return $next->{undone}
	  && (!$first->{acked} || $first->{acked}{sent} >= $next->{from})
	  && Stress::Checker::Resolved::lease_end($first->{claim}) < $next->{from};
}

sub _report_overlap
{
	my ($group, $id, $first, $next, $report) = @_;
	my $kind = 'two holders at once';
	if ($first->{acked})
	{
		$kind = $next->{acked} ? 'acked twice' : 'delivered after its ack'
		  if $first->{acked}{transaction}{commit_received} < $next->{claim}{call}{sent}
		  || $next->{acked};
	}
	my $to = $first->{acked} ? 'and acked it' : sprintf 'to %.6f', $first->{to};
	$report->($kind, sprintf
		  'message %s of group %s: claim %s (%s) held it from %.6f %s, claim %s (%s) from %.6f',
		$id, $group, $first->{claim}{id}, $first->{claim}{call}{transaction}{name},
		$first->{from}, $to, $next->{claim}{id}, $next->{claim}{call}{transaction}{name},
		$next->{from});
	return;
}

# The time for which a claim certainly held a message: from the answer (other
# claims of the group wait until the claiming transaction has ended) until the
# claim is rolled back, the lease may have ended, its holder spoke of the message
# or a seek dropped the claim; an ack that is committed ends it for ever, or
# until a seek.
sub _hold
{
	my ($claim, $id, $seeks) = @_;
	my $call = $claim->{call};
	my %hold = (claim => $claim, from => $call->{received});
	if (Stress::History::outcome($call) ne 'committed')
	{
		return { %hold, to => Stress::History::undone_at($call), undone => 1 };
	}
	my $seek = first {
		$_->{clock} > $claim->{clock}
		  && (Stress::Checker::Moved::is_in_window($_, $id)
			|| Stress::Checker::Moved::may_drop($_, $claim))
	} @$seeks;
	my $to = min(Stress::Checker::Resolved::lease_end($claim), $seek ? $seek->{clock} : FOREVER);
	foreach my $use (Stress::Checker::Resolved::uses_of_message($claim, $id))
	{
		my $outcome = Stress::History::outcome($use);
		next if $outcome eq 'rolled back';
		if (Stress::Saying::of_message($use, $id)->{outcome} eq 'ack')
		{
			return { %hold, to => _comes_again($id, $claim, $seeks), acked => $use }
			  if $outcome eq 'committed';
		}
		elsif ($use->{transaction}{commit_sent} < $to)
		{
			$to = $use->{transaction}{commit_sent};
		}
	}
	return { %hold, to => $to };
}

# When a message may come again although this claim was acked.
sub _comes_again
{
	my ($id, $claim, $seeks) = @_;
	my $seek = first {
		$_->{clock} > $claim->{clock} && Stress::Checker::Moved::may_bring_back($_, $id)
	} @$seeks;
	return $seek ? $seek->{clock} : FOREVER;
}

1;
