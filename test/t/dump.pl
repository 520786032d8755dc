# pg_dump and pg_restore keep streams, messages, cursors, leases and keys, and everything goes on after them.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $node = new_node('main');
my $dir = PostgreSQL::Test::Utils::tempdir();

sql($node, 'CREATE ROLE regress_sqlstreams_owner');
sql($node, 'GRANT EXECUTE ON FUNCTION sqlstreams.create_stream TO regress_sqlstreams_owner');
sql($node, q{SET ROLE regress_sqlstreams_owner; SELECT sqlstreams.create_stream('s', partition_size => 3, idempotency_key_ttl => '7 days'), sqlstreams.create_group('s', 'g', timeout => '1 minute')});
sql($node, q{SELECT sqlstreams.create_group('s', 'h'), sqlstreams.create_stream('empty')});
sql($node, q{SELECT sqlstreams.produce_batch('s', '{1,2,3,4,5,6,7}', idempotency_keys => '{a,b,c,d,e,f,g}')});
sql($node, q{SELECT sqlstreams.produce_bytes('s', '\x0001', message_key => 'k', headers => '{"h": 1}')});
my $claim = sql($node, q{SELECT min(claim_id) FROM sqlstreams.claim('s', 'g', 4, '1 hour')});
sql($node, "SELECT sqlstreams.ack('s', 'g', $claim, '{2}')");
my $expired = sql($node, q{SELECT min(claim_id) FROM sqlstreams.claim('s', 'h', 2, '1 millisecond')});

# a hole that a producer still holds open when the dump is made: here it is gone, there it never was
my $open = session($node);
$open->query_safe('BEGIN');
$open->query_safe(q{SELECT sqlstreams.produce('s', '"open"')});
sql($node, q{SELECT sqlstreams.produce('s', '"last"')});
is(claimed($node, 's', 'h', 1), '1', 'a claim before the dump');
sql($node, q{SELECT sqlstreams.create_group('s', 'head', start_position => 'head', bindings => '{a.*,b}', schema_version => 2)});

my $streams = 'SELECT stream, stream_id, owner, messages_head, partition_size, idempotency_key_ttl, delivery_log FROM sqlstreams.streams ORDER BY 1';
my $groups = "SELECT stream, consumer_group, group_id, claimed, committed, bindings, schema_version, settings FROM sqlstreams.consumer_groups ORDER BY 1, 2";
my $messages = q{SELECT * FROM sqlstreams.peek('s', 1, 1000)};
my $leases = 'SELECT consumer_group, claim_id, messages, unresolved, expires_at, takeovers FROM sqlstreams.leases ORDER BY 1, 2';
my %before = map { $_ => sql($node, $_) } $streams, $groups, $messages, $leases;

for my $format ('custom', 'plain')
{
	my $database = "restored_$format";
	my $file = "$dir/$format.dump";

	$node->command_ok([ 'pg_dump', "--format=$format", '--file', $file, $node->connstr('postgres') ], "$format: pg_dump");
	sql($node, "CREATE DATABASE $database");
	if ($format eq 'custom')
	{
		$node->command_ok([ 'pg_restore', '--exit-on-error', '--dbname', $node->connstr($database), $file ], "$format: pg_restore");
	}
	else
	{
		$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $file, $node->connstr($database) ], "$format: psql");
	}
	is(sql($node, $streams, $database), $before{$streams}, "$format: streams");
	is(sql($node, $groups, $database), $before{$groups}, "$format: groups");
	is(sql($node, $messages, $database), $before{$messages}, "$format: messages");
	is(sql($node, $leases, $database), $before{$leases}, "$format: leases");
	is(sql($node, "SELECT sqlstreams.ack('s', 'g', $claim)", $database), 3, "$format: a claim goes on");
	is(sqlstate($node, "SELECT sqlstreams.ack('s', 'g', $claim)", $database), 'SS004', "$format: and is resolved");
	is(sql($node, q{SELECT coalesce(string_agg(coalesce(payload::text, body::text), ' '), '') FROM sqlstreams.claim('s', 'g', 100)}, $database), '5 6 7 \x0001 "last"', "$format: the cursor goes on");
	is(sql($node, q{SELECT sqlstreams.produce('s', '1', idempotency_key => 'c')}, $database), 0, "$format: keys are known");
	is(sql($node, q{SELECT array_agg(id) FROM sqlstreams.produce_batch('s', '{11,12,13,14}') id}, $database), '{11,12,13,14}', "$format: ids go on rising, over partitions");
	is(sql($node, q{SELECT string_agg(payload::text, ' ') FROM sqlstreams.claim('s', 'g', 100)}, $database), '11 12 13 14', "$format: and arrive");
	sql($node, q{SELECT sqlstreams.produce_batch('s', '{15,16,17}', routing_keys => '{a.x,a,b}', schema_version => 2)}, $database);
	is(sql($node, q{SELECT string_agg(payload::text, ' ') FROM sqlstreams.claim('s', 'head', 100)}, $database), '15 17', "$format: a group that began at the head gets what its bindings match");
	cmp_ok(sql($node, q{SELECT max(stream_id) FROM sqlstreams.streams}, $database), '<', sql($node, q{SELECT sqlstreams.create_stream('new')}, $database), "$format: a new stream gets a new id");
	cmp_ok(sql($node, q{SELECT max(group_id) FROM sqlstreams.consumer_groups}, $database), '<', sql($node, q{SELECT sqlstreams.create_group('s', 'i')}, $database), "$format: so does a new group");
	is(sql($node, q{SELECT sqlstreams.produce('new', '1')}, $database), 1, "$format: which works");
	is(sql($node, q{SELECT bool_and(sqlstreams.drop_stream(stream)) FROM sqlstreams.streams}, $database), 't', "$format: and can be dropped");
	is(sql($node, q{DROP EXTENSION sqlstreams; SELECT count(*) FROM pg_namespace WHERE nspname = 'sqlstreams'}, $database), 0, "$format: nothing is left");
}
$open->query_safe('ROLLBACK');
$open->quit;

# a schema-only restore leaves tables without their configuration: those ids are skipped
$node->command_ok([ 'pg_dump', '--schema-only', '--format=custom', '--file', "$dir/schema", $node->connstr('postgres') ], 'schema only: pg_dump');
sql($node, 'CREATE DATABASE schema_only');
$node->command_ok([ 'pg_restore', '--exit-on-error', '--dbname', $node->connstr('schema_only'), "$dir/schema" ], 'schema only: pg_restore');
is(sql($node, 'SELECT count(*) FROM sqlstreams.streams', 'schema_only'), 0, 'schema only: no streams');
is(sql($node, q{SELECT sqlstreams.create_stream('s') > 0, sqlstreams.create_stream('t') > 0, sqlstreams.create_stream('u') > 0}, 'schema_only'), 't|t|t', 'schema only: new ones can be made');
is(sql($node, q{SELECT sqlstreams.create_group('s', 'g') > 0, sqlstreams.produce('s', '1')}, 'schema_only'), 't|1', 'schema only: and work');

# a physical copy
sql($node, 'CREATE DATABASE copied TEMPLATE restored_plain');
is(sql($node, 'SELECT 1', 'copied'), 1, 'a database can be the template of another');
$node->safe_psql('postgres', 'DROP DATABASE schema_only');
is(sql($node, q{SELECT count(*) FROM pg_database WHERE datname = 'schema_only'}), 0, 'and one with streams can be dropped');

done_testing();
