# Holes in the ids, seen by a client that connects anew for every claim, with producers that come and go; a writer in another database.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $node = new_node('main');
sql($node, q{SELECT sqlstreams.create_stream('s', partition_size => 5), sqlstreams.create_group('s', 'g')});
my %producer;

sub begin_produce
{
	my ($name, $expected) = @_;
	$producer{$name} = session($node);
	$producer{$name}->query_safe('BEGIN');
	is($producer{$name}->query_safe(qq{SELECT sqlstreams.produce('s', '"$name"')}), $expected, "producer $name draws id $expected");
}

sub end_produce
{
	my ($name, $how) = @_;
	$producer{$name}->query_safe($how);
	$producer{$name}->quit;
	delete $producer{$name};
}

# there is always a producer open, but never the same: the hole that the first one leaves delays no claim for longer than those that were there
begin_produce('a', 1);
begin_produce('b', 2);
sql($node, q{SELECT sqlstreams.produce('s', '"x"')});
is_claimed($node, '', 'a and b are open');
begin_produce('c', 4);
end_produce('a', 'ROLLBACK');
is_claimed($node, '', 'b is still open');
begin_produce('d', 5);
end_produce('b', 'COMMIT');
is_claimed($node, '"b" "x"', 'those that were open at first have ended; c and d, which came later, do not matter');
sql($node, q{SELECT sqlstreams.produce('s', '"y"')});
is_claimed($node, '', 'before the next hole they do');
begin_produce('e', 7);
end_produce('c', 'ROLLBACK');
end_produce('d', 'ROLLBACK');
is_claimed($node, '"y"', 'until they have ended');
end_produce('e', 'ROLLBACK');
is_claimed($node, '', 'a hole at the end');
is(sql($node, 'SELECT settled_head = messages_head FROM sqlstreams.streams'), 't', 'which is settled');
sql($node, q{SELECT sqlstreams.produce('s', '"z"')});
is_claimed($node, '"z"', 'with none open a hole is passed at once');

# a long run of them, each claim a connection of its own: a producer is open at every moment, and all arrive
my @expected;
my @got;
begin_produce("turn 0", sql($node, 'SELECT messages_head + 1 FROM sqlstreams.streams'));
for my $turn (1 .. 12)
{
	begin_produce("turn $turn", sql($node, 'SELECT messages_head + 1 FROM sqlstreams.streams'));
	push @expected, "\"turn $turn done\"";
	sql($node, qq{SELECT sqlstreams.produce('s', '"turn $turn done"')});
	push @got, claimed($node);
	end_produce('turn ' . ($turn - 1), 'ROLLBACK');
}
push @got, claimed($node);
my $seen = join(' ', grep { $_ ne '' } @got);
cmp_ok(scalar(split(/" "/, $seen)), '>=', 11, 'with a producer open at every moment all but the last turn arrive');
end_produce('turn 12', 'ROLLBACK');
push @got, claimed($node);
is(join(' ', grep { $_ ne '' } @got), join(' ', @expected), 'and in the end all of them, in order');

# a writer in another database, and a producer to a stream of the same name there
$node->safe_psql('postgres', 'CREATE DATABASE elsewhere');
sql($node, q{CREATE EXTENSION sqlstreams; CREATE TABLE t (a int)}, 'elsewhere');
sql($node, q{SELECT sqlstreams.create_stream('s'), sqlstreams.create_group('s', 'g')}, 'elsewhere');
my $writer = session($node, 'elsewhere');
$writer->query_safe('BEGIN; INSERT INTO t VALUES (1)');
$writer->query_safe(q{SELECT sqlstreams.produce('s', '1')});
sql($node, q{BEGIN; SELECT sqlstreams.produce('s', '"lost"'); ROLLBACK});
sql($node, q{SELECT sqlstreams.produce('s', '"here"')});
is_claimed($node, '"here"', 'a transaction in another database holds nothing back');
$writer->query_safe('ROLLBACK');
$writer->quit;

done_testing();
