# The scenarios: what is measured beside what, and the goals.
package Scenarios;

use strict;
use warnings;
use Exporter 'import';
use Failures;
use Maintenance;
use Keys;
use Measure;
use Sides;
use Steady;

our @EXPORT_OK = qw(%scenarios);

# name => [title, code]. The code measures and reports.
our %scenarios = (
	smoke => [ 'a short look at the speed', \&smoke ],
	P1 => [ 'produce one', \&produce_one ],
	P2 => [ 'produce_batch of 250, JSON', \&produce_batch ],
	P3 => [ 'produce_bytes_batch of 250', \&produce_bytes_batch ],
	P4 => [ 'produce with an idempotency key, with a message key, with compaction', \&produce_keys ],
	C1 => [ 'claim + ack of 1', sub { claim_ack(1, 2.2, 3) } ],
	C2 => [ 'claim + ack of 10', sub { claim_ack(10, 2.5, 4) } ],
	C3 => [ 'claim + ack of 250, JSON and bytes', sub { claim_ack(250, 4, 5) } ],
	C3a => [ 'claim that acks the one before', \&claim_with_ack ],
	C3b => [ 'claim + ack of 10 while a transaction that acked stays open', \&claim_beside_ack ],
	C4 => [ 'pop of 1 and of 250', \&pop ],
	C5 => [ 'fan-out to 8 groups', \&fan_out ],
	C6 => [ 'one ack a message of a claim of 250', \&ack_each ],
	F1 => [ 'after --hold seconds of a snapshot held elsewhere', \&held_snapshot ],
	F2 => [ 'with --messages in the log, with 64 groups', \&long_log ],
	F3 => [ 'with --claimed messages claimed and not acked', \&many_claimed ],
	F4 => [ 'with --exceptions that are not due, as many dead, --due that are due', \&many_exceptions ],
	F5 => [ 'F1 while one claim in ten is nacked and due at once', \&failing_under_held_snapshot ],
	K1 => [ 'exclusive and ordered, 1,000 keys, against none', \&keys_beside_none ],
	K2 => [ 'a key with --deferred messages', \&deferred_key ],
	K3 => [ 'exclusive and ordered by the number of keys, with WAL and statements', \&claim_cost ],
	K4 => [ 'compaction by the number of keys, with WAL and statements', \&compaction_cost ],
	E1 => [ 'nack, reject, redrive, claim + ack of what is due', \&failures ],
	M1 => [ 'the worker of --streams idle streams', \&idle_streams ],
	M2 => [ 'how late the worker makes partitions of a tenth as many that are in use', \&active_streams ],
	W1 => [ 'WAL per message, in and out', \&wal_bytes ],
	W2 => [ 'table and index bytes per message', \&stored_bytes ],
);

#
# Produce
#

sub smoke
{
	my @sides = (
		produce_side('produce'), raw('raw'), emit(1),
		produce_side('produce_batch'), raw('raw_batch'), emit(250, name => 'floor-wal batch'),
		{ name => 'copy', before => raw('raw_text_batch')->{before}, run => sub { copy_rate('bench.raw (payload)', 250) } },
		map { (claim_side($_), skip_locked($_)) } 1, 10, 250);
	measure(@sides);
	report('1 client, batches of 250, COPY in transactions of 250 rows',
		\@sides, ratio('produce', 'raw', 1), ratio('produce', 'floor-wal', 0.85),
		ratio('produce batch', 'raw batch', 1.1), ratio('produce batch', 'floor-wal batch'), ratio('produce batch', 'copy'),
		ratio('claim + ack 1', 'skip locked 1', 2.2), ratio('claim + ack 10', 'skip locked 10', 2.5),
		ratio('claim + ack 250', 'skip locked 250', 4));
	return;
}

sub produce_one
{
	each_client_count([ 1, 8, 32 ], sub {
		my @c = (clients => $_[0]);
		my @sides = (produce_side('produce', @c), raw('raw', @c), emit(1, @c), has_pgq() ? pgq_produce(1, @c) : ());
		measure(@sides);
		report('P1 produce one, ' . clients_in_words(@_), \@sides, ratio('produce', 'raw', 1),
			ratio('produce', 'floor-wal', 0.85), has_pgq() ? ratio('produce', 'PgQ') : ());
	});
	return;
}

