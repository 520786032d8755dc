# The sides that the scenarios compare, each with what it needs around a round.
package Sides;

use strict;
use warnings;
use Exporter 'import';
use Measure;

our @EXPORT = qw(fresh_stream fill_stream has_pgq prepare_peers
  produce_side produce_to emit raw pgq_produce claim_side skip_locked bare_cursor pgq_consumers);

# Messages a second that a consuming side must find; more are added when a
# round runs out.
my %expected = (1 => 4_000, 10 => 25_000, 250 => 120_000);

# What the tables hold for consumers before a round.
my %held;

sub has_pgq { return query("SELECT count(*) FROM pg_available_extensions WHERE name = 'pgq'") }

sub prepare_peers
{
	sql_file("setup/$_.sql") foreach qw(payload raw queue cursor);
	return;
}

#
# Fixtures
#

sub fresh_stream
{
	my ($stream) = @_;
	sql("SELECT sqlstreams.drop_stream('$stream', if_exists => true); SELECT sqlstreams.create_stream('$stream');");
	delete $held{$stream};
	return;
}

# Adds so many messages to a stream: JSON or bytes; with keys => n, each with one
# of so many keys, with compaction or without.
sub fill_stream
{
	my ($stream, $messages, %how) = @_;
	my $keys = $how{keys} ? ", message_keys => ARRAY(SELECT 'customer-' || floor(random() * $how{keys}) FROM generate_series(call, call + 999))" : '';
	$keys .= ', compaction => true' if $how{compaction};
	my $call =
	  $how{bytes}
	  ? "sqlstreams.produce_bytes_batch('$stream', array_fill(convert_to(payload, 'UTF8'), ARRAY[1000])$keys)"
	  : "sqlstreams.produce_batch('$stream', array_fill(payload::jsonb, ARRAY[1000])$keys)";
	my $calls = int(($messages + 999) / 1000);
	while ($calls > 0)
	{
		my $now = $calls < 50 ? $calls : 50;
		sql("SELECT count(id) FROM (SELECT $call AS id FROM bench.payload, generate_series(1, $now) AS call) AS produced;");
		$calls -= $now;
	}
	return;
}

# A stream of at least so many messages, kept from round to round.
sub ensure_stream
{
	my ($stream, $messages, $bytes) = @_;
	fresh_stream($stream) if !defined $held{$stream};
	$held{$stream} //= 0;
	fill_stream($stream, $messages - $held{$stream}, bytes => $bytes) if $held{$stream} < $messages;
	$held{$stream} = $messages if $held{$stream} < $messages;
	return;
}

sub fresh_group
{
	my ($stream, $group) = @_;
	sql("SELECT sqlstreams.drop_group('$stream', '$group', if_exists => true); "
		  . "SELECT sqlstreams.create_group('$stream', '$group');");
	return;
}

sub fresh_raw
{
	my ($table) = @_;
	sql("TRUNCATE bench.$table; ALTER SEQUENCE bench.${table}_id RESTART;");
	delete $held{$table};
	return;
}

