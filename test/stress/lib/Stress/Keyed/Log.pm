package Stress::Keyed::Log;

# The rules of message keys once more, read by SQL from the server's own tables: the
# delivery log, in which every delivery is (the stream's delivery_log is all), the
# log and the exceptions. It knows nothing of what the clients wrote down.
#
# What a claim decides it may decide a moment after its started_at. But the claims
# of a group come one after another: so it did by the time the next one started.

use strict;
use warnings;
use Stress::Keyed::Message;

# What the rules are about: each delivery with its key, the policy of its group, the
# time by which its claim had decided, and the time at which it resolved the
# message, if it did; the compacted messages, the best of a key being its head.
my $DELIVERIES = <<'SQL';
WITH started AS (
	SELECT group_id, claim_id, min(started_at) AS started_at
	FROM sqlstreams.delivery_log_%1$d GROUP BY group_id, claim_id),
claim AS (
	SELECT group_id, claim_id,
		lead(started_at, 1, 'infinity') OVER (PARTITION BY group_id ORDER BY started_at) AS decided_by
	FROM started),
consumer_group AS (
	SELECT group_id, consumer_group, superseded, (settings->>'max_retries')::bigint AS max_retries
	FROM sqlstreams.consumer_groups WHERE stream = %2$s),
message AS (
	SELECT id, message_key, compaction_rank, schema_version,
		row_number() OVER (PARTITION BY message_key ORDER BY schema_version DESC, compaction_rank DESC, id DESC)
			= 1 AS is_head
	FROM sqlstreams.message_log_%1$d WHERE compaction_rank IS NOT NULL
	UNION ALL
	SELECT id, message_key, NULL, schema_version, false
	FROM sqlstreams.message_log_%1$d WHERE compaction_rank IS NULL),
delivery AS (
	SELECT d.*, c.decided_by, g.consumer_group, m.message_key, m.compaction_rank, m.is_head,
		p.policy,
		CASE WHEN d.outcome IN ('ack', 'reject')
			OR d.outcome IN ('nack', 'expired') AND d.attempt > g.max_retries THEN d.ended_at END AS resolved_at
	FROM sqlstreams.delivery_log_%1$d AS d
	JOIN claim AS c USING (group_id, claim_id)
	JOIN consumer_group AS g USING (group_id)
	LEFT JOIN message AS m ON m.id = d.message_id
	LEFT JOIN (VALUES %3$s) AS p (consumer_group, kind, policy)
		ON p.consumer_group = g.consumer_group AND p.kind = left(m.message_key, 1))
SQL

