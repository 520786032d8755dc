package Stress::Operator;

# Who looks after the groups: redrives and discards what is dead, and moves
# groups about.

use strict;
use warnings;
use Stress::Checker::State;
use Stress::Client;
use Stress::Consumer::Failing;
use Stress::Group;
use Stress::Random qw(pick between chance);
use Time::HiRes ();

use constant {
	PAGE => 20,              # dead messages looked at at once
	SEEKS_FROM_GROUP => 2,   # the group with this number, and later ones, are moved
	MAX_BACK => 300,         # ids that a group goes back, at most
	MAX_FORWARD => 30,       # and forward, perhaps past what is produced
	QUIET => 2,              # seconds before the end in which nobody is moved
};

# What an operator does, each as often as its weight says.
my %DEEDS = (
	redrive_some => 8, redrive_error => 4, redrive_all => 1, discard_some => 6,
	discard_error => 3, seek_back => 2, seek_forward => 2, seek_head => 1);

# Works until the time is up.
sub work
{
	my ($run, $records, $label) = @_;
	my $client = Stress::Client->new(run => $run, records => $records, label => $label);
	my @groups = map {
		Stress::Group->new(client => $client, stream => $run->{stream}, name => $_)
	} @{ $run->{groups} };
	while ((my $left = $run->{stop_at} - Time::HiRes::time()) > 0)
	{
		my $deed = pick(%DEEDS);
		my ($verb, $what) = split /_/, $deed;
		my @choice = $verb eq 'seek' ? @groups[ SEEKS_FROM_GROUP - 1 .. $#groups ] : @groups;
		my $group = $choice[ rand @choice ];
		if ($verb ne 'seek') { _repair($client, $group, $verb, $what) }
		elsif ($group && $left > QUIET) { _move($client, $group, $what) }
		Time::HiRes::sleep(rand 0.3);
	}
	return;
}

# Redrives or discards some dead messages, those with an error, or all.
sub _repair
{
	my ($client, $group, $verb, $what) = @_;
	my $ids = $what eq 'some' ? _some_dead($group) : undef;
	return if $ids && !@$ids;
	my @words = (@Stress::Consumer::Failing::ERRORS, Stress::Checker::State::LEASE_ENDED);
	my $word = $what eq 'error' || $what eq 'some' && chance(0.2) ? $words[ rand @words ] : undef;
	$client->alone_or_in_block(sub { $group->repair($verb, $ids, $word) },
		end => pick(commit => 4, rollback => 1));
	return;
}

# Some of the ids of a random page of dead messages.
sub _some_dead
{
	my ($group) = @_;
	my $first = $group->dead(0, PAGE);
	my $page = @$first == PAGE && chance(0.7) ? $group->dead($first->[-1], PAGE) : $first;
	return [ grep { chance(0.5) } @$page ];
}

# Moves a group. It need not be where it was when we looked.
sub _move
{
	my ($client, $group, $what) = @_;
	my $claimed = $group->claimed;
	my $id = $what eq 'back' ? $claimed - between(0, MAX_BACK) : $claimed + between(2, MAX_FORWARD);
	$id = 1 if $id < 1;
	$client->alone_or_in_block(sub { $group->seek($what eq 'head' ? 'head' : $id) },
		end => pick(commit => 4, rollback => 1));
	return;
}

1;
