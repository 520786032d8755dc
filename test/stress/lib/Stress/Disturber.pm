package Stress::Disturber;

# The processes that come in the way of the clients: one ends prepared
# transactions, one takes backends away, one looks at, vacuums and locks the
# tables. Their own connections may break, too.

use strict;
use warnings;
use Stress::Client;
use Stress::Random qw(pick chance);
use Time::HiRes ();

# Refused when a partition was dropped, or a lock was not free for long.
use constant EXPECTED => qw(42P01 40P01 55P03);

# Commits or rolls back what others have prepared, after a random while, until
# told that nobody prepares any more and nothing is left. What consumers have
# prepared holds nobody up, so it is left for longer.
sub finish_prepared
{
	my ($run, $records) = @_;
	my $client = Stress::Client->new(run => $run, records => $records, label => 'finisher');
	my $is_over = 0;
	until ($is_over)
	{
		$client->attempt(sub {
			my $was_over = $run->preparing_is_over;
			my $gids = $run->prepared($client->dbh);
			$is_over = $was_over && !@$gids;
			_finish($client, $_) foreach @$gids;
		});
		Time::HiRes::sleep(rand 0.3);
	}
	return;
}

# Ends a prepared transaction, perhaps.
sub _finish
{
	my ($client, $gid) = @_;
	my ($transaction) = $gid =~ m{^[^/]+/(.+)$};
	return unless chance($transaction =~ /^consumer/ ? 0.1 : 0.4);
	my $end = pick(commit => 7, rollback => 3);
	my $dbh = $client->dbh;
	$client->{records}->write(send => $end, $transaction);
	$dbh->do(uc($end) . " PREPARED '$gid'");
	$client->{records}->write(reply => $end, $transaction);
	return;
}

# Takes the backend from a random client now and then, until the time is up.
sub terminate_backends
{
	my ($run, $records) = @_;
	my $client = Stress::Client->new(run => $run, records => $records, label => 'terminator');
	while (Time::HiRes::time() < $run->{stop_at})
	{
		$client->attempt(sub { _terminate($client) });
		Time::HiRes::sleep(0.2 + rand 0.8);
	}
	return;
}

sub _terminate
{
	my ($client) = @_;
	my $name = Stress::Client::application_name($client->{run}, '');
	my ($victim) = $client->dbh->selectrow_array(<<'SQL', undef, $name);
SELECT application_name, pg_terminate_backend(pid) FROM (
	SELECT application_name, pid FROM pg_stat_activity
	WHERE starts_with(application_name, ?) AND application_name ~ '/(producer|consumer|maintainer)[0-9]+$'
	ORDER BY random() LIMIT 1) AS victim
SQL
	$client->{records}->write(send => 'terminate', '-', substr $victim, length $name) if $victim;
	return;
}

# What an administrator does, each as often as its weight says.
my %DEEDS = (vacuum => 4, analyze => 2, view => 3, peek => 2, snapshot => 1, lock => 2);

# Does what administrators and autovacuum do to the stream's tables, and holds
# snapshots and locks for a while, until the time is up.
sub administer
{
	my ($run, $records, $label) = @_;
	my $client = Stress::Client->new(run => $run, records => $records, label => $label);
	while (Time::HiRes::time() < $run->{stop_at})
	{
		my $deed = pick(%DEEDS);
		my @expected = $deed =~ /^(vacuum|analyze|lock)$/ ? EXPECTED : ();
		my $is_done = $client->attempt(sub { _administer($run, $client, $deed) }, @expected);
		$records->write(reply => 'administer', '-', $deed) if $is_done;
		Time::HiRes::sleep(rand 0.4);
	}
	return;
}

sub _administer
{
	my ($run, $client, $deed) = @_;
	my $dbh = $client->dbh;
	my $tables = $dbh->selectcol_arrayref(<<'SQL', undef, $run->{stream_id});
SELECT 'sqlstreams.' || relname FROM pg_class
WHERE relnamespace = 'sqlstreams'::regnamespace AND relkind IN ('r', 'p') AND relname ~ ('_' || ? || '(_|$)')
SQL
	my $table = $tables->[ rand @$tables ];
	my @views = qw(streams consumer_groups partitions leases workers);
	my $view = $views[ rand @views ];
	$dbh->do("VACUUM $table") if $deed eq 'vacuum';
	$dbh->do("ANALYZE $table") if $deed eq 'analyze';
	$dbh->do("SELECT * FROM sqlstreams.$view") if $deed eq 'view';
	$dbh->do('SELECT * FROM sqlstreams.peek(?, max_messages => 100)', undef, $run->{stream})
	  if $deed eq 'peek';
	_hold($dbh, 'SELECT count(*) FROM pg_class') if $deed eq 'snapshot';
	_hold($dbh, _lock($run, $tables)) if $deed eq 'lock';
	return;
}

# A statement that locks the log or one of its partitions, in a mode that lets
# producers and consumers go on, but not who makes or drops a partition.
sub _lock
{
	my ($run, $tables) = @_;
	my @log = grep { /message_log_$run->{stream_id}(_|$)/ } @$tables;
	my $table = $log[ rand @log ];
	my $mode = pick('ACCESS SHARE' => 3, 'ROW EXCLUSIVE' => 1, 'SHARE UPDATE EXCLUSIVE' => 1);
	return "LOCK TABLE ONLY $table IN $mode MODE";
}

# Keeps what a statement gets for a moment: dead rows alive, or a lock.
sub _hold
{
	my ($dbh, $statement) = @_;
	$dbh->do('BEGIN ISOLATION LEVEL REPEATABLE READ');
	my $is_done = eval { $dbh->do($statement); Time::HiRes::sleep(rand 2); 1 };
	my $error = $@;
	$dbh->do($is_done ? 'COMMIT' : 'ROLLBACK');
	die $error unless $is_done;
	return;
}

1;
