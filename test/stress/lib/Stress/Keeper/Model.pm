package Stress::Keeper::Model;

# What must be in a stream that one process alone produces to and consumes from,
# while maintenance drops what it may:
#
#   messages  id => { id, key, version, rank, dropped_from }: those that are stored;
#             the last three of a compacted one; dropped_from: the earliest moment
#             at which it may have been dropped
#   groups    name => id => 1: what a group has not resolved
#   skipped   group => [ id, id ]: it does not want what is after the one, up to the other
#   heads     key => the message that supersedes the others of its key
#   unclear   key => 1: whether the head was remembered nobody can tell
#   dropped   the id up to which messages are dropped
#   looked_at when that was looked at last
#   found     [ kind, detail ]: what went wrong
#
# Times are in seconds. They err on the side of the server.

use strict;
use warnings;
use List::Util qw(any min);
use Stress::Keyed::Message;

# name: of the stream, for what is found; allows_loss: whether retention may drop what
# a group has not resolved; head_ttl: how long a head outlasts its message.
sub new
{
	my ($class, %self) = @_;
	return bless {
		%self, messages => {}, groups => {}, skipped => {}, heads => {}, unclear => {}, dropped => 0, looked_at => 0, found => [],
		older_after_drop => 0,
	}, $class;
}

# A group that begins at the first message, or gets only what is committed from now on.
sub add_group
{
	my ($self, $group, $at_head) = @_;
	$self->{groups}{$group} = {};
	$self->move_back($group, 1) unless $at_head;
	return;
}

sub drop_group
{
	my ($self, $group) = @_;
	delete $self->{groups}{$group};
	return;
}

# A group gets again what is there from an id on.
sub move_back
{
	my ($self, $group, $from) = @_;
	$_->[1] = min($_->[1], $from - 1) foreach @{ $self->{skipped}{$group} // [] };
	foreach my $message (values %{ $self->{messages} })
	{
		$self->{groups}{$group}{ $message->{id} } = 1
		  if $message->{id} >= $from && $message->{id} > $self->{dropped} && !$self->_is_superseded($message);
	}
	return;
}

# A group skips the ids after one and up to another, also those that come later.
sub skip
{
	my ($self, $group, $after, $through) = @_;
	$self->resolve($group, grep { $_ > $after && $_ <= $through } keys %{ $self->{groups}{$group} });
	push @{ $self->{skipped}{$group} }, [ $after, $through ];
	return;
}

# Messages that were committed: { id, key, version, rank }, produced by the time given.
sub commit
{
	my ($self, $time, @messages) = @_;
	foreach my $message (@messages)
	{
		my $id = $message->{id};
		$self->find('id given twice', "message $id") if $self->{messages}{$id};
		$self->find('dropped before its commit', "message $id") if $id <= $self->{dropped};
		$self->{messages}{$id} = $message;
		next unless $self->_becomes_head($message, $time);
		foreach my $group (keys %{ $self->{groups} })
		{
			next if any { $id > $_->[0] && $id <= $_->[1] } @{ $self->{skipped}{$group} // [] };
			$self->{groups}{$group}{$id} = 1;
		}
	}
	return;
}

# Whether a new message is not superseded. What it supersedes nobody gets any more.
sub _becomes_head
{
	my ($self, $message, $time) = @_;
	my $key = $message->{key};
	return 1 unless defined $message->{version};
	return 0 if $self->{unclear}{$key};
	my $head = $self->{heads}{$key};
	if ($head && !Stress::Keyed::Message::supersedes($message, $head))
	{
		return 0 unless defined $head->{dropped_from};
		$self->{unclear}{$key} = 1 if $time > $head->{dropped_from} + $self->{head_ttl};
		$self->{older_after_drop}++ unless $self->{unclear}{$key};
		return 0;
	}
	delete $_->{ $head->{id} } foreach $head ? values %{ $self->{groups} } : ();
	$self->{heads}{$key} = $message;
	return 1;
}

sub _is_superseded
{
	my ($self, $message) = @_;
	return 0 unless defined $message->{version};
	return 1 if $self->{unclear}{ $message->{key} };
	return $self->{heads}{ $message->{key} } != $message;
}

# What a claim of a group returned. Nothing is resolved by that.
sub claimed
{
	my ($self, $group, @ids) = @_;
	foreach my $id (@ids)
	{
		my $message = $self->{messages}{$id};
		my $where = "message $id to group $group";
		if (!$message) { $self->find('invented', $where) }
		elsif ($id <= $self->{dropped}) { $self->find('delivered after it was dropped', $where) }
		elsif (!$self->{groups}{$group}{$id} && !$self->{unclear}{ $message->{key} // '' })
		{
			$self->find($self->_is_superseded($message) ? 'superseded message delivered' : 'delivered after its end', $where);
		}
	}
	return;
}

# A group is done with messages.
sub resolve
{
	my ($self, $group, @ids) = @_;
	delete @{ $self->{groups}{$group} }{@ids};
	return;
}

# Whether a message may be gone for a group although it has not resolved it.
sub is_dropped
{
	my ($self, $id) = @_;
	return $id <= $self->{dropped};
}

# A look at how far messages are dropped, that began at a time. is_purge: whether
# somebody may have purged the stream since the look before.
sub look
{
	my ($self, $time, $through, $is_purge) = @_;
	$self->find('dropped messages came back', "$self->{dropped}, then $through") if $through < $self->{dropped};
	foreach my $id (grep { $_ > $self->{dropped} && $_ <= $through } keys %{ $self->{messages} })
	{
		$self->{messages}{$id}{dropped_from} = $self->{looked_at};
		foreach my $group (sort keys %{ $self->{groups} })
		{
			next unless delete $self->{groups}{$group}{$id};
			$self->find('dropped although not resolved', "message $id of group $group")
			  unless $is_purge || $self->{allows_loss};
		}
	}
	@$self{qw(dropped looked_at)} = ($through, $time);
	return;
}

# The id that compaction_head may return: a defined one must be it, an undefined one
# that there is none; nothing: it is unclear.
sub head
{
	my ($self, $key) = @_;
	return () if $self->{unclear}{$key};
	my $head = $self->{heads}{$key} or return undef;
	return $head->{id} > $self->{dropped} ? $head->{id} : undef;
}

# Checks what compaction_head returned.
sub check_head
{
	my ($self, $key, $id) = @_;
	my @expected = $self->head($key) or return;
	$self->find('wrong head', sprintf 'key %s: %s instead of %s', $key, map { $_ // 'none' } $id, $expected[0])
	  if ($id // 0) != ($expected[0] // 0);
	return;
}

# The ids that a group has not resolved.
sub left
{
	my ($self, $group) = @_;
	return sort { $a <=> $b } keys %{ $self->{groups}{$group} };
}

# Notes what went wrong.
sub find
{
	my ($self, $kind, $detail) = @_;
	push @{ $self->{found} }, [ $kind, "stream $self->{name}: $detail" ];
	return;
}

1;
