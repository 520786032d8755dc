package Stress::Keyed::Producer;

# A producer of messages with keys, some of them hot: ordered, exclusive or
# whatever the group does, some of them compacted.

use strict;
use warnings;
use List::Util qw(max);
use Stress::Keyed::Message;
use Stress::Random qw(pick between chance);
use Time::HiRes ();

use constant {
	MAX_BATCH => 8,
	HOT_KEYS => 2,          # of a kind
	KEYS => 40,             # of a kind
	RANK_SECONDS => 1,      # from one compaction rank to the next
	VERSION_SECONDS => 7,   # from one schema version to the next
	MAX_WAIT => 0.5,        # seconds from now to a deliver_at, at most
};

# client: a Stress::Client; run: the settings that all processes share.
sub new
{
	my ($class, %self) = @_;
	return bless { %self, tokens => 0 }, $class;
}

# Produces until the time is up.
sub work
{
	my ($self) = @_;
	my $run = $self->{run};
	while (Time::HiRes::time() < $run->{stop_at})
	{
		my $before = $self->{tokens};
		die $@ unless eval { $self->_one_transaction; 1 } || ref $@;
		$self->{client}->pause(2 * ($self->{tokens} - $before) * $run->{producers} / $run->{rate});
	}
	return;
}

sub _one_transaction
{
	my ($self) = @_;
	my $client = $self->{client};
	return $client->alone(sub { $self->_produce }) if chance(0.5);
	return $client->transaction(sub { $self->_step for 1 .. between(1, 3) },
		end => pick(commit => 16, rollback => 3, disconnect => 1),
		isolation => pick('READ COMMITTED' => 7, 'REPEATABLE READ' => 2, 'SERIALIZABLE' => 1));
}

# One step of a transaction block.
sub _step
{
	my ($self) = @_;
	my $step = pick(produce => 6, savepoint => 2, pause => 2);
	return $self->{client}->pause(0.03) if $step eq 'pause';
	return $self->_produce if $step eq 'produce';
	return $self->{client}->savepoint(sub { $self->_produce }, chance(0.5));
}

# One call of produce_batch, for keys of one kind.
sub _produce
{
	my ($self) = @_;
	my $kind = pick('-' => 2, o => 5, x => 4, n => 5);
	my $count = between(1, MAX_BATCH);
	my @keys = map { _key($kind) } 1 .. $count;
	my $is_compacted = $kind =~ /[xn]/ && chance(0.6);
	my $version = $self->_level(VERSION_SECONDS);
	my @ranks = map { $self->_level(RANK_SECONDS) } @keys;
	my @tokens = map {
		Stress::Keyed::Message::token($self->_name, $keys[$_], $is_compacted ? ($version, $ranks[$_]) : ())
	} 0 .. $#keys;
	my $due = !$is_compacted && chance(0.1) ? sprintf('%.6f', Time::HiRes::time() + rand MAX_WAIT) : undef;
	my @parameters = (
		$self->{run}{stream}, [ map { qq({"token": "$_"}) } @tokens ], \@keys, $is_compacted ? 1 : 0,
		$is_compacted ? \@ranks : undef, defined $keys[0] ? Stress::Keyed::Message::asked($keys[0]) : undef,
		$version, $due);
	my @fields = map { defined $due ? "$_==$due" : $_ } @tokens;
	$self->{client}->call(produce => \@fields, sub {
		my ($dbh) = @_;
		return @{ $dbh->selectcol_arrayref(<<'SQL', undef, @parameters) };
SELECT sqlstreams.produce_batch(?, ?::jsonb[], ?::text[], compaction => ?,
	compaction_ranks => ?::bigint[], concurrency => ?, schema_version => ?,
	deliver_at => to_timestamp(?))
SQL
	});
	return;
}

sub _name
{
	my ($self) = @_;
	return $self->{client}{label} . '.' . ++$self->{tokens};
}

# A key of this kind; '-': none.
sub _key
{
	my ($kind) = @_;
	return $kind eq '-' ? undef : $kind . between(1, chance(0.4) ? HOT_KEYS : KEYS);
}

# A rank or version: a number that rises with time, but not always.
sub _level
{
	my ($self, $seconds) = @_;
	my $elapsed = (Time::HiRes::time() - $self->{run}{start_at}) / $seconds;
	return max(1, int($elapsed + rand 2));
}

1;
