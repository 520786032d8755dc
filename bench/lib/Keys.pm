# Scenarios of the message key: compaction, exclusive, ordered.
package Keys;

use strict;
use warnings;
use Exporter 'import';
use Measure;
use Sides;
use Steady;

our @EXPORT = qw(keys_beside_none deferred_key claim_cost compaction_cost);

# How many messages the streams of keyed_claim hold before a round.
my $messages_needed;

# Turns a side into one that counts, beside messages a second, statements and
# WAL bytes a message. The code tells how many messages there were.
sub with_costs
{
	my ($side, $count) = @_;
	$side->{run} = sub {
		my $counters = "SELECT xact_commit, pg_current_wal_insert_lsn() - '0/0' FROM pg_stat_database WHERE datname = current_database()";
		my ($statements, $wal) = split /\|/, query($counters);
		my ($rate, $said) = pgbench([ '-T', $options{seconds} ], $side);
		die "$side->{name}: pgbench failed:\n$said\n" if !defined $rate;
		my ($statements_after, $wal_after) = split /\|/, query($counters);
		my $messages = $count->() || 1;
		my $round = @{ $side->{figures} // [] };	# a spoiled round is measured again
		$side->{statements}[$round] = ($statements_after - $statements) / $messages;
		$side->{wal}[$round] = ($wal_after - $wal) / $messages;
		return $messages / $options{seconds};
	};
	return $side;
}

# What with_costs counted, as lines of the report.
sub costs
{
	return map {
		({ name => "$_->{name}, statements", unit => 'a message', figures => $_->{statements} },
			{ name => "$_->{name}, WAL", unit => 'bytes/message', figures => $_->{wal} })
	} @_;
}

# A claim side on a stream with so many keys, in a new group each round. What
# counts is what the group is done with: its exceptions still wait.
sub keyed_claim
{
	my ($stream, $keys, $n, %more) = @_;
	my $group_options = defined $more{group_options} ? ', ' . delete $more{group_options} : '';
	my $compaction = delete $more{compaction};
	my $group = "(SELECT * FROM sqlstreams.consumer_groups WHERE stream = '$stream' AND consumer_group = 'g') AS g";
	my $side = claim_side($n, script => 'claim_ack_keyed', %more);
	my $unresolved = sub {
		my $id = query("SELECT stream_id FROM sqlstreams.streams WHERE stream = '$stream'");
		return query("SELECT count(*) FROM sqlstreams.exception_queue_$id AS e, $group WHERE e.group_id = g.group_id AND status <> 'x'");
	};
	$side->{vars} = { stream => $stream, group => 'g', n => $n };
	$side->{left} = "SELECT backlog + deferred FROM $group";
	$side->{before} = sub {
		my $missing = $messages_needed - query("SELECT messages_head FROM sqlstreams.streams WHERE stream = '$stream'");
		fill_stream($stream, $missing, keys => $keys, compaction => $compaction) if $missing > 0;
		sql("SELECT sqlstreams.drop_group('$stream', 'g', if_exists => true); "
			  . "SELECT sqlstreams.create_group('$stream', 'g'$group_options);");
	};
	$side->{grow} = sub { $messages_needed *= 2 };
	return with_costs($side, sub { query("SELECT claimed FROM $group") - $unresolved->() });
}

# K1: claims of 10, with 1,000 keys and without.
sub keys_beside_none
{
	$messages_needed = 25_000 * $options{seconds};
	fresh_stream($_) foreach qw(no_keys keys);
	each_client_count([8], sub {
		my @c = (clients => $_[0]);
		my @sides = (
			keyed_claim('no_keys', 0, 10, name => 'no keys', @c),
			keyed_claim('keys', 1000, 10, name => 'keys alone', @c),
			map { keyed_claim('keys', 1000, 10, name => $_, group_options => "concurrency => '$_'", @c) } qw(exclusive ordered));
		measure(@sides);
		report('K1 claim + ack of 10, 1,000 keys, ' . clients_in_words(@_), [ @sides, costs(@sides) ],
			ratio('keys alone', 'no keys', 0.95), ratio('exclusive', 'no keys', 0.5), ratio('ordered', 'no keys', 0.5));
	});
	return;
}

# A group that waits for a key with so many messages behind the one in flight.
# Returns the claim of that one.
sub defer
{
	my ($stream, $group, $messages) = @_;
	fresh_stream($stream);
	query("SELECT sqlstreams.create_group('$stream', '$group', concurrency => 'exclusive')");
	query("SELECT count(*) FROM sqlstreams.produce_batch('$stream', array_fill('{}'::jsonb, ARRAY[$messages]), "
		  . "message_keys => array_fill('hot'::text, ARRAY[$messages]))");
	my $holder = query("SELECT claim_id FROM sqlstreams.claim('$stream', '$group', lease => '1 day')");
	my $state = "SELECT claimed FROM sqlstreams.consumer_groups WHERE stream = '$stream' AND consumer_group = '$group'";
	query("SELECT count(*) FROM sqlstreams.claim('$stream', '$group')") while query($state) < $messages;
	return $holder;
}

# K2: a key with --deferred messages, seen by others and by itself.
sub deferred_key
{
	my $deferred = $options{deferred};
	my $few = $deferred / 1000;
	defer('hot', 'waiting', $deferred);
	query("SELECT sqlstreams.create_group('hot', 'none', concurrency => 'exclusive', start_id => $deferred + 1)");
	query("SELECT sqlstreams.release('$_->[0]', 'g', " . defer($_->[0], 'g', $_->[1]) . ')') foreach [ few => $few ], [ many => $deferred ];
	my $fill = sub { fill_stream('hot', $_[0], keys => 1000) };
	each_client_count([ 1, 8 ], sub {
		my @c = (clients => $_[0]);
		my @sides = map { my $n = $_;
			(lasting_claim('hot', 'none', $n, fill => $fill, name => "claim + ack $n, none", script => 'claim_ack_keyed', @c),
				lasting_claim('hot', 'waiting', $n, fill => $fill, name => "claim + ack $n, $deferred", script => 'claim_ack_keyed', @c))
		} 1, 10;
		push @sides, map {
			{ name => "claim + release of the key, $_->[1]", script => 'claim_release', vars => { stream => $_->[0], group => 'g', n => 1 } }
		} [ few => $few ], [ many => $deferred ];
		measure(@sides);
		report('K2 a key with deferred messages, ' . clients_in_words(@_), \@sides,
			(map { ratio("claim + ack $_, $deferred", "claim + ack $_, none", 0.9) } 1, 10),
			ratio("claim + release of the key, $deferred", "claim + release of the key, $few", 0.9));
	});
	return;
}

my @key_counts = (1, 10, 1000, 1_000_000);

# K3: exclusive and ordered by the number of keys.
sub claim_cost
{
	$messages_needed = 25_000 * $options{seconds};
	fresh_stream($_) foreach 'no_keys', map { "keys_$_" } @key_counts;
	each_client_count([ 1, 8 ], sub {
		my @c = (clients => $_[0]);
		my @sides = (
			keyed_claim('no_keys', 0, 10, name => 'no keys', @c),
			map {
				my $keys = $_;
				map { keyed_claim("keys_$keys", $keys, 10, name => "$_, $keys", group_options => "concurrency => '$_'", @c) } qw(exclusive ordered)
			} @key_counts);
		measure(@sides);
		report('K3 claim + ack of 10 by the number of keys, ' . clients_in_words(@_), [ @sides, costs(@sides) ],
			map { ratio($_->{name}, 'no keys') } @sides[ 1 .. $#sides ]);
	});
	return;
}

# K4: compaction by the number of keys. Claims pass what is superseded.
sub compaction_cost
{
	$messages_needed = 25_000 * $options{seconds};
	fresh_stream($_) foreach 'no_keys', map { "heads_$_" } @key_counts;
	each_client_count([ 1, 8 ], sub {
		my @c = (clients => $_[0]);
		my @produce = map {
			my $script = $_;
			(produce_side($script, @c),
				map { produce_side("${script}_compaction", name => "$script, $_" =~ tr/_/ /r, vars => { stream => 'bench', keys => $_ }, @c) } @key_counts)
		} qw(produce produce_batch);
		with_costs($_, sub { query("SELECT messages_head FROM sqlstreams.streams WHERE stream = 'bench'") }) foreach @produce;
		my @claims = (
			keyed_claim('no_keys', 0, 10, name => 'claim', @c),
			map { keyed_claim("heads_$_", $_, 10, name => "claim, $_", compaction => 1, @c) } @key_counts);
		measure(@produce, @claims);
		report('K4 compaction by the number of keys, claims of 10, ' . clients_in_words(@_),
			[ @produce, @claims, costs(@produce, @claims) ],
			map { my $kind = $_; map { ratio("$kind, $_", $kind) } @key_counts } 'produce', 'produce batch', 'claim');
	});
	return;
}

1;
