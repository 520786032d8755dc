package Stress::History;

# The records of a run put together: what happened, as far as the clients can
# know it.
#
#   transactions  name => { name, outcome, commit_sent, ended, calls, ... }
#                 outcome: committed, rolled back or unknown (the connection
#                 broke at the commit); ended: the earliest moment at which it
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
#   superseded    group => id => how often the delivery log says so
#   log           id => token, as the log table had them in the end
#   errors        calls that the server refused
#   disturbances  verb => how often somebody came in the way
#   empty_claims  how many claims returned nothing
#
# A call is { verb, transaction, fields, sent, received, error, undone }.
# undone: when it was rolled back to a savepoint from before it.

use strict;
use warnings;
use List::Util qw(min);
use Stress::Policy;
use Stress::Records;

use constant NO_ID => '-';    # pop may tell none

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
		repairs => {}, exceptions => {}, superseded => {},
	}, $class;
	Stress::Records::visit_all($directory, sub { $self->_event(@_) });
	$_->{calls} = [] for values %{ $self->{transactions} };
	$self->_conclude_transactions;
	$self->_attach_uses;
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

# Whether a message is stored for good. The log decides where its producer
# could not know.
sub is_stored
{
	my ($self, $message) = @_;
	return 0 if defined $message->{id} && $message->{id} == 0;
	my $outcome = outcome($message->{call});
	return $outcome eq 'committed' if $outcome ne 'unknown';
	return exists $self->tokens_in_log->{ $message->{token} };
}

# token => id of what the log table had in the end.
sub tokens_in_log
{
	my ($self) = @_;
	return $self->{tokens_in_log} //= { reverse %{ $self->{log} // {} } };
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
		$transaction->{outcome} = 'rolled back' if $verb ne 'commit';
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
