package Stress::Keeper;

# A process that has streams of its own, one after another, of which it knows at any
# moment what must be in them, while maintenance drops what it may: partitions of
# very few ids, groups that come and go, purges, transactions and leases that stay
# open past every retention. See Stress::Keeper::Model for what must hold.
#
# When the connection breaks it begins anew: what was committed then is not its
# business.

use strict;
use warnings;
use List::Util qw(any max);
use Stress::Client;
use Stress::Keeper::Model;
use Stress::Random qw(pick between chance);
use Time::HiRes ();

use constant {
	MIN_LIFE => 8,         # seconds that a stream is used, at least ...
	MAX_LIFE => 16,        # ... and at most
	PAUSE => 0.06,         # seconds between two deeds, at most
	DRAIN_LIMIT => 40,     # seconds that a group may take for the rest; no lease is as long
	HELD => 6,             # claims that are held at once, at most
	OUTLAST => 1.5,        # seconds by which a transaction outlasts retention
	KEY_TTL => 2,
	KEY_EXTRA => 60 + 30,  # seconds for which a key may be refused for longer, with some to spare
};

# What it does, each as often as its weight says.
my %DEEDS = (
	produce => 30, open => 5, close => 6, claim => 22, resolve => 22, purge => 1, add_group => 3,
	drop_group => 2, move => 2, outlast => 1.5, alter => 1, check_head => 4, use_key => 6);

# Works until the time is up, and then until nothing is left of its last stream.
sub work
{
	my ($run, $records, $label) = @_;
	my $client = Stress::Client->new(run => $run, records => $records, label => $label);
	my $other = Stress::Client->new(run => $run, records => $records, label => "$label.other");
	my $number = 0;
	while (Time::HiRes::time() < $run->{stop_at})
	{
		my $self = bless {
			run => $run, records => $records, client => $client, other => $other,
			stream => "$run->{name}.$label." . ++$number, held => [], keys => {}, groups_made => 0, counts => {},
		}, __PACKAGE__;
		my $is_done = $client->attempt(sub { $self->_live });
		$self->_report;
		next if $is_done;
		$other->disconnect;
		Time::HiRes::sleep(0.1)
		  until $client->attempt(sub { $client->dbh->do('SELECT sqlstreams.drop_stream(?, true)', undef, $self->{stream}) });
	}
	return;
}

# The life of a stream.
sub _live
{
	my ($self) = @_;
	$self->_create;
	my $end = Time::HiRes::time() + between(MIN_LIFE, MAX_LIFE);
	$end = $self->{run}{stop_at} if $end > $self->{run}{stop_at};
	while (Time::HiRes::time() < $end)
	{
		my $method = '_' . pick(%DEEDS);
		$self->$method;
		$self->_look;
		Time::HiRes::sleep(rand PAUSE);
	}
	$self->_close(1);
	$self->_release_all;
	$self->_drain($_) foreach sort keys %{ $self->{model}{groups} };
	return;
}

sub _create
{
	my ($self) = @_;
	my %settings = (
		partition_size => pick(2 => 1, 7 => 2, 50 => 2, 1000 => 1),
		retention => pick(1 => 2, 2 => 2, 3 => 1),
		partition_interval => pick('' => 1, 0.5 => 1, 2 => 1),
		allow_drop_past_committed => chance(0.2) ? 1 : 0,
		empty_compaction_head_ttl => pick(1 => 1, 3 => 2));
	my ($id) = $self->{client}->dbh->selectrow_array(<<'SQL', undef, $self->{stream}, @settings{
SELECT sqlstreams.create_stream(?, partition_size => ?, retention => ? * interval '1 second',
	partition_interval => nullif(?, '')::float8 * interval '1 second', allow_drop_past_committed => ?::int::boolean,
	empty_compaction_head_ttl => ? * interval '1 second', idempotency_key_ttl => ? * interval '1 second')
SQL
		qw(partition_size retention partition_interval allow_drop_past_committed empty_compaction_head_ttl)}, KEY_TTL);
	@$self{qw(stream_id partition_size retention)} = ($id, @settings{qw(partition_size retention)});
	$self->{records}->write(reply => 'keeper', '-', $self->{stream}, $id);
	$self->{model} = Stress::Keeper::Model->new(
		name => join(' ', $self->{stream}, map { "$_ $settings{$_}" } sort keys %settings),
		allows_loss => $settings{allow_drop_past_committed}, head_ttl => $settings{empty_compaction_head_ttl});
	$self->_add_group for 1 .. 2;
	return;
}

