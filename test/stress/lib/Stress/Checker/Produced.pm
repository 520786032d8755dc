package Stress::Checker::Produced;

# What must be true of what producers were told and of what the log holds.

use strict;
use warnings;
use List::Util qw(max);
use Stress::History;

sub check
{
	my ($history, $report) = @_;
	_check_answers($history, $report);
	_check_order($history, $report);
	_check_log($history, $report);
	return;
}

# One id for each message, rising in the order of the input.
sub _check_answers
{
	my ($history, $report) = @_;
	foreach my $call (grep { defined $_->{returned} } @{ $history->{produces} })
	{
		my $messages = $call->{messages};
		my $name = "produce in transaction $call->{transaction}{name}";
		$report->('wrong number of ids',
			"$name: $call->{returned} for " . @$messages . ' messages')
		  if $call->{returned} != @$messages;
		my $last = 0;
		foreach my $message (grep { $_->{id} } @$messages)
		{
			$report->('ids out of order',
				"$name: message $message->{token} got $message->{id} after $last")
			  if $message->{id} <= $last;
			$last = $message->{id};
		}
	}
	return;
}

# A call that began when another had returned gets higher ids than that one. Of what
# was handed out before a crash only what was committed need be known after it.
sub _check_order
{
	my ($history, $report) = @_;
	my @calls = grep { defined $_->{returned} && grep { $_->{id} } @{ $_->{messages} } }
	  @{ $history->{produces} };
	my @by_return = sort { $a->{received} <=> $b->{received} } @calls;
	my @crashes = @{ $history->{upkeep}{crashes} };
	my ($highest, $highest_committed, $recovered) = (0, 0, 0);
	foreach my $call (sort { $a->{sent} <=> $b->{sent} } @calls)
	{
		while (@crashes && $crashes[0]{sent} < $call->{sent})
		{
			$highest = $highest_committed;
			$recovered = (shift @crashes)->{recovered};
		}
		while ($by_return[0]{received} < $call->{sent})
		{
			my $earlier = shift @by_return;
			my $is_committed = $earlier->{transaction}{outcome} eq 'committed';
			next unless $is_committed || $earlier->{received} > $recovered;
			my $last = max(map { $_->{id} // 0 } @{ $earlier->{messages} });
			$highest = max($highest, $last);
			$highest_committed = max($highest_committed, $last) if $is_committed;
		}
		my ($first) = grep { $_->{id} } @{ $call->{messages} };
		$report->('ids out of order',
			"message $first->{token} got $first->{id} when $highest had been handed out before")
		  if $first->{id} <= $highest;
	}
	return;
}

# The log holds what was committed and not dropped, all of it and nothing else, and
# of a transaction all or nothing.
sub _check_log
{
	my ($history, $report) = @_;
	return $report->('no log', 'the log table was not read') unless $history->{log};
	my $in_log = { %{ $history->tokens_in_log } };
	my $upkeep = $history->{upkeep};
	my $dropped = $upkeep->dropped_in_the_end;
	my %torn;
	foreach my $message (values %{ $history->{messages} })
	{
		my ($token, $id) = @$message{qw(token id)};
		my $logged = delete $in_log->{$token};
		my $seen = $logged // ($upkeep->{seen}{$token} // {})->{id};
		my $outcome = Stress::History::outcome($message->{call});
		if (defined $id && $id == 0)
		{
			$report->('invented', "message $token, a duplicate, is in the log") if $seen;
			next;
		}
		if (defined $seen && $outcome eq 'rolled back')
		{
			$report->('invented', "message $token, rolled back, is in the log with id $seen");
		}
		elsif (defined $seen && defined $id && $seen != $id)
		{
			$report->('wrong id', "message $token is in the log with id $seen, not $id");
		}
		elsif (!defined $logged && defined $id && $id <= $dropped)
		{
			next;
		}
		elsif (!defined $logged && $outcome eq 'committed')
		{
			$report->('lost', "message $token with id $id, committed, is not in the log");
		}
		elsif ($outcome eq 'unknown' && defined $id)
		{
			$torn{ $message->{call}{transaction}{name} }{ defined $logged ? 1 : 0 } = $token;
		}
	}
	foreach my $name (grep { keys %{ $torn{$_} } > 1 } sort keys %torn)
	{
		$report->('torn transaction',
			"$name: message $torn{$name}{1} is in the log and $torn{$name}{0} is not");
	}
	$report->('invented', "the log holds $_ with id $in_log->{$_}, which nobody produced")
	  foreach sort keys %$in_log;
	return;
}

1;
