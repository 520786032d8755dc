# Scenarios of messages that were not acked.
package Failures;

use strict;
use warnings;
use Exporter 'import';
use List::Util qw(min);
use Measure;
use POSIX qw(ceil);
use Sides;
use Steady;
use Time::HiRes qw(time);

our @EXPORT = qw(many_exceptions failing_under_held_snapshot failures);

# Messages of one call of produce_batch, claim and nack.
use constant CALL => 100_000;

# Adds so many small messages to a stream, for what is not about payloads.
sub fill_small
{
	my ($stream, $messages) = @_;
	for (my $left = $messages; $left > 0; $left -= CALL)
	{
		my $now = min($left, CALL);
		query("SELECT count(*) FROM sqlstreams.produce_batch('$stream', array_fill('{}'::jsonb, ARRAY[$now]))");
	}
	return;
}

# Claims so many messages and makes of each claim what the call says.
sub resolve_claims
{
	my ($stream, $group, $messages, $call) = @_;
	for (my $left = $messages; $left > 0; $left -= CALL)
	{
		my $now = min($left, CALL);
		query("SELECT $call FROM (SELECT claim_id, array_agg(message_id) AS message_ids "
			  . "FROM sqlstreams.claim('$stream', '$group', $now) GROUP BY claim_id) AS claimed");
	}
	return;
}

# A group of one stream each: with no exceptions, with exceptions that are not
# due, dead, due. What the sides read comes after the messages of these.
sub many_exceptions
{
	my ($exceptions, $due) = @options{qw(exceptions due)};
	my $few = int($due / 10);
	my $first = $exceptions + 1;
	fresh_stream($_) foreach qw(fresh failed);
	query("SELECT sqlstreams.create_group('fresh', 'none')");
	query("SELECT sqlstreams.create_group('failed', g) FROM unnest('{none,waiting,dead,few,due}'::text[]) AS g");
	fill_small('failed', $exceptions);
	resolve_claims('failed', 'waiting', $exceptions, "sqlstreams.nack('failed', 'waiting', claim_id, error => 'it failed', retry_in => '30 days')");
	resolve_claims('failed', 'dead', $exceptions, "sqlstreams.reject('failed', 'dead', claim_id, error => 'it failed')");
	resolve_claims('failed', 'few', $few, "sqlstreams.delay('failed', 'few', claim_id, message_ids, '0')");
	resolve_claims('failed', 'due', $due, "sqlstreams.delay('failed', 'due', claim_id, message_ids, '0')");
	query('VACUUM ANALYZE');

	my %groups = (
		none    => 'exceptions of other groups',
		waiting => "$exceptions not due",
		dead    => "$exceptions dead",
		few     => "$few due",
		due     => "$due due");
	each_client_count([ 1, 8 ], sub {
		my @c = (clients => $_[0]);
		foreach my $n (1, 10, 250)
		{
			my @sides = (
				lasting_claim('fresh', 'none', $n, from => 1, name => 'none', @c),
				(map { lasting_claim('failed', $_, $n, from => $first, name => $groups{$_}, @c) } qw(none waiting dead)),
				(map { lasting_claim('failed', $_, $n, from => $first, name => $groups{$_}, script => 'claim_resolve_due', @c) } qw(few due)));
			measure(@sides);
			report("F4 claim + ack of $n with exceptions; half of those due are due again; " . clients_in_words(@_), \@sides,
				(map { ratio($groups{$_}, 'none', 0.95) } qw(none waiting dead)),
				ratio($groups{due}, $groups{few}, 0.95), ratio($groups{due}, 'none'));
		}
	});
	return;
}

sub failing_under_held_snapshot
{
	fresh_stream('failing');
	query("SELECT sqlstreams.create_group('failing', 'g', max_retries => 1000000)");
	each_client_count([8], sub {
		my ($clients) = @_;
		my @side = (script => 'claim_ack_or_nack', clients => $clients);
		under_held_snapshot('F5 one claim in ten nacked', $clients,
			sub { only(map { lasting_claim('failing', 'g', $_, name => "claim $_, ack or nack", @side) } 1, 10, 250) },
			{ %{ lasting_claim('failing', 'g', 10, @side) }, weight => 20 },
			{ %{ produce_to('failing', 'produce_batch') }, weight => 1 });
	});
	return;
}

# How many messages a second the code gets through of those that are dead in a
# stream of their own; afterwards none may be left that the SQL counts.
sub dead_side
{
	my ($name, $left, $code, %more) = @_;
	my $messages = CALL;
	return {
		name   => $name,
		before => sub {
			fresh_stream('dead');
			query("SELECT sqlstreams.create_group('dead', 'g')");
			fill_small('dead', $messages);
			resolve_claims('dead', 'g', $messages, "sqlstreams.reject('dead', 'g', claim_id, error => 'it failed')");
			$more{prepare}->() if $more{prepare};
		},
		run => sub {
			my $start = time;
			$code->($messages);
			my $seconds = time - $start;
			my $count = query("SELECT $left FROM sqlstreams.consumer_groups WHERE stream = 'dead'");
			die "$name: $count messages are left\n" if $count;
			return $messages / $seconds;
		},
	};
}

# Runs a script on the stream of the dead often enough for so many messages.
sub run_on_dead
{
	my ($script, $messages, $clients) = @_;
	my ($rate, $said) = pgbench([ '-t', ceil($messages / 250 / $clients) ],
		{ name => $script, script => $script, clients => $clients,
			vars => { stream => 'dead', group => 'g', n => 250, client_count => $clients, first => 1 - 250 * $clients } });
	die "pgbench failed:\n$said\n" if !defined $rate;
	return;
}

sub failures
{
	my $redrive_all = sub { query("SELECT sqlstreams.redrive('dead', 'g')") };
	each_client_count([ 1, 8 ], sub {
		my ($clients) = @_;
		my @c = (clients => $clients);
		my @sides = (
			(map {
				(claim_side($_, @c), claim_side($_, script => 'claim_nack', name => "claim + nack $_", @c),
					claim_side($_, script => 'claim_reject', name => "claim + reject $_", @c))
			} 1, 10, 250),
			dead_side('redrive 250', 'dead', sub { run_on_dead('redrive', $_[0], $clients) }),
			dead_side('redrive all', 'dead', $redrive_all),
			dead_side('claim + ack 250 due', 'ready', sub { run_on_dead('claim_ack', $_[0], $clients) }, prepare => $redrive_all));
		measure(@sides);
		report('E1 failures, ' . clients_in_words($clients), \@sides,
			(map { (ratio("claim + nack $_", "claim + ack $_"), ratio("claim + reject $_", "claim + ack $_")) } 1, 10, 250));
	});
	return;
}

1;
