# Where the library is not preloaded: the first use in a database starts its worker, or start_worker(), or says why it could not.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $node = new_node('main', "sqlstreams.worker = on\nmax_worker_processes = 12\n");
my %first_uses = (
	create_stream => q{sqlstreams.create_stream('first')},
	produce => q{sqlstreams.produce('s', '1')},
	claim => q{count(*) FROM sqlstreams.claim('s', 'g')},
	view => q{count(*) FROM sqlstreams.workers},
	start_worker => q{sqlstreams.start_worker()});

sql($node, 'CREATE EXTENSION sqlstreams', 'template1');
set_and_reload($node, 'sqlstreams.worker', 'off');
sql($node, "CREATE DATABASE $_") for sort keys %first_uses;
sql($node, q{SELECT sqlstreams.create_stream('s'), sqlstreams.create_group('s', 'g')}, $_) for sort keys %first_uses;
set_and_reload($node, 'sqlstreams.worker', 'on');
$node->restart;
is(sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sqlstreams%'}), 0, 'after a start there is no process of ours');
for my $use (sort keys %first_uses)
{
	sql($node, "SELECT $first_uses{$use}", $use);
	has_worker($node, $use, "the first use starts one: $use");
}
is(sql($node, q{SELECT count(*) FROM sqlstreams.workers}, 'view'), scalar keys %first_uses, 'the view shows the workers of all databases, and no others');
is(sql($node, 'SELECT sqlstreams.start_worker()', 'produce'), 'f', 'start_worker: false where one runs');
has_no_worker($node, 'postgres', 'none where nobody has used it');

# restart
$node->restart;
is(sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'sqlstreams%'}), 0, 'after a restart there is none');
is(sql($node, 'SELECT sqlstreams.start_worker(), sqlstreams.start_worker()', 'claim'), 't|f', 'start_worker: true, then false');
is(sql($node, q{SELECT count(*) = 1 FROM sqlstreams.workers WHERE database = 'claim' AND last_turn IS NOT NULL}, 'claim'), 't', 'start_worker: returns when it works');

# several at once
sql($node, 'CREATE TABLE started (is_true boolean)', 'produce');
$node->pgbench('-n -c 8 -j 2 -t 1', 0, [qr{processed: 8/8}], [qr{^$}m], 'eight sessions call start_worker at once',
	{ 'start.sql' => 'INSERT INTO started SELECT sqlstreams.start_worker()' }, $node->connstr('produce'));
is(sql($node, 'SELECT count(*) FILTER (WHERE is_true), count(*) FROM started', 'produce'), '1|8', 'one of them has started it');
has_worker($node, 'produce', 'and only one runs');

# SIGHUP
sql($node, 'SELECT sqlstreams.start_worker()', 'view');
set_and_reload($node, 'sqlstreams.databases', 'claim');
has_no_worker($node, $_, "databases: one that is not listed loses its worker: $_") for 'view', 'produce';
has_worker($node, 'claim', 'databases: one that is keeps it');
my ($status, $stdout, $stderr) = $node->psql('view', "\\set VERBOSITY verbose\nSELECT sqlstreams.start_worker()");
like($stderr, qr{SS007: could not start a worker in database "view"\nHINT:  Add the database to sqlstreams.databases}, 'start_worker: the database is not listed');
is(sql($node, q{SELECT sqlstreams.produce('s', '1')}, 'view'), 1, 'a produce there does without');
has_no_worker($node, 'view', 'and starts none');
set_and_reload($node, 'sqlstreams.worker', 'off');
has_no_worker($node, 'claim', 'worker = off: all go');
($status, $stdout, $stderr) = $node->psql('claim', "\\set VERBOSITY verbose\nSELECT sqlstreams.start_worker()");
like($stderr, qr{SS007: could not start a worker in database "[^"]+"\nHINT:  Set sqlstreams.worker to on}, 'start_worker: it is switched off');
sql($node, 'ALTER SYSTEM RESET ALL');
$node->reload;
is(sql($node, 'SELECT sqlstreams.start_worker()', 'claim'), 't', 'worker = on: it can be started');

# no slot: the server's own launcher has one, the first worker the other
$node->append_conf('postgresql.conf', "max_worker_processes = 2\nmax_parallel_workers = 0\n");
$node->restart;
is(sql($node, 'SELECT sqlstreams.start_worker()', 'claim'), 't', 'the last slot');
($status, $stdout, $stderr) = $node->psql('view', "\\set VERBOSITY verbose\nSELECT sqlstreams.start_worker()");
like($stderr, qr{SS007: could not start a worker in database "[^"]+"\nHINT:  Increase max_worker_processes}, 'start_worker: there is no slot');
is(sql($node, q{SELECT sqlstreams.produce('s', '1')}, 'view'), 2, 'a produce there does without');
sql($node, 'DROP DATABASE claim');
is(sql($node, 'SELECT sqlstreams.start_worker()', 'view'), 't', 'start_worker: there is one when a database is dropped');

done_testing();
