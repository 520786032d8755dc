package Stress::Keyed;

# The part of a run that is about message keys. It goes on at the same time as the
# rest, on a stream of its own, with records and a checker of its own.

use strict;
use warnings;
use Stress::Client;
use Stress::Disturber;
use Stress::Group;
use Stress::Keyed::Consumer;
use Stress::Keyed::Message;
use Stress::Keyed::Producer;
use Stress::Policy;
use Stress::Records;
use Stress::Run;

use constant MAX_PER_KEY => 3;

# Makes the stream and its groups for a part of a Stress::Run. Returns a Stress::Run.
sub prepare
{
	my ($whole, $dbh, %options) = @_;
	my %groups = Stress::Keyed::Message::groups();
	my $name = "$whole->{name}.keyed";
	my $directory = "$whole->{directory}/keyed";
	mkdir $directory or die "could not make $directory: $!\n";
	my $run = Stress::Run->new(
		name => $name, stream => $name, directory => $directory, groups => [ sort keys %groups ],
		producers => $options{'keyed-producers'}, rate => $options{'keyed-rate'}, prepare => 0);
	($run->{stream_id}) = $dbh->selectrow_array(
		q{SELECT sqlstreams.create_stream(?, partition_size => ?, delivery_log => 'all',
			partition_interval => '1 second', retention => '1 hour')},
		undef, $name, $options{'partition-size'});
	my $records = Stress::Records->new($directory, 'groups');
	foreach my $group (@{ $run->{groups} })
	{
		my $policy = Stress::Policy->of_keyed_group;
		$dbh->do('SELECT sqlstreams.create_group(?, ?, ' . $policy->arguments . $groups{$group} . ')',
			undef, $name, $group);
		$records->write(reply => 'group', '-', $group, $policy->fields);
	}
	return $run;
}

# The work of a producer process.
sub produce
{
	my ($run, $records, $label) = @_;
	my $client = Stress::Client->new(run => $run, records => $records, label => $label);
	Stress::Keyed::Producer->new(run => $run, client => $client)->work;
	return;
}

# The work of the consumer process with this number, of the group whose turn it is.
sub consume
{
	my ($run, $records, $label, $number) = @_;
	my $groups = $run->{groups};
	my $client = Stress::Client->new(run => $run, records => $records, label => $label);
	my $group = Stress::Group->new(
		client => $client, stream => $run->{stream}, name => $groups->[ $number % @$groups ],
		max_per_key => 1 + int($number / @$groups) % MAX_PER_KEY);
	Stress::Keyed::Consumer->new(run => $run, client => $client, group => $group,
		reconnects => $number % 3 == 0)->work;
	return;
}

# Writes down how the delivery log says that deliveries ended, and which messages
# were superseded.
sub read_delivery_log
{
	my ($run, $dbh) = @_;
	my $records = Stress::Records->new($run->{directory}, 'delivery_log');
	my $rows = $dbh->selectall_arrayref(<<"SQL", undef, $run->{stream});
SELECT g.consumer_group, string_agg(d.message_id::text, E'\\t' ORDER BY d.message_id)
FROM sqlstreams.delivery_log_$run->{stream_id} AS d JOIN sqlstreams.consumer_groups AS g USING (group_id)
WHERE g.stream = ? AND d.outcome = 'superseded' GROUP BY 1
SQL
	$records->write(reply => 'superseded', '-', $_->[0], split /\t/, $_->[1]) foreach @$rows;
	$rows = $dbh->selectall_arrayref(<<"SQL", undef, $run->{stream});
SELECT g.consumer_group, d.claim_id, d.message_id, d.outcome
FROM sqlstreams.delivery_log_$run->{stream_id} AS d JOIN sqlstreams.consumer_groups AS g USING (group_id)
WHERE g.stream = ? AND d.claim_id IS NOT NULL AND d.outcome IN ('ack', 'nack', 'reject', 'delay', 'release')
SQL
	foreach my $group (@{ $run->{groups} })
	{
		my @ended = map { join '=', @$_[ 1 .. 3 ] } grep { $_->[0] eq $group } @$rows;
		$records->write(reply => 'ended', '-', $group, @ended);
	}
	return;
}

1;
