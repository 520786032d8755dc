/*
 * settings.c
 *		Every setting, its variable and its text in pg_settings.
 */
#include "postgres.h"

#include "utils/guc.h"

#include "settings.h"

bool		sqlstreams_relaxed_claim = true;
int			sqlstreams_max_scan = 10000;

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

	MarkGUCPrefixReserved("sqlstreams");
}