sub produce_batch
{
	each_client_count([ 1, 8 ], sub {
		my @c = (clients => $_[0]);
		my @sides = (produce_side('produce_batch', @c), raw('raw_batch', @c), emit(250, @c),
			{ name => 'parse', script => 'parse', per => 250, @c }, has_pgq() ? pgq_produce(250, @c) : ());
		measure(@sides);
		report('P2 produce_batch of 250, JSON, ' . clients_in_words(@_), \@sides,
			ratio('produce batch', 'raw batch', 1.1),
			{
				label   => 'time of produce batch / (time of parse + 1.5 time of floor-wal)',
				goal    => 1,
				at_most => 1,
				value   => sub { my $r = shift; 1 / $r->{'produce batch'} / (1 / $r->{parse} + 1.5 / $r->{'floor-wal'}) }
			},
			has_pgq() ? ratio('produce batch', 'PgQ') : ());
	});
	return;
}

sub produce_bytes_batch
{
	each_client_count([ 1, 8 ], sub {
		my @c = (clients => $_[0]);
		my $fresh = raw('raw_text_batch')->{before};
		my @copies = $_[0] > 1 ? () : (
			{ name => 'copy, a commit each 250 rows', before => $fresh, run => sub { copy_rate('bench.raw_text (payload)', 250) } },
			{ name => 'copy, one commit', before => $fresh, run => sub { copy_rate('bench.raw_text (payload)') } });
		my @sides = (produce_side('produce_bytes_batch', @c), raw('raw_text_batch', @c), emit(250, @c), @copies);
		measure(@sides);
		report('P3 produce_bytes_batch of 250, ' . clients_in_words(@_), \@sides,
			ratio('produce bytes batch', 'raw text batch', 1.1),
			(map { ratio('produce bytes batch', $_->{name}, 1) } @copies), ratio('produce bytes batch', 'floor-wal', 0.5));
	});
	return;
}

sub produce_keys
{
	each_client_count([ 1, 8 ], sub {
		my @c = (clients => $_[0]);
		my @sides = map {
			(produce_side($_, @c), produce_side("${_}_idempotency_key", @c), produce_side("${_}_message_key", @c),
				produce_side("${_}_compaction", vars => { stream => 'bench', keys => 1000 }, @c))
		} qw(produce produce_batch);
		measure(@sides);
		report('P4 produce with keys, compaction of 1,000 keys, ' . clients_in_words(@_), \@sides,
			map { (ratio("$_ idempotency key", $_, 0.8), ratio("$_ message key", $_, 0.95), ratio("$_ compaction", $_, 0.6)) }
			  'produce', 'produce batch');
	});
	return;
}

#
# Consume
#

sub claim_ack
{
	my ($n, $goal_1, $goal_8) = @_;
	each_client_count([ 1, 8 ], sub {
		my ($clients) = @_;
		my @c = (clients => $clients);
		my $goal = $clients == 1 ? $goal_1 : $clients == 8 ? $goal_8 : undef;
		my @sides = (claim_side($n, @c), skip_locked($n, @c));
		my @checks = (ratio("claim + ack $n", "skip locked $n", $goal));
		if ($n == 250)
		{
			push @sides, bare_cursor($n, @c), claim_side($n, bytes => 1, name => 'claim + ack 250 bytes', @c);
			push @checks, ratio('claim + ack 250', 'bare cursor 250', 0.9),
			  ratio('claim + ack 250 bytes', 'claim + ack 250', 2);
			if (has_pgq())
			{
				push @sides, pgq_consumers($clients);
				push @checks, ratio('claim + ack 250', 'PgQ 250');
			}
		}
		measure(@sides);
		report("claim + ack of $n, " . clients_in_words($clients), \@sides, @checks);
	});
	return;
}

sub claim_with_ack
{
	each_client_count([ 1, 8 ], sub {
		my @c = (clients => $_[0]);
		my @sides = map {
			my $with = claim_side($_, script => 'claim_with_ack', name => "claim with ack $_", @c);
			$with->{vars}{claim_id} = 0;
			(claim_side($_, @c), $with);
		} 1, 10, 250;
		measure(@sides);
		report('C3a claim(ack => the one before), ' . clients_in_words(@_), \@sides,
			map { ratio("claim with ack $_", "claim + ack $_", $_ == 250 ? 1.1 : 1.3) } 1, 10, 250);
	});
	return;
}