# Writes down what went wrong, and what was tried.
sub _report
{
	my ($self) = @_;
	my ($records, $model) = @$self{qw(records model)};
	return unless $model;
	$records->write(reply => 'found', '-', @$_) foreach @{ $model->{found} };
	$self->{counts}{'older versions after their head was dropped'} = $model->{older_after_drop};
	$self->{counts}{'ids dropped of the keepers\' streams'} = $model->{dropped};
	foreach my $name (sort keys %{ $self->{counts} })
	{
		$records->write(reply => 'upkeep', '-', $name, $self->{counts}{$name});
	}
	return;
}

# Runs a query of the session; returns the rows. What the server refuses with one of
# these SQLSTATEs returns nothing, and is in $self->{refused}.
sub _query
{
	my ($self, $client, $sql, $parameters, @states) = @_;
	my $dbh = $client->dbh;
	$self->{refused} = undef;
	my $rows = eval { $dbh->selectall_arrayref($sql, undef, @$parameters) };
	return $rows if $rows;
	my $error = $@;
	die $error unless any { $_ eq $dbh->state } @states;
	$self->{refused} = $dbh->state;
	return;
}

# Looks at how far messages are dropped.
sub _look
{
	my ($self) = @_;
	my $time = Time::HiRes::time();
	my $rows = $self->_query($self->{client}, 'SELECT purged_through FROM sqlstreams.stream WHERE stream_id = ?',
		[ $self->{stream_id} ]);
	$self->{model}->look($time, $rows->[0][0], delete $self->{has_purged});
	return;
}

# Produces a few messages of one kind with this session. Returns what was stored.
sub _produce_with
{
	my ($self, $client) = @_;
	my $count = between(1, 6);
	my $prefix = $client == $self->{client} ? 'a' : 'b';
	my $kind = pick(plain => 4, compacted => 4, exclusive => 3, late => 2);
	my $epoch = int(Time::HiRes::time() / 20);
	my @keys = map { "$prefix$kind$epoch." . between(1, 4) } 1 .. $count;
	my @ranks = map { between(1, 20) } 1 .. $count;
	my $is_compacted = $kind eq 'compacted';
	my $rows = $self->_query($client, <<'SQL',
SELECT sqlstreams.produce_batch(?, array_fill('{}'::jsonb, ARRAY[?::int]), ?::text[], compaction => ?::int::boolean,
	compaction_ranks => ?::bigint[], concurrency => ?, deliver_at => clock_timestamp() + ? * interval '1 second')
SQL
		[ $self->{stream}, $count, $kind =~ /^(plain|late)$/ ? undef : \@keys, $is_compacted ? 1 : 0,
			$is_compacted ? \@ranks : undef, $kind eq 'exclusive' ? 'exclusive' : undef,
			$kind eq 'late' ? rand 4 : undef ], 'SS006') or return;
	return map {
		{ id => $rows->[$_][0], $is_compacted ? (key => $keys[$_], version => 1, rank => $ranks[$_]) : () }
	} 0 .. $#$rows;
}

sub _produce
{
	my ($self) = @_;
	my @messages = $self->_produce_with($self->{client});
	$self->{model}->commit(Time::HiRes::time(), @messages);
	return;
}

# Opens a transaction that produces, or has a partition locked, for a while.
sub _open
{
	my ($self) = @_;
	return if $self->{open};
	my $dbh = $self->{other}->dbh;
	$dbh->do('BEGIN');
	my %open = (due => Time::HiRes::time() + rand(chance(0.3) ? 6 : 1), messages => []);
	if (chance(0.7)) { $open{messages} = [ $self->_produce_with($self->{other}) ] }
	else
	{
		my $rows = $self->_query($self->{client}, <<'SQL', [ $self->{stream} ]);
SELECT partition FROM sqlstreams.partitions WHERE stream = ? ORDER BY random() LIMIT 1
SQL
		$self->_query($self->{other}, "SELECT FROM sqlstreams.$_->[0]", [], '42P01') foreach @$rows;
	}
	$open{is_failed} = defined $self->{refused};
	$self->{open} = \%open;
	return;
}

# Ends the open transaction when it is time, or at once.
sub _close
{
	my ($self, $at_once) = @_;
	my $open = $self->{open} or return;
	Time::HiRes::sleep(max(0, $open->{due} - Time::HiRes::time())) if $at_once;
	return if Time::HiRes::time() < $open->{due};
	delete $self->{open};
	my $is_committed = !$open->{is_failed} && chance(0.8);
	$self->{other}->dbh->do($is_committed ? 'COMMIT' : 'ROLLBACK');
	$self->{model}->commit(Time::HiRes::time(), @{ $open->{messages} }) if $is_committed;
	return;
}

