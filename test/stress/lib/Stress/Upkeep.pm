package Stress::Upkeep;

# Maintenance while a run lasts: streams with short times of everything, settings
# that change, a worker that is taken away in every way, and sessions that do its
# work.

use strict;
use warnings;
use List::Util qw(max);
use Stress::Client;
use Stress::Random qw(pick between chance);
use Time::HiRes ();

use constant {
	QUIET => 3,               # seconds before the end in which the worker is left alone
	WORKER_IS_BACK => 60,     # seconds after which a worker must be there again
	SETTLES => 90,            # seconds that maintenance may take for what is left in the end
};

# The settings that change, with what they may be, in seconds. The first value is
# that of the beginning.
my %SETTINGS = (
	retention => [ 2, 1, 3, 4 ],
	partition_interval => [ 1, 0.5, 2, 3 ],
	idempotency_key_ttl => [ 2, 1, 3, 5 ],
	empty_compaction_head_ttl => [ 1, 0.5, 2 ]);

# What the stream of a run is made with, as arguments of create_stream.
sub arguments
{
	return join ', ', map { "$_ => '$SETTINGS{$_}[0] seconds'" } sort keys %SETTINGS;
}

# The longest time for which a key ever protects, in seconds.
sub max_key_ttl
{
	return max(@{ $SETTINGS{idempotency_key_ttl} });
}

# Writes down what the settings are in the beginning.
sub record_settings
{
	my ($records) = @_;
	foreach my $name (sort keys %SETTINGS)
	{
		$records->write($_ => 'setting', '-', $name, $SETTINGS{$name}[0]) foreach qw(send reply);
	}
	return;
}

# Changes settings of the stream and holds up its maintenance, until the time is up.
sub change_settings
{
	my ($run, $records, $label) = @_;
	my $client = Stress::Client->new(run => $run, records => $records, label => $label);
	while (Time::HiRes::time() < $run->{stop_at})
	{
		my $deed = pick(alter => 4, suspend => 2);
		$client->attempt(sub { $deed eq 'alter' ? _alter($client) : _suspend($client) });
		Time::HiRes::sleep(rand 2);
	}
	_persist($client, sub {
		$client->dbh->do('SELECT sqlstreams.resume_maintenance(?)', undef, $run->{stream});
	});
	return;
}

sub _alter
{
	my ($client) = @_;
	my ($run, $records) = @$client{qw(run records)};
	my @names = sort keys %SETTINGS;
	my $name = $names[ rand @names ];
	my $values = $SETTINGS{$name};
	my $value = $values->[ rand @$values ];
	my $dbh = $client->dbh;
	$records->write(send => 'setting', '-', $name, $value);
	$dbh->do("SELECT sqlstreams.alter_stream(?, $name => ?::interval)", undef, $run->{stream}, "$value seconds");
	$records->write(reply => 'setting', '-', $name);
	$records->write(reply => 'upkeep', '-', 'settings changed');
	return;
}

sub _suspend
{
	my ($client) = @_;
	my $dbh = $client->dbh;
	$dbh->do('SELECT sqlstreams.suspend_maintenance(?)', undef, $client->{run}{stream});
	Time::HiRes::sleep(rand 3);
	$dbh->do('SELECT sqlstreams.resume_maintenance(?)', undef, $client->{run}{stream});
	$client->{records}->write(reply => 'upkeep', '-', 'suspensions of maintenance');
	return;
}

# Does the worker's work from a session now and then, until the time is up; much of
# it while the worker is switched off.
sub maintain
{
	my ($run, $records, $label) = @_;
	my $client = Stress::Client->new(run => $run, records => $records, label => $label);
	while (Time::HiRes::time() < $run->{stop_at})
	{
		my $is_done = $client->attempt(sub { _call_maintain($client) });
		$records->write(reply => 'upkeep', '-', 'calls of maintain') if $is_done;
		Time::HiRes::sleep($run->worker_is_off ? rand 0.3 : rand 3);
	}
	return;
}