sub claim_beside_ack
{
	each_client_count([8], sub {
		my @c = (clients => $_[0]);
		my $beside = claim_side(10, name => 'beside an open ack', @c);
		my $fresh = $beside->{before};
		my $session;
		$beside->{before} = sub {
			$fresh->();
			$session = background("SELECT claim_id FROM sqlstreams.claim('filled', 'g', 1) \\gset\n"
				  . "BEGIN; SELECT sqlstreams.ack('filled', 'g', :claim_id);");
		};
		$beside->{after} = sub { stop_background($session) };
		my @sides = (claim_side(10, @c), $beside);
		measure(@sides);
		report('C3b claim + ack of 10 beside an open ack, ' . clients_in_words(@_), \@sides,
			ratio('beside an open ack', 'claim + ack 10', 0.95));
	});
	return;
}

sub pop
{
	each_client_count([ 1, 8 ], sub {
		my @c = (clients => $_[0]);
		my @sides = map {
			(claim_side($_, script => 'pop', name => "pop $_", @c),
				skip_locked($_, script => 'skip_locked_pop', name => "delete skip locked $_", @c))
		} 1, 250;
		measure(@sides);
		report('C4 pop, ' . clients_in_words(@_), \@sides,
			ratio('pop 1', 'delete skip locked 1', 1.5), ratio('pop 250', 'delete skip locked 250', 6));
	});
	return;
}

sub fan_out
{
	each_client_count([8], sub {
		my ($clients) = @_;
		my @sides = (
			claim_side(250, script => 'claim_ack_fanout', name => "$clients groups", clients => $clients,
				groups => [ map { "g$_" } 0 .. $clients - 1 ]),
			has_pgq() ? pgq_consumers($clients) : ());
		measure(@sides);
		report("C5 fan-out, $clients groups or consumers, batches of 250, the sum", \@sides,
			has_pgq() ? ratio("$clients groups", 'PgQ 250', 1) : ());
	});
	return;
}

sub ack_each
{
	my $claim = "SELECT claim_id, message_id, payload FROM sqlstreams.claim(:stream, :group, 250) \\aset\n";
	my $acks = join '', map { "SELECT sqlstreams.ack(:stream, :group, :claim_id, ARRAY[:message_id::bigint - $_]);\n" } 0 .. 249;
	each_client_count([ 1, 8 ], sub {
		my @c = (clients => $_[0]);
		my @sides = (
			claim_side(250, name => 'acks, a commit each', text => $claim . $acks, @c),
			emit(1, @c),
			claim_side(250, name => 'acks, one transaction', text => "${claim}BEGIN;\n${acks}COMMIT;\n", @c),
			claim_side(250, name => 'one ack', @c));
		measure(@sides);
		report('C6 250 acks of a claim of 250, messages acked, ' . clients_in_words(@_), \@sides,
			{ label => 'acks a client, a commit each', goal => 5000, value => sub { $_[0]{'acks, a commit each'} / $c[1] } },
			ratio('acks, a commit each', 'floor-wal'), ratio('acks, one transaction', 'one ack'));
	});
	return;
}

#
# What must not slow anything down
#

# The sides of P1, P2, P4 and C1-C3 on one stream and group.
sub all_kinds
{
	my ($stream, $group, $suffix, @c) = @_;
	my @sides = (
		(map { produce_to($stream, $_, @c) } qw(produce produce_batch produce_idempotency_key produce_message_key)),
		(map { lasting_claim($stream, $group, $_, @c) } 1, 10, 250));
	$_->{name} .= $suffix foreach @sides;
	return only(@sides);
}

sub held_snapshot
{
	fresh_stream('held');
	query("SELECT sqlstreams.create_group('held', 'g')");
	each_client_count([8], sub {
		my @c = (clients => $_[0]);
		under_held_snapshot('F1', $_[0],
			sub { all_kinds('held', 'g', '', @c) },
			{ %{ lasting_claim('held', 'g', 1, @c) }, weight => 100 },
			{ %{ produce_to('held', 'produce_idempotency_key') }, weight => 100 },
			{ %{ produce_to('held', 'produce_batch') }, weight => 1 });
	});
	return;
}

