package Stress::Consumer;

# A consumer of one group: claims of every size, and the ways to go on with one
# when the work succeeds, dies or comes too late. Work on a poison message kills
# the consumer whatever it is about to do. In the end it drains its group in an
# orderly way.

use strict;
use warnings;
use List::Util qw(min shuffle);
use Stress::Random qw(pick between chance);
use Time::HiRes ();

use constant {
	MAX_MESSAGES => 500,
	SHORT_LEASE => '0.3 seconds',    # for claims that are abandoned
	LEASE => '2 seconds',
	HEARTBEAT_LEASE => '1 second',   # for claims that are extended
	PIECES => 8,                     # that a claim is split into, at most
	SHELVED => 4,                    # abandoned claims to come back to, at most
	IDLE => 0.02,                    # pause after an empty claim, at most
};

# What a consumer does, each as often as its weight says.
my %STYLES = (
	whole => 20, in_one_transaction => 8, piecewise => 12, claim_rolled_back => 6,
	claim_undone => 3, abandon => 7, release => 7, extend => 6, chain => 10,
	die_with_claim => 3, die_with_ack => 3, slow_ack => 5, one_statement => 5,
	with_produce => 4);

# client, run: as for a producer; producer: makes the messages that this
# consumer produces; group: a Stress::Group; pops: whether it pops;
# reconnects: whether it makes a connection for each claim; lags: whether its group
# falls behind now and then.
sub new
{
	my ($class, %settings) = @_;
	my $self = bless { %settings, shelf => [] }, $class;
	$self->{styles} = $self->{pops} ? { pop => 1 } : { $self->styles };
	return $self;
}

# The styles of a consumer that does not pop.
sub styles
{
	my ($self) = @_;
	return (%STYLES, $self->{run}{prepare} ? (prepared_ack => 5) : ());
}

# Consumes until the time is up, and then until nothing is left.
sub work
{
	my ($self) = @_;
	my $run = $self->{run};
	while (Time::HiRes::time() < $run->{stop_at})
	{
		if ($self->{lags} && $run->is_lag) { $self->{client}->pause(2 * IDLE) }
		else { $self->_attempt($run->is_sprint ? 'sprint' : pick(%{ $self->{styles} })) }
	}
	until ($run->producing_is_over && $self->_nothing_left)
	{
		$self->_attempt($self->{pops} ? 'pop' : 'drain');
	}
	return;
}

# Does one thing. What the server refused is in the records.
sub _attempt
{
	my ($self, $style) = @_;
	my $method = "_$style";
	return if eval { $self->_return_to_shelf; $self->$method; 1 };
	die $@ unless ref $@;
	return;
}

# Whether the group has nothing left, as far as the server answers.
sub _nothing_left
{
	my ($self) = @_;
	my $drained = eval { $self->{group}->is_drained };
	return 1 if $drained;
	$self->{client}->disconnect if $@;
	$self->{client}->pause(IDLE);
	return 0;
}

# Asks for messages; what is not given is random: max, lease, ack (a claim id).
# A default lease is long and holds up whatever waits for its messages, so few are
# taken with it, and not all the time.
sub _ask
{
	my ($self, %how) = @_;
	my $max = $how{max} // (chance(0.3) ? between(1, MAX_MESSAGES) : between(1, 20));
	my $lease = $how{lease} // ($self->{run}->is_time_for_long_leases && chance(0.3) ? '' : LEASE);
	$max = min($max, 5) if $lease eq '';
	my $claim = $self->{group}->claim($max, $lease, $how{ack});
	$self->{client}->pause(IDLE) unless $claim;
	return $claim;
}

# Asks for messages within a transaction block.
sub _claim
{
	my ($self, %how) = @_;
	my $claim = $self->_ask(%how);
	$self->_die_of_poison if $claim && $claim->{poison};
	return $claim;
}

# What a poison message does to whoever works on it. The client may vanish, or
# forget what it was doing.
sub _die_of_poison
{
	my ($self) = @_;
	$self->{client}->cut_connection if chance(0.3);
	die { message => "died of poison\n", lost => 1 };
}

