package Stress::Disturber;

# The two processes that act on the sessions of others: one ends prepared
# transactions, one takes backends away.

use strict;
use warnings;
use Stress::Client;
use Stress::Random qw(pick chance);
use Time::HiRes ();

# Commits or rolls back what others have prepared, after a random while, until
# told that nobody prepares any more and nothing is left.
sub finish_prepared
{
	my ($run, $records) = @_;
	my $dbh = Stress::Client::connect_as($run, 'finisher');
	while (1)
	{
		my $is_over = $run->preparing_is_over;
		my $gids = $run->prepared($dbh);
		last if $is_over && !@$gids;
		foreach my $gid (grep { chance(0.4) } @$gids)
		{
			my ($transaction) = $gid =~ m{^[^/]+/(.+)$};
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

1;
