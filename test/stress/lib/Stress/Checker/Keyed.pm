package Stress::Checker::Keyed;

# What must be true of messages with keys: never two live deliveries of an
# exclusive or ordered key in a group; nothing of an ordered key passes one that is
# not resolved; no delivery of a version that was superseded when it was claimed;
# and in the end everything is acked, dead or superseded, a compacted key's last
# delivery being its head. The messages are those of Stress::Keyed::Message.
#
# Claims of a group come one after another. Each is taken at the moment of its
# clock, which was read when it had made up its mind and others still waited.

use strict;
use warnings;
use List::Util qw(any first);
use Stress::Checker::Delivered;
use Stress::Checker::Endings;
use Stress::Checker::Resolved;
use Stress::History;
use Stress::Keyed::Message;

use constant TOLERANCE => 0.00001;    # what rounding to microseconds may add up to

sub check
{
	my ($history, $report) = @_;
	my $deliveries = Stress::Checker::Delivered::check_claims($history, $report);
	my $stored = _stored($history);
	foreach my $group (sort keys %{ $history->{groups} })
	{
		my $self = bless {
			history => $history, group => $group, report => $report,
			policy => $history->{groups}{$group}, stored => $stored,
			deliveries => $deliveries->{$group}, versions => _versions($stored),
		}, __PACKAGE__;
		$self->_check_group;
	}
	return;
}

# id => what is stored under it.
sub _stored
{
	my ($history) = @_;
	my %stored;
	foreach my $message (grep { $history->is_stored($_) } values %{ $history->{messages} })
	{
		my $id = $message->{id} // $history->tokens_in_log->{ $message->{token} } // next;
		$stored{$id} = {
			%{ Stress::Keyed::Message::parse($id, $message->{token}) },
			call => $message->{call}, due => $message->{due} };
	}
	return \%stored;
}

# key => its compacted messages, the head first.
sub _versions
{
	my ($stored) = @_;
	my %versions;
	push @{ $versions{ $_->{key} } }, $_ foreach grep { defined $_->{version} } values %$stored;
	foreach my $of_key (values %versions)
	{
		@$of_key = sort { Stress::Keyed::Message::supersedes($a, $b) ? -1 : 1 } @$of_key;
	}
	return \%versions;
}

sub _check_group
{
	my ($self) = @_;
	my ($history, $group, $stored) = @$self{qw(history group stored)};
	my @claims = sort { $a->{clock} <=> $b->{clock} || $a->{index} <=> $b->{index} }
	  grep { $_->{group} eq $group } @{ $history->{claims} };
	my %key_of = map { $_ => $stored->{$_}{key} }
	  grep { $self->_policy_of($stored->{$_}) ne 'parallel' } keys %$stored;
	$self->{key_of} = \%key_of;
	foreach my $claim (@claims)
	{
		$claim->{ids} = [ map { $_->[0] } Stress::History::rows($claim) ];
		Stress::Checker::Endings::find($claim, \%key_of, $self->{deliveries},
			$history->{claim_calls}{$group}, $self->{report});
		$self->_check_claim($claim);
		$self->_check_versions($claim);
	}
	$self->_check_holders(\@claims);
	$self->_check_order(\@claims);
	$self->_check_end;
	$self->_check_heads;
	return;
}

sub _policy_of
{
	my ($self, $message) = @_;
	return Stress::Keyed::Message::policy($self->{group}, $message->{key});
}

sub _report
{
	my ($self, $kind, $detail, @claims) = @_;
	my @shown = map {
		sprintf 'claim %s at %.6f (%s, %s, %d messages, lease to %s)', $_->{id}, $_->{clock},
		  $_->{call}{transaction}{name}, Stress::History::outcome($_->{call}), scalar @{ $_->{ids} },
		  $_->{expires}
	} @claims;
	$self->{report}->($kind, join ', ', "group $self->{group}: $detail", @shown);
	return;
}

