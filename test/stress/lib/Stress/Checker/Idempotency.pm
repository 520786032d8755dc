package Stress::Checker::Idempotency;

# What must be true of idempotency keys: within the time to live of a stored
# message's key, counted from somewhen in its produce call, and while its
# transaction is open, no second message of the key is stored; and what was called
# a duplicate has an original whose time was not over for long.
#
# Two messages of a key may be the work of calls that overlap. They are wrong if
# neither can have come before the other.

use strict;
use warnings;
use List::Util qw(any max);
use Stress::History;

use constant {
	FOREVER => 9e18,
	TOLERANCE => 0.00001,    # what rounding to microseconds may add up to
	MAX_EXTRA => 60,         # seconds that a key may protect for longer, or ...
	MAX_EXTRA_SHARE => 0.1,  # ... this share of its time, whichever is more
	UPKEEP_DELAY => 60,      # seconds for which maintenance may have been hindered
};

sub check
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
		my @holders = _holders($history, $by_key{$key});
		_check_holders($history, $key, \@holders, $report);
		_check_duplicates($history, $key, $by_key{$key}, $report);
	}
	return;
}

# How often a key was used again when its time was over.
sub count_used_again
{
	my ($history) = @_;
	my %stored;
	foreach my $message (values %{ $history->{messages} })
	{
		$stored{ $message->{key} }++ if defined $message->{key} && $history->is_stored($message);
	}
	my $count = 0;
	$count += $_ - 1 foreach values %stored;
	return $count;
}

# The messages of a key that held it, by the latest moment at which they may have
# got it: { message, sent, from, to }. One that was undone holds it until then.
sub _holders
{
	my ($history, $messages) = @_;
	my @holders;
	foreach my $message (grep { !defined $_->{id} || $_->{id} } @$messages)
	{
		my $is_stored = $history->is_stored($message);
		next if !defined $message->{id} && !$is_stored;
		my $call = $message->{call};
		my $from = $call->{received} // $call->{transaction}{commit_received} // FOREVER - 1;
		my $to = $is_stored ? FOREVER : Stress::History::undone_at($call);
		push @holders, {
			message => $message, is_stored => $is_stored, sent => $call->{sent}, from => $from, to => $to }
		  if $from < $to;
	}
	return sort { $a->{from} <=> $b->{from} } @holders;
}

sub _check_holders
{
	my ($history, $key, $holders, $report) = @_;
	foreach my $n (1 .. $#$holders)
	{
		my $next = $holders->[$n];
		foreach my $first (reverse @$holders[ 0 .. $n - 1 ])
		{
			next if _may_follow($history, $first, $next) || _may_follow($history, $next, $first);
			$report->('key given twice', sprintf 'idempotency key %s: message %s at %.6f to %.6f and message %s at %.6f to %.6f',
				$key, map { ($_->{message}{token}, $_->{sent}, $_->{from}) } $first, $next);
			last;
		}
	}
	return;
}

# Whether one message may have got the key after another had it.
sub _may_follow
{
	my ($history, $first, $next) = @_;
	return $next->{from} >= $first->{to} unless $first->{is_stored};
	my ($ttl) = $history->{upkeep}->setting_range(idempotency_key_ttl => $first->{sent}, $next->{from});
	return 0 unless defined $ttl;
	my ($first_call, $next_call) = map { $_->{message}{call} } $first, $next;
	my $free_at = $first->{sent} + $ttl;
	$free_at = max($free_at, $first_call->{transaction}{commit_sent} // 0)
	  if $first_call->{transaction} != $next_call->{transaction};
	return $next->{from} + TOLERANCE >= $free_at;
}

# A duplicate's original is in the same transaction before it, or committed.
sub _check_duplicates
{
	my ($history, $key, $messages, $report) = @_;
	my @originals = grep { !defined $_->{id} || $_->{id} } @$messages;
	foreach my $duplicate (grep { defined $_->{id} && $_->{id} == 0 } @$messages)
	{
		my $call = $duplicate->{call};
		my @explaining = grep { _explains($history, $_, $call) } @originals;
		next if any { _protects_still($history, $_, $call) } @explaining;
		$report->(@explaining ? 'key refused for too long' : 'duplicate without an original',
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
	return 1 if $first->{transaction}{is_doubtful} && $call->{sent} < $first->{transaction}{is_doubtful}{recovered};
	return $history->is_stored($original)
	  && $first->{transaction}{commit_sent} <= $call->{received};
}

# Whether a key may still be refused to a call.
sub _protects_still
{
	my ($history, $original, $call) = @_;
	my $first = $original->{call};
	my $from = max($first->{sent}, $first->{received} // $first->{transaction}{commit_sent} // 0);
	my (undef, $ttl) = $history->{upkeep}->setting_range(idempotency_key_ttl => $first->{sent}, $call->{received});
	return 1 unless defined $ttl;
	return $call->{sent} <= $from + $ttl + max(MAX_EXTRA, $ttl * MAX_EXTRA_SHARE) + UPKEEP_DELAY;
}

1;
