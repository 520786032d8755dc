package Stress::Group;

# The functions of one consumer group, as recorded calls of one client. A claim
# is { id, messages, poison }: messages are the ids; poison: those that kill
# whoever works on them, id => 1, if there are any.

use strict;
use warnings;
use Stress::Producer;

# client: a Stress::Client; stream, name: the stream and the group; max_per_key:
# how many messages of a key a claim may carry, 1 when it is not given.
sub new
{
	my ($class, %self) = @_;
	return bless \%self, $class;
}

# Claims up to $max messages, first acking the claim whose id is $ack when it
# is given. An empty lease is the default one. Returns nothing when none came.
sub claim
{
	my ($self, $max, $lease, $ack) = @_;
	return $self->_fetch('claim', $max, $lease, $ack,
		q{sqlstreams.claim(?, ?, ?, lease => nullif(?, '')::interval, ack => ?, max_per_key => ?)},
		$max, $lease, $ack, $self->{max_per_key} // 1);
}

# Claims and acks each message in one statement.
sub claim_and_ack
{
	my ($self, $max, $lease) = @_;
	return $self->_fetch('claim_and_ack', $max, $lease, undef,
		'sqlstreams.claim(?, ?, ?, lease => ?::interval)', $max, $lease);
}

sub pop
{
	my ($self, $max) = @_;
	return $self->_fetch('pop', $max, '', undef, 'sqlstreams.pop(?, ?, ?)', $max);
}

# Acks messages of a claim, or with no messages given all of it.
sub ack
{
	my ($self, $claim, $messages) = @_;
	return $self->_resolve(ack => $claim, $messages);
}

# Hands back messages of a claim, or with no messages given all of it.
sub release
{
	my ($self, $claim, $messages) = @_;
	return $self->_resolve(release => $claim, $messages);
}

# Says that the work on messages of a claim, or on all of it, has failed. A wait
# in seconds replaces the group's backoff.
sub nack
{
	my ($self, $claim, $messages, $seconds, $error) = @_;
	return $self->_resolve(nack => $claim, $messages, ', error => ?, retry_in => ?::interval',
		$seconds, $error);
}

# Gives up messages of a claim, or all of it.
sub reject
{
	my ($self, $claim, $messages, $error) = @_;
	return $self->_resolve(reject => $claim, $messages, ', error => ?', undef, $error);
}

# Puts off messages of a claim.
sub delay
{
	my ($self, $claim, $messages, $seconds, $reason) = @_;
	return $self->_resolve(delay => $claim, $messages, ', reason => ?, delay => ?::interval',
		$seconds, $reason);
}

# Says of each message what became of it: [ id, outcome, seconds, error ] each.
# others: keep, ack or release the rest of the claim.
sub resolve
{
	my ($self, $claim, $others, @sayings) = @_;
	my ($id, $outcome, $seconds, $error) = map { my $n = $_; [ map { $_->[$n] } @sayings ] } 0 .. 3;
	my @parameters = (@$self{qw(stream name)}, $claim->{id}, $id, $outcome, $error,
		[ map { _interval($_) } @$seconds ], $others);
	my @named = map { join '=', map { $_ // '-' } @$_ } @sayings;
	$self->{client}->call(resolve => [ $self->{name}, $claim->{id}, $others, @named ], sub {
		my ($dbh) = @_;
		return $dbh->selectrow_array(
			'SELECT sqlstreams.resolve(?, ?, ?, ?::bigint[], ?::text[], ?::text[], ?::interval[], ?)',
			undef, @parameters);
	});
	return;
}

# Repairs dead messages: verb is redrive or discard; with ids undefined, any; with
# a pattern only those whose error contains it.
sub repair
{
	my ($self, $verb, $ids, $pattern) = @_;
	my @parameters = (@$self{qw(stream name)}, $ids, defined $pattern ? "%$pattern%" : undef);
	my @fields = ($self->{name}, $ids ? join(' ', @$ids) : 'all', $pattern // '-');
	$self->{client}->call($verb => \@fields, sub {
		my ($dbh) = @_;
		return $dbh->selectrow_array("SELECT sqlstreams.$verb(?, ?, ?::bigint[], ?)",
			undef, @parameters);
	});
	return;
}

# Moves the group to the head, or to an id.
sub seek
{
	my ($self, $target) = @_;
	my $where = $target eq 'head' ? 'start_position' : 'start_id';
	my @parameters = (@$self{qw(stream name)}, $target);
	$self->{client}->call(seek => [ $self->{name}, $target ], sub {
		my ($dbh) = @_;
		return $dbh->selectrow_array(<<"SQL", undef, @parameters);
SELECT claimed_before, claimed_after, extract(epoch FROM clock_timestamp())
FROM sqlstreams.seek(?, ?, $where => ?)
SQL
	});
	return;
}

# The ids of up to $count dead messages after an id.
sub dead
{
	my ($self, $after, $count) = @_;
	return $self->{client}->dbh->selectcol_arrayref(<<'SQL', undef, @$self{qw(stream name)}, $after, $count);
SELECT message_id FROM sqlstreams.exceptions(?, ?, 'dead', ?, ?)
SQL
}

# Makes the claim's lease end $lease from now.
sub extend
{
	my ($self, $claim, $lease) = @_;
	my @parameters = ($self->{stream}, $self->{name}, $claim->{id}, $lease);
	$self->{client}->call(extend => [ $self->{name}, $claim->{id}, $lease ], sub {
		my ($dbh) = @_;
		return $dbh->selectrow_array(
			'SELECT extract(epoch FROM sqlstreams.extend(?, ?, ?, ?::interval))',
			undef, @parameters);
	});
	return;
}

# Up to which id the group has claimed.
sub claimed
{
	my ($self) = @_;
	my ($claimed) = $self->{client}->dbh->selectrow_array(<<'SQL', undef, @$self{qw(stream name)});
SELECT claimed FROM sqlstreams.consumer_groups WHERE stream = ? AND consumer_group = ?
SQL
	return $claimed;
}

# Whether every message of the group is claimed and resolved or dead.
sub is_drained
{
	my ($self) = @_;
	my ($left) = $self->{client}->dbh->selectrow_array(<<'SQL', undef, @$self{qw(stream name)});
SELECT backlog + leased + ready + inflight + deferred
FROM sqlstreams.consumer_groups WHERE stream = ? AND consumer_group = ?
SQL
	return defined $left && $left == 0;
}

# Selects claimed messages from the function call $rows, whose parameters
# after stream and group are @more.
sub _fetch
{
	my ($self, $verb, $max, $lease, $ack, $rows, @more) = @_;
	my $statement = $self->_select($verb, $rows);
	my @parameters = (@$self{qw(stream name)}, @more);
	my @fields = ($self->{name}, $max, $lease, $ack // '-');
	push @fields, $self->{max_per_key} if $verb eq 'claim' && $self->{max_per_key};
	my $found;
	my ($id) = $self->{client}->call($verb, \@fields, sub {
		my ($dbh) = @_;
		$found = $dbh->selectall_arrayref($statement, undef, @parameters);
		return ('-', '-', '-') unless @$found;
		my %claims = map { $_->[0] // '-' => 1 } @$found;
		return (join('+', sort keys %claims), $found->[0][1] // '-', $found->[0][2],
			map { _row(@$_[ 3 .. 7 ]) } @$found);
	});
	return unless @$found;
	my %poison = map { $_->[3] => 1 } grep { Stress::Producer::is_poison($_->[4]) } @$found;
	return {
		id => $id, messages => [ map { $_->[3] } @$found ],
		poison => %poison ? \%poison : undef };
}

# A claimed message as the records have it.
sub _row
{
	my ($id, $token, $takeovers, $attempts, $delays) = @_;
	my $row = join '=', $id, $token // '', $takeovers;
	return $attempts || $delays ? "$row=$attempts=$delays" : $row;
}

# The statement that returns claim id, lease end, clock, message id, token,
# takeovers, attempts, delays. The clock is read when the function has returned,
# with the group still locked.
sub _select
{
	my ($self, $verb, $rows) = @_;
	my $columns = q{claim_id, extract(epoch FROM lease_expires_at),
		extract(epoch FROM clock_timestamp()), message_id,
		coalesce(payload->>'token', convert_from(body, 'UTF8')), takeovers, attempts, delays};
	if ($verb eq 'claim_and_ack')
	{
		my $dbh = $self->{client}->dbh;
		my ($stream, $name) = map { $dbh->quote($_) } @$self{qw(stream name)};
		$columns .= ", sqlstreams.ack($stream, $name, claim_id, ARRAY[message_id])";
	}
	return "SELECT $columns FROM $rows";
}

# A call about messages of a claim, or all of it. What it says of them comes in
# $more, further arguments of the function: for $error and $seconds, in this
# order, those that it takes.
sub _resolve
{
	my ($self, $verb, $claim, $messages, $more, $seconds, $error) = @_;
	$more //= '';
	my @fields = ($self->{name}, $claim->{id}, $messages ? join(' ', @$messages) : 'all');
	push @fields, $seconds // '-', $error // '-' if $more;
	my @parameters = (@$self{qw(stream name)}, $claim->{id}, $messages);
	push @parameters, $error if $more;
	push @parameters, _interval($seconds) if $more =~ /interval/;
	$self->{client}->call($verb, \@fields, sub {
		my ($dbh) = @_;
		return $dbh->selectrow_array("SELECT sqlstreams.$verb(?, ?, ?, message_ids => ?::bigint[]$more)",
			undef, @parameters);
	});
	return;
}

sub _interval
{
	my ($seconds) = @_;
	return defined $seconds ? "$seconds seconds" : undef;
}

1;
