package Stress::Group;

# The functions of one consumer group, as recorded calls of one client. A claim
# is { id, messages }, messages being the ids.

use strict;
use warnings;

# client: a Stress::Client; stream, name: the stream and the group.
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
		q{sqlstreams.claim(?, ?, ?, lease => nullif(?, '')::interval, ack => ?)},
		$max, $lease, $ack);
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

# Whether every message of the group is claimed and resolved, by anybody.
sub is_drained
{
	my ($self) = @_;
	my ($left) = $self->{client}->dbh->selectrow_array(<<'SQL', undef, @$self{qw(stream name)});
SELECT backlog + leased FROM sqlstreams.consumer_groups WHERE stream = ? AND consumer_group = ?
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
	my ($id, @messages);
	$self->{client}->call($verb, [ $self->{name}, $max, $lease, $ack // '-' ], sub {
		my ($dbh) = @_;
		my $found = $dbh->selectall_arrayref($statement, undef, @parameters);
		return ('-', '-') unless @$found;
		my %claims = map { $_->[0] // '-' => 1 } @$found;
		$id = join '+', sort keys %claims;
		@messages = map { $_->[2] } @$found;
		return ($id, $found->[0][1] // '-', map { "$_->[2]=" . ($_->[3] // '') . "=$_->[4]" } @$found);
	});
	return unless @messages;
	return { id => $id, messages => \@messages };
}

# The statement that returns claim id, lease end, message id, token, takeovers.
sub _select
{
	my ($self, $verb, $rows) = @_;
	my $columns = q{claim_id, extract(epoch FROM lease_expires_at), message_id,
		coalesce(payload->>'token', convert_from(body, 'UTF8')), takeovers};
	if ($verb eq 'claim_and_ack')
	{
		my $dbh = $self->{client}->dbh;
		my ($stream, $name) = map { $dbh->quote($_) } @$self{qw(stream name)};
		$columns .= ", sqlstreams.ack($stream, $name, claim_id, ARRAY[message_id])";
	}
	return "SELECT $columns FROM $rows";
}

sub _resolve
{
	my ($self, $verb, $claim, $messages) = @_;
	my @parameters = (@$self{qw(stream name)}, $claim->{id}, $messages);
	my $named = $messages ? join(' ', @$messages) : 'all';
	$self->{client}->call($verb, [ $self->{name}, $claim->{id}, $named ], sub {
		my ($dbh) = @_;
		return $dbh->selectrow_array("SELECT sqlstreams.$verb(?, ?, ?, ?::bigint[])",
			undef, @parameters);
	});
	return;
}

1;
