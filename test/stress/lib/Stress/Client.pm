package Stress::Client;

# One client of the database: a connection that breaks and comes back, and
# transactions whose every step and outcome is recorded.

use strict;
use warnings;
use DBI;
use POSIX ();
use Time::HiRes ();

use constant CONNECT_SECONDS => 60;    # a server that recovers from a crash is back by then

# label: the name of the process; run: the settings that all processes share;
# records: where to write.
sub new
{
	my ($class, %self) = @_;
	return bless { %self, transactions => 0 }, $class;
}

# The name that a process's backends bear in pg_stat_activity.
sub application_name
{
	my ($run, $label) = @_;
	return "$run->{name}/$label";
}

# Whether the sessions of the process with this label wait for their commits to
# reach the disk: every other one does not.
sub is_synchronous
{
	my ($label) = @_;
	return $label !~ /[02468]$/;
}

# Connects through the libpq environment variables. $label names the session. A
# new session too may be taken away by the run itself, and the server may be
# recovering from a crash: so it is tried for a while.
sub connect_as
{
	my ($run, $label) = @_;
	local $ENV{PGAPPNAME} = application_name($run, $label);
	my $synchronous = is_synchronous($label) ? 'on' : 'off';
	my %attributes = (RaiseError => 1, PrintError => 0, PrintWarn => 0, AutoCommit => 1);
	my $limit = Time::HiRes::time() + CONNECT_SECONDS;
	my $error;
	while (Time::HiRes::time() < $limit)
	{
		my $dbh = eval { DBI->connect('dbi:Pg:', undef, undef, \%attributes) };
		return $dbh if $dbh && eval {
			$dbh->do('SET client_min_messages = warning');
			$dbh->do("SET synchronous_commit = $synchronous");
		};
		$error = $@;
		Time::HiRes::sleep(0.05);
	}
	die "could not connect: $error\n";
}

# The open connection, made anew when there is none.
sub dbh
{
	my ($self) = @_;
	return $self->{dbh} //= connect_as($self->{run}, $self->{label});
}

# Drops the connection as a dying client does, without a word to the server.
sub cut_connection
{
	my ($self) = @_;
	my $dbh = delete $self->{dbh} or return;
	POSIX::close($dbh->{pg_socket});
	$dbh->{InactiveDestroy} = 1;
	return;
}

# Ends the connection in an orderly way; the next call makes a new one.
sub disconnect
{
	my ($self) = @_;
	my $dbh = delete $self->{dbh} or return;
	$dbh->disconnect;
	return;
}

# Sleeps for a random time of up to $seconds.
sub pause
{
	my ($self, $seconds) = @_;
	Time::HiRes::sleep(rand $seconds);
	return;
}

# Runs one recorded call of the present transaction. $query gets the database
# handle and returns the fields of the reply, which are returned to the caller.
# Dies with a failure: { state, message, lost }.
sub call
{
	my ($self, $verb, $fields, $query) = @_;
	my $dbh = $self->dbh;
	my $transaction = $self->{transaction};
	$self->{records}->write(send => $verb, $transaction, @$fields);
	my @reply;
	if (eval { @reply = $query->($dbh); 1 })
	{
		$self->{records}->write(reply => $verb, $transaction, @reply);
		return @reply;
	}
	my $failure = $self->_failure($@);
	$self->{records}->write($failure->{lost} ? 'lost' : 'error',
		$verb, $transaction, $failure->{state}, $failure->{message});
	die $failure;
}

# Runs a statement that the checker need not know of. Dies as call does.
sub unrecorded
{
	my ($self, $statement, @parameters) = @_;
	my $dbh = $self->dbh;
	eval { $dbh->do($statement, undef, @parameters); 1 }
	  or die $self->_failure($@);
	return;
}

# A recorded statement that takes no parameters and returns nothing.
sub run_statement
{
	my ($self, $verb, $statement, @fields) = @_;
	$self->call($verb, \@fields, sub { $_[0]->do($statement); return });
	return;
}

