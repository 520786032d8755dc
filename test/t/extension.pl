# Installing and removing the extension: by whom, where, and when not.
use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use SqlstreamsTest;

my $node = new_node('main');

# DROP EXTENSION refuses while streams exist
sql($node, q{SELECT sqlstreams.create_stream('s'), sqlstreams.create_group('s', 'g'), sqlstreams.produce('s', '1')});
is(sqlstate($node, 'DROP EXTENSION sqlstreams'), '2BP01', 'DROP EXTENSION refuses while there is a stream');
is(sqlstate($node, 'DROP SCHEMA sqlstreams'), '2BP01', 'so does DROP SCHEMA');
is(sqlstate($node, 'DROP SCHEMA sqlstreams CASCADE'), '2BP01', 'also with CASCADE, for the schema is the extension\'s');
is(sqlstate($node, 'ALTER EXTENSION sqlstreams SET SCHEMA public'), '0A000', 'the schema is fixed');
is(claimed($node), '1', 'the stream is as it was');
sql($node, q{SELECT sqlstreams.drop_stream('s')});
sql($node, 'DROP EXTENSION sqlstreams');
is(sql($node, q{SELECT count(*) FROM pg_namespace WHERE nspname = 'sqlstreams'}), 0, 'without streams it goes, and its schema with it');
sql($node, 'CREATE EXTENSION sqlstreams');
is(sql($node, q{SELECT sqlstreams.create_stream('s') > 0, sqlstreams.create_group('s', 'g') > 0, sqlstreams.produce('s', '2')}), 't|t|1', 'and comes again');

# a session that knew the streams of the extension that was there before
my $old = session($node);
is($old->query_safe(q{SELECT sqlstreams.produce('s', '3')}), 2, 'a session knows the stream');
sql($node, q{SELECT sqlstreams.drop_stream('s')});
sql($node, 'DROP EXTENSION sqlstreams');
sql($node, 'CREATE EXTENSION sqlstreams');
sql($node, q{SELECT sqlstreams.create_stream('s'), sqlstreams.create_group('s', 'g')});
is($old->query_safe(q{SELECT sqlstreams.produce('s', '4')}), 1, 'and finds the new one of that name');
is($old->query_safe(q{SELECT payload FROM sqlstreams.claim('s', 'g')}), 4, 'and its group');
$old->quit;

# DROP EXTENSION CASCADE takes everything
sql($node, 'DROP EXTENSION sqlstreams CASCADE');
is(sql($node, q{SELECT count(*) FROM pg_namespace WHERE nspname = 'sqlstreams'}), 0, 'DROP EXTENSION CASCADE takes the streams along');

# a role that may only create in the database
$node->safe_psql('postgres', 'CREATE DATABASE trusted');
sql($node, 'CREATE ROLE installer LOGIN; CREATE ROLE nobody LOGIN; GRANT CREATE ON DATABASE trusted TO installer');
is(sqlstate($node, 'SET ROLE nobody; CREATE EXTENSION sqlstreams', 'trusted'), '42501', 'not everybody may install');
sql($node, 'SET ROLE installer; CREATE EXTENSION sqlstreams', 'trusted');
is(sql($node, q{SET ROLE installer; SELECT sqlstreams.create_stream('s', partition_size => 2) > 0, sqlstreams.create_group('s', 'g') > 0}, 'trusted'), 't|t', 'a role with CREATE on the database installs it and creates streams');
is(sql($node, q{SET ROLE installer; SELECT array_agg(id) FROM sqlstreams.produce_batch('s', '{1,2,3,4,5}') id}, 'trusted'), '{1,2,3,4,5}', 'and produces, over partitions');
is(sql($node, q{SET ROLE installer; SELECT string_agg(payload::text, ' ') FROM sqlstreams.claim('s', 'g', 9)}, 'trusted'), '1 2 3 4 5', 'and claims');
is(sql($node, q{SELECT DISTINCT relowner::regrole FROM pg_class WHERE relnamespace = 'sqlstreams'::regnamespace AND relname ~ '^[a-z_]+_1(_|$)' AND relkind IN ('r', 'p')}, 'trusted'), 'installer', 'and owns what is the stream\'s');
is(sqlstate($node, q{SET ROLE installer; CREATE TABLE sqlstreams.x ()}, 'trusted'), '42501', 'but may create nothing in the schema');
is(sqlstate($node, q{SET ROLE installer; CREATE FUNCTION sqlstreams.produce(text, text) RETURNS int LANGUAGE sql AS 'SELECT 1'}, 'trusted'), '42501', 'no overload either');
is(sqlstate($node, q{SET ROLE nobody; SELECT sqlstreams.create_stream('x')}, 'trusted'), '42501', 'others may not create streams');
sql($node, q{SET ROLE installer; GRANT EXECUTE ON FUNCTION sqlstreams.create_stream TO nobody}, 'trusted');
is(sql($node, q{SET ROLE nobody; SELECT sqlstreams.create_stream('x') > 0}, 'trusted'), 't', 'until the installer grants it');
is(sqlstate($node, 'DROP ROLE nobody'), '2BP01', 'a role that owns a stream cannot be dropped');
sql($node, 'REASSIGN OWNED BY nobody TO installer', 'trusted');
is(sql($node, q{SELECT owner FROM sqlstreams.streams WHERE stream = 'x'}, 'trusted'), 'installer', 'its streams can be given to another');
is(sql($node, q{SET ROLE installer; SELECT sqlstreams.produce('x', '1'), sqlstreams.create_group('x', 'g') > 0}, 'trusted'), '1|t', 'who has every right then');
is(sqlstate($node, q{SET ROLE nobody; SELECT sqlstreams.produce('x', '1')}, 'trusted'), '42501', 'and the old owner none');

# what somebody planted before
$node->safe_psql('postgres', 'CREATE DATABASE planted');
sql($node, 'CREATE SCHEMA sqlstreams', 'planted');
is(sqlstate($node, 'CREATE EXTENSION sqlstreams', 'planted'), '42P06', 'a schema that is there already is not adopted');
sql($node, 'DROP SCHEMA sqlstreams; CREATE EXTENSION sqlstreams', 'planted');
is(sqlstate($node, 'CREATE EXTENSION sqlstreams', 'planted'), '42710', 'nor is it installed twice');

# preloaded
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'sqlstreams'");
$node->restart;
is(sql($node, q{SET ROLE installer; SELECT array_agg(id) FROM sqlstreams.produce_batch('s', '{6,7,8,9}') id}, 'trusted'), '{6,7,8,9}', 'it works preloaded as well');
is(sql($node, q{SHOW sqlstreams.relaxed_claim}), 'on', 'and its settings are known to every session');

# a database with streams can be dropped
$node->safe_psql('postgres', 'DROP DATABASE trusted');
is(sql($node, q{SELECT count(*) FROM pg_database WHERE datname = 'trusted'}), 0, 'a database with streams can be dropped');

done_testing();