# What a step fails with is a warning: here it is an error.
sub _call_maintain
{
	my ($client) = @_;
	my $warning;
	local $SIG{__WARN__} = sub { $warning = $_[0] };
	my $dbh = $client->dbh;
	local $dbh->{PrintWarn} = 1;
	$dbh->do('CALL sqlstreams.maintain()');
	die "maintain() warned: $warning" if $warning;
	return;
}

# Takes the worker away in every way, until the time is nearly up. other: where the
# crashes of the server are written down as well; crashes: how many there may be.
sub trouble_worker
{
	my ($run, $records, $label, $other, $crashes) = @_;
	my $client = Stress::Client->new(run => $run, records => $records, label => $label);
	my $end = $run->{stop_at} - QUIET;
	my @crash_at = sort { $a <=> $b }
	  map { $run->{start_at} + ($end - $run->{start_at}) * rand } 1 .. $crashes;
	while (Time::HiRes::time() < $end)
	{
		if (@crash_at && Time::HiRes::time() > $crash_at[0])
		{
			shift @crash_at;
			_crash($client, $other);
		}
		else
		{
			my $deed = pick(terminate => 3, switch => 1);
			$client->attempt(sub { $deed eq 'switch' ? _switch_off_and_on($client) : _terminate($client) });
		}
		Time::HiRes::sleep(0.3 + rand 1.5);
	}
	_persist($client, sub { switch_on($client->dbh) });
	return;
}

# The process id of the database's worker, when there is one.
sub _worker
{
	my ($client) = @_;
	my ($pid) = $client->dbh->selectrow_array(
		'SELECT pid FROM sqlstreams.workers WHERE database = current_database() AND pid IS NOT NULL');
	return $pid;
}

sub _terminate
{
	my ($client) = @_;
	my $pid = _worker($client) or return;
	my ($is_done) = $client->dbh->selectrow_array('SELECT pg_terminate_backend(?)', undef, $pid);
	$client->{records}->write(reply => 'upkeep', '-', 'workers terminated') if $is_done;
	return;
}

# Kills the worker so that the server must recover.
sub _crash
{
	my ($client, $other) = @_;
	my $pid;
	$client->attempt(sub { $pid = _worker($client) });
	return unless $pid;
	my @records = ($client->{records}, $other);
	$_->write(send => 'crash', '-') foreach @records;
	my $is_connected = $client->attempt(sub { $client->dbh->do("COPY (SELECT) TO PROGRAM 'kill -9 $pid'") });
	my $limit = Time::HiRes::time() + WORKER_IS_BACK;
	while ($is_connected)
	{
		die "the worker could not be killed\n" if Time::HiRes::time() > $limit;
		$is_connected = $client->attempt(sub { $client->dbh->do('SELECT pg_sleep(0.01)') });
	}
	_persist($client, sub { $client->dbh->do('SELECT') });
	$_->write(reply => 'crash', '-') foreach @records;
	$client->{records}->write(reply => 'upkeep', '-', 'workers killed');
	return;
}

sub _switch_off_and_on
{
	my ($client) = @_;
	my $dbh = $client->dbh;
	_set($dbh, 'SET sqlstreams.worker = off');
	$client->{run}->set_worker_is_off(1);
	Time::HiRes::sleep(rand 3);
	switch_on($dbh);
	$client->{run}->set_worker_is_off(0);
	$client->{records}->write(reply => 'upkeep', '-', 'workers switched off and on');
	return;
}

# Lets the server have workers as it had them before the run.
sub switch_on
{
	my ($dbh) = @_;
	return _set($dbh, 'RESET sqlstreams.worker');
}

# Changes the server's configuration. The query makes the setting known.
sub _set
{
	my ($dbh, $change) = @_;
	$dbh->do('SELECT FROM sqlstreams.workers');
	$dbh->do("ALTER SYSTEM $change");
	$dbh->do('SELECT pg_reload_conf()');
	return;
}

# Does what has to be done, however often the connection breaks.
sub _persist
{
	my ($client, $work) = @_;
	my $limit = Time::HiRes::time() + WORKER_IS_BACK;
	until ($client->attempt($work))
	{
		die "the connection broke for too long\n" if Time::HiRes::time() > $limit;
		Time::HiRes::sleep(0.1);
	}
	return;
}

1;
