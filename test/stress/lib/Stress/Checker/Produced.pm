package Stress::Checker::Produced;

# What must be true of what producers were told and of what the log holds.

use strict;
use warnings;
use Stress::History;

use constant FOREVER => 9e18;

sub check
{
	my ($history, $report) = @_;
	_check_answers($history, $report);
	_check_order($history, $report);
	_check_keys($history, $report);
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

# A call that began when another had returned gets higher ids than that one.
sub _check_order
{
	my ($history, $report) = @_;
	my @calls = grep { defined $_->{returned} && grep { $_->{id} } @{ $_->{messages} } }
	  @{ $history->{produces} };
	my @by_return = sort { $a->{received} <=> $b->{received} } @calls;
	my $highest = 0;
	foreach my $call (sort { $a->{sent} <=> $b->{sent} } @calls)
	{
		while ($by_return[0]{received} < $call->{sent})
		{
			foreach my $message (@{ (shift @by_return)->{messages} })
			{
				$highest = $message->{id} if ($message->{id} // 0) > $highest;
			}
		}
		my ($first) = grep { $_->{id} } @{ $call->{messages} };
		$report->('ids out of order',
			"message $first->{token} got $first->{id} when $highest had been handed out before")
		  if $first->{id} <= $highest;
	}
	return;
}

# At any time a key belongs to one message, and a duplicate has an original.
sub _check_keys
{
	my ($history, $report) = @_;
	my %by_key;
	foreach my $message (values %{ $history->{messages} })
	{
		if (defined $message->{key})
		{
			push @{ $by_key{ $message->{key} } }, $message;
		}
		elsif (defined $message->{id} && $message->{id} == 0)
		{
			$report->('duplicate without an original', "message $message->{token} has no key");
		}
	}
	foreach my $key (sort keys %by_key)
	{
		_check_holders($history, $key, $by_key{$key}, $report);
		_check_duplicates($history, $key, $by_key{$key}, $report);
	}
	return;
}

# A key is held from the answer until the produce is undone, or for good.
sub _check_holders
{
	my ($history, $key, $messages, $report) = @_;
	my @holders;
	foreach my $message (grep { !defined $_->{id} || $_->{id} } @$messages)
	{
		my $is_stored = $history->is_stored($message);
		next if !defined $message->{id} && !$is_stored;
		my $call = $message->{call};
		push @holders, {
			token => $message->{token},
			from => $call->{received} // FOREVER - 1,
			to => $is_stored ? FOREVER : Stress::History::undone_at($call) };
	}
	my $last;
	foreach my $holder (sort { $a->{from} <=> $b->{from} } grep { $_->{from} < $_->{to} } @holders)
	{
		$report->('key given twice',
			"idempotency key $key: message $holder->{token} and message $last->{token}")
		  if $last && $holder->{from} < $last->{to};
		$last = $holder if !$last || $holder->{to} > $last->{to};
	}
	return;
}

# A duplicate's original is in the same transaction before it, or committed.
sub _check_duplicates
{
	my ($history, $key, $messages, $report) = @_;
	my @originals = grep { !defined $_->{id} || $_->{id} } @$messages;
	foreach my $duplicate (grep { defined $_->{id} && $_->{id} == 0 } @$messages)
	{
		my $call = $duplicate->{call};
		next if grep { _explains($history, $_, $call) } @originals;
		$report->('duplicate without an original',
			"message $duplicate->{token} with idempotency key $key, at $call->{received}");
	}
	return;
}

sub _explains
{
	my ($history, $original, $call) = @_;
	my $first = $original->{call};
	if ($first->{transaction} == $call->{transaction})
	{
		return $first->{sent} <= $call->{sent}
		  && !$first->{error}
		  && ($first->{undone} // FOREVER) > $call->{received};
	}
	return $history->is_stored($original)
	  && $first->{transaction}{commit_sent} <= $call->{received};
}

# The log holds what was committed, all of it and nothing else, and of a
# transaction all or nothing.
sub _check_log
{
	my ($history, $report) = @_;
	return $report->('no log', 'the log table was not read') unless $history->{log};
	my $in_log = { %{ $history->tokens_in_log } };
	my %torn;
	foreach my $message (values %{ $history->{messages} })
	{
		my ($token, $id) = @$message{qw(token id)};
		my $logged = delete $in_log->{$token};
		my $outcome = Stress::History::outcome($message->{call});
		if (defined $id && $id == 0)
		{
			$report->('invented', "message $token, a duplicate, is in the log") if $logged;
			next;
		}
		if (defined $logged && $outcome eq 'rolled back')
		{
			$report->('invented', "message $token, rolled back, is in the log with id $logged");
		}
		elsif (defined $logged && defined $id && $logged != $id)
		{
			$report->('wrong id', "message $token is in the log with id $logged, not $id");
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
