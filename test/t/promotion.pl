# A standby: it refuses writers and serves readers; after its promotion everything that was replicated goes on.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $primary = new_node('primary', '', allows_streaming => 1);
sql($primary, q{SELECT sqlstreams.create_stream('s', partition_size => 4), sqlstreams.create_group('s', 'g'), sqlstreams.create_group('s', 'h')});
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

is(sql($primary, q{SELECT array_agg(id) FROM sqlstreams.produce_batch('s', '{1,2,3,4,5,6}', idempotency_keys => '{a,b,c,d,e,f}') id}), '{1,2,3,4,5,6}', 'six messages');
my $claim = sql($primary, q{SET sqlstreams.relaxed_claim = off; SELECT min(claim_id) FROM sqlstreams.claim('s', 'g', 3, '1 second')});
sql($primary, "SELECT sqlstreams.ack('s', 'g', $claim, '{1}')");

# one producer is open on the primary, one is prepared
my $open = session($primary);
$open->query_safe('BEGIN');
is($open->query_safe(q{SELECT sqlstreams.produce('s', '7')}), 7, 'an open producer');
sql($primary, q{BEGIN; SELECT sqlstreams.produce('s', '8'); PREPARE TRANSACTION 'p'});
is(sql($primary, q{SELECT sqlstreams.produce('s', '9')}), 9, 'a committed one behind both');
is(claimed($primary, 's', 'h'), '1 2 3 4 5 6', 'a claim stops before them');
sql($primary, q{SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'x', 'flush')});
$primary->wait_for_catchup($standby);

# the standby
for my $call (q{produce('s', '1')}, q{produce_batch('s', '{1}')}, q{produce_bytes('s', '')}, q{produce_bytes_batch('s', '{}')}, q{ack('s', 'g', 1)}, q{release('s', 'g', 1)}, q{extend('s', 'g', 1)},
	q{create_stream('x')}, q{drop_stream('s')}, q{create_group('s', 'x')}, q{drop_group('s', 'g')}, q{rename_stream('s', 'x')}, q{purge_stream('s')}, q{alter_stream('s', delivery_log => 'off')},
	q{alter_group('s', 'g', timeout => '1 s')}, q{claim('s', 'g')}, q{pop('s', 'g')})
{
	(my $name = $call) =~ s/\(.*//;
	is(sqlstate($standby, "SELECT sqlstreams.$call"), '25006', "standby: $name");
}
is(sql($standby, q{SELECT string_agg(payload::text, ' ') FROM sqlstreams.peek('s')}), '1 2 3 4 5 6 9', 'standby: peek');
is(sql($standby, q{SELECT count(*) FROM sqlstreams.key_messages('s', 'k')}), '0', 'standby: key_messages');
is(sql($standby, 'SELECT stream, messages_head >= 9 FROM sqlstreams.streams'), 's|t', 'standby: streams');
is(sql($standby, 'SELECT consumer_group, claimed FROM sqlstreams.consumer_groups ORDER BY 1'), "g|3\nh|6", 'standby: consumer_groups');
is(sql($standby, q{SELECT consumer_group, messages, unresolved FROM sqlstreams.leases ORDER BY 1}), "g|3|2\nh|6|6", 'standby: leases');
is(sql($standby, 'SELECT count(*) > 2 FROM sqlstreams.partitions'), 't', 'standby: partitions');

# promotion, with the primary gone
$primary->stop('immediate');
$standby->promote;
is(claimed($standby, 's', 'h'), '', 'promoted: a prepared producer still holds back a claim');
sql($standby, q{COMMIT PREPARED 'p'});
is(claimed($standby, 's', 'h'), '8 9', 'promoted: the open producer is gone, the prepared one is there');
ok(wait_for_expiry($standby, $claim), 'the lease ends');
is_claimed($standby, '2 3 4 5 6 8 9', 'promoted: what was open comes back, what was acked does not');
is(sqlstate($standby, "SELECT sqlstreams.ack('s', 'g', $claim)"), 'SS004', 'promoted: the old holder has lost it');
is(sql($standby, q{SELECT sqlstreams.produce('s', '"again"', idempotency_key => 'c')}), 0, 'promoted: keys are known');
cmp_ok(sql($standby, q{SELECT sqlstreams.produce('s', '10')}), '>', 9, 'promoted: ids go on rising');
is_claimed($standby, '10', 'promoted: and arrive');

done_testing();
