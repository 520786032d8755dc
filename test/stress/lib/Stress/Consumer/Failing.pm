package Stress::Consumer::Failing;

# A consumer whose work also fails, in every way that a consumer can say so.

use strict;
use warnings;
use parent 'Stress::Consumer';
use List::Util qw(shuffle);
use Stress::Random qw(pick between chance);
use Time::HiRes ();

# What such a consumer does besides.
my %STYLES = (
	fail => 20, fail_whole => 15, fail_in_savepoints => 8, mixed => 25, fail_at_once => 8,
	give_up => 4, give_up_one => 12, fail_too_late => 5, die_with_failure => 3,
	slow_failure => 6);

# Words of the errors, by which an operator finds them.
our @ERRORS = qw(timeout refused broken);

sub styles
{
	my ($self) = @_;
	return ($self->SUPER::styles, %STYLES, $self->{run}{prepare} ? (prepared_failure => 6) : ());
}

# An error text, or none.
sub _error
{
	return chance(0.1) ? undef : $ERRORS[ rand @ERRORS ] . ' ' . between(1, 9);
}

# How long to put a message off, in seconds.
sub _wait
{
	return sprintf '%.3f', chance(0.2) ? 0 : rand 0.4;
}

# An outcome for so many messages at once, or each of so many; few are rejected.
sub _outcome
{
	my ($count) = @_;
	return pick(ack => 12, nack => 6, delay => 4, reject => $count > 3 ? 0.3 : 3);
}

# A sub that says of messages of a claim, or of all of it, that they had this
# outcome.
sub _saying
{
	my ($self, $claim, $messages, $outcome) = @_;
	my ($group, $error, $wait) = ($self->{group}, _error(), _wait());
	return sub { $group->nack($claim, $messages, chance(0.3) ? $wait : undef, $error) }
	  if $outcome eq 'nack';
	return sub { $group->reject($claim, $messages, $error) } if $outcome eq 'reject';
	return sub { $group->delay($claim, $messages // $claim->{messages}, $wait, $error) }
	  if $outcome eq 'delay';
	return sub { $group->$outcome($claim, $messages) };
}

# A sub that says of some messages of a claim what became of them, and something
# of the others.
sub _mixed_saying
{
	my ($self, $claim) = @_;
	my @messages = shuffle @{ $claim->{messages} };
	my @named = splice @messages, 0, between(1, scalar @messages);
	my @sayings = map {
		my $outcome = _outcome(scalar @named);
		[ $_, $outcome, $outcome eq 'delay' ? _wait() : undef, $outcome eq 'ack' ? undef : _error() ]
	} @named;
	my $others = pick(keep => 4, ack => 3, release => 2);
	return ($others, sub { $self->{group}->resolve($claim, $others, @sayings) });
}

# Different outcomes for the pieces of a claim, some at the second try because
# the first is rolled back.
sub _fail
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(max => between(1, 40)) or return;
	foreach my $piece (Stress::Consumer::pieces($claim))
	{
		my $say = $self->_saying($claim, $piece, _outcome(scalar @$piece));
		$self->_in_transaction($say, 'rollback') if chance(0.2);
		$self->{client}->alone_or_in_block($say);
	}
	return;
}

sub _fail_whole
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(max => between(1, 8)) or return;
	my $say = $self->_saying($claim, undef, pick(nack => 4, delay => 3, reject => 4));
	$self->_in_transaction($say, 'rollback') if chance(0.2);
	$self->{client}->alone_or_in_block($say);
	return;
}

# The pieces of a claim in one transaction, some of them rolled back to a
# savepoint. What is left open is abandoned.
sub _fail_in_savepoints
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(max => between(1, 30), lease => $self->SHORT_LEASE) or return;
	$self->_in_transaction(sub {
		foreach my $piece (Stress::Consumer::pieces($claim))
		{
			my $say = $self->_saying($claim, $piece, _outcome(scalar @$piece));
			$self->{client}->savepoint($say, chance(0.4));
		}
	}, pick(commit => 4, rollback => 1));
	return;
}

# One call for a claim with mixed outcomes; what it kept is acked or abandoned.
sub _mixed
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(max => between(1, 60)) or return;
	my ($others, $say) = $self->_mixed_saying($claim);
	$self->_in_transaction($say, 'rollback') if chance(0.2);
	$self->{client}->alone_or_in_block($say);
	return if $others ne 'keep' || chance(0.2);
	$self->{client}->alone(sub { $self->{group}->ack($claim) });
	return;
}

# Claims and fails in one transaction.
sub _fail_at_once
{
	my ($self) = @_;
	$self->_in_transaction(sub {
		my $claim = $self->_claim(max => between(1, 20)) or return;
		my (undef, $mixed) = $self->_mixed_saying($claim);
		my $say = $self->_saying($claim, undef, pick(nack => 2, delay => 1, release => 1));
		$self->{client}->pause(0.02);
		chance(0.5) ? $mixed->() : $say->();
	}, pick(commit => 4, rollback => 1));
	return;
}

# Lets the lease of a few messages run out, perhaps with one of them resolved.
sub _give_up
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(max => between(2, 6), lease => $self->SHORT_LEASE) or return;
	my ($first) = @{ $claim->{messages} };
	$self->{client}->alone($self->_saying($claim, [$first], _outcome(1))) if chance(0.5);
	return;
}

# Lets the lease of one message run out, and goes on with another meanwhile.
sub _give_up_one
{
	my ($self) = @_;
	$self->_committed_claim(max => 1, lease => $self->SHORT_LEASE);
	return;
}

# Speaks when the lease has ended, or nearly so.
sub _fail_too_late
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(max => between(1, 20), lease => $self->SHORT_LEASE) or return;
	my (undef, $mixed) = $self->_mixed_saying($claim);
	$self->_shelve(chance(0.5) ? $mixed : $self->_saying($claim, undef, pick(nack => 1, delay => 1)));
	return;
}

# The client dies after it has spoken and before the commit.
sub _die_with_failure
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(max => between(1, 20), lease => $self->SHORT_LEASE) or return;
	my (undef, $say) = $self->_mixed_saying($claim);
	$self->_in_transaction($say, 'disconnect');
	return;
}

# The lease ends while the transaction that spoke is still open, and what it has
# made ready may be long due when it commits.
sub _slow_failure
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(max => between(1, 20), lease => $self->SHORT_LEASE) or return;
	my (undef, $say) = $self->_mixed_saying($claim);
	$self->_in_transaction(sub {
		$say->();
		Time::HiRes::sleep(0.2 + rand 2);
	}, pick(commit => 3, rollback => 1));
	return;
}

# What it said waits in a prepared transaction that somebody else ends.
sub _prepared_failure
{
	my ($self) = @_;
	my $claim = $self->_committed_claim(max => between(1, 20), lease => $self->SHORT_LEASE) or return;
	my (undef, $say) = $self->_mixed_saying($claim);
	$self->_in_transaction($say, 'prepare');
	return;
}

1;
