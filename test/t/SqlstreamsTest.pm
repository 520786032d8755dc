# What the TAP tests share. Each call of sql() is a connection of its own, as a client's that connects anew for every statement.
package SqlstreamsTest;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Cluster;
use Test::More;

our @EXPORT = qw(new_node sql sqlstate claimed is_claimed wait_for_expiry session wait_until_up
  set_and_reload worker_pid has_worker has_no_worker);

# A running server with the extension, and without workers unless the settings say otherwise.
sub new_node
{
	my ($name, $conf, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init(%params);
	$node->append_conf('postgresql.conf',
		"max_prepared_transactions = 10\nrestart_after_crash = on\nautovacuum = off\nsqlstreams.worker = off\n" . ($conf // ''));
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION sqlstreams');
	return $node;
}

# The result of a statement that must succeed.
sub sql
{
	my ($node, $query, $database) = @_;

	return $node->safe_psql($database // 'postgres', $query);
}

# The SQLSTATE of a statement that must fail, and its message.
sub sqlstate
{
	my ($node, $query, $database) = @_;
	my ($status, $stdout, $stderr) = $node->psql($database // 'postgres', "\\set VERBOSITY verbose\n$query");

	return $stderr =~ /(?:ERROR|FATAL):\s+([0-9A-Z]{5}): ([^\n]*)/ ? $1 : "no error ($stdout)";
}

# The payloads that one claim returns, by a client that connects for it.
sub claimed
{
	my ($node, $stream, $group, $max, $lease) = @_;

	return sql($node, sprintf q{SELECT coalesce(string_agg(payload::text, ' '), '') FROM sqlstreams.claim('%s', '%s', %d, '%s')},
		$stream // 's', $group // 'g', $max // 100, $lease // '1 hour');
}

sub is_claimed
{
	my ($node, $expected, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is(claimed($node), $expected, $name);
}

# Returns once a claim's lease has ended.
sub wait_for_expiry
{
	my ($node, $claim) = @_;

	return $node->poll_query_until('postgres', "SELECT expires_at < clock_timestamp() FROM sqlstreams.leases WHERE claim_id = $claim");
}

# A session that stays open. Its statements may fail.
sub session
{
	my ($node, $database) = @_;

	return $node->background_psql($database // 'postgres', on_error_stop => 0);
}

# Returns once the server takes connections again after a crash.
sub wait_until_up
{
	my ($node) = @_;

	return $node->poll_query_until('postgres', 'SELECT true');
}

# Changes a setting of the server; the library must be loaded to know the extension's.
sub set_and_reload
{
	my ($node, $setting, $value) = @_;

	sql($node, "LOAD 'sqlstreams'; ALTER SYSTEM SET $setting = $value");
	$node->reload;
	return;
}

# Those that follow look without touching the extension, which could start a worker.

# The pid of a database's worker.
sub worker_pid
{
	my ($node, $database) = @_;

	return sql($node, sprintf "SELECT pid FROM pg_stat_activity WHERE backend_type = 'sqlstreams worker' AND datname = '%s'", $database // 'postgres');
}

# Waits until a database has a worker.
sub has_worker
{
	my ($node, $database, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'sqlstreams worker' AND datname = '$database'"), $name);
}

# Waits until it has none.
sub has_no_worker
{
	my ($node, $database, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'sqlstreams worker' AND datname = '$database'"), $name);
}

1;
