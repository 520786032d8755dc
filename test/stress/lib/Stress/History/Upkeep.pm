package Stress::History::Upkeep;

# What the records say of maintenance: how far messages were dropped, which
# partitions there were, what the settings were, and when the server crashed.
#
#   crashes     [ { sent, recovered } ]: when a process of the server was killed,
#               and when the server certainly answered again
#   seen        token => { id, time }: what the log had when it was last read
#   deeds       what was done to maintenance => how often
#   kept        [ { stream, stream_id } ]: the streams of Stress::Keeper
#   found       [ kind, detail ]: what it found wrong
#   partitions  number => 1: those that somebody has seen
#   gone        number => 1: those of them that were dropped
#   dead        'group=id' => whether it was dead, when somebody looked, because of a
#               lost lease
#   rotations   phase => how often a look found somebody producing in it
#   generation  the last one of the tables of idempotency keys

use strict;
use warnings;
use List::Util qw(first max);

use constant FOREVER => 9e18;

my %METHODS = (
	dropped => \&_dropped, seen => \&_seen, partitions => \&_partitions, rotation => \&_rotation,
	setting => \&_setting, dead => \&_dead, crash => \&_crash, upkeep => \&_deed,
	keeper => \&_keeper, found => \&_found);

sub new
{
	my ($class) = @_;
	return bless {
		drops => [], seen => {}, crashes => [], settings => {}, deeds => {}, partitions => {}, gone => {},
		dead => {}, kept => [], found => [], rotations => {}, generation => 0,
	}, $class;
}

# Takes an event of the records; returns false when it is none of these.
sub event
{
	my ($self, $label, $time, $kind, $verb, @fields) = @_;
	my $method = $METHODS{$verb} or return 0;
	$self->$method($label, $time, $kind, @fields);
	return 1;
}

# Up to which id messages were dropped in the end.
sub dropped_in_the_end
{
	my ($self) = @_;
	return $self->{dropped_in_the_end} //= max(0, map { $_->{through} } @{ $self->{drops} });
}

# Whether messages up to this id were certainly dropped at a time.
sub is_dropped
{
	my ($self, $id, $time) = @_;
	return 0 if $id > $self->dropped_in_the_end;
	return !!first { $_->{through} >= $id && $_->{received} <= $time } @{ $self->{drops} };
}

# Whether the message may have been dropped by a time.
sub may_be_dropped
{
	my ($self, $id, $time) = @_;
	return 0 if $id > $self->dropped_in_the_end;
	my $after = first { $_->{sent} >= $time } sort { $a->{sent} <=> $b->{sent} } @{ $self->{drops} };
	return !$after || $after->{through} >= $id;
}

# The least and the greatest value, in seconds, that a setting may have had
# between two times; nothing when nobody wrote it down.
sub setting_range
{
	my ($self, $name, $from, $to) = @_;
	my $values = [ sort { $a->{sent} <=> $b->{sent} } @{ $self->{settings}{$name} // [] } ];
	my ($low, $high);
	foreach my $n (0 .. $#$values)
	{
		my $until = $n < $#$values ? $values->[ $n + 1 ]{received} : FOREVER;
		next if $values->[$n]{sent} > $to || $until < $from;
		my $value = $values->[$n]{value};
		$low = $value if !defined $low || $value < $low;
		$high = $value if !defined $high || $value > $high;
	}
	return defined $low ? ($low, $high) : ();
}

# The crash that a moment belongs to: the first one that was over later.
sub next_crash
{
	my ($self, $time) = @_;
	return first { $_->{recovered} > $time } @{ $self->{crashes} };
}

sub _dropped
{
	my ($self, $label, $time, $kind, $through) = @_;
	if ($kind eq 'send') { $self->{looking}{$label} = $time }
	else
	{
		push @{ $self->{drops} }, { sent => $self->{looking}{$label}, received => $time, through => $through };
	}
	return;
}

sub _seen
{
	my ($self, $label, $time, $kind, @rows) = @_;
	foreach (@rows)
	{
		my ($id, $token) = split /=/;
		$self->{seen}{$token} = { id => $id, time => $time };
	}
	return;
}

sub _partitions
{
	my ($self, $label, $time, $kind, @numbers) = @_;
	my %present = map { $_ => 1 } @numbers;
	$self->{partitions}{$_} = 1 foreach @numbers;
	$self->{gone}{$_} = 1 foreach grep { !$present{$_} } keys %{ $self->{partitions} };
	return;
}

sub _rotation
{
	my ($self, $label, $time, $kind, $phase, $generation, $producers) = @_;
	$self->{rotations}{$phase}++ if $producers;
	$self->{generation} = max($generation, $self->{generation});
	return;
}

sub _dead
{
	my ($self, $label, $time, $kind, @rows) = @_;
	foreach (@rows)
	{
		my ($message, $of_lease) = /^(.*)=(\d)$/;
		$self->{dead}{$message} ||= $of_lease;
	}
	return;
}

# A setting that is changed by one process only. An answer that nobody got may
# have been either.
sub _setting
{
	my ($self, $label, $time, $kind, $name, $value) = @_;
	my $values = $self->{settings}{$name} //= [];
	if ($kind eq 'send') { push @$values, { value => $value, sent => $time, received => FOREVER } }
	else { $values->[-1]{received} = $time }
	return;
}

sub _crash
{
	my ($self, $label, $time, $kind) = @_;
	if ($kind eq 'send') { push @{ $self->{crashes} }, { sent => $time, recovered => FOREVER } }
	else { $self->{crashes}[-1]{recovered} = $time }
	return;
}

sub _keeper
{
	my ($self, $label, $time, $kind, $stream, $stream_id) = @_;
	push @{ $self->{kept} }, { stream => $stream, stream_id => $stream_id };
	return;
}

sub _found
{
	my ($self, $label, $time, $kind, @violation) = @_;
	push @{ $self->{found} }, \@violation;
	return;
}

sub _deed
{
	my ($self, $label, $time, $kind, $what, $count) = @_;
	$self->{deeds}{$what} += $count // 1;
	return;
}

1;
