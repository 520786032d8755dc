package Stress::History;

# The records of a run put together: what happened, as far as the clients can
# know it.
#
#   transactions  name => { name, outcome, commit_sent, ended, calls, ... }
#                 outcome: committed, rolled back or unknown (the connection
#                 broke at the commit, or the server crashed before it was on
#                 disk, which is_doubtful says); ended: the earliest moment at which it
#                 may have ended: when the end was sent, or an error was on its
#                 way before; without an answer to the end, when the last call
#                 that was answered was sent, as an answer may be read long
#                 after the server wrote it; ended_by: when it certainly had
#                 ended; commit_received: the same, of a commit
#   messages      token => { token, key, due, call, id }; due: its deliver_at, if
#                 any; no id: the reply was lost, 0: a duplicate
#   claims        [ { index, group, id, call, expires, clock, rows, uses } ];
#                 uses: the later calls that name this claim, in order; clock: the
#                 server's, read while the claim kept others out of the group
#   claim_calls   group => the calls that claimed, also those that got nothing
#   unseen_claims group => those of which nobody knows whether they were
#                 committed, nor what they returned
#   groups        name => Stress::Policy
#   seeks         group => [ { call, target, before, after, clock } ]
#   repairs       group => [ { call, verb, ids, pattern } ]: redrives and discards;
#                 no ids: of all; pattern: what the error contains
#   exceptions    group => id => { status, attempts, delays, takeovers, error }
#                 as they were in the end
#   ended         'group claim' => id => how the delivery ended by the delivery log,
#                 where it was read
#   superseded    group => id => how often the delivery log says so
#   log           id => token, as the log table had them in the end
#   upkeep        a Stress::History::Upkeep
#   errors        calls that the server refused
#   disturbances  verb => how often somebody came in the way
#   empty_claims  how many claims returned nothing
#
# A call is { verb, transaction, fields, sent, received, error, undone }.
# undone: when it was rolled back to a savepoint from before it.

use strict;
use warnings;
use List::Util qw(any max min);
use Stress::Client;
use Stress::History::Upkeep;
use Stress::Policy;
use Stress::Records;
use Stress::Saying;

use constant {
	NO_ID => '-',    # pop may tell none
	FOREVER => 9e18,
};

my %ENDS = map { $_ => 1 } qw(commit rollback prepare disconnect);
my %CLAIMS = map { $_ => 1 } qw(claim pop claim_and_ack);
my %USES = map { $_ => 1 } qw(ack nack reject delay resolve release extend);
my %REPAIRS = map { $_ => 1 } qw(redrive discard);
my %DISTURBANCES = map { $_ => 1 } qw(terminate administer);

# Reads all records of a directory.
sub read
{
	my ($class, $directory) = @_;
	my $self = bless {
		transactions => {}, messages => {}, claims => [], claims_by_name => {},
		produces => [], uses => [], errors => [], log => undef, disturbances => {},
		empty_claims => 0, claim_calls => {}, unseen_claims => {}, groups => {}, seeks => {},
		repairs => {}, exceptions => {}, superseded => {}, ended => {}, upkeep => Stress::History::Upkeep->new,
	}, $class;
	Stress::Records::visit_all($directory, sub { $self->_event(@_) });
	$self->_conclude_transactions;
	$self->_doubt_lost_commits;
	$_->{calls} = [] for values %{ $self->{transactions} };
	$self->_attach_uses;
	$self->_settle_by_log;
	return $self;
}

# What became of a call: committed, rolled back or unknown.
sub outcome
{
	my ($call) = @_;
	return 'rolled back' if $call->{error} || $call->{undone};
	return $call->{transaction}{outcome};
}

