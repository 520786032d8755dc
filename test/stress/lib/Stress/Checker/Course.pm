package Stress::Checker::Course;

# Follows each message through a group: every delivery must show the attempts,
# delays and lost leases that what happened before it implies, and come no
# earlier than it may; in the end each message is acked, discarded or skipped by
# a seek, or dead, as it should be.
#
# Where nobody can know what happened (a commit without an answer, a lease that
# may have been lost at any moment), a message has several possible states; what
# is delivered decides among them. See Stress::Checker::State.

use strict;
use warnings;
use List::Util qw(any min);
use Stress::Checker::Moved;
use Stress::Checker::Repaired;
use Stress::Checker::Resolved;
use Stress::Checker::State;
use Stress::History;
use Stress::Saying;

use constant TOLERANCE => 0.00001;    # what rounding to microseconds may add up to

# history; group; deliveries: id => claims; seeks: of Stress::Checker::Moved;
# report.
sub new
{
	my ($class, %self) = @_;
	my ($history, $group) = @self{qw(history group)};
	$self{policy} = $history->{groups}{$group};
	$self{unseen} = $history->{unseen_claims}{$group} // [];
	$self{repaired} = Stress::Checker::Repaired->new($history->{repairs}{$group}, $history->{upkeep});
	$self{left} = $history->{exceptions}{$group};
	return bless \%self, $class;
}

# Checks all messages but those that are troubled already (id => true).
sub check
{
	my ($self, $troubled) = @_;
	my ($history, $group, $report) = @$self{qw(history group report)};
	return $report->('no exceptions', "the exceptions of group $group were not read")
	  unless $self->{left};
	my %unknown = %{ $self->{left} };
	my $stored = $history->stored_tokens;
	foreach my $message (values %{ $history->{messages} })
	{
		next unless $history->is_stored($message);
		my $id = $message->{id} // $stored->{ $message->{token} };
		next unless defined $id;
		delete $unknown{$id};
		$self->_follow($id, $message) unless $troubled->{$id};
	}
	$report->('invented', "message $_ is an exception of group $group") for sort keys %unknown;
	$self->{repaired}->check_counts($group, $report) unless $self->{has_trouble} || %$troubled;
	return;
}

# Takes a message from one delivery or seek to the next, and to the end.
sub _follow
{
	my ($self, $id, $message) = @_;
	my $claims = $self->{deliveries}{$id} // [];
	my @seeks =
	  grep { Stress::Checker::Moved::concerns($_, $id, $message, $claims) } @{ $self->{seeks} };
	return if !@seeks && $self->_is_plain($id, $message, $claims);

	my @states = Stress::Checker::State::fresh($message->{due}, 0);
	foreach my $event (sort { $a->{clock} <=> $b->{clock} } @$claims, @seeks)
	{
		@states = exists $event->{after}
		  ? $self->_after_seek($id, $message, \@states, $event)
		  : $self->_after_delivery($id, \@states, $event);
		return unless @states;
	}
	$self->_check_end($id, $claims, \@states);
	return;
}

# Whether a message came once, and was acked.
sub _is_plain
{
	my ($self, $id, $message, $claims) = @_;
	return 0 if @$claims != 1 || defined $message->{due} || $self->{left}{$id};
	my ($claim) = @$claims;
	return 0 if $claim->{counts}{$id} || Stress::History::outcome($claim->{call}) ne 'committed';
	my @uses = Stress::Checker::Resolved::uses_of_message($claim, $id);
	return @uses == 1
	  && Stress::History::outcome($uses[0]) eq 'committed'
	  && Stress::Saying::of_message($uses[0], $id)->{outcome} eq 'ack';
}

# The states after a claim has returned the message; none when that is not how it
# can have been. A claim that was rolled back changes nothing.
sub _after_delivery
{
	my ($self, $id, $states, $claim) = @_;
	my $outcome = Stress::History::outcome($claim->{call});
	my $is_kept = $outcome eq 'rolled back';
	my @before = $self->_as_of($id, $states, $claim->{clock}, !$is_kept);
	my ($reason, @fitting) = $self->_fitting($id, \@before, $claim);
	($reason, @fitting) = $self->_fitting($id, [ $self->_with_unseen(\@before, $claim) ], $claim)
	  if $reason && @{ $self->{unseen} };
	if ($reason)
	{
		$self->_report($reason, $id, sprintf 'in claim %s of %.6f with takeovers %d, attempts %d, delays %d',
			@$claim{qw(id clock)}, _counts($claim, $id));
		return;
	}
	return @$states if $is_kept;
	my @held = map { Stress::Checker::State::held($_, $claim) } @fitting;
	return $outcome eq 'unknown' ? (@$states, @held) : @held;
}