sub long_log
{
	fresh_stream($_) foreach qw(short long groups);
	fill_stream('short', 10_000);
	fill_stream('long', $options{messages});
	query("SELECT sqlstreams.create_group('short', 'g', start_id => 10001)");
	query("SELECT sqlstreams.create_group('long', 'g', start_id => $options{messages} + 1)");
	query("SELECT sqlstreams.create_group('groups', CASE g WHEN 0 THEN 'g' ELSE 'g' || g END) FROM generate_series(0, 63) AS g");
	each_client_count([8], sub {
		my @c = (clients => $_[0]);
		beside_each_other(
			"F2 $options{messages} messages in the log, 64 groups, " . clients_in_words(@_),
			[ all_kinds('short', 'g', '', @c) ],
			[ all_kinds('long', 'g', ', long log', @c) ],
			[ all_kinds('groups', 'g', ', 64 groups', @c) ]);
	});
	return;
}

sub many_claimed
{
	fresh_stream('claimed');
	fresh_stream('free');
	query("SELECT sqlstreams.create_group('$_', 'g')") foreach qw(claimed free);
	fill_stream('claimed', $options{claimed});
	my ($rate, $said) = pgbench([ '-t', int($options{claimed} / $options{claim_size}) ],
		{ name => 'claim', script => 'claim', vars => { stream => 'claimed', group => 'g', n => $options{claim_size} } });
	die "pgbench failed:\n$said\n" if !defined $rate;
	each_client_count([8], sub {
		my @c = (clients => $_[0]);
		beside_each_other(
			"F3 $options{claimed} messages claimed and not acked, $options{claim_size} a claim, " . clients_in_words(@_),
			[ all_kinds('free', 'g', '', @c) ],
			[ all_kinds('claimed', 'g', ', many claimed', @c) ]);
	});
	return;
}

#
# Bytes
#

# Turns a side into one that measures WAL bytes a message, over so many messages.
sub wal_of
{
	my ($side, $messages) = @_;
	$side->{unit} = 'WAL bytes/message';
	$side->{run} = sub {
		my $start = query('SELECT pg_current_wal_insert_lsn()');
		my ($rate, $said) = pgbench([ '-t', $messages / $side->{per} ], $side);
		die "$side->{name}: pgbench failed:\n$said\n" if !defined $rate;
		return query("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$start')") / $messages;
	};
	return $side;
}

sub wal_bytes
{
	my $messages = 100_000;
	my @sides = map { wal_of($_, $messages) } (
		produce_side('produce_batch', name => 'in: produce batch'),
		raw('raw_batch', name => 'in: raw batch'),
		has_pgq() ? pgq_produce(250, name => 'in: PgQ') : (),
		claim_side(250, name => 'out: claim + ack 250'),
		skip_locked(250, name => 'out: skip locked 250'),
		has_pgq() ? pgq_consumers(1, name => 'out: PgQ 250') : ());
	measure(@sides);
	my $stored = query('SELECT pg_column_size(payload::jsonb) FROM bench.payload');
	report("W1 WAL, batches of 250, $stored bytes stored a payload", \@sides,
		{ label => 'in: bytes beside those stored', goal => 110, at_most => 1, value => sub { $_[0]{'in: produce batch'} - $stored } },
		{ label => 'out: bytes', goal => 4, at_most => 1, value => sub { $_[0]{'out: claim + ack 250'} } });
	return;
}

sub stored_bytes
{
	my $messages = 200_000;
	my $tables = sub { "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('$_[0]')" };
	my @sides;
	my $bytes = sub {
		my ($side, $size) = @_;
		$side->{unit} = 'bytes/message';
		$side->{run} = sub {
			my ($rate, $said) = pgbench([ '-t', $messages / 250 ], $side);
			die "$side->{name}: pgbench failed:\n$said\n" if !defined $rate;
			return $size->() / $messages;
		};
		push @sides, $side;
	};
	$bytes->(produce_side('produce_batch'), sub {
		my $id = query("SELECT stream_id FROM sqlstreams.streams WHERE stream = 'bench'");
		return query($tables->("sqlstreams.message_log_$id"));
	});
	$bytes->(raw('raw_batch'), sub { query($tables->('bench.raw')) });
	$bytes->(pgq_produce(250), sub { query("SELECT sum(pg_total_relation_size(relid)) FROM pg_stat_user_tables WHERE schemaname = 'pgq' AND relname LIKE 'event_%'") })
	  if has_pgq();
	measure(@sides);
	my $stored = query('SELECT pg_column_size(payload::jsonb) FROM bench.payload');
	report("W2 table and index bytes a message, $stored bytes stored a payload", \@sides,
		{ label => 'produce batch / stored payload', goal => 1.2, at_most => 1, value => sub { $_[0]{'produce batch'} / $stored } },
		ratio('produce batch', 'raw batch'));
	return;
}

1;
