package Stress::Checker;

# Holds the history of a run against what must always be true.
#
# Every comparison of times errs on the side of the server: a call may take
# effect at any moment between its sending and its answer, a commit likewise.
# What is reported cannot be explained by any order of events.

use strict;
use warnings;
use Stress::Checker::Delivered;
use Stress::Checker::Idempotency;
use Stress::Checker::Keyed;
use Stress::Checker::Produced;
use Stress::History;

# SQLSTATEs that a correct server may answer with.
my %ALLOWED_ERRORS = (
	produce => {
		'22012' => 'a FETCH that is meant to fail',
		'40P01' => 'two transactions took two idempotency keys in opposite order',
		'SS006' => 'a lock for a new partition was not had in time',
	},
	map { $_ => { 'SS004' => 'the lease was lost' } }
	  qw(ack nack reject delay resolve extend claim));

# Checks a Stress::History. Returns the violations, each [ kind, detail ].
sub check
{
	my ($history) = @_;
	return _check_with($history, \&Stress::Checker::Delivered::check);
}

# The same for the keyed stream, which has rules of its own.
sub check_keyed
{
	my ($history) = @_;
	return _check_with($history, \&Stress::Checker::Keyed::check);
}

sub _check_with
{
	my ($history, $check) = @_;
	my @violations;
	my $report = sub { my ($kind, $detail) = @_; push @violations, [ $kind, $detail ]; return };
	_check_errors($history, $report);
	Stress::Checker::Produced::check($history, $report);
	Stress::Checker::Idempotency::check($history, $report);
	$check->($history, $report);
	return @violations;
}

# No call is refused for a reason that it does not give.
sub _check_errors
{
	my ($history, $report) = @_;
	foreach my $call (@{ $history->{errors} })
	{
		next if $ALLOWED_ERRORS{ $call->{verb} }{ $call->{error} } || _leads_to_dropped($history, $call);
		$report->('unexpected error',
			"$call->{verb} @{ $call->{fields} } in transaction $call->{transaction}{name}: "
			  . "$call->{error} $call->{message}");
	}
	return;
}

# Whether the call is a seek to a message that may be dropped.
sub _leads_to_dropped
{
	my ($history, $call) = @_;
	return $call->{verb} eq 'seek' && $call->{error} eq '22023' && $call->{fields}[1] ne 'head'
	  && $history->{upkeep}->may_be_dropped($call->{fields}[1], $call->{received});
}

1;
