# Partitions that end by time while many produce: no id is given twice, no message is lost or passed over, and what has expired goes
# meanwhile.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $node = new_node('main', "max_connections = 100\nsqlstreams.worker = on\n");
my $clients = 6;
my $transactions = 200;
my $total = $clients * $transactions;

sql($node, q{CREATE TABLE drawn (id bigint); CREATE TABLE got (id bigint)});
sql($node, q{SELECT sqlstreams.create_stream('s', partition_size => 50, partition_interval => '1 millisecond', retention => '2 seconds'), sqlstreams.create_group('s', 'g')});

# producers of small batches, some of which roll back, a consumer and maintenance at once
$node->pgbench(
	"-n -c $clients -j 2 -t $transactions",
	0, [qr{processed: $total/$total}], [qr{^$}m], 'producers, a consumer and maintenance',
	{
		'produce.sql@6' => q{\set n random(1, 9)
			BEGIN;
			INSERT INTO drawn SELECT sqlstreams.produce_batch('s', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, :n) i));
			END;},
		'rollback.sql@2' => q{BEGIN;
			SELECT sqlstreams.produce('s', '1');
			ROLLBACK;},
		'consume.sql@1' => q{INSERT INTO got SELECT message_id FROM sqlstreams.pop('s', 'g', 500);},
		'maintain.sql@1' => q{CALL sqlstreams.maintain();}
	});
sql($node, q{INSERT INTO got SELECT message_id FROM sqlstreams.pop('s', 'g', 100000)}) for 1 .. 3;

is(sql($node, q{SELECT count(*) - count(DISTINCT id) FROM drawn}), 0, 'no id was given twice');
is(sql($node, q{SELECT count(*) FROM (SELECT id FROM drawn EXCEPT ALL SELECT id FROM got) l}), 0, 'no message is lost');
is(sql($node, q{SELECT count(*) FROM (SELECT id FROM got EXCEPT ALL SELECT id FROM drawn) l}), 0, 'none comes twice');
cmp_ok(sql($node, q{SELECT max(id) - count(*) FROM drawn}), '>', 500, 'partitions did end by time');
ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM sqlstreams.partitions WHERE state <> 'open'}), 'what has expired goes by itself');

# a stream that is fast has more partitions ahead
sql($node, q{SELECT sqlstreams.create_stream('fast', partition_size => 100)});
ok( $node->poll_query_until(
		'postgres', q{
		SELECT count(*) > 0 FROM sqlstreams.produce_batch('fast', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 150) i));
		SELECT count(*) > 5 FROM sqlstreams.partitions JOIN sqlstreams.streams USING (stream) WHERE stream = 'fast' AND from_id > messages_head}, "t\nt"),
	'a fast stream has more than two partitions ahead');

done_testing();
