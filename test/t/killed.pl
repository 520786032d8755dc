# kill -9 of a backend with an open produce and with an open claim, and its milder forms.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $node = new_node('main');
sql($node, q{SELECT sqlstreams.create_stream('s', partition_size => 3), sqlstreams.create_group('s', 'g')});

# Ends a session's backend by a signal and waits until the server is back and the backend is gone.
sub strike
{
	my ($session, $signal) = @_;
	my $pid = $session->query_safe('SELECT pg_backend_pid()');

	kill $signal, $pid;
	$node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)")
	  or die "backend $pid did not end";
	$session->{run}->kill_kill;
}

for my $signal ('TERM', 'KILL')
{
	my $label = "SIG$signal";
	my $head = sql($node, 'SELECT messages_head FROM sqlstreams.streams');

	# produce
	my $session = session($node);
	$session->query_safe('BEGIN');
	is($session->query_safe(q{SELECT sqlstreams.produce('s', '"lost"', idempotency_key => 'k')}), $head + 1, "$label: an open produce");
	is(sql($node, qq{SELECT sqlstreams.produce('s', '"$label kept"')}), $head + 2, "$label: a committed one behind it");
	is_claimed($node, '', "$label: which is held back");
	strike($session, $signal);
	is_claimed($node, qq{"$label kept"}, "$label: and comes when the producer was killed");
	is(sql($node, q{SELECT payload FROM sqlstreams.peek('s', } . ($head + 1) . ', 1)'), qq{"$label kept"}, "$label: nothing of the killed one is left");
	cmp_ok(sql($node, qq{SELECT sqlstreams.produce('s', '"$label again"', idempotency_key => 'k $label')}), '>', $head + 2, "$label: ids go on rising");

	# a produce that is killed while another waits for its key
	$session = session($node);
	$session->query_safe('BEGIN');
	$session->query_safe(qq{SELECT sqlstreams.produce('s', '"lost"', idempotency_key => 'waited for $label')});
	strike($session, $signal);
	cmp_ok(sql($node, qq{SELECT sqlstreams.produce('s', '"$label key"', idempotency_key => 'waited for $label')}), '>', 0, "$label: the key of a killed produce is free");

	# claim
	$session = session($node);
	$session->query_safe('BEGIN');
	is($session->query_safe(q{SELECT string_agg(payload::text, ' ') FROM sqlstreams.claim('s', 'g', 1, '1 hour')}), qq{"$label again"}, "$label: an open claim");
	strike($session, $signal);
	is_claimed($node, qq{"$label again" "$label key"}, "$label: is claimable at once");

	# ack
	sql($node, qq{SELECT sqlstreams.produce('s', '"$label acked"')});
	my $claim = sql($node, q{SELECT claim_id FROM sqlstreams.claim('s', 'g', 1, '1 millisecond')});
	$session = session($node);
	$session->query_safe('BEGIN');
	is($session->query_safe(qq{SELECT sqlstreams.ack('s', 'g', $claim)}), 1, "$label: an open ack");
	strike($session, $signal);
	ok(wait_for_expiry($node, $claim), "$label: whose lease ends");
	is(sql($node, q{SELECT payload::text || ' ' || takeovers FROM sqlstreams.claim('s', 'g', 1)}), qq{"$label acked" 1}, "$label: never was: the message comes back");
	is(sqlstate($node, "SELECT sqlstreams.ack('s', 'g', $claim)"), 'SS004', "$label: and its old holder has lost it");
}
is(sql($node, q{SELECT string_agg(payload::text, ' ') FROM sqlstreams.peek('s', 1, 100)}),
	join(' ', map { my $s = $_; map { qq{"SIG$s $_"} } 'kept', 'again', 'key', 'acked' } 'TERM', 'KILL'), 'every committed message is in the log, once');

done_testing();