# Runs $work in a transaction block of a random isolation level.
sub _in_transaction
{
	my ($self, $work, $end) = @_;
	my $isolation = pick('READ COMMITTED' => 3, 'REPEATABLE READ' => 1);
	$self->{client}->transaction($work, isolation => $isolation, end => $end // 'commit');
	return;
}

# A claim that is a transaction of its own. A poison message in it leaves it
# alone, perhaps when the work on some other has been done.
sub _committed_claim
{
	my ($self, %how) = @_;
	$self->{client}->disconnect if $self->{reconnects};
	my $claim;
	my $work = sub { $claim = $self->_ask(%how) };
	$self->{client}->alone_or_in_block($work);
	if ($claim && $claim->{poison})
	{
		my @healthy = grep { !$claim->{poison}{$_} } @{ $claim->{messages} };
		my @done = @healthy[ grep { chance(0.5) } 0 .. $#healthy ];
		$self->{client}->alone(sub { $self->{group}->ack($claim, \@done) })
		  if @done && chance(0.3);
		$self->_die_of_poison;
	}
	return $claim;
}

# Messages of a claim in random order, in at most PIECES pieces.
sub pieces
{
	my ($claim) = @_;
	my @messages = shuffle @{ $claim->{messages} };
	my $size = 1 + int(@messages / between(1, PIECES));
	my @pieces;
	push @pieces, [ splice @messages, 0, $size ] while @messages;
	return @pieces;
}

# Keeps what is to be said of a claim until its lease has ended, or nearly so.
sub _shelve
{
	my ($self, $say) = @_;
	return if @{ $self->{shelf} } >= SHELVED;
	push @{ $self->{shelf} }, { say => $say, due => Time::HiRes::time() + 0.2 + rand 1 };
	return;
}

# Says what the late holder of an abandoned claim has to say, when it is time.
sub _return_to_shelf
{
	my ($self) = @_;
	my $oldest = $self->{shelf}[0];
	return unless $oldest && $oldest->{due} < Time::HiRes::time();
	shift @{ $self->{shelf} };
	$self->{client}->alone_or_in_block($oldest->{say}) unless chance(0.2);
	return;
}

# Claims as quickly as can be, each time what has just been committed.
sub _sprint
{
	my ($self) = @_;
	my $group = $self->{group};
	my $claim;
	while ($self->{run}->is_sprint)
	{
		my $max = between(1, 30);
		$self->{client}->alone(sub {
			$claim = $self->{pops} ? $group->pop($max) : $group->claim($max, LEASE, $claim && $claim->{id});
		});
		$self->_die_of_poison if $claim && $claim->{poison} && !$self->{pops};
	}
	$self->{client}->alone(sub { $group->ack($claim) }) if $claim && !$self->{pops};
	return;
}

sub _whole
{
	my ($self) = @_;
	my $claim = $self->_committed_claim or return;
	$self->{client}->pause(0.02);
	$self->{client}->alone_or_in_block(sub { $self->{group}->ack($claim) });
	return;
}

sub _drain
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(max => MAX_MESSAGES, lease => HEARTBEAT_LEASE) or return;
	$self->{client}->alone(sub { $self->{group}->ack($claim) });
	return;
}

sub _in_one_transaction
{
	my ($self) = @_;
	$self->_in_transaction(sub {
		my $claim = $self->_claim or return;
		$self->{group}->ack($claim, chance(0.5) ? $claim->{messages} : undef);
	}, pick(commit => 4, rollback => 1));
	return;
}

# Acks in pieces, some of them twice because the first try is rolled back.
sub _piecewise
{
	my ($self) = @_;
	my $claim = $self->_committed_claim or return;
	foreach my $piece (pieces($claim))
	{
		my $ack = sub { $self->{group}->ack($claim, $piece) };
		$self->_in_transaction($ack, 'rollback') if chance(0.2);
		$self->{client}->alone_or_in_block($ack);
	}
	return;
}

sub _claim_rolled_back
{
	my ($self) = @_;
	my $claim;
	$self->_in_transaction(sub {
		$claim = $self->_claim;
		$self->{client}->pause(0.03);
	}, 'rollback');
	$self->{client}->alone(sub { $self->{group}->ack($claim) }) if $claim && chance(0.3);
	return;
}

# A claim rolled back to a savepoint, and another in the same transaction.
sub _claim_undone
{
	my ($self) = @_;
	$self->_in_transaction(sub {
		$self->{client}->savepoint(sub { $self->_claim }, 1);
		my $claim = $self->_claim or return;
		$self->{client}->savepoint(sub { $self->{group}->ack($claim) }, chance(0.5));
	});
	return;
}

# Lets the lease run out, perhaps with part of the claim acked.
sub _abandon
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(lease => SHORT_LEASE) or return;
	my @pieces = pieces($claim);
	if (@pieces > 1 && chance(0.5))
	{
		my $first = shift @pieces;
		$self->{client}->alone(sub { $self->{group}->ack($claim, $first) });
	}
	my $rest = chance(0.5) ? undef : [ map { @$_ } @pieces ];
	$self->_shelve(sub { $self->{group}->ack($claim, $rest) });
	return;
}