# Opens a transaction that produces past the end of a partition and outlasts the
# retention of all that comes with it; meanwhile the groups take all there is.
sub _outlast
{
	my ($self) = @_;
	my $size = $self->{partition_size};
	return if $self->{open} || $size > 100;
	$self->_release_all;
	$self->{other}->dbh->do('BEGIN');
	my @messages;
	do
	{
		my @more = $self->_produce_with($self->{other});
		push @messages, @more;
		$self->{open} = { due => Time::HiRes::time() + $self->{retention} + OUTLAST, messages => \@messages,
			is_failed => defined $self->{refused} };
	} until ($self->{open}{is_failed} || int(($messages[0]{id} - 1) / $size) < int($messages[-1]{id} / $size));
	while (Time::HiRes::time() < $self->{open}{due})
	{
		$self->_produce;
		$self->_ack_all if grep { $self->_claim_of($_, 100, 5) } sort keys %{ $self->{model}{groups} };
		$self->_look;
		Time::HiRes::sleep(0.1);
	}
	$self->_close(1);
	$self->{counts}{'producers that outlast retention'}++;
	return;
}

sub _some_group
{
	my ($self) = @_;
	my @groups = sort keys %{ $self->{model}{groups} };
	return $groups[ rand @groups ];
}

sub _claim
{
	my ($self) = @_;
	return if @{ $self->{held} } >= HELD;
	$self->_claim_of($self->_some_group, between(1, 30), pick(1 => 3, 3 => 3, 8 => 1));
	return;
}

# Claims, and keeps the claim until it is time to speak of it. Returns the ids.
sub _claim_of
{
	my ($self, $group, $max, $lease) = @_;
	my $sent = Time::HiRes::time();
	my $rows = $self->_query($self->{client}, <<'SQL', [ $self->{stream}, $group, $max, $lease ]);
SELECT claim_id, message_id FROM sqlstreams.claim(?, ?, ?, lease => ? * interval '1 second', max_per_key => 3)
SQL
	return unless @$rows;
	my @ids = map { $_->[1] } @$rows;
	$self->{model}->claimed($group, @ids);
	push @{ $self->{held} }, {
		group => $group, claim => $rows->[0][0], ids => \@ids, expires => $sent + $lease,
		due => Time::HiRes::time() + rand(chance(0.2) ? 6 : 0.5) };
	return @ids;
}

# Speaks of a claim whose time has come.
sub _resolve
{
	my ($self) = @_;
	my $now = Time::HiRes::time();
	my ($held) = grep { $_->{due} <= $now } @{ $self->{held} } or return;
	$self->{held} = [ grep { $_ != $held } @{ $self->{held} } ];
	my $verb = pick(ack => 12, nack => 3, release => 2, reject => 1);
	my @some = chance(0.3) ? grep { chance(0.5) } @{ $held->{ids} } : ();
	my @ids = @some ? @some : @{ $held->{ids} };
	my $more = $verb eq 'nack' ? q{, retry_in => random() * interval '0.8 second'} : '';
	my $rows = $self->_query($self->{client}, "SELECT sqlstreams.$verb(?, ?, ?, message_ids => ?::bigint[]$more)",
		[ $self->{stream}, @$held{qw(group claim)}, @some ? \@some : undef ], 'SS004', 'SS002');
	if ($rows) { $self->{model}->resolve($held->{group}, @ids) if $verb =~ /^(ack|reject)$/ }
	elsif (!$self->_may_be_lost($held)) { $self->{model}->find('refused to its holder', "claim $held->{claim} of group $held->{group}") }
	return;
}

# Whether a claim may be gone: its lease has ended, its group was dropped or moved, or
# messages of it were dropped.
sub _may_be_lost
{
	my ($self, $held) = @_;
	return 1 if $held->{is_moved} || Time::HiRes::time() > $held->{expires} || !$self->{model}{groups}{ $held->{group} };
	$self->_look;
	return any { $self->{model}->is_dropped($_) } @{ $held->{ids} };
}

sub _purge
{
	my ($self) = @_;
	$self->_look;
	$self->_query($self->{client}, 'SELECT sqlstreams.purge_stream(?)', [ $self->{stream} ], '55P03', 'SS006');
	$self->{has_purged} = 1;
	$self->{counts}{purges}++;
	return;
}

sub _add_group
{
	my ($self) = @_;
	return if keys %{ $self->{model}{groups} } >= 4;
	my $at_head = chance(0.4);
	my $group = 'g' . ++$self->{groups_made};
	$self->_query($self->{client}, <<'SQL', [ $self->{stream}, $group, $at_head ? 'head' : 'beginning' ]);
SELECT sqlstreams.create_group(?, ?, start_position => ?, max_retries => 1000, initial_backoff => '0', base_delay => '0.1 second',
	max_delay => '0.1 second')
SQL
	$self->_look;
	$self->{model}->add_group($group, $at_head);
	$self->{counts}{'groups made'}++;
	return;
}

