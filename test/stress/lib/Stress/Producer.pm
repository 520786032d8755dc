package Stress::Producer;

# A producer: transactions of every shape that SQL allows, one after another.
# Each message carries a token of its own, so that its delivery can be told.

use strict;
use warnings;
use Stress::Random qw(pick between chance);
use Time::HiRes ();

use constant {
	MAX_BATCH => 60,
	MAX_PADDING => 1500,
	KEYS_PER_SECOND => 20,    # new idempotency keys that all producers share
	KEY_WINDOW => 4,          # keys in use at one moment
	LASTING_KEYS => 30,       # and those that are used all the time, again when they are free
	POISON_EVERY => 3,        # seconds from one poison message to the next, about
	MAX_WAIT => 2,            # seconds from now to a deliver_at, at most
	OUTLAST => 6,             # seconds that a transaction may stay open, past the time of its keys
	STRADDLE_EVERY => 4,      # seconds from one transaction that straddles to the next, about
	STRADDLE_LENGTH => 3,     # seconds that it stays open before it goes on, at most
	FOREVER => 9e18,
	POISON => '!',            # how the token of a poison message ends
};

# Whether a message with this token kills whoever works on it.
sub is_poison
{
	my ($token) = @_;
	return defined $token && substr($token, -1) eq POISON;
}

# client: a Stress::Client; run: the settings that all processes share.
sub new
{
	my ($class, %self) = @_;
	return bless { %self, tokens => 0, produced => 0 }, $class;
}

# Produces until the time is up.
sub work
{
	my ($self) = @_;
	my $run = $self->{run};
	while (Time::HiRes::time() < $run->{stop_at})
	{
		next if eval {
			$run->is_sprint ? $self->_quick_transaction : $self->_one_transaction;
			$self->_keep_to_rate unless $run->is_sprint;
			1;
		};
		die $@ unless ref $@;
	}
	return;
}

sub _one_transaction
{
	my ($self) = @_;
	my $client = $self->{client};
	return $self->_straddle if $self->_straddles_next;
	return $client->alone(sub { $self->produce_some }) if chance(0.3);
	my %ends = (commit => 70, rollback => 14, disconnect => 4);
	$ends{prepare} = 12 if $self->{run}{prepare};
	my $steps = sub { $self->_step for 1 .. between(1, 5) };
	return $client->transaction($steps,
		end => pick(%ends),
		isolation => pick('READ COMMITTED' => 7, 'REPEATABLE READ' => 2, 'SERIALIZABLE' => 1));
}

# Whether it is time for a transaction that straddles. One producer does that: who
# waits for its ids waits for long.
sub _straddles_next
{
	my ($self) = @_;
	my $now = Time::HiRes::time();
	$self->{straddle_at} //= $self->{client}{label} =~ /^producer1$/ ? $now + rand STRADDLE_EVERY : FOREVER;
	return 0 if $now < $self->{straddle_at};
	$self->{straddle_at} = $now + STRADDLE_EVERY / 2 + rand STRADDLE_EVERY;
	return 1;
}

# A transaction that uses a key, stays open while others come and go and maintenance
# does whatever it does with keys, and then uses keys that all are using.
sub _straddle
{
	my ($self) = @_;
	my $client = $self->{client};
	my $first = 'straddling' . int(Time::HiRes::time() / (2 * STRADDLE_EVERY));
	return $client->transaction(sub {
		$self->_produce_batch($first);
		Time::HiRes::sleep(rand STRADDLE_LENGTH);
		$self->_produce_batch(map { 'lasting' . $_ } grep { chance(0.8) } 1 .. LASTING_KEYS);
		$client->pause(0.3);
	}, end => pick(commit => 4, rollback => 1));
}

