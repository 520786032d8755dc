# What the keepers of the stress program hold to be right, told step by step: each
# kind of violation is found, and what a correct server does passes.

use strict;
use warnings;
use FindBin ();
use lib "$FindBin::RealBin/../lib";
use Stress::Keeper::Model;
use Test::More;

# A stream with group g from the beginning, at time 0.
sub model
{
	my $model = Stress::Keeper::Model->new(name => 's', head_ttl => 2, @_);
	$model->look(0, 0);
	$model->add_group('g');
	return $model;
}

# The kinds of violations that were found.
sub kinds
{
	my ($model) = @_;
	return join ', ', map { $_->[0] } @{ $model->{found} };
}

sub version
{
	my ($id, $rank) = @_;
	return { id => $id, key => 'k', version => 1, rank => $rank };
}

subtest 'drops' => sub {
	my $model = model();
	$model->commit(1, { id => 1 }, { id => 2 });
	$model->claimed('g', 1, 2);
	$model->resolve('g', 1);
	$model->look(3, 1);
	is(kinds($model), '', 'of what is resolved');
	is_deeply([ $model->left('g') ], [2], 'the rest is left');
	$model->look(4, 2);
	is(kinds($model), 'dropped although not resolved', 'of what is not');
	is_deeply([ $model->left('g') ], [], 'is told once');

	$model = model();
	$model->commit(1, { id => 1 });
	$model->look(3, 1, 1);
	is(kinds($model), '', 'by a purge');
	$model->claimed('g', 1);
	is(kinds($model), 'delivered after it was dropped', '... and delivered');
	$model = model(allows_loss => 1);
	$model->commit(1, { id => 1 });
	$model->look(3, 1);
	is(kinds($model), '', 'that are allowed');
	$model->commit(4, { id => 1 });
	is(kinds($model), 'id given twice, dropped before its commit', 'of ids that come later');
	$model->look(5, 0);
	like(kinds($model), qr/dropped messages came back/, 'that are undone');
};

subtest 'deliveries' => sub {
	my $model = model();
	$model->commit(1, { id => 1 });
	$model->claimed('g', 2);
	is(kinds($model), 'invented', 'of what nobody produced');
	$model->resolve('g', 1);
	$model->claimed('g', 1);
	is(kinds($model), 'invented, delivered after its end', 'of what was resolved');
};

subtest 'groups' => sub {
	my $model = model();
	$model->commit(1, { id => 1 }, { id => 2 });
	$model->resolve('g', 1, 2);
	$model->look(3, 1);
	$model->add_group('late');
	$model->add_group('head', 1);
	$model->commit(4, { id => 3 });
	is_deeply([ $model->left('late') ], [ 2, 3 ], 'from the beginning of what is there');
	is_deeply([ $model->left('head') ], [3], 'from the head');
	$model->move_back('g', 1);
	is_deeply([ $model->left('g') ], [ 2, 3 ], 'moved back');
	$model->skip('g', 2, 3);
	is_deeply([ $model->left('g') ], [2], 'moved forward');
	$model->skip('g', 3, 5);
	$model->commit(5, { id => 4 }, { id => 6 });
	is_deeply([ $model->left('g') ], [ 2, 6 ], '... past what was there');
	$model->move_back('g', 4);
	is_deeply([ $model->left('g') ], [ 2, 4, 6 ], '... and back');
	$model->commit(6, { id => 5 });
	is_deeply([ $model->left('g') ], [ 2, 4, 5, 6 ], '... where it wants all that comes');
	$model->drop_group('g');
	$model->resolve($_, 2 .. 6) foreach qw(late head);
	$model->look(7, 6);
	is(kinds($model), '', 'dropped, and held up nothing');
};

subtest 'heads' => sub {
	my $model = model();
	$model->commit(1, version(1, 5), version(2, 3), version(3, 7));
	is_deeply([ $model->left('g') ], [3], 'supersede the others');
	$model->claimed('g', 1);
	is(kinds($model), 'superseded message delivered', '... which must not come');
	$model->resolve('g', 3);
	$model->check_head('k', 3);
	$model->check_head('k', 1);
	is(kinds($model), 'superseded message delivered, wrong head', 'are told');

	$model = model();
	$model->commit(1, version(1, 5));
	$model->resolve('g', 1);
	$model->look(2, 0);
	$model->look(3, 1);
	$model->check_head('k', undef);
	$model->commit(3.9, version(2, 3));
	is(kinds($model), '', 'are not told when they are dropped');
	$model->claimed('g', 2);
	is(kinds($model), 'superseded message delivered', 'are remembered for a while');
	$model->commit(4.1, version(3, 4));
	$model->claimed('g', 3);
	is(kinds($model), 'superseded message delivered', '... and no longer for certain');
	is($model->{older_after_drop}, 1, 'what was tried');
};

done_testing();
