package Stress::Operator;

# Who looks after the groups: redrives and discards what is dead, and moves
# groups about.

use strict;
use warnings;
use List::Util qw(first shuffle);
use Stress::Checker::State;
use Stress::Client;
use Stress::Consumer::Failing;
use Stress::Group;
use Stress::Random qw(pick between chance);
use Stress::Witness;
use Time::HiRes ();

use constant {
	PAGE => 20,              # dead messages looked at at once
	SEEKS_FROM_GROUP => 2,   # the group with this number, and later ones, are moved
	MAX_BACK => 300,         # ids that a group goes back, at most ...
	VERY_FAR_BACK => 4000,   # ... or now and then, to where messages may be dropped already
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
		my ($verb, $what) = split /_/, pick(%DEEDS);
		$client->attempt(sub {
			if ($verb ne 'seek') { _repair($client, $verb, $what, shuffle @groups) }
			elsif ($left > QUIET) { _move($client, $what, @groups[ SEEKS_FROM_GROUP - 1 .. $#groups ]) }
		});
		Time::HiRes::sleep(rand 0.3);
	}
	return;
}

# Redrives or discards some dead messages, those with an error, or all, of the
# first group that has any.
sub _repair
{
	my ($client, $verb, $what, @groups) = @_;
	my $group = first { @{ $_->dead(0, 1) } } @groups or return;
	my $ids = $what eq 'some' ? _some_dead($group) : undef;
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

# Moves one of the groups. It need not be where it was when we looked.
sub _move
{
	my ($client, $what, @groups) = @_;
	my $group = $groups[ rand @groups ] or return;
	my $claimed = $group->claimed;
	my $back = between(0, chance(0.2) ? VERY_FAR_BACK : MAX_BACK);
	my $id = $what eq 'back' ? $claimed - $back : $claimed + between(2, MAX_FORWARD);
	$id = 1 if $id < 1;
	$client->alone_or_in_block(sub { $group->seek($what eq 'head' ? 'head' : $id) },
		end => pick(commit => 4, rollback => 1));
	Stress::Witness::look_at_drops($client);
	return;
}

1;
