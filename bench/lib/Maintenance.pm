# What the worker costs and how late it is. The server runs on this machine.
package Maintenance;

use strict;
use warnings;
use Exporter 'import';
use Measure;
use POSIX qw(sysconf _SC_CLK_TCK);
use Time::HiRes qw(sleep time);

our @EXPORT = qw(idle_streams active_streams);

# Makes so many streams, a hundred in each transaction.
sub make_streams
{
	my ($count, $settings) = @_;
	query("DO \$\$ BEGIN FOR i IN 1..$count LOOP PERFORM sqlstreams.create_stream('m' || i$settings); "
		  . "IF i % 100 = 0 THEN COMMIT; END IF; END LOOP; END \$\$");
	return;
}

sub worker_pid { return query("SELECT pid FROM sqlstreams.workers WHERE database = current_database()") }

# Seconds of CPU that a process has used.
sub cpu_seconds
{
	my ($pid) = @_;
	open my $stat, '<', "/proc/$pid/stat" or die "/proc/$pid/stat: $!\n";
	my @field = split / /, <$stat> =~ s/^.*\) //r;
	return ($field[11] + $field[12]) / sysconf(_SC_CLK_TCK);
}

# Waits until the worker has had nothing to do for some turns.
sub wait_until_idle
{
	my ($pid) = @_;
	for (my $quiet = 0; $quiet < 5; sleep 1)
	{
		my $before = cpu_seconds($pid);
		sleep 1;
		$quiet = cpu_seconds($pid) - $before < 0.05 ? $quiet + 1 : 0;
	}
	return;
}

sub report_idle
{
	my ($title, $pid) = @_;
	wait_until_idle($pid);
	my $before = cpu_seconds($pid);
	sleep $options{idle};
	printf "%-50s %.2f %% of a core (goal: under 1)\n", $title, 100 * (cpu_seconds($pid) - $before) / $options{idle};
	return;
}

# M1: the worker's CPU while nothing happens in --streams streams, never used and used once.
sub idle_streams
{
	my $streams = $options{streams};
	make_streams($streams, '');
	my $pid = worker_pid();
	report_idle("$streams streams, never used", $pid);
	my $begin = time;
	query("DO \$\$ BEGIN FOR i IN 1..$streams LOOP PERFORM sqlstreams.produce('m' || i, '1'); "
		  . "IF i % 100 = 0 THEN COMMIT; END IF; END LOOP; END \$\$");
	report_idle("$streams streams with a message each", $pid);
	printf "%-50s %.0f s\n", 'from their first message to rest', time - $begin - $options{idle};
	query("SELECT pg_terminate_backend($pid)");
	do { sleep 0.1 } until worker_pid() =~ /^(?!$pid$)\d+$/;
	$pid = worker_pid();
	wait_until_idle($pid);
	printf "%-50s %.2f s\n", "CPU of a new worker's first look at them", cpu_seconds($pid);
	return;
}

# M2: a tenth of --streams streams fill a partition of 100 ids each every 10 s or so: how often
# a producer had to make one, by the partitions that were not there when their first id was drawn.
sub active_streams
{
	my $streams = int($options{streams} / 10);
	make_streams($streams, ', partition_size => 100');
	my $script = write_scratch('active.sql', "\\set s random(1, $streams)\n"
		  . "SELECT count(*) FROM sqlstreams.produce_batch('m' || :s, array_fill('1'::jsonb, ARRAY[10]));\n");
	my $rate = $streams;
	system(qw(pgbench -n -c 4), '-T', $options{idle}, '-R', $rate, '-f', $script) == 0 or die "pgbench failed\n";
	print query("WITH made AS (SELECT stream, count(*) FILTER (WHERE state <> 'open') AS used, min(created_at) FROM sqlstreams.partitions GROUP BY stream), "
		  . "late AS (SELECT p.stream, p.created_at - m.created_at AS lag FROM sqlstreams.partitions p "
		  . "JOIN sqlstreams.streams s USING (stream), LATERAL sqlstreams.peek(p.stream, p.from_id - 2 * s.partition_size, 1) m "
		  . "WHERE p.from_id > 2 * s.partition_size AND m.message_id = p.from_id - 2 * s.partition_size) "
		  . "SELECT format('%s partitions filled; the second ahead came after: median %s, 99 %% %s, last %s', (SELECT sum(used) FROM made), "
		  . "percentile_disc(0.5) WITHIN GROUP (ORDER BY lag), percentile_disc(0.99) WITHIN GROUP (ORDER BY lag), max(lag)) FROM late"), "\n";
	return;
}

1;