sub _after_seek
{
	my ($self, $id, $message, $states, $seek) = @_;
	my $now = $seek->{clock};
	my @held = grep { $_->{place} eq 'held' && !_is_settled($_->{claim}, $id, $now) } @$states;
	my @dropped = $self->_dropped($id, $states, $seek);
	return @dropped if @dropped && $self->{history}{upkeep}->is_dropped($id, $seek->{call}{sent});
	return Stress::Checker::State::distinct(@dropped, map {
		my $is_dropped = $_->{place} eq 'held' && _is_dropped($seek, $_->{claim});
		Stress::Checker::Moved::moved($seek, $_, $id, $message, $is_dropped)
	} $self->_as_of($id, $states, $now, 1), @held);
}

# The states that a seek does not change as the message may be dropped by then. What
# a group still needs is not.
sub _dropped
{
	my ($self, $id, $states, $seek) = @_;
	my $by = $seek->{call}{transaction}{commit_received} // Stress::Checker::State::FOREVER;
	return unless $self->{history}{upkeep}->may_be_dropped($id, $by);
	return grep { $_->{place} =~ /^(gone|dead)$/ && $_->{from} <= $by } $self->_as_of($id, $states, $by, 0);
}

# Whether the seek certainly dropped the claim: nobody spoke of a message of it
# in the window.
sub _is_dropped
{
	my ($seek, $claim) = @_;
	return 0 unless Stress::Checker::Moved::may_drop($seek, $claim);
	return any {
		my $id = $_->[0];
		Stress::Checker::Moved::is_in_window($seek, $id)
		  && !grep { Stress::History::outcome($_) ne 'rolled back' }
			Stress::Checker::Resolved::uses_of_message($claim, $id)
	} Stress::History::rows($claim);
}

# Whether somebody had certainly spoken of a message of the claim by then.
sub _is_settled
{
	my ($claim, $id, $now) = @_;
	return any {
		Stress::History::outcome($_) eq 'committed' && $_->{transaction}{commit_received} <= $now
	} Stress::Checker::Resolved::uses_of_message($claim, $id);
}

# What the states may be at a later moment, with no claim of the message between.
sub _as_of
{
	my ($self, $id, $states, $now, $is_counted) = @_;
	my @states = map { $_->{place} eq 'held' ? $self->_left($id, $_, $now) : $_ } @$states;
	return Stress::Checker::State::distinct(
		$self->{repaired}->states($id, \@states, $now, $is_counted));
}