# Produces a message with each of these keys.
sub _produce_batch
{
	my ($self, @keys) = @_;
	my @tokens = $self->_healthy_tokens(scalar @keys);
	$self->_call('SELECT sqlstreams.produce_batch(?, ?::jsonb[], idempotency_keys => ?::text[])',
		[ $self->{run}{stream}, [ map { _payload($_) } @tokens ], \@keys ], \@tokens, \@keys);
	return;
}

# A transaction of a sprint.
sub _quick_transaction
{
	my ($self) = @_;
	my $client = $self->{client};
	my $produce = sub { $self->_produce_with(pick(produce => 5, produce_batch => 1), between(1, 3)) };
	return $client->alone($produce) if chance(0.6);
	return $client->transaction(sub { $self->_fetch_and_wait }) if chance(0.015);
	return $client->transaction($produce, end => pick(commit => 3, rollback => 1));
}

# One step of a transaction block.
sub _step
{
	my ($self) = @_;
	my $client = $self->{client};
	my $step = pick(produce => 8, savepoint => 4, nested => 1, cursor => 2, pause => 5, stall => 0.3, outlast => 0.05);
	return $self->produce_some if $step eq 'produce';
	return $self->_fetch_from_cursor if $step eq 'cursor';
	return $client->pause(0.03) if $step eq 'pause';
	return $client->pause(1.5) if $step eq 'stall';
	return $client->pause(OUTLAST) if $step eq 'outlast';
	my $inner = sub {
		$self->produce_some;
		$client->savepoint(sub { $self->produce_some }, chance(0.5)) if $step eq 'nested';
		$self->produce_some if chance(0.3);
	};
	return $client->savepoint($inner, chance(0.6));
}

# One call of one of the four produce functions.
sub produce_some
{
	my ($self) = @_;
	my $function =
	  pick(produce => 10, produce_bytes => 2, produce_batch => 5, produce_bytes_batch => 2);
	my $count = chance(0.1) ? between(1, MAX_BATCH * 5) : between(1, MAX_BATCH);
	return $self->_produce_with($function, $count);
}

# A call of this function; $count messages when it is one for batches.
sub _produce_with
{
	my ($self, $function, $count) = @_;
	my $batch = $function =~ /batch/;
	$count = 1 unless $batch;
	my @tokens = $self->_tokens($count);
	my @keys = $self->_keys($count);
	my $bytes = $function =~ /bytes/;
	my @contents = map { $bytes ? _body($_) : _payload($_) } @tokens;
	my $type = ($bytes ? 'bytea' : 'jsonb') . ($batch ? '[]' : '');
	my $key_argument = $batch ? 'idempotency_keys => ?::text[]' : 'idempotency_key => ?';
	my $due = _deliver_at();
	my $statement =
	  "SELECT sqlstreams.$function(?, ?::$type, $key_argument, deliver_at => to_timestamp(?))";
	my @parameters = ($self->{run}{stream});
	push @parameters, $batch ? (\@contents, @keys ? \@keys : undef) : ($contents[0], $keys[0]);
	push @parameters, $due;
	$self->_call($statement, \@parameters, \@tokens, \@keys, $due);
	return;
}

# Produces from within a cursor: some rows, then perhaps a FETCH that fails in
# the middle and is rolled back to a savepoint. The rows fetched first stay.
sub _fetch_from_cursor
{
	my ($self) = @_;
	my $client = $self->{client};
	my @first = $self->_healthy_tokens(between(1, 4));
	my @second = $self->_healthy_tokens(between(2, 4));
	my ($prefix, $from) = $first[0] =~ /^(.*\.)(\d+)$/;
	my $to = $from + @first + @second - 1;
	my $failing = chance(0.7) ? $to : 0;
	my $name = 'c' . ++$self->{cursors};
	$client->unrecorded(<<"SQL", $self->{run}{stream}, $prefix);
DECLARE $name NO SCROLL CURSOR FOR
SELECT sqlstreams.produce(?, jsonb_build_object('token', ? || n, 'pad', 1 / (n - $failing)))
FROM generate_series($from, $to) n
SQL
	$self->_call("FETCH @{[ scalar @first ]} FROM $name", [], \@first, []);
	my $fetch_more = sub {
		$self->_call("FETCH @{[ scalar @second ]} FROM $name", [], \@second, []);
	};
	$client->savepoint($fetch_more, chance(0.3));
	return;
}

