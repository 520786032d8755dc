# Prepared transactions over a restart and over a crash of the server: a message that is prepared is neither stepped over nor lost.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $node = new_node('main');
sql($node, q{SELECT sqlstreams.create_stream('s', partition_size => 3), sqlstreams.create_group('s', 'g'), sqlstreams.create_group('s', 'h')});

sub prepare
{
	my ($payload, $name) = @_;
	sql($node, "BEGIN; SELECT sqlstreams.produce('s', '$payload'); PREPARE TRANSACTION '$name'");
}

sub produce
{
	my ($payload) = @_;
	return sql($node, "SELECT sqlstreams.produce('s', '$payload')");
}

# claims before and after the restart, then a commit
prepare(1, 'a');
produce(2);
is_claimed($node, '', 'a prepared message holds back a claim');
is(sql($node, q{SELECT held_back_by_prepared FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'}), '{a}', 'the view names it');
$node->restart;
is_claimed($node, '', 'also after a restart');
is(sql($node, q{SELECT held_back_by_prepared FROM sqlstreams.consumer_groups WHERE consumer_group = 'g'}), '{a}', 'the view names it still');
produce(3);
is_claimed($node, '', 'and with more messages behind it');
sql($node, q{COMMIT PREPARED 'a'});
is_claimed($node, '1 2 3', 'once committed it comes first');
is(claimed($node, 's', 'h'), '1 2 3', 'also for a group that had not looked before');

# no claim before the restart, then a rollback
prepare(4, 'b');
produce(5);
$node->restart;
is_claimed($node, '', 'a first look after a restart');
sql($node, q{ROLLBACK PREPARED 'b'});
is_claimed($node, '5', 'rolled back, it is a hole');

# a crash instead of a restart
prepare(6, 'c');
produce(7);
is_claimed($node, '', 'before a crash');
$node->stop('immediate');
$node->start;
is_claimed($node, '', 'after it');
sql($node, q{COMMIT PREPARED 'c'});
is_claimed($node, '6 7', 'and committed');

# what was remembered before the restart still counts: a producer that came later does not hold the claim back
prepare(8, 'd');
produce(9);
is_claimed($node, '', 'remembered who is open');
$node->restart;
my $later = session($node);
$later->query_safe('BEGIN');
cmp_ok($later->query_safe(q{SELECT sqlstreams.produce('s', '10')}), '>', 9, 'another producer begins');
is_claimed($node, '', 'two are open');
sql($node, q{ROLLBACK PREPARED 'd'});
is_claimed($node, '9', 'the one that was there at first has ended');
$later->query_safe('COMMIT');
is_claimed($node, '10', 'the other one too');
$later->quit;

# a prepared claim and a prepared ack
cmp_ok(produce(11), '>', 10, 'one more message');
sql($node, q{BEGIN; SELECT count(*) FROM sqlstreams.claim('s', 'g', 5, '1 hour', consumer => 'prepared'); PREPARE TRANSACTION 'e'});
$node->restart;
is(sqlstate($node, q{SET lock_timeout = '50ms'; SELECT * FROM sqlstreams.claim('s', 'g')}), '55P03', 'a prepared claim makes others wait, also after a restart');
sql($node, q{ROLLBACK PREPARED 'e'});
my $claim = sql($node, q{SELECT claim_id FROM sqlstreams.claim('s', 'g', 1, '1 millisecond')});
ok(wait_for_expiry($node, $claim), 'a claim whose lease ends');
sql($node, qq{BEGIN; SELECT sqlstreams.ack('s', 'g', $claim); PREPARE TRANSACTION 'f'});
is_claimed($node, '', 'a prepared ack keeps it from being taken over');
$node->restart;
is_claimed($node, '', 'also after a restart');
sql($node, q{COMMIT PREPARED 'f'});
is_claimed($node, '', 'and for ever once it is committed');
is(sqlstate($node, "SELECT sqlstreams.ack('s', 'g', $claim)"), 'SS004', 'the claim is resolved');

done_testing();
