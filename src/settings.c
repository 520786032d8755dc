/*
 * settings.c
 *		Every setting, its variable and its text in pg_settings.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "settings.h"

bool		sqlstreams_relaxed_claim = true;
int			sqlstreams_max_scan = 10000;
bool		sqlstreams_worker = true;
int			sqlstreams_naptime_ms = 1000;
char	   *sqlstreams_databases = NULL;

/* Refuse what is no list of names. */
static bool
check_databases(char **new_value, void **extra, GucSource source)
{
	char	   *copy = pstrdup(*new_value);
	List	   *names;
	bool		is_valid = SplitIdentifierString(copy, ',', &names);

	if (!is_valid)
		GUC_check_errdetail("List syntax is invalid.");
	list_free(names);
	pfree(copy);
	return is_valid;
}

/* Are there to be workers in a database of this name? */
bool
settings_include_database(const char *name)
{
	char	   *copy = pstrdup(sqlstreams_databases);
	List	   *names;
	ListCell   *cell;
	bool		is_included;

	/* the check has seen to it that this works */
	(void) SplitIdentifierString(copy, ',', &names);
	is_included = names == NIL;
	foreach(cell, names)
		is_included |= strcmp(lfirst(cell), name) == 0;
	list_free(names);
	pfree(copy);
	return is_included;
}

/* Define the settings.  Called once, when the library is loaded. */
void
settings_init(void)
{
	DefineCustomBoolVariable("sqlstreams.relaxed_claim",
							 "A claim that is its own transaction does not wait for its WAL.",
							 "After a crash of the server messages may be with two holders until the first one's lease ends.",
							 &sqlstreams_relaxed_claim,
							 true,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("sqlstreams.max_scan",
							"Log rows that one claim may step over.",
							"A consumer group with bindings or a schema version steps over what it does not get.",
							&sqlstreams_max_scan,
							10000, 1000, 1000000,
							PGC_USERSET,
							0,
							NULL, NULL, NULL);

	DefineCustomBoolVariable("sqlstreams.worker",
							 "Background workers do the maintenance.",
							 "Where it is off, sqlstreams.maintain() is to be called now and then.",
							 &sqlstreams_worker,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("sqlstreams.naptime",
							"Time between two turns of a background worker that has nothing to do.",
							"What is due, and what a producer needs, is done at once.",
							&sqlstreams_naptime_ms,
							1000, 100, 3600000,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomStringVariable("sqlstreams.databases",
							   "Databases in which background workers do the maintenance.",
							   "Empty: every database that has the extension.",
							   &sqlstreams_databases,
							   "",
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   check_databases, NULL, NULL);

	MarkGUCPrefixReserved("sqlstreams");
}