# What must find nothing: kind => a query that returns what it found, in words.
my %RULES = (
	# A deferred row is a message that a claim met and did not deliver, or one that it
	# had to give back: the latter are left to the records.
	'key with two holders' => <<'SQL',
, held AS (
	SELECT consumer_group, message_key, claim_id, min(started_at) AS started_at,
		max(ended_at) AS ended_at, min(decided_by) AS decided_by
	FROM delivery
	WHERE policy <> 'parallel' AND outcome NOT IN ('deferred', 'superseded')
	GROUP BY consumer_group, message_key, claim_id)
SELECT format('group %%s, key %%s: claim %%s had it from %%s to %%s, claim %%s from %%s',
	a.consumer_group, a.message_key, a.claim_id, a.started_at, a.ended_at, b.claim_id, b.started_at)
FROM held AS a JOIN held AS b USING (consumer_group, message_key)
WHERE a.started_at < b.started_at AND a.ended_at > b.decided_by
SQL

	'predecessor passed' => <<'SQL',
, course AS (
	SELECT group_id, message_key, message_id,
		coalesce(min(resolved_at), min(ended_at) FILTER (WHERE outcome = 'superseded'), 'infinity') AS resolved_at
	FROM delivery WHERE policy = 'ordered'
	GROUP BY group_id, message_key, message_id)
SELECT format('group %%s, key %%s: message %%s in claim %%s of %%s before %%s',
	b.consumer_group, message_key, b.message_id, b.claim_id, b.started_at, a.message_id)
FROM delivery AS b JOIN course AS a USING (group_id, message_key)
WHERE b.outcome NOT IN ('deferred', 'superseded')
	AND a.message_id < b.message_id AND a.resolved_at > b.decided_by AND NOT EXISTS (
		SELECT FROM delivery AS d
		WHERE d.group_id = b.group_id AND d.claim_id = b.claim_id AND d.message_id = a.message_id)
SQL

	'head not delivered last' => <<'SQL',
SELECT DISTINCT ON (consumer_group, message_key)
	format('group %%s, key %%s: message %%s was', consumer_group, message_key, message_id), is_head
FROM delivery
WHERE compaction_rank IS NOT NULL AND outcome NOT IN ('deferred', 'superseded')
ORDER BY consumer_group, message_key, started_at DESC, message_id DESC
SQL

	'head superseded' => <<'SQL',
SELECT format('group %%s, key %%s: message %%s', consumer_group, message_key, message_id)
FROM delivery WHERE outcome = 'superseded' AND is_head IS NOT FALSE
SQL

	'wrong count of superseded' => <<'SQL',
SELECT format('group %%s: %%s instead of %%s', g.consumer_group, g.superseded, count(d.message_id))
FROM consumer_group AS g LEFT JOIN delivery AS d ON d.group_id = g.group_id AND d.outcome = 'superseded'
GROUP BY g.consumer_group, g.superseded HAVING g.superseded <> count(d.message_id)
SQL

	'head not as the log has it' => <<'SQL',
SELECT format('key %%s', message_key)
FROM (SELECT message_key, id FROM message WHERE is_head) AS m
FULL JOIN sqlstreams.compaction_heads(%2$s, max_keys => 100000) AS h USING (message_key)
WHERE m.id IS DISTINCT FROM h.message_id
SQL

	'not finished' => <<'SQL',
SELECT format('group %%s: message %%s', g.consumer_group, m.id)
FROM consumer_group AS g CROSS JOIN message AS m
WHERE (SELECT count(*) FILTER (WHERE d.outcome IN ('ack', 'superseded')) FROM delivery AS d
		WHERE d.group_id = g.group_id AND d.message_id = m.id)
	+ (SELECT count(*) FROM sqlstreams.exception_queue_%1$d AS e
		WHERE e.group_id = g.group_id AND e.message_id = m.id AND e.status = 'x') <> 1
SQL

	'deliveries left' => <<'SQL');
SELECT format('group %%s: %%s', consumer_group, number)
FROM (
	SELECT group_id, 'a lease of claim ' || claim_id AS number FROM sqlstreams.claim_lease_%1$d
	UNION ALL
	SELECT group_id, 'exception ' || message_id || ' is ' || status::text
	FROM sqlstreams.exception_queue_%1$d WHERE status <> 'x'
	UNION ALL
	SELECT group_id, 'deferred message ' || message_id FROM sqlstreams.deferred_message_%1$d) AS l
JOIN consumer_group AS g USING (group_id)
SQL

# Checks the stream of a run. Returns the violations, each [ kind, detail ].
sub check
{
	my ($run, $dbh) = @_;
	my @violations;
	foreach my $kind (sort keys %RULES)
	{
		my $rows = _select($run, $dbh, $RULES{$kind});
		my @found = grep { !$_->[1] } @$rows;
		push @violations, map { [ "$kind, by the delivery log", $_->[0] ] } @found;
	}
	return @violations;
}

# How often each outcome came, by policy: 'policy outcome' => number.
sub counts
{
	my ($run, $dbh) = @_;
	my $rows = _select($run, $dbh, <<'SQL');
SELECT policy || ' ' || outcome, count(*) FROM delivery WHERE policy IS NOT NULL GROUP BY 1
SQL
	return map { @$_ } @$rows;
}

# Runs a query over what $DELIVERIES makes.
sub _select
{
	my ($run, $dbh, $query) = @_;
	my %groups = Stress::Keyed::Message::groups();
	my @policies;
	foreach my $group (sort keys %groups)
	{
		push @policies, map { "('$group', '$_', '" . Stress::Keyed::Message::policy($group, $_) . "')" } qw(o x n);
	}
	my $sql = sprintf $DELIVERIES . $query, $run->{stream_id}, $dbh->quote($run->{stream}), join ', ', @policies;
	return $dbh->selectall_arrayref($sql);
}

1;
