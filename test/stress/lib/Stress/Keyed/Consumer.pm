package Stress::Keyed::Consumer;

# A consumer of messages with keys. It also redrives what is dead, and some of
# what it gets it pops. When nothing comes any more although something is left, it
# gives up: the checker finds what is stuck.

use strict;
use warnings;
use parent 'Stress::Consumer::Failing';
use List::Util qw(max);
use Stress::Random qw(between chance);
use Time::HiRes ();

use constant PATIENCE => 12;    # seconds without a message; no lease or backoff is as long

sub styles
{
	my ($self) = @_;
	my %styles = ($self->SUPER::styles, pop => 4, redrive => 6, whole => 30, fail_then_ack => 60);
	delete $styles{with_produce};
	return %styles;
}

# As any consumer's, but no lease is the long default one.
sub _ask
{
	my ($self, %how) = @_;
	my $claim = $self->SUPER::_ask(lease => $self->LEASE, %how);
	$self->{came_at} = Time::HiRes::time() if $claim;
	return $claim;
}

sub _nothing_left
{
	my ($self) = @_;
	my $now = Time::HiRes::time();
	$self->{drains_since} //= $now;
	return 1 if $now > max($self->{drains_since}, $self->{came_at} // 0) + PATIENCE;
	return $self->SUPER::_nothing_left;
}

# Some messages fail, and then the others are acked one by one. Those behind a failed
# one of their key are refused.
sub _fail_then_ack
{
	my ($self) = @_;
	my ($client, $group) = @$self{qw(client group)};
	my $claim = $self->_committed_claim(max => between(2, 30)) or return;
	my %fails = map { $_ => 1 } grep { chance(0.5) } @{ $claim->{messages} };
	$client->alone_or_in_block(sub { $group->nack($claim, [ keys %fails ], undef, 'broken') }) if %fails;
	foreach my $message (grep { !$fails{$_} } @{ $claim->{messages} })
	{
		die $@ unless eval { $client->alone(sub { $group->ack($claim, [$message]) }); 1 } || ref $@;
	}
	return;
}

sub _redrive
{
	my ($self) = @_;
	$self->{client}->alone(sub { $self->{group}->repair('redrive') });
	return;
}

1;
