# Maintenance runs nothing that a stream's owner has planted with anybody else's rights: whatever runs, runs as the owner.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $node = new_node('main', "shared_preload_libraries = 'sqlstreams'\n");

# What ran, and as whom. Any role may write it.
sql($node, q{CREATE ROLE owner LOGIN;
	GRANT EXECUTE ON FUNCTION sqlstreams.create_stream TO owner;
	CREATE SCHEMA evil AUTHORIZATION owner;
	CREATE TABLE ran (what text, as_role name DEFAULT current_user);
	GRANT INSERT ON ran TO PUBLIC});

# What the owner does, in a session of their own.
sub as_owner
{
	my ($query) = @_;

	return $node->safe_psql('postgres', $query, extra_params => [ '--username', 'owner' ]);
}

# the functions: one that does it, and others that lead to it from wherever the owner can put a function
my $plant = q{
	CREATE FUNCTION evil.run(what text) RETURNS boolean LANGUAGE plpgsql AS $f$
	DECLARE command text;
	BEGIN
		INSERT INTO public.ran VALUES (what, current_user);
		FOREACH command IN ARRAY '{ALTER ROLE owner SUPERUSER,CREATE ROLE made,RESET ROLE,SET ROLE postgres,SET SESSION AUTHORIZATION DEFAULT}'::text[] LOOP
			BEGIN
				EXECUTE command;
				INSERT INTO public.ran VALUES (what, current_user);
			EXCEPTION WHEN OTHERS THEN NULL;
			END;
		END LOOP;
		RETURN true;
	END $f$;
	CREATE FUNCTION evil.stable(what text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $f$ BEGIN RETURN evil.run(what); END $f$;
	CREATE FUNCTION evil.fire() RETURNS trigger LANGUAGE plpgsql AS $f$
	BEGIN
		PERFORM evil.run(TG_OP || ' on ' || TG_RELNAME || ' for ' || TG_LEVEL);
		RETURN coalesce(NEW, OLD);
	END $f$;
	ALTER ROLE owner SET search_path = evil, pg_catalog;
	CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE plpgsql AS $f$ BEGIN PERFORM evil.run('now'); RETURN pg_catalog.now(); END $f$;
	CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $f$ BEGIN PERFORM evil.run('clock_timestamp'); RETURN pg_catalog.now(); END $f$;
	CREATE FUNCTION evil.same(int8, int8) RETURNS boolean LANGUAGE plpgsql AS $f$ BEGIN RETURN evil.run('operator') AND pg_catalog.int8eq($1, $2); END $f$;
	CREATE OPERATOR evil.= (FUNCTION = evil.same, LEFTARG = int8, RIGHTARG = int8);
	CREATE OPERATOR evil.<= (FUNCTION = evil.same, LEFTARG = int8, RIGHTARG = int8);
	CREATE FUNCTION evil.text_is(text, text) RETURNS boolean LANGUAGE plpgsql AS $f$ BEGIN RETURN evil.run('operator') AND pg_catalog.texteq($1, $2); END $f$;
	CREATE OPERATOR evil.= (FUNCTION = evil.text_is, LEFTARG = text, RIGHTARG = text);
};
as_owner($plant);

# Says what ran with other rights than the owner's, or has given the owner some.
sub breach
{
	my ($run) = @_;

	return sql($node, "$run; SELECT what COLLATE \"C\" FROM ran WHERE as_role <> 'owner'
		UNION SELECT rolname FROM pg_roles WHERE rolname = 'owner' AND rolsuper OR rolname = 'made' ORDER BY 1");
}
is(breach(q{BEGIN; SELECT evil.run('superuser')}), "t\nmade\nowner\nsuperuser", 'this test sees what runs as a superuser');

# Makes a stream with something of everything to be maintained: groups with claims, exceptions, deliveries, keys of all kinds.
sub make_stream
{
	my ($stream) = @_;
	my $id = as_owner("SELECT sqlstreams.create_stream('$stream', partition_size => 4, retention => '1 day', delivery_log => 'all', allow_drop_past_committed => true)");

	as_owner(qq{SELECT sqlstreams.create_group('$stream', 'g');
		SELECT sqlstreams.produce_batch('$stream', '{1,2,3,4,5,6,7,8,9}', message_keys => '{a,b,c,d,e,f,g,h,i}', compaction => true, idempotency_keys => '{a,b,c,d,e,f,g,h,i}');
		SELECT sqlstreams.reject('$stream', 'g', claim_id, ARRAY[message_id]) FROM sqlstreams.claim('$stream', 'g', 1);
		SELECT sqlstreams.nack('$stream', 'g', claim_id, ARRAY[message_id]) FROM sqlstreams.claim('$stream', 'g', 1);
		SELECT sqlstreams.ack('$stream', 'g', claim_id, ARRAY[message_id]) FROM sqlstreams.claim('$stream', 'g', 1);
		SELECT count(*) FROM sqlstreams.claim('$stream', 'g', 1)});
	return $id;
}

# Everything that an owner can put on a table, but for what would keep maintenance from it.
sub plant_on
{
	my ($table, $column, @kinds) = @_;
	my %plants = (
		row => "CREATE TRIGGER a BEFORE INSERT OR UPDATE OR DELETE ON $table FOR EACH ROW EXECUTE FUNCTION evil.fire(); CREATE TRIGGER b AFTER INSERT OR UPDATE OR DELETE ON $table FOR EACH ROW EXECUTE FUNCTION evil.fire()",
		statement => "CREATE TRIGGER c BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON $table EXECUTE FUNCTION evil.fire(); CREATE TRIGGER d AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON $table EXECUTE FUNCTION evil.fire()",
		index => "CREATE INDEX ON $table (evil.stable('index on $table')); CREATE INDEX ON $table ($column) WHERE evil.stable('predicate on $table')",
		check => "ALTER TABLE $table ADD CHECK (evil.stable('check on $table')) NOT VALID",
		default => "ALTER TABLE $table ALTER $column SET DEFAULT to_jsonb(evil.run('default of $table'))",
		rule => "CREATE RULE r AS ON INSERT TO $table DO ALSO SELECT evil.run('rule on $table'); CREATE RULE s AS ON DELETE TO $table DO ALSO SELECT evil.run('rule on $table'); CREATE RULE t AS ON UPDATE TO $table DO ALSO SELECT evil.run('rule on $table')",
		generated => "ALTER TABLE $table ADD COLUMN generated boolean GENERATED ALWAYS AS (evil.stable('generated column of $table')) STORED");

	as_owner($plants{$_}) for @kinds;
}

# Lets everything be due.
sub let_time_pass
{
	sql($node, q{UPDATE sqlstreams.log_partition SET created_at = created_at - interval '10 days', sealed_at = sealed_at - interval '10 days';
		UPDATE sqlstreams.stream SET idempotency_since = idempotency_since - interval '10 days'});
}

my %streams = map { $_ => make_stream($_) } 'plain', 'log', 'rules', 'columns', 'state';
my @state = split /\n/, sql($node, qq{SELECT oid::regclass FROM pg_class WHERE relkind = 'r' AND relnamespace = 'sqlstreams'::regnamespace AND relname ~ '_$streams{state}(_g?[0-9]+)?\$' AND NOT relispartition});
cmp_ok(@state, '>', 8, 'there are tables of state');

# an index is something in the extension's schema, which only a superuser can let the owner make
sql($node, 'GRANT CREATE ON SCHEMA sqlstreams TO owner');
plant_on("sqlstreams.message_log_$streams{log}", 'headers', qw(row index check default));
plant_on("sqlstreams.message_log_$streams{log}_$_", 'headers', qw(index check)) for 0 .. 2;
plant_on("sqlstreams.message_log_$streams{rules}", 'headers', qw(statement rule));
plant_on("sqlstreams.message_log_$streams{columns}", 'headers', qw(generated));
for my $table (@state)
{
	my $column = sql($node, "SELECT attname FROM pg_attribute WHERE attrelid = '$table'::regclass AND attnum = 1");
	plant_on($table, $column, qw(row statement index check rule));
}
sql($node, q{REVOKE CREATE ON SCHEMA sqlstreams FROM owner; TRUNCATE ran});

# the procedure, called by a superuser who has the owner's schema and functions in the way
for my $time (1 .. 4)
{
	let_time_pass();
	is(breach(q{SET client_min_messages = error; SET ROLE owner; CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT evil.now()'; RESET ROLE;
		SET search_path = evil, pg_temp, pg_catalog; CALL sqlstreams.maintain(); RESET search_path}), '', "maintain(), pass $time: nothing runs with other rights");
}
is(sql($node, q{SELECT min(from_id) FROM sqlstreams.partitions WHERE stream = 'plain'}), 9, 'there was something to do');
is(sql($node, q{SELECT DISTINCT what COLLATE "C" FROM ran WHERE what ~ 'message_log_[0-9]+$' ORDER BY 1}) =~ s/ on \S+//gr, "check\nindex\npredicate", 'something has run as the owner');

# the worker
sql($node, 'TRUNCATE ran');
set_and_reload($node, 'sqlstreams.worker', 'on');
sql($node, q{SELECT count(*) FROM sqlstreams.workers});
as_owner("SELECT sqlstreams.produce_batch('$_', '{1,2,3,4,5,6,7,8,9}')") for 'plain', 'log', 'columns';
ok($node->poll_query_until('postgres', q{SELECT count(sealed_at) > 0 AND max(from_id) >= 25 FROM sqlstreams.partitions WHERE stream = 'plain'}), 'the worker makes and seals partitions');
let_time_pass();
sql($node, "SELECT pg_terminate_backend(pid) FROM sqlstreams.workers");
ok($node->poll_query_until('postgres', q{SELECT min(from_id) > 9 FROM sqlstreams.partitions WHERE stream = 'plain'}), 'another one drops them');
ok($node->poll_query_until('postgres', q{SELECT state = 'idle' FROM sqlstreams.workers}), 'and has looked at everything');
is(breach(''), '', 'the worker: nothing runs with other rights');
like(sql($node, q{SELECT error FROM sqlstreams.workers}), qr/^stream "state": [^:]+: table "\S+" has been altered$/, 'what is planted on a table of state keeps that from being changed');

done_testing();
