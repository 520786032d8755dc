package Stress::Disturber;

# The processes that come in the way of the clients: one ends prepared
# transactions, one takes backends away, one looks at and vacuums the tables.

use strict;
use warnings;
use Stress::Client;
use Stress::Random qw(pick chance);
use Time::HiRes ();

# Commits or rolls back what others have prepared, after a random while, until
# told that nobody prepares any more and nothing is left. What consumers have
# prepared holds nobody up, so it is left for longer.
sub finish_prepared
{
	my ($run, $records) = @_;
	my $dbh = Stress::Client::connect_as($run, 'finisher');
	while (1)
	{
		my $is_over = $run->preparing_is_over;
		my $gids = $run->prepared($dbh);
		last if $is_over && !@$gids;
		foreach my $gid (@$gids)
		{
			my ($transaction) = $gid =~ m{^[^/]+/(.+)$};
			next unless chance($transaction =~ /^consumer/ ? 0.1 : 0.4);
			my $end = pick(commit => 7, rollback => 3);
			$records->write(send => $end, $transaction);
			$dbh->do(uc($end) . " PREPARED '$gid'");
			$records->write(reply => $end, $transaction);
		}
		Time::HiRes::sleep(rand 0.3);
	}
	return;
}

# Takes the backend from a random client now and then, until the time is up.
sub terminate_backends
{
	my ($run, $records) = @_;
	my $dbh = Stress::Client::connect_as($run, 'terminator');
	my $name = Stress::Client::application_name($run, '');
	while (Time::HiRes::time() < $run->{stop_at})
	{
		my ($victim) = $dbh->selectrow_array(<<'SQL', undef, $name);
SELECT application_name, pg_terminate_backend(pid) FROM (
	SELECT application_name, pid FROM pg_stat_activity
	WHERE starts_with(application_name, ?) AND application_name ~ '/(producer|consumer)[0-9]+$'
	ORDER BY random() LIMIT 1) AS victim
SQL
		if ($victim)
		{
			$records->write(send => 'terminate', '-', substr $victim, length $name);
		}
		Time::HiRes::sleep(0.2 + rand 0.8);
	}
	return;
}

# Does what administrators and autovacuum do to the stream's tables, and holds
# snapshots for a while, until the time is up.
sub administer
{
	my ($run, $records) = @_;
	my $dbh = Stress::Client::connect_as($run, 'administrator');
	my @views = qw(streams consumer_groups partitions leases);
	while (Time::HiRes::time() < $run->{stop_at})
	{
		my $tables = $dbh->selectcol_arrayref(<<'SQL', undef, $run->{stream_id});
SELECT oid::regclass FROM pg_class
WHERE relnamespace = 'sqlstreams'::regnamespace AND relkind IN ('r', 'p') AND relname ~ ('_' || ? || '(_|$)')
SQL
		my $table = $tables->[ rand @$tables ];
		my $view = $views[ rand @views ];
		my $deed = pick(vacuum => 4, analyze => 2, view => 3, peek => 2, snapshot => 1);
		$dbh->do("VACUUM $table") if $deed eq 'vacuum';
		$dbh->do("ANALYZE $table") if $deed eq 'analyze';
		$dbh->do("SELECT * FROM sqlstreams.$view") if $deed eq 'view';
		$dbh->do('SELECT * FROM sqlstreams.peek(?, max_messages => 100)', undef, $run->{stream})
		  if $deed eq 'peek';
		_hold_snapshot($dbh) if $deed eq 'snapshot';
		$records->write(reply => 'administer', '-', $deed);
		Time::HiRes::sleep(rand 0.4);
	}
	return;
}

# Keeps dead rows alive for a moment.
sub _hold_snapshot
{
	my ($dbh) = @_;
	$dbh->do('BEGIN ISOLATION LEVEL REPEATABLE READ');
	$dbh->do('SELECT count(*) FROM pg_class');
	Time::HiRes::sleep(rand 2);
	$dbh->do('COMMIT');
	return;
}

1;