# The earliest moment at which a call that did not commit may have been undone.
sub undone_at
{
	my ($call) = @_;
	my $ended = $call->{transaction}{ended};
	return min($call->{undone} // $ended, $ended);
}

# Whether a message is stored for good. Where its producer could not know, what
# is read of the log decides, or that somebody was given it.
sub is_stored
{
	my ($self, $message) = @_;
	return 0 if defined $message->{id} && $message->{id} == 0;
	my $outcome = outcome($message->{call});
	return $outcome eq 'committed' if $outcome ne 'unknown';
	return exists $self->stored_tokens->{ $message->{token} };
}

# token => id of what the log table had in the end.
sub tokens_in_log
{
	my ($self) = @_;
	return $self->{tokens_in_log} //= { reverse %{ $self->{log} // {} } };
}

# token => id of what was stored, as far as others than its producer know: what the
# log had in the end, and of dropped messages what it had or groups were given.
sub stored_tokens
{
	my ($self) = @_;
	return $self->{stored_tokens} if $self->{stored_tokens};
	my %stored = %{ $self->tokens_in_log };
	my $upkeep = $self->{upkeep};
	my $dropped = $upkeep->dropped_in_the_end;
	while (my ($token, $seen) = each %{ $upkeep->{seen} })
	{
		$stored{$token} //= $seen->{id} if $seen->{id} <= $dropped && !$self->_may_be_lost($token, $seen->{time});
	}
	foreach my $claim (grep { $dropped && outcome($_->{call}) eq 'committed' } @{ $self->{claims} })
	{
		foreach my $row (rows($claim))
		{
			my ($id, $token) = @$row;
			$stored{$token} //= $id
			  if $id <= $dropped && $self->_is_others($token, $claim)
			  && !$self->_may_be_lost($token, $claim->{call}{sent});
		}
	}
	return $self->{stored_tokens} = \%stored;
}

# Whether a crash may have taken a message after it was seen.
sub _may_be_lost
{
	my ($self, $token, $time) = @_;
	my $message = $self->{messages}{$token} or return 0;
	my $crash = $message->{call}{transaction}{is_doubtful} or return 0;
	return $time < $crash->{recovered};
}

# Whether a message is the work of another transaction than the claim.
sub _is_others
{
	my ($self, $token, $claim) = @_;
	my $message = $self->{messages}{$token} or return 0;
	return $message->{call}{transaction} != $claim->{call}{transaction};
}

# The rows of a claim: [ id, token, takeovers, attempts, delays ] each; the last
# two are not there when they are 0.
sub rows
{
	my ($claim) = @_;
	return map { [ split /=/ ] } split /\t/, $claim->{rows};
}

sub _event
{
	my ($self, $label, $time, $kind, $verb, $name, @fields) = @_;
	return if $self->{upkeep}->event($label, $time, $kind, $verb, @fields);
	if ($DISTURBANCES{$verb})
	{
		$self->{disturbances}{$verb}++;
	}
	elsif ($verb eq 'group')
	{
		$self->{groups}{ $fields[0] } = Stress::Policy->from_fields(@fields[ 1 .. $#fields ]);
	}
	elsif ($verb eq 'log')
	{
		$self->{log} //= {};
		foreach (@fields)
		{
			my ($id, $token) = split /=/;
			$self->{log}{$id} = $token;
		}
	}
	elsif ($verb eq 'exceptions')
	{
		$self->_exceptions_read(@fields);
	}
	elsif ($verb eq 'ended')
	{
		my ($group, @rows) = @fields;
		foreach (@rows)
		{
			my ($claim, $id, $outcome) = split /=/;
			$self->{ended}{"$group $claim"}{$id} = $outcome;
		}
	}
	elsif ($verb eq 'superseded')
	{
		my ($group, @ids) = @fields;
		$self->{superseded}{$group}{$_}++ foreach @ids;
	}
	else
	{
		my $transaction = $self->{transactions}{$name} //= { name => $name, calls => [] };
		if ($ENDS{$verb}) { _end_event($self, $transaction, $time, $kind, $verb, @fields) }
		else { $self->_call_event($transaction, $time, $kind, $verb, @fields) }
	}
	return;
}

# A group's exceptions in the end, some of them.
sub _exceptions_read
{
	my ($self, $group, @rows) = @_;
	my $of_group = $self->{exceptions}{$group} //= {};
	foreach my $row (@rows)
	{
		my ($id, %exception);
		($id, @exception{qw(status attempts delays takeovers error)}) = split /=/, $row, 6;
		$of_group->{$id} = \%exception;
	}
	return;
}

sub _end_event
{
	my ($self, $transaction, $time, $kind, $verb, @fields) = @_;
	if ($verb eq 'prepare')
	{
		$transaction->{prepare} = $kind eq 'reply' ? 'done' : 'sent';
	}
	elsif ($kind eq 'send')
	{
		$transaction->{commit_sent} = $time if $verb eq 'commit';
		# who ends prepared transactions may have to try it again, another way
		$transaction->{outcome} = $verb eq 'commit' ? undef : 'rolled back';
		$transaction->{end_sent} = $transaction->{failed_at} // $time;
	}
	elsif ($kind eq 'reply')
	{
		$transaction->{outcome} = 'committed' if $verb eq 'commit';
		$transaction->{commit_received} = $time if $verb eq 'commit';
		$transaction->{ended} = $transaction->{end_sent};
		$transaction->{ended_by} = $time;
	}
	if ($kind eq 'error')
	{
		$transaction->{outcome} = 'rolled back';
		$self->_note_error({ verb => $verb, transaction => $transaction, fields => [] }, @fields);
	}
	return;
}

sub _call_event
{
	my ($self, $transaction, $time, $kind, $verb, @fields) = @_;
	if ($kind eq 'send')
	{
		my $call = { verb => $verb, transaction => $transaction, sent => $time, fields => \@fields };
		push @{ $transaction->{calls} }, $call;
		$self->_produce_sent($call) if $verb eq 'produce';
		push @{ $self->{uses} }, $call if $USES{$verb} || $verb eq 'claim' && $fields[3] ne '-';
		push @{ $self->{claim_calls}{ $fields[0] } }, $call if $CLAIMS{$verb};
		$self->_repair_sent($call) if $REPAIRS{$verb};
		_undo_since($transaction, $fields[0], delete $transaction->{failed_at} // $time)
		  if $verb eq 'rollback_to';
		return;
	}
	my $call = $transaction->{calls}[-1];
	if ($kind eq 'reply')
	{
		$call->{received} = $time;
		$transaction->{last_alive} = $call->{sent};
		$self->_produce_returned($call, @fields) if $verb eq 'produce';
		$self->_claim_returned($call, @fields) if $CLAIMS{$verb};
		$call->{result} = $fields[0] if $USES{$verb} || $REPAIRS{$verb};
		$self->_seek_returned($call, @fields) if $verb eq 'seek';
	}
	elsif ($kind eq 'error')
	{
		$call->{received} = $time;
		$transaction->{failed_at} = $call->{sent};
		$self->_note_error($call, @fields);
	}
	elsif ($CLAIMS{$verb})
	{
		push @{ $self->{unseen_claims}{ $call->{fields}[0] } }, $call;
	}
	return;
}

sub _note_error
{
	my ($self, $call, $state, $message) = @_;
	$call->{error} = $state;
	$call->{message} = $message;
	push @{ $self->{errors} }, $call;
	return;
}

# Marks the calls since a savepoint as rolled back.
sub _undo_since
{
	my ($transaction, $savepoint, $time) = @_;
	foreach my $call (reverse @{ $transaction->{calls} })
	{
		last if $call->{verb} eq 'savepoint' && $call->{fields}[0] eq $savepoint;
		$call->{undone} //= $time;
	}
	return;
}

sub _produce_sent
{
	my ($self, $call) = @_;
	my @messages;
	foreach (@{ $call->{fields} })
	{
		my ($token, $key, $due) = split /=/;
		push @messages, $self->{messages}{$token} =
		  { token => $token, key => length $key ? $key : undef, due => $due, call => $call };
	}
	$call->{messages} = \@messages;
	push @{ $self->{produces} }, $call;
	return;
}

sub _produce_returned
{
	my ($self, $call, @ids) = @_;
	my $messages = $call->{messages};
	$call->{returned} = @ids;
	$messages->[$_]{id} = $ids[$_] for 0 .. ($#ids < $#$messages ? $#ids : $#$messages);
	return;
}

sub _claim_returned
{
	my ($self, $call, $id, $expires, $clock, @rows) = @_;
	$call->{result} = @rows;
	return $self->{empty_claims}++ unless @rows;
	my $claim = {
		index => scalar @{ $self->{claims} }, group => $call->{fields}[0], id => $id,
		call => $call, expires => $expires, clock => $clock, rows => join("\t", @rows), uses => [] };
	push @{ $self->{claims} }, $claim;
	push @{ $self->{claims_by_name}{"$claim->{group} $id"} }, $claim unless $id eq NO_ID;
	push @{ $claim->{uses} }, $call if $call->{verb} ne 'claim';
	return;
}

sub _seek_returned
{
	my ($self, $call, $before, $after, $clock) = @_;
	my ($group, $target) = @{ $call->{fields} };
	push @{ $self->{seeks}{$group} }, {
		call => $call, target => $target, before => $before, after => $after, clock => $clock };
	return;
}

sub _repair_sent
{
	my ($self, $call) = @_;
	my ($group, $ids, $pattern) = @{ $call->{fields} };
	push @{ $self->{repairs}{$group} }, {
		call => $call, verb => $call->{verb},
		ids => $ids eq 'all' ? undef : { map { $_ => 1 } split / /, $ids },
		pattern => $pattern eq '-' ? undef : $pattern };
	return;
}

# Settles the outcome of what the records do not say in so many words: without
# a commit there was none.
sub _conclude_transactions
{
	my ($self) = @_;
	foreach my $transaction (values %{ $self->{transactions} })
	{
		$transaction->{ended} //= $transaction->{last_alive} // 0;
		$transaction->{outcome} //= $transaction->{commit_sent} ? 'unknown' : 'rolled back';
	}
	foreach my $calls (values %{ $self->{unseen_claims} })
	{
		@$calls = grep { outcome($_) eq 'unknown' } @$calls;
	}
	return;
}

# After a crash of the server nobody knows of a commit that did not wait for the
# disk, unless a later one did. Claims that are a transaction of their own need
# not wait either.
sub _doubt_lost_commits
{
	my ($self) = @_;
	my @ended = grep { $_->{outcome} =~ /^(committed|unknown)$/ } values %{ $self->{transactions} };
	foreach my $crash (@{ $self->{upkeep}{crashes} })
	{
		my $flushed = max(0, map { $_->{commit_sent} } grep {
			$_->{outcome} eq 'committed' && $_->{commit_received} <= $crash->{sent} && _has_flushed($_)
		} @ended);
		foreach my $transaction (@ended)
		{
			my ($sent, $received) = @$transaction{qw(commit_sent commit_received)};
			next if $sent > $crash->{recovered} || ($received // $sent) < $flushed;
			next if defined $received && _waits_for_disk($transaction);
			@$transaction{qw(outcome is_doubtful)} = ('unknown', $crash);
		}
	}
	return;
}

# Where the delivery log was read it decides what was committed of the calls whose
# outcome is unknown. It knows the claims of pops, too, which nobody was told.
sub _settle_by_log
{
	my ($self) = @_;
	return unless %{ $self->{ended} };
	foreach my $name (grep { !$self->{claims_by_name}{$_} } keys %{ $self->{ended} })
	{
		my ($group) = split / /, $name;
		$self->{popped}{$group}{$_} = 1 foreach keys %{ $self->{ended}{$name} };
	}
	foreach my $claim (@{ $self->{claims} })
	{
		my $ended = $self->{ended}{"$claim->{group} $claim->{id}"};
		foreach my $use (grep { $_->{verb} ne 'extend' && outcome($_) eq 'unknown' } @{ $claim->{uses} })
		{
			my @ids = Stress::Saying::is_whole($use) ? map { $_->[0] } rows($claim) : Stress::Saying::named($use);
			my $is_done = $claim->{id} eq NO_ID
			  ? any { $self->{popped}{ $claim->{group} }{$_} } @ids
			  : any { ($ended->{$_} // '') eq Stress::Saying::of_message($use, $_)->{outcome} } @ids;
			_settle($use->{transaction}, $is_done);
		}
		_settle($claim->{call}{transaction}, 1) if $ended && outcome($claim->{call}) eq 'unknown';
	}
	return;
}

# Sets what became of a transaction after all.
sub _settle
{
	my ($transaction, $is_committed) = @_;
	$transaction->{outcome} = $is_committed ? 'committed' : 'rolled back';
	$transaction->{commit_received} //= ($transaction->{is_doubtful} // {})->{recovered} // FOREVER if $is_committed;
	return;
}

# Whether the commit of a transaction, if it wrote anything, had waited for the disk.
sub _waits_for_disk
{
	my ($transaction) = @_;
	return 1 if $transaction->{prepare};
	return 0 unless Stress::Client::is_synchronous($transaction->{name} =~ /^(.*):/);
	return any { $_->{verb} !~ /^(claim|savepoint|rollback_to)$/ || $_->{verb} eq 'claim' && $_->{fields}[3] ne '-' }
	  @{ $transaction->{calls} };
}

# Whether all that was written before the commit of a transaction was on disk after
# it: it has certainly written something itself.
sub _has_flushed
{
	my ($transaction) = @_;
	return _waits_for_disk($transaction)
	  && any { $_->{verb} eq 'produce' && !$_->{undone} && grep { $_->{id} } @{ $_->{messages} } }
		@{ $transaction->{calls} };
}

# Gives each claim the calls that name it, in the order of time.
sub _attach_uses
{
	my ($self) = @_;
	foreach my $call (sort { $a->{sent} <=> $b->{sent} } @{ $self->{uses} })
	{
		my ($group, $id) = @{ $call->{fields} };
		$id = $call->{fields}[3] if $call->{verb} eq 'claim';
		my $claims = $self->{claims_by_name}{"$group $id"} or next;
		push @{ $claims->[0]{uses} }, $call;
		$call->{claim} = $claims->[0];
	}
	return;
}

1;
