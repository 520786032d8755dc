package Stress::Checker::Delivered;

# What must be true of claims, acks and leases.

use strict;
use warnings;
use Stress::Checker::Resolved;
use Stress::History;

use constant {
	FOREVER => 9e18,
	DEFAULT_LEASE => 16,    # of the groups of a run: timeout 1 s, plus 15 s
	TOLERANCE => 0.00001,   # what rounding to microseconds may add up to
};

sub check
{
	my ($history, $groups, $report) = @_;
	_check_claim_ids($history, $report);
	my %deliveries = map { $_ => {} } @$groups;
	foreach my $claim (@{ $history->{claims} })
	{
		_check_claim($claim, $report);
		foreach my $row (Stress::History::rows($claim))
		{
			_check_row($history, $claim, $row, $report);
			push @{ $deliveries{ $claim->{group} }{ $row->[0] } }, $claim;
		}
	}
	Stress::Checker::Resolved::check($history, \%deliveries, $report);
	foreach my $group (@$groups)
	{
		_check_takeovers($group, $deliveries{$group}, $report);
		_check_holders($group, $deliveries{$group}, $report);
		_check_completeness($history, $group, $deliveries{$group}, $report);
	}
	return;
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
	my ($claim, $report) = @_;
	my $call = $claim->{call};
	my (undef, $max, $lease) = @{ $call->{fields} };
	my $name = "claim $claim->{id} of group $claim->{group}";
	my %rows = map { $_->[0] => 1 } Stress::History::rows($claim);
	$report->('several claim ids', $name) if $claim->{id} =~ /\+/;
	$report->('too many messages', "$name: $call->{result} instead of $max")
	  if $call->{result} > $max;
	$report->('message twice in a claim', $name) if keys %rows < $call->{result};
	return if $call->{verb} eq 'pop';
	my $seconds = $lease =~ /^(\d+)/ ? $1 : DEFAULT_LEASE;
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
	my ($id, $token, $takeovers) = @$row;
	my $where = "message $id in claim $claim->{id} of group $claim->{group}";
	$claim->{takeovers}{$id} = $takeovers if $takeovers;
	my $message = $history->{messages}{$token};
	return $report->('invented', "$where: nobody produced '$token'") unless $message;
	my $true_id = $message->{id} // $history->tokens_in_log->{$token} // $id;
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
		$report->('invented', "$where: message $token was never committed");
	}
	elsif ($transaction->{commit_sent} > $call->{received})
	{
		$report->('delivered before its commit', "$where: message $token");
	}
	return;
}

# No more lost leases are counted than there were other deliveries by then.
sub _check_takeovers
{
	my ($group, $deliveries, $report) = @_;
	foreach my $id (sort { $a <=> $b } keys %$deliveries)
	{
		my $claims = $deliveries->{$id};
		foreach my $claim (@$claims)
		{
			my $takeovers = $claim->{takeovers}{$id} or next;
			my $before = grep {
				$_ != $claim
				  && $_->{call}{sent} < $claim->{call}{received}
				  && Stress::History::outcome($_->{call}) ne 'rolled back'
			} @$claims;
			$report->('invented take-over',
				"message $id in claim $claim->{id} of group $group: takeovers $takeovers "
				  . "after $before deliveries")
			  if $takeovers > $before;
		}
	}
	return;
}

# No message is with two holders at once, and none comes back after its ack.
sub _check_holders
{
	my ($group, $deliveries, $report) = @_;
	foreach my $id (sort { $a <=> $b } grep { @{ $deliveries->{$_} } > 1 } keys %$deliveries)
	{
		my @holds = map { _hold($_, $id) } @{ $deliveries->{$id} };
		@holds = sort { $a->{from} <=> $b->{from} } @holds;
		my $first = shift @holds;
		foreach my $next (@holds)
		{
			next if _is_take_over_undone($first, $next);
			_report_overlap($group, $id, $first, $next, $report)
			  if $next->{from} < $first->{to} && $next->{from} < $next->{to};
			$first = $next if $next->{to} > $first->{to};
		}
	}
	return;
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
# claim is rolled back, the lease may have ended or the message been released;
# an ack that is committed ends it for ever.
sub _hold
{
	my ($claim, $id) = @_;
	my $call = $claim->{call};
	my %hold = (claim => $claim, from => $call->{received});
	if (Stress::History::outcome($call) ne 'committed')
	{
		return { %hold, to => Stress::History::undone_at($call), undone => 1 };
	}
	my $to = Stress::Checker::Resolved::lease_end($claim);
	foreach my $use (Stress::Checker::Resolved::uses_of_message($claim, $id))
	{
		my $outcome = Stress::History::outcome($use);
		next if $outcome eq 'rolled back';
		if ($use->{verb} ne 'release')
		{
			return { %hold, to => FOREVER, acked => $use } if $outcome eq 'committed';
		}
		elsif ($use->{transaction}{commit_sent} < $to)
		{
			$to = $use->{transaction}{commit_sent};
		}
	}
	return { %hold, to => $to };
}

# Each message that is stored was acked by the group.
sub _check_completeness
{
	my ($history, $group, $deliveries, $report) = @_;
	my $in_log = $history->tokens_in_log;
	foreach my $message (values %{ $history->{messages} })
	{
		next unless $history->is_stored($message);
		my $id = $message->{id} // $in_log->{ $message->{token} };
		my $claims = $deliveries->{$id};
		if (!$claims)
		{
			$report->('skipped', "message $id ($message->{token}) never came to group $group");
		}
		elsif (!grep { _may_be_acked($_, $id) } @$claims)
		{
			$report->('lost', "message $id ($message->{token}) was not acked by group $group; "
				  . 'it came in claims ' . join ', ', map { $_->{id} } @$claims);
		}
	}
	return;
}

sub _may_be_acked
{
	my ($claim, $id) = @_;
	return 0 if Stress::History::outcome($claim->{call}) eq 'rolled back';
	return scalar grep {
		$_->{verb} ne 'release' && Stress::History::outcome($_) ne 'rolled back'
	} Stress::Checker::Resolved::uses_of_message($claim, $id);
}

1;
