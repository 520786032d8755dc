# A standby has no worker, but its views work; the promoted one gets a worker, which goes on with what was to be done.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $primary = new_node('primary', "sqlstreams.worker = on\n", allows_streaming => 1);
$primary->backup('backup');
my %standbys;
for my $kind ('preloaded', 'loaded')
{
	my $standby = $standbys{$kind} = PostgreSQL::Test::Cluster->new($kind);

	$standby->init_from_backup($primary, 'backup', has_streaming => 1);
	$standby->append_conf('postgresql.conf', "shared_preload_libraries = 'sqlstreams'\n") if $kind eq 'preloaded';
	$standby->start;
}
sql($primary, q{SELECT sqlstreams.create_stream('s', partition_size => 2, retention => '1 second', partition_interval => '1 hour'); SELECT sqlstreams.suspend_maintenance('s')});
sql($primary, q{SELECT sqlstreams.produce_batch('s', '{1,2,3,4,5}')});
has_worker($primary, 'postgres', 'the primary has a worker');
$primary->wait_for_catchup($standbys{$_}) for sort keys %standbys;

for my $kind (sort keys %standbys)
{
	my $standby = $standbys{$kind};

	is(sqlstate($standby, 'SELECT sqlstreams.start_worker()'), '25006', "$kind standby: start_worker");
	is(sqlstate($standby, 'CALL sqlstreams.maintain()'), '25006', "$kind standby: maintain");
	is(sqlstate($standby, q{SELECT sqlstreams.suspend_maintenance('s')}), '25006', "$kind standby: suspend_maintenance");
	is(sql($standby, 'SELECT count(*) FROM sqlstreams.partitions'), 3, "$kind standby: partitions");
	is(sql($standby, q{SELECT stream, maintenance_suspended FROM sqlstreams.streams}), 's|t', "$kind standby: streams");
	is(sql($standby, 'SELECT count(*) FROM sqlstreams.workers'), 0, "$kind standby: workers");
	is(sql($standby, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sqlstreams%'}), 0, "$kind standby: no process of ours");
}

$primary->stop;
for my $kind (sort keys %standbys)
{
	my $standby = $standbys{$kind};

	$standby->promote;
	sql($standby, 'SELECT count(*) FROM sqlstreams.workers') if $kind eq 'loaded';
	has_worker($standby, 'postgres', "$kind, promoted: the worker is there");
	sql($standby, q{SELECT sqlstreams.resume_maintenance('s')});
	ok($standby->poll_query_until('postgres', q{SELECT min(from_id) >= 5 AND max(from_id) >= 9 FROM sqlstreams.partitions}), "$kind, promoted: it goes on");
}

done_testing();
