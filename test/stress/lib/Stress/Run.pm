package Stress::Run;

# The settings that the processes of a run share, and what they tell each other
# while it lasts: by files in its directory, as they share no memory.

use strict;
use warnings;
use POSIX ();
use Stress::Client;
use Time::HiRes ();

use constant {
	START_POLL => 0.02,    # seconds
	SPRINT_EVERY => 5,     # seconds from one sprint to the next
	SPRINT_LENGTH => 2,    # seconds
	LONG_LEASES_EVERY => 20,
	LONG_LEASES_LENGTH => 2,
	LAG_EVERY => 12,       # seconds from one time without consumers of a group to the next
	LAG_LENGTH => 4,       # seconds, longer than messages are kept
};

# name: of the run and its stream; directory: of the records; producers,
# rate: what was asked for; start_at, stop_at: when producing begins and ends, once
# it has begun;
# prepare: whether transactions can be prepared; stream, stream_id: what they
# are about.
sub new
{
	my ($class, %self) = @_;
	return bless \%self, $class;
}

# Lets the processes begin, for so many seconds. To start them all takes a while on a
# busy machine.
sub start
{
	my ($self, $duration) = @_;
	$self->{start_at} = Time::HiRes::time();
	$self->{stop_at} = $self->{start_at} + $duration;
	my $path = "$self->{directory}/start";
	open my $file, '>', "$path.new" or die "could not write $path.new: $!\n";
	print {$file} "$self->{start_at} $self->{stop_at}";
	close $file or die "could not write $path.new: $!\n";
	rename "$path.new", $path or die "could not make $path: $!\n";
	return;
}

# Waits in a process until it is to begin.
sub wait_for_start
{
	my ($self) = @_;
	my $path = "$self->{directory}/start";
	Time::HiRes::sleep(START_POLL) until -e $path;
	open my $file, '<', $path or die "could not read $path: $!\n";
	@$self{qw(start_at stop_at)} = split / /, readline $file;
	return;
}

# Whether it is time for small transactions in quick succession, without pauses.
# Only then do claims meet a producer at the very moment of its commit, again
# and again; slow transactions meanwhile would keep all claims waiting.
sub is_sprint
{
	my ($self) = @_;
	my $elapsed = Time::HiRes::time() - $self->{start_at};
	return POSIX::fmod($elapsed, SPRINT_EVERY) > SPRINT_EVERY - SPRINT_LENGTH;
}

# Whether it is time for a group that lags to do nothing.
sub is_lag
{
	my ($self) = @_;
	my $elapsed = Time::HiRes::time() - $self->{start_at};
	return POSIX::fmod($elapsed, LAG_EVERY) > LAG_EVERY - LAG_LENGTH;
}

# Whether it is time for leases that may last for longer than all else.
sub is_time_for_long_leases
{
	my ($self) = @_;
	my $elapsed = Time::HiRes::time() - $self->{start_at};
	return POSIX::fmod($elapsed, LONG_LEASES_EVERY) > LONG_LEASES_EVERY - LONG_LEASES_LENGTH;
}

# No message is committed any more: consumers that find nothing are done.
sub end_producing { my ($self) = @_; return $self->_raise('producing-is-over') }
sub producing_is_over { my ($self) = @_; return -e "$self->{directory}/producing-is-over" }

# Nobody prepares a transaction any more: all clients are done.
sub end_preparing { my ($self) = @_; return $self->_raise('preparing-is-over') }
sub preparing_is_over { my ($self) = @_; return -e "$self->{directory}/preparing-is-over" }

# The global identifiers of what the processes whose name begins with $prefix
# have prepared.
sub prepared
{
	my ($self, $dbh, $prefix) = @_;
	my $begin = Stress::Client::application_name($self, $prefix // '');
	return $dbh->selectcol_arrayref(<<'SQL', undef, $begin);
SELECT gid FROM pg_prepared_xacts
WHERE database = current_database() AND starts_with(gid, ?) ORDER BY prepared
SQL
}

# The worker is switched off: who can do its work does so.
sub worker_is_off { my ($self) = @_; return -e "$self->{directory}/worker-is-off" }

sub set_worker_is_off
{
	my ($self, $is_off) = @_;
	return $self->_raise('worker-is-off') if $is_off;
	unlink "$self->{directory}/worker-is-off";
	return;
}

sub _raise
{
	my ($self, $flag) = @_;
	open my $file, '>', "$self->{directory}/$flag"
	  or die "could not write $self->{directory}/$flag: $!\n";
	close $file;
	return;
}

1;