# What may have become of a message that was held, when its claim does not have it
# any more.
sub _left
{
	my ($self, $id, $state, $now) = @_;
	my $claim = $state->{claim};
	my @next;
	my $is_settled = 0;
	foreach my $use (Stress::Checker::Resolved::uses_of_message($claim, $id))
	{
		my $outcome = Stress::History::outcome($use);
		my ($from, $by) = @{ $use->{transaction} }{qw(commit_sent commit_received)};
		next if $outcome eq 'rolled back' || $from > $now;
		@next = () if $outcome eq 'committed' && Stress::Saying::names($use, $id);
		push @next, Stress::Checker::State::resolved($state, $self->{policy},
			Stress::Saying::of_message($use, $id), $use->{sent}, $from,
			$by // Stress::Checker::State::FOREVER);
		$is_settled ||= $outcome eq 'committed' && $use->{received} <= $now;
	}
	return $is_settled ? @next : (@next, $self->_lost($state));
}

# What a message becomes when its claim's lease is lost.
sub _lost
{
	my ($self, $state) = @_;
	my $claim = $state->{claim};
	return Stress::Checker::State::lost($state, $self->{policy}, $claim->{call}{result} == 1,
		Stress::Checker::Resolved::lease_end($claim));
}

# What the states may be when a claim whose answer nobody saw had the message and
# lost it.
sub _with_unseen
{
	my ($self, $states, $claim) = @_;
	my @sent = map { $_->{sent} } grep { $_->{sent} < $claim->{clock} } @{ $self->{unseen} };
	return @$states unless @sent;
	my $sent = min(@sent);
	my @lost = map {
		my $state = $_;
		map { Stress::Checker::State::lost($state, $self->{policy}, $_, $sent) } 0, 1
	} grep { $_->{place} eq 'ready' } @$states;
	return (@$states, @lost);
}

# The states in which a claim may return the message as it did, and before them
# the kind of violation when there is none.
sub _fitting
{
	my ($self, $id, $states, $claim) = @_;
	my ($takeovers, $attempts, $delays) = _counts($claim, $id);
	my $now = $claim->{clock} + TOLERANCE;
	my $is_alone = $claim->{call}{result} == 1;
	my @rules = (
		(any { $_->{place} eq 'dead' } @$states)
		? [ 'dead message delivered', sub { $_->{place} eq 'ready' } ]
		: [ 'delivered after its end', sub { $_->{place} eq 'ready' } ],
		[ 'wrong attempts', sub { $_->{attempts} == $attempts } ],
		[ 'wrong delays', sub { $_->{delays} == $delays } ],
		[ 'wrong takeovers', sub { $_->{takeovers} == $takeovers } ],
		[ 'suspect in company', sub { $is_alone || !$_->{suspect} } ],
		[ 'delivered too early', sub { $_->{from} <= $now && $_->{due} <= $now } ]);
	my @fitting = @$states;
	foreach my $rule (@rules)
	{
		my ($kind, $test) = @$rule;
		@fitting = grep { $test->() } @fitting;
		return $kind unless @fitting;
	}
	return ('', @fitting);
}

# Takeovers, attempts and delays of a message as a claim returned it.
sub _counts
{
	my ($claim, $id) = @_;
	my ($takeovers, $attempts, $delays) = @{ $claim->{counts}{$id} // [] };
	return ($takeovers // 0, $attempts // 0, $delays // 0);
}

# In the end a message is gone, or it is dead and shown as what it is.
sub _check_end
{
	my ($self, $id, $claims, $states) = @_;
	my @states = $self->_as_of($id, $states, Stress::Checker::State::FOREVER, 1);
	@states = $self->_with_unseen(\@states, { clock => Stress::Checker::State::FOREVER });
	my $left = $self->{left}{$id};
	my @dead = grep { $_->{place} eq 'dead' } @states;
	if (!$left)
	{
		return if any { $_->{place} eq 'gone' } @states;
		return if @dead && $id <= $self->{history}{upkeep}->dropped_in_the_end;
		my $kind = @dead ? 'dead message vanished' : @$claims ? 'lost' : 'skipped';
		return $self->_report($kind, $id, 'in the end');
	}
	my $where = "in the end as $left->{status}, attempts $left->{attempts}, "
	  . "delays $left->{delays}, takeovers $left->{takeovers}, error $left->{error}";
	return $self->_report('not finished', $id, $where) if $left->{status} ne 'dead';
	return $self->_report('dead without a cause', $id, $where) unless @dead;
	foreach my $count (qw(attempts delays takeovers))
	{
		@dead = grep { $_->{$count} == $left->{$count} } @dead;
		return $self->_report("wrong $count", $id, $where) unless @dead;
	}
	$self->_report('wrong error', $id, $where)
	  unless any { !defined $_->{error} || index($left->{error}, $_->{error}) >= 0 } @dead;
	return;
}

# Reports a violation with all that is known of the message.
sub _report
{
	my ($self, $kind, $id, $where) = @_;
	$self->{has_trouble} = 1;
	my @story = map { $self->_told($_, $id) }
	  sort { $a->{clock} <=> $b->{clock} } @{ $self->{deliveries}{$id} // [] };
	my @seeks = map { sprintf 'seek at %.6f from %d to %d', @$_{qw(clock before after)} }
	  grep { Stress::Checker::Moved::is_in_window($_, $id) } @{ $self->{seeks} };
	$self->{report}->($kind, join '; ', "message $id of group $self->{group} $where", @story, @seeks);
	return;
}

# A delivery and what was said of it.
sub _told
{
	my ($self, $claim, $id) = @_;
	my @said = map {
		my $saying = Stress::Saying::of_message($_, $id);
		sprintf '%s at %.6f (%s)', $saying->{outcome}, $_->{sent}, Stress::History::outcome($_)
	} Stress::Checker::Resolved::uses_of_message($claim, $id);
	return join ', ', sprintf('claim %s of %d at %.6f (%s) with %d %d %d', $claim->{id},
		$claim->{call}{result}, $claim->{clock}, Stress::History::outcome($claim->{call}),
		_counts($claim, $id)), @said;
}

1;