# Has produced in nothing but a cursor, and stays open for a moment: long enough
# for others to come and go.
sub _fetch_and_wait
{
	my ($self) = @_;
	$self->_fetch_from_cursor;
	Time::HiRes::sleep(0.1);
	return;
}

# Runs the statement as a recorded call, which returns the ids.
sub _call
{
	my ($self, $statement, $parameters, $tokens, $keys, $due) = @_;
	my @fields = map {
		my $key = $keys->[$_];
		$tokens->[$_] . (defined $key || defined $due ? '=' . ($key // '') : '')
		  . (defined $due ? "=$due" : '')
	} 0 .. $#$tokens;
	$self->{client}->call(produce => \@fields, sub {
		my ($dbh) = @_;
		return @{ $dbh->selectcol_arrayref($statement, undef, @$parameters) };
	});
	$self->{produced} += @$tokens;
	return;
}

# The next $count tokens of this producer, perhaps with a poison among them.
sub _tokens
{
	my ($self, $count) = @_;
	my @tokens = $self->_healthy_tokens($count);
	$tokens[0] .= POISON if $self->_poisons_next;
	return @tokens;
}

sub _healthy_tokens
{
	my ($self, $count) = @_;
	return map { $self->{client}{label} . '.' . ++$self->{tokens} } 1 .. $count;
}

# Whether it is time for a poison message. The last ones come early enough to end
# with the others.
sub _poisons_next
{
	my ($self) = @_;
	my ($now, $run) = (Time::HiRes::time(), $self->{run});
	my $every = POISON_EVERY * $run->{producers};
	$self->{poison_at} //= $run->{start_at} + rand $every;
	return 0 if $now < $self->{poison_at} || $now > $run->{stop_at} - POISON_EVERY;
	$self->{poison_at} = $now + rand 2 * $every;
	return 1;
}

# When the messages of a call are to be delivered, if not at once: seconds since
# 1970.
sub _deliver_at
{
	return chance(0.06) ? sprintf('%.6f', Time::HiRes::time() - 0.1 + rand MAX_WAIT) : undef;
}

# Idempotency keys for some of $count messages, from the few that all producers
# use at this moment, or all the time; an empty list when the call carries none.
sub _keys
{
	my ($self, $count) = @_;
	return unless chance(0.25);
	my $newest = int((Time::HiRes::time() - $self->{run}{start_at}) * KEYS_PER_SECOND);
	my $share = $count > 1 ? 0.2 : 1;
	return map {
		!chance($share) ? undef
		  : chance(0.4) ? 'lasting' . between(1, LASTING_KEYS)
		  : 'key' . ($newest + between(1, KEY_WINDOW))
	} 1 .. $count;
}

sub _payload
{
	my ($token) = @_;
	return sprintf '{"token": "%s", "pad": "%s"}', $token, 'x' x rand MAX_PADDING;
}

sub _body
{
	my ($token) = @_;
	return '\\x' . unpack 'H*', $token;
}

# Sleeps when this producer is ahead of its share of the rate: consumers that
# have caught up are what puts the fence to the test.
sub _keep_to_rate
{
	my ($self) = @_;
	my $run = $self->{run};
	my $due = $run->{start_at} + $self->{produced} * $run->{producers} / $run->{rate};
	my $ahead = $due - Time::HiRes::time();
	my $left = $run->{stop_at} - Time::HiRes::time();
	$ahead = $left if $ahead > $left;
	Time::HiRes::sleep($ahead) if $ahead > 0;
	return;
}

1;
