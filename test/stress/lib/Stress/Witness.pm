package Stress::Witness;

# Reads along what a stream's tables hold while the run lasts, as messages that
# everybody is done with are dropped: what is in the log, how far it was dropped,
# which partitions there are, and in which phase the tables of idempotency keys
# are while somebody is producing.

use strict;
use warnings;
use Stress::Checker::State;
use Stress::Client;
use Time::HiRes ();

use constant {
	EVERY => 0.2,     # seconds from one look to the next
	ROWS => 10_000,   # of the log, read at once
};

# Looks until all clients are done. A message is read when it is settled, before
# anybody can be done with it for long.
sub watch
{
	my ($run, $records, $label) = @_;
	my $client = Stress::Client->new(run => $run, records => $records, label => $label);
	my $seen = 0;    # up to this id nothing new can come
	my $is_over = 0;
	until ($is_over)
	{
		my $was_over = $run->preparing_is_over;
		my $is_done = $client->attempt(sub {
			look_at_drops($client);
			_look_at_partitions($client);
			_look_at_rotation($client);
			_look_at_dead($client);
			$seen = _read_log($client, $seen);
		});
		# what the server had in memory only may be gone now
		$seen = 0 unless $is_done;
		$is_over = $was_over && $is_done;
		Time::HiRes::sleep(EVERY);
	}
	return;
}

# Writes down up to which id the messages are dropped.
sub look_at_drops
{
	my ($client) = @_;
	my ($run, $records) = @$client{qw(run records)};
	my $dbh = $client->dbh;
	$records->write(send => 'dropped', '-');
	my ($through) = $dbh->selectrow_array(
		'SELECT purged_through FROM sqlstreams.stream WHERE stream_id = ?', undef, $run->{stream_id});
	$records->write(reply => 'dropped', '-', $through);
	return;
}

# Writes down the numbers of the log's partitions.
sub _look_at_partitions
{
	my ($client) = @_;
	my $numbers = $client->dbh->selectcol_arrayref(<<'SQL', undef, $client->{run}{stream_id});
SELECT substring(relname FROM '[0-9]+$') FROM pg_class
WHERE relnamespace = 'sqlstreams'::regnamespace AND relkind = 'r' AND relname ~ ('^message_log_' || ? || '_')
SQL
	$client->{records}->write(reply => 'partitions', '-', @$numbers);
	return;
}

# Writes down the phase of the key tables, and how many transactions have produced
# and are still open.
sub _look_at_rotation
{
	my ($client) = @_;
	my @row = $client->dbh->selectrow_array(<<'SQL', undef, $client->{run}{stream_id});
SELECT idempotency_phase, idempotency_generation, (
	SELECT count(DISTINCT l.virtualtransaction) FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
	WHERE l.mode = 'RowExclusiveLock' AND starts_with(c.relname, 'message_log_' || stream_id))
FROM sqlstreams.stream WHERE stream_id = ?
SQL
	$client->{records}->write(reply => 'rotation', '-', @row);
	return;
}

# Writes down which messages are dead, and whether that is because of a lost lease.
sub _look_at_dead
{
	my ($client) = @_;
	my $rows = $client->dbh->selectall_arrayref(<<'SQL', undef, $client->{run}{stream}, Stress::Checker::State::LEASE_ENDED);
SELECT consumer_group, message_id, (strpos(coalesce(last_error, ''), $2) > 0)::int
FROM sqlstreams.exceptions($1, status => 'dead', max_messages => 1000)
SQL
	$client->{records}->write(reply => 'dead', '-', map { join '=', @$_ } @$rows) if @$rows;
	return;
}

# Writes down what the log holds after an id. Returns the id up to which it is
# settled and was read.
sub _read_log
{
	my ($client, $after) = @_;
	my ($run, $dbh, $records) = ($client->{run}, $client->dbh, $client->{records});
	my ($settled) = $dbh->selectrow_array(
		'SELECT settled_head FROM sqlstreams.streams WHERE stream_id = ?', undef, $run->{stream_id});
	my $rows;
	do
	{
		$rows = $dbh->selectall_arrayref(<<"SQL", undef, $after, ROWS);
SELECT id, coalesce(payload->>'token', convert_from(body, 'UTF8'))
FROM sqlstreams.message_log_$run->{stream_id} WHERE id > ? ORDER BY id LIMIT ?
SQL
		$records->write(reply => 'seen', '-', map { "$_->[0]=$_->[1]" } @$rows) if @$rows;
		$after = $rows->[-1][0] if @$rows;
	} while (@$rows == ROWS);
	return $settled;
}

1;