# Runs $work in a transaction block. how: isolation (SQL name) and end, which
# is commit, rollback, prepare or disconnect. Dies as call does, with the
# transaction rolled back.
sub transaction
{
	my ($self, $work, %how) = @_;
	my $isolation = $how{isolation} // 'READ COMMITTED';
	my $end = $how{end} // 'commit';
	$self->unrecorded("BEGIN ISOLATION LEVEL $isolation");
	$self->_start_transaction;
	if (eval { $work->(); $self->_end_transaction($end); 1 })
	{
		return;
	}
	my $failure = $@;
	$self->_end_transaction('rollback') if $self->{dbh} && $self->_in_block;
	die $failure;
}

# Runs $work, which makes a single call, outside of a transaction block.
sub alone
{
	my ($self, $work) = @_;
	my $dbh = $self->dbh;
	$self->_start_transaction;
	my ($records, $transaction) = @$self{qw(records transaction)};
	$records->write(send => 'commit', $transaction);
	if (eval { $work->(); 1 })
	{
		$records->write(reply => 'commit', $transaction);
		return;
	}
	my $failure = $@;
	$records->write(send => 'rollback', $transaction) if ref $failure && !$failure->{lost};
	die $failure;
}

# Runs $work. Returns whether it came to its end: the connection may break, what
# recorded calls died of is for the checker to judge, and the server may refuse
# other statements with these SQLSTATEs.
sub attempt
{
	my ($self, $work, @states) = @_;
	return 1 if eval { $work->(); 1 };
	my $error = $@;
	return 0 if ref $error;
	die $error unless $self->{dbh};
	my $failure = $self->_failure($error);
	return 0 if $failure->{lost} || grep { $_ eq $failure->{state} } @states;
	die $failure->{message};
}

# Runs $work as transaction() and alone() do, one or the other at random.
sub alone_or_in_block
{
	my ($self, $work, %how) = @_;
	return rand() < 0.5 ? $self->alone($work) : $self->transaction($work, %how);
}

# Runs $step within a savepoint and rolls back to it when $step dies by an
# error of the server, or when told to.
sub savepoint
{
	my ($self, $step, $roll_back) = @_;
	my $name = 's' . ++$self->{savepoints};
	$self->run_statement(savepoint => "SAVEPOINT $name", $name);
	my $failed = !eval { $step->(); 1 };
	my $failure = $@;
	die $failure if $failed && (!ref $failure || $failure->{lost});
	if ($failed || $roll_back)
	{
		$self->run_statement(
			rollback_to => "ROLLBACK TO SAVEPOINT $name", $name);
	}
	return;
}

sub _start_transaction
{
	my ($self) = @_;
	$self->{transaction} = $self->{label} . ':' . ++$self->{transactions};
	return;
}

sub _end_transaction
{
	my ($self, $end) = @_;
	if ($end eq 'prepare')
	{
		my $gid = "$self->{run}{name}/$self->{transaction}";
		$self->run_statement(prepare => "PREPARE TRANSACTION '$gid'");
	}
	elsif ($end eq 'disconnect')
	{
		$self->{records}->write(send => 'disconnect', $self->{transaction});
		$self->cut_connection;
	}
	else
	{
		$self->run_statement($end => uc $end);
	}
	return;
}

# Whether the server has a transaction block open for us.
sub _in_block
{
	my ($self) = @_;
	return $self->{dbh}->ping > 1;
}

# What a failed call died of. A broken connection is given up.
sub _failure
{
	my ($self, $error) = @_;
	return $error if ref $error;
	my $dbh = $self->{dbh};
	my $lost = !$dbh->ping;
	my %failure = (
		state => $lost ? '-' : $dbh->state,
		message => $error,
		lost => $lost);
	if ($lost)
	{
		delete $self->{dbh};
		$dbh->disconnect;
	}
	return \%failure;
}

1;