# A claim carries no more of a key than it may, by id; nothing comes before its time
# or after its ack. A pop carries any number: they are acked.
sub _check_claim
{
	my ($self, $claim) = @_;
	my $max = $claim->{call}{verb} eq 'pop' ? 9e18 : $claim->{call}{fields}[4] // 1;
	my %last;
	my %count;
	foreach my $id (@{ $claim->{ids} })
	{
		my $message = $self->{stored}{$id} or next;
		$self->_report('delivered too early', "message $id", $claim)
		  if defined $message->{due} && $message->{due} > $claim->{clock} + TOLERANCE;
		my $acked = first {
			my $ending = $_->{endings}{$id};
			$ending && $ending->{outcome} eq 'ack'
			  && $ending->{use}{transaction}{commit_received} < $claim->{call}{sent}
		} grep { $_->{clock} < $claim->{clock} } @{ $self->{deliveries}{$id} };
		$self->_report('delivered after its ack', "message $id", $acked, $claim) if $acked;

		my $key = $self->{key_of}{$id} // next;
		$self->_report('key out of order', "message $id of key $key after $last{$key}", $claim)
		  if $id < ($last{$key} // 0);
		$self->_report('too many of a key', "key $key", $claim) if ++$count{$key} == $max + 1;
		$last{$key} = $id;
	}
	return;
}

# No claim returns a version that was superseded when it began.
sub _check_versions
{
	my ($self, $claim) = @_;
	foreach my $message (grep { $_ && defined $_->{version} } @{ $self->{stored} }{ @{ $claim->{ids} } })
	{
		foreach my $newer (@{ $self->{versions}{ $message->{key} } })
		{
			last if $newer == $message;
			next if ($newer->{call}{transaction}{commit_received} // 0) == 0
			  || $newer->{call}{transaction}{commit_received} >= $claim->{call}{sent};
			$self->_report('superseded message delivered',
				"message $message->{id} of key $message->{key} after $newer->{id}", $claim);
			last;
		}
	}
	return;
}

# An exclusive or ordered key is with one claim at a time, and so is any message.
sub _check_holders
{
	my ($self, $claims) = @_;
	my %held;    # what is held => [ { claim, id } ]
	foreach my $claim (@$claims)
	{
		my %units = map { $_ => $self->{key_of}{$_} // "message $_" } @{ $claim->{ids} };
		my %seen;
		foreach my $unit (grep { !$seen{$_}++ } @units{ @{ $claim->{ids} } })
		{
			my @held = grep { $self->_is_live($_, $claim) } @{ $held{$unit} // [] };
			$held{$unit} = \@held;
			next unless @held;
			$self->_report($unit =~ /^message/ ? 'two holders at once' : 'key with two holders',
				"$unit, message $held[0]{id}", $held[0]{claim}, $claim);
		}
		next if Stress::History::outcome($claim->{call}) ne 'committed';
		push @{ $held{ $units{$_} } }, { claim => $claim, id => $_ } foreach @{ $claim->{ids} };
	}
	return;
}

# Whether a delivery has certainly not ended when another claim is made.
sub _is_live
{
	my ($self, $held, $claim) = @_;
	my $ending = $held->{claim}{endings}{ $held->{id} };
	return 0 if $ending
	  && Stress::Checker::Endings::time_of($ending->{use}, $claim->{call}{transaction}) <= $claim->{clock};
	return 1 if $ending;
	return Stress::Checker::Resolved::lease_end($held->{claim}) > $claim->{clock} + TOLERANCE;
}

# When a message of an ordered key is delivered, those before it are resolved, or
# come with it. A redriven one was resolved before, and comes after what has passed
# it.
sub _check_order
{
	my ($self, $claims) = @_;
	my %open;    # key => ids that are not resolved, by id
	foreach my $id (sort { $a <=> $b } keys %{ $self->{stored} })
	{
		my $message = $self->{stored}{$id};
		push @{ $open{ $message->{key} } }, $id if $self->_policy_of($message) eq 'ordered';
	}
	foreach my $claim (@$claims)
	{
		my %own = map { $_ => 1 } @{ $claim->{ids} };
		foreach my $id (grep { $self->{stored}{$_} } @{ $claim->{ids} })
		{
			my $open = $open{ $self->{stored}{$id}{key} // '' } or next;
			my @before = grep { $_ < $id && !$self->_is_resolved($_, $claim) } @$open;
			@$open = (@before, grep { $_ >= $id } @$open);
			my $passed = first { !$own{$_} } @before;
			$self->_report('predecessor passed', "message $id of key $self->{stored}{$id}{key} before $passed",
				$claim, @{ $self->{deliveries}{$passed} // [] })
			  if defined $passed;
		}
	}
	return;
}

# Whether a message may have been acked, dead or superseded when a claim was made.
sub _is_resolved
{
	my ($self, $id, $claim) = @_;
	my ($now, $transaction) = ($claim->{clock}, $claim->{call}{transaction});
	return 1 if any {
		$_ != $claim && $_->{clock} <= $now && $self->_has_resolved($_, $id, $now, $transaction)
	} @{ $self->{deliveries}{$id} // [] };
	my $message = $self->{stored}{$id};
	return 0 unless defined $message->{version};
	my $newer = first { $_ == $message || $_->{call}{sent} < $now } @{ $self->{versions}{ $message->{key} } };
	return $newer != $message;
}

# Whether a claim's delivery of a message may have resolved it by then: it was acked
# or failed for the last time.
sub _has_resolved
{
	my ($self, $claim, $id, $now, $transaction) = @_;
	return 0 unless Stress::History::outcome($claim->{call}) eq 'committed';
	my $is_last = $self->{policy}->is_spent(1 + ($claim->{counts}{$id}[1] // 0), 0);
	my $ending = $claim->{endings}{$id};
	return $is_last && @{ $claim->{ids} } == 1 && Stress::Checker::Resolved::lease_end($claim) <= $now
	  unless $ending;
	return 0 if Stress::Checker::Endings::time_of($ending->{use}, $transaction) > $now;
	return $ending->{outcome} =~ /^(ack|reject)$/ || $ending->{outcome} eq 'nack' && $is_last;
}

# In the end each message is acked, dead or superseded, and only one of them.
sub _check_end
{
	my ($self) = @_;
	my ($history, $group) = @$self{qw(history group)};
	my $left = $history->{exceptions}{$group}
	  or return $self->_report('no exceptions', 'the exceptions were not read');
	foreach my $id (sort { $a <=> $b } keys %{ $self->{stored} })
	{
		my $message = $self->{stored}{$id};
		my @claims = @{ $self->{deliveries}{$id} // [] };
		my $what = "message $id" . (defined $message->{key} ? " of key $message->{key}" : '');
		my $status = $left->{$id} ? $left->{$id}{status} : '';
		my $superseded = $history->{superseded}{$group}{$id} // 0;
		my @ends = (
			$superseded ? 'superseded' : (),
			$status eq 'dead' ? 'dead' : (),
			map { 'acked' } grep { $_->{endings}{$id} && $_->{endings}{$id}{outcome} eq 'ack' } @claims);
		if ($status ne '' && $status ne 'dead') { $self->_report('not finished', "$what is $status", @claims) }
		elsif (!@ends) { $self->_report(@claims ? 'lost' : 'skipped', $what, @claims) }
		$self->_report('several ends', "$what is @ends", @claims) if @ends > 1 || $superseded > 1;
		$self->_report('superseded without a newer version', $what, @claims)
		  if $superseded && (!defined $message->{version} || $self->{versions}{ $message->{key} }[0] == $message);
	}
	foreach my $id (grep { !$self->{stored}{$_} } keys %$left, keys %{ $history->{superseded}{$group} // {} })
	{
		$self->_report('invented', "message $id");
	}
	return;
}

# The last of its versions that a group was given of a key is the head.
sub _check_heads
{
	my ($self) = @_;
	foreach my $key (sort keys %{ $self->{versions} })
	{
		my @versions = @{ $self->{versions}{$key} };
		my ($clock, $last) = (0, undef);
		foreach my $version (@versions)
		{
			foreach my $claim (grep { Stress::History::outcome($_->{call}) eq 'committed' }
				@{ $self->{deliveries}{ $version->{id} } // [] })
			{
				($clock, $last) = ($claim->{clock}, $version) if $claim->{clock} > $clock;
			}
		}
		$self->_report('head not delivered last', "key $key: $versions[0]{id} is the head, the last was "
			  . ($last ? $last->{id} : 'none'))
		  unless $last && $last == $versions[0];
	}
	return;
}

1;
