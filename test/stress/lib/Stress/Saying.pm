package Stress::Saying;

# What a call that names a claim says of its messages. Such a call is an ack, a
# nack, a reject, a delay, a release, a resolve, or a claim, pop or
# claim_and_ack that acks. Its fields are described in Stress::Records.

use strict;
use warnings;

# Verbs whose third field says which messages are meant.
my %TAKES_IDS = map { $_ => 1 } qw(ack release nack reject delay);

# Whether the call speaks of every message that is open in the claim.
sub is_whole
{
	my ($call) = @_;
	return $call->{fields}[2] ne 'keep' if $call->{verb} eq 'resolve';
	return 1 unless $TAKES_IDS{ $call->{verb} };
	return $call->{fields}[2] eq 'all';
}

# The ids that the call names, each once; they must be open in the claim.
sub named
{
	my ($call) = @_;
	return keys %{ _named_outcomes($call) } if $call->{verb} eq 'resolve';
	return if is_whole($call);
	my %seen;
	return grep { !$seen{$_}++ } split / /, $call->{fields}[2];
}

# Whether the call names this message.
sub names
{
	my ($call, $id) = @_;
	$call->{is_named} //= { map { $_ => 1 } named($call) };
	return $call->{is_named}{$id};
}

# What the call says of a message that it speaks of: { outcome, seconds, error }.
# The outcome is ack, nack, reject, delay or release; seconds: how long a
# message that was nacked or delayed waits, undefined for the group's backoff;
# error: undefined when none was given.
sub of_message
{
	my ($call, $id) = @_;
	my ($verb, $fields) = @$call{qw(verb fields)};
	return _named_outcomes($call)->{$id} // { outcome => $fields->[2] } if $verb eq 'resolve';
	return { outcome => 'ack' } unless $TAKES_IDS{$verb};
	return { outcome => $verb } if $verb =~ /^(ack|release)$/;
	return _outcome($verb, @$fields[3, 4]);
}

# id => what a resolve says of it.
sub _named_outcomes
{
	my ($call) = @_;
	my @named = @{ $call->{fields} };
	return $call->{outcomes} //= {
		map { my ($id, @outcome) = split /=/; $id => _outcome(@outcome) } @named[ 3 .. $#named ] };
}

sub _outcome
{
	my ($outcome, $seconds, $error) = @_;
	return {
		outcome => $outcome,
		seconds => ($seconds // '-') eq '-' ? undef : $seconds,
		error => ($error // '-') eq '-' ? undef : $error };
}

1;
