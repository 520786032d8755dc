package Stress::Run;

# The settings that the processes of a run share, and what they tell each other
# while it lasts: by files in its directory, as they share no memory.

use strict;
use warnings;
use POSIX ();
use Stress::Client;
use Time::HiRes ();

use constant {
	SPRINT_EVERY => 5,     # seconds from one sprint to the next
	SPRINT_LENGTH => 2,    # seconds
};

# name: of the run and its stream; directory: of the records; producers,
# rate: what was asked for; start_at, stop_at: when producing begins and ends;
# prepare: whether transactions can be prepared; stream, stream_id: what they
# are about.
sub new
{
	my ($class, %self) = @_;
	return bless \%self, $class;
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

# No message is committed any more: consumers that find nothing are done.
sub end_producing { my ($self) = @_; return $self->_raise('producing-is-over') }
sub producing_is_over { my ($self) = @_; return -e "$self->{directory}/producing-is-over" }

# Nobody prepares a transaction any more.
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

sub _raise
{
	my ($self, $flag) = @_;
	open my $file, '>', "$self->{directory}/$flag"
	  or die "could not write $self->{directory}/$flag: $!\n";
	close $file;
	return;
}

1;