sub expected_messages { return ($expected{ $_[0] } // 100_000) * $options{seconds} }

#
# Producing sides
#

# A produce script on a stream that exists.
sub produce_to
{
	my ($stream, $script, %more) = @_;
	return {
		name   => $script =~ tr/_/ /r,
		script => $script,
		vars   => { stream => $stream },
		per    => $script =~ /batch/ ? 250 : 1,
		%more
	};
}

# The same on a stream that begins empty in each round.
sub produce_side
{
	my ($script, %more) = @_;
	return produce_to('bench', $script, before => sub { fresh_stream('bench') }, %more);
}

# floor-wal: a commit and the WAL of its payload, nothing else.
sub emit
{
	my ($per, %more) = @_;
	return { name => 'floor-wal', script => $per > 1 ? 'floor_wal_batch' : 'floor_wal', per => $per, %more };
}

sub raw
{
	my ($script, %more) = @_;
	my $table = $script =~ /text/ ? 'raw_text' : 'raw';
	return {
		name   => $script =~ tr/_/ /r,
		script => $script,
		per    => $script =~ /batch/ ? 250 : 1,
		before => sub { fresh_raw($table) },
		%more
	};
}

sub pgq_produce
{
	my ($per, %more) = @_;
	return {
		name   => 'PgQ',
		script => $per > 1 ? 'pgq_batch' : 'pgq',
		per    => $per,
		before => \&fresh_pgq,
		%more
	};
}

sub fresh_pgq
{
	sql('DROP EXTENSION IF EXISTS pgq CASCADE; DROP SCHEMA IF EXISTS pgq CASCADE;');
	sql_file('setup/pgq.sql');
	delete $held{pgq};
	return;
}

#
# Consuming sides: n messages at a time
#

# A consuming script, by default claim and ack. In each round a new group reads
# the stream from its beginning.
sub claim_side
{
	my ($n, %more) = @_;
	my $bytes = delete $more{bytes};
	my $script = delete $more{script} // ($bytes ? 'claim_ack_bytes' : 'claim_ack');
	my $stream = $bytes ? 'bytes' : 'filled';
	my @groups = @{ delete $more{groups} // ['g'] };
	my $messages = expected_messages($n);
	return {
		name   => "claim + ack $n",
		script => $script,
		vars   => { stream => $stream, group => 'g', n => $n },
		per    => $n,
		before => sub { ensure_stream($stream, $messages, $bytes); fresh_group($stream, $_) foreach @groups; },
		left   => "SELECT min(backlog) FROM sqlstreams.consumer_groups WHERE stream = '$stream' AND consumer_group IN ('"
		  . join("', '", @groups) . "')",
		grow => sub { $messages *= 2 },
		%more
	};
}

sub skip_locked
{
	my ($n, %more) = @_;
	my $messages = expected_messages($n);
	return {
		name   => "skip locked $n",
		script => 'skip_locked',
		vars   => { n => $n },
		per    => $n,
		before => sub {
			sql('TRUNCATE bench.queue RESTART IDENTITY; INSERT INTO bench.queue (payload) '
				  . "SELECT payload::jsonb FROM bench.payload, generate_series(1, $messages); VACUUM ANALYZE bench.queue;");
		},
		left => 'SELECT count(*) FROM (SELECT FROM bench.queue WHERE taken_at IS NULL LIMIT 1) AS q',
		grow => sub { $messages *= 2 },
		%more
	};
}

sub bare_cursor
{
	my ($n, %more) = @_;
	my $messages = expected_messages($n);
	return {
		name   => "bare cursor $n",
		script => 'bare_cursor',
		vars   => { n => $n },
		per    => $n,
		before => sub {
			fresh_raw('raw') if !defined $held{raw};
			$held{raw} //= 0;
			sql("INSERT INTO bench.raw (payload) SELECT payload::jsonb FROM bench.payload, generate_series(1, $messages - $held{raw}); VACUUM ANALYZE bench.raw;")
			  if $held{raw} < $messages;
			$held{raw} = $messages if $held{raw} < $messages;
			sql('UPDATE bench.cursor SET position = 0');
		},
		left => 'SELECT (SELECT max(id) FROM bench.raw) - position FROM bench.cursor',
		grow => sub { $messages *= 2 },
		%more
	};
}

# PgQ: one consumer a client, each with its own copy, in batches of 250 events.
sub pgq_consumers
{
	my ($clients, %more) = @_;
	my $messages = expected_messages(250) / 2;
	return {
		name    => 'PgQ 250',
		script  => 'pgq_consume',
		clients => $clients,
		per     => 250,
		before  => sub {
			if (($held{pgq} // 0) < $messages)
			{
				fresh_pgq();
				my $ticks = int($messages / 250);
				sql(join '', ("SELECT count(pgq.insert_event('bench', 'order', payload)) FROM bench.payload, generate_series(1, 250);\nSELECT pgq.ticker('bench');\n") x $ticks);
				$held{pgq} = $messages;
			}
			sql("SELECT pgq.unregister_consumer(queue_name, consumer_name) FROM pgq.get_consumer_info();"
				  . "SELECT pgq.register_consumer_at('bench', 'c' || c, 1) FROM generate_series(0, $clients - 1) AS c;");
		},
		left => 'SELECT min(pending_events) FROM pgq.get_consumer_info()',
		grow => sub { $messages *= 2 },
		%more
	};
}

1;
