# What the scenarios share that ask whether anything gets slower.
package Steady;

use strict;
use warnings;
use Exporter 'import';
use Measure;
use Sides;

our @EXPORT = qw(lasting_claim only beside_each_other under_held_snapshot);

# A claim side on a group that stays from round to round. Untimed, it sees to
# it that the group has enough to read; with from => id, by going back there.
sub lasting_claim
{
	my ($stream, $group, $n, %more) = @_;
	my $from = delete $more{from};
	my $fill = delete $more{fill} // sub { fill_stream($stream, $_[0]) };
	my $side = claim_side($n, %more);
	my $messages = $n == 1 ? 10_000 * $options{seconds} : $n == 10 ? 60_000 * $options{seconds} : 150_000 * $options{seconds};
	$side->{vars} = { stream => $stream, group => $group, n => $n };
	$side->{left} = "SELECT backlog FROM sqlstreams.consumer_groups WHERE stream = '$stream' AND consumer_group = '$group'";
	$side->{before} = sub {
		query("SELECT sqlstreams.seek('$stream', '$group', start_id => $from)") if $from;
		my $missing = $messages - query($side->{left});
		$fill->($missing) if $missing > 0;
	};
	$side->{grow} = sub { $messages *= 2 };
	return $side;
}

# Those of the sides that --only asks for.
sub only { return grep { !defined $options{only} || $_->{name} =~ /$options{only}/ } @_ }

# Sides of two or more kinds of stream in turn, against those of the first.
sub beside_each_other
{
	my ($title, $first, @others) = @_;
	my @all = map { my $i = $_; map { $_->[$i] } $first, @others } 0 .. $#$first;
	measure(@all);
	report($title, \@all,
		map { my $other = $_; map { ratio($other->[$_]{name}, $first->[$_]{name}, 0.95) } 0 .. $#$first } @others);
	return;
}

# Measures the sides that the code makes, holds a snapshot in another session
# while the load runs for --hold seconds, and measures again with the snapshot
# still held. As both halves lie apart in time, the floor says what the machine
# did in between.
sub under_held_snapshot
{
	my ($title, $clients, $make_sides, @load) = @_;
	my @before = ($make_sides->(), emit(1, clients => $clients));
	measure(@before);

	my $session = background("BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT count(*), pg_current_xact_id() FROM pg_class;");
	print "the snapshot is held for $options{hold} s, under load ...\n";
	$_->{before} && $_->{before}->() foreach @load;
	my ($rate, $said) = pgbench([ '-T', $options{hold} ], @load);
	die "pgbench failed:\n$said\n" if !defined $rate;
	my @after = ($make_sides->(), emit(1, clients => $clients));
	$_->{name} .= ' after' foreach @after;
	measure(@after);
	stop_background($session);

	report("$title after $options{hold} s of a held snapshot, " . clients_in_words($clients), [ @before, @after ],
		map {
			my $name = $_->{name};
			{
				label => "$name, after / before, of floor-wal's",
				goal  => 0.95,
				value => sub {
					my $r = shift;
					($r->{"$name after"} / $r->{'floor-wal after'}) / ($r->{$name} / $r->{'floor-wal'});
				}
			}
		} grep { $_->{name} ne 'floor-wal' } @before);
	return;
}

1;