sub _drop_group
{
	my ($self) = @_;
	return if keys %{ $self->{model}{groups} } < 2;
	my $group = $self->_some_group;
	$self->_query($self->{client}, 'SELECT sqlstreams.drop_group(?, ?)', [ $self->{stream}, $group ]);
	$self->{model}->drop_group($group);
	$self->{counts}{'groups dropped'}++;
	return;
}

# Moves a group, most often back. What is dropped before the answer is known need not come.
sub _move
{
	my ($self) = @_;
	my $group = $self->_some_group;
	my $rows = $self->_query($self->{client}, <<'SQL', [ $self->{stream}, $group, $self->{model}{dropped} + between(1, 60) ], '22023');
SELECT claimed_before, claimed_after FROM sqlstreams.seek(?, ?, start_id => ?)
SQL
	return unless $rows;    # its place has just been dropped
	$_->{is_moved} = 1 foreach grep { $_->{group} eq $group } @{ $self->{held} };
	my ($before, $after) = @{ $rows->[0] };
	$self->_look;
	$self->{model}->skip($group, $before, $after);
	$self->{model}->move_back($group, $after + 1) if $after < $before;
	$self->{counts}{'groups moved'}++;
	return;
}

sub _alter
{
	my ($self) = @_;
	my ($name, @values) = @{ chance(0.5) ? [ retention => 1, 2, 4 ] : [ partition_interval => 0.5, 1, 3 ] };
	my $value = $values[ rand @values ];
	$self->_query($self->{client}, "SELECT sqlstreams.alter_stream(?, $name => ? * interval '1 second')",
		[ $self->{stream}, $value ]);
	$self->{retention} = $value if $name eq 'retention';
	return;
}

sub _check_head
{
	my ($self) = @_;
	my @keys = sort keys %{ $self->{model}{heads} } or return;
	my $key = $keys[ rand @keys ];
	$self->_look;
	my $rows = $self->_query($self->{client}, 'SELECT message_id FROM sqlstreams.compaction_head(?, ?)', [ $self->{stream}, $key ]);
	my $id = @$rows ? $rows->[0][0] : undef;
	my $dropped = $self->{model}{dropped};
	$self->_look;
	# else it may have been dropped meanwhile
	$self->{model}->check_head($key, $id) if $dropped == $self->{model}{dropped};
	return;
}

# Produces with one of a few idempotency keys.
sub _use_key
{
	my ($self) = @_;
	my $key = 'key' . between(1, 8);
	my $sent = Time::HiRes::time();
	my $rows = $self->_query($self->{client}, q{SELECT sqlstreams.produce(?, '{}', idempotency_key => ?)}, [ $self->{stream}, $key ], 'SS006') or return;
	my $received = Time::HiRes::time();
	my ($id, $last) = ($rows->[0][0], $self->{keys}{$key});
	if ($id)
	{
		$self->{model}->find('key given twice', "$key at $received after $last->{sent}") if $last && $received < $last->{sent} + KEY_TTL;
		$self->{keys}{$key} = { sent => $sent, received => $received };
		$self->{model}->commit($received, { id => $id });
	}
	elsif (!$last) { $self->{model}->find('duplicate without an original', $key) }
	elsif ($sent > $last->{received} + KEY_TTL + KEY_EXTRA) { $self->{model}->find('key refused for too long', $key) }
	return;
}

# Takes what is left of a group, all of it.
sub _drain
{
	my ($self, $group) = @_;
	my $model = $self->{model};
	my $limit = Time::HiRes::time() + DRAIN_LIMIT;
	my $is_last = 0;
	until ($is_last || Time::HiRes::time() > $limit)
	{
		my @left = $model->left($group);
		$is_last = !@left;
		my @ids = $self->_claim_of($group, 100, 5);
		$self->_ack_all;
		$self->_look;
		Time::HiRes::sleep(0.05) unless @ids;
	}
	$model->find('lost', "message $_ for group $group") foreach $model->left($group);
	return;
}

# Hands back what is held.
sub _release_all
{
	my ($self) = @_;
	foreach my $held (splice @{ $self->{held} })
	{
		$self->_query($self->{client}, 'SELECT sqlstreams.release(?, ?, ?)',
			[ $self->{stream}, @$held{qw(group claim)} ], 'SS002');
	}
	return;
}

# Acks what is held.
sub _ack_all
{
	my ($self) = @_;
	foreach my $held (splice @{ $self->{held} })
	{
		my $rows = $self->_query($self->{client}, 'SELECT sqlstreams.ack(?, ?, ?)',
			[ $self->{stream}, @$held{qw(group claim)} ], 'SS004');
		$self->{model}->resolve($held->{group}, @{ $held->{ids} }) if $rows;
	}
	return;
}

1;
