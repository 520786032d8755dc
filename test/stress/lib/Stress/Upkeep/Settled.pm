package Stress::Upkeep::Settled;

# Whether maintenance has settled everything in the end: a stream whose groups are
# done, with a short retention, is empty after a while, and so is all that hung on
# its messages; a worker is there, and nothing that it does fails.

use strict;
use warnings;
use Stress::Client;
use Time::HiRes ();

use constant {
	LIMIT => 60,    # seconds that it may take
	EVERY => 0.2,
	KEYS_LATE => 60 + 30,    # seconds that a key may stay for longer than it protects, with some to spare
};

# What must go with the messages. The tables are there when they were needed.
my @TABLES = qw(message_log exception_queue delivery_log deferred_message claim_lease claim_resolved compaction_head);

# Waits until nothing is left of these streams, each { stream, stream_id, max_key_ttl }
# (not there: no keys are too old). Returns what went wrong, each [ kind, detail ].
sub check
{
	my ($run, @runs) = @_;
	my $client = Stress::Client->new(run => $run, label => 'main');
	my $limit = Time::HiRes::time() + LIMIT;
	foreach my $run (@runs)
	{
		$client->dbh->do(<<'SQL', undef, $run->{stream});
SELECT sqlstreams.alter_stream(?, retention => '1 second', partition_interval => '1 second',
	empty_compaction_head_ttl => '1 second')
SQL
	}
	my (@left, @late);
	while (@left = map { _left($client->dbh, $_) } @runs)
	{
		last if Time::HiRes::time() > $limit;
		push @late, map { _claim_on($client->dbh, $_) } @runs;
		Time::HiRes::sleep(EVERY);
	}
	return (
		(map { [ 'left over', $_ ] } @left),
		(map { [ 'delivered after the end', $_ ] } @late),
		(map { _old_keys($client->dbh, $_) } grep { $_->{max_key_ttl} } @runs),
		_worker_trouble($client->dbh, $limit));
}

# Claims as a consumer does that waits for messages: so its group passes the ids that
# nobody drew. Returns what it got, in words.
sub _claim_on
{
	my ($dbh, $run) = @_;
	my @got;
	my $groups = $dbh->selectcol_arrayref(
		'SELECT consumer_group FROM sqlstreams.consumer_groups WHERE stream = ?', undef, $run->{stream});
	foreach my $group (@$groups)
	{
		my $ids = $dbh->selectcol_arrayref('SELECT message_id FROM sqlstreams.claim(?, ?)', undef, $run->{stream}, $group);
		push @got, map { "message $_ of group $group" } @$ids;
	}
	return @got;
}

# What is left of a stream, in words.
sub _left
{
	my ($dbh, $run) = @_;
	my @left;
	foreach my $name (map { "${_}_$run->{stream_id}" } @TABLES)
	{
		my ($oid) = $dbh->selectrow_array('SELECT to_regclass(?)', undef, "sqlstreams.$name");
		next unless defined $oid;
		my ($rows) = $dbh->selectrow_array("SELECT count(*) FROM sqlstreams.$name");
		push @left, "$rows rows of $name: " . _why($dbh, $run) if $rows;
	}
	return @left;
}

# What the server says of why partitions are still there.
sub _why
{
	my ($dbh, $run) = @_;
	my $rows = $dbh->selectcol_arrayref(<<'SQL', undef, $run->{stream});
SELECT concat_ws(' ', partition, state, held_by) FROM sqlstreams.partitions WHERE stream = ? ORDER BY from_id
SQL
	return join ', ', @$rows;
}

# Keys whose time was over long ago.
sub _old_keys
{
	my ($dbh, $run) = @_;
	my $tables = $dbh->selectcol_arrayref(<<'SQL', undef, $run->{stream_id});
SELECT 'sqlstreams.' || relname FROM pg_class
WHERE relnamespace = 'sqlstreams'::regnamespace AND relkind = 'r' AND relname ~ ('^idempotency_key_' || ? || '(_|$)')
SQL
	my @violations;
	foreach my $table (@$tables)
	{
		my ($old) = $dbh->selectrow_array(<<"SQL", undef, $run->{max_key_ttl}, KEYS_LATE);
SELECT count(*) FROM $table WHERE created_at < clock_timestamp() - (?::float8 + ?::float8) * interval '1 second'
SQL
		push @violations, [ 'keys left over', "$old in $table" ] if $old;
	}
	return @violations;
}

# Whether there is no worker, or one that fails.
sub _worker_trouble
{
	my ($dbh, $limit) = @_;
	my $error;
	do
	{
		my ($pid, $of_worker) = $dbh->selectrow_array(
			'SELECT pid, error FROM sqlstreams.workers WHERE database = current_database()');
		$error = defined $pid ? $of_worker : 'there is none';
		Time::HiRes::sleep(EVERY) if defined $error;
	} while (defined $error && Time::HiRes::time() < $limit);
	return defined $error ? [ 'trouble with the worker', $error ] : ();
}

1;