# Hands back all, or a part while the rest is acked.
sub _release
{
	my ($self) = @_;
	my $claim = $self->_committed_claim or return;
	my ($first, @rest) = pieces($claim);
	my $part = chance(0.5) ? $first : undef;
	$self->_in_transaction(sub { $self->{group}->release($claim, $part) },
		pick(commit => 3, rollback => 1));
	return unless $part && @rest;
	$self->{client}->alone_or_in_block(sub { $self->{group}->ack($claim, [ map { @$_ } @rest ]) });
	return;
}

# Keeps a short lease alive for longer than it was made for.
sub _extend
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(lease => HEARTBEAT_LEASE) or return;
	for (1 .. between(2, 4))
	{
		Time::HiRes::sleep(0.4 + rand 0.3);
		$self->{client}->alone_or_in_block(sub { $self->{group}->extend($claim, HEARTBEAT_LEASE) });
	}
	$self->{client}->alone(sub { $self->{group}->ack($claim) });
	return;
}

# Each claim acks the one before.
sub _chain
{
	my ($self) = @_;
	my $claim = $self->_committed_claim or return;
	for (1 .. between(1, 5))
	{
		my $last = $claim;
		$claim = $self->_committed_claim(ack => $last->{id}) or return;
	}
	$self->{client}->alone(sub { $self->{group}->ack($claim) });
	return;
}

# The client dies with an open transaction that has claimed.
sub _die_with_claim
{
	my ($self) = @_;
	$self->_in_transaction(sub { $self->_claim }, 'disconnect');
	return;
}

# The client dies after its ack and before the commit.
sub _die_with_ack
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(lease => SHORT_LEASE) or return;
	$self->_in_transaction(sub { $self->{group}->ack($claim) }, 'disconnect');
	return;
}

# The lease ends while the transaction that acked is still open.
sub _slow_ack
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(lease => SHORT_LEASE, max => 20) or return;
	my ($first) = pieces($claim);
	$self->_in_transaction(sub {
		$self->{group}->ack($claim, chance(0.3) ? undef : $first);
		Time::HiRes::sleep(0.2 + rand 0.6);
	}, pick(commit => 3, rollback => 1));
	return;
}

sub _one_statement
{
	my ($self) = @_;
	$self->_in_transaction(sub {
		my $claim = $self->{group}->claim_and_ack(between(1, 50), LEASE);
		$self->_die_of_poison if $claim && $claim->{poison};
	});
	return;
}

sub _pop
{
	my ($self) = @_;
	$self->{client}->disconnect if $self->{reconnects};
	my $pop = sub { $self->{group}->pop(between(1, 100)) };
	$self->{client}->pause(IDLE);
	return $self->{client}->alone($pop) if chance(0.5);
	$self->_in_transaction($pop, pick(commit => 4, rollback => 1, disconnect => 0.3));
	return;
}

# Produces and claims in one transaction: its own messages may be among them.
sub _with_produce
{
	my ($self) = @_;
	$self->_in_transaction(sub {
		$self->{producer}->produce_some;
		my $claim = $self->_claim or return;
		$self->{group}->ack($claim);
	}, pick(commit => 3, rollback => 1));
	return;
}

# The ack waits in a prepared transaction that somebody else ends.
sub _prepared_ack
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(lease => SHORT_LEASE) or return;
	my ($first) = pieces($claim);
	$self->_in_transaction(
		sub { $self->{group}->ack($claim, chance(0.5) ? undef : $first) }, 'prepare');
	return;
}

1;
