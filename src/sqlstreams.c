/*
 * sqlstreams.c
 *		The extension's module: what happens when the library is loaded.
 */
#include "postgres.h"

#include "fmgr.h"

#include "group.h"
#include "partition.h"
#include "relaxed_commit.h"
#include "settings.h"
#include "stream.h"

#ifdef PG_MODULE_MAGIC_EXT
PG_MODULE_MAGIC_EXT(.name = "sqlstreams", .version = "1.0");
#else
PG_MODULE_MAGIC;
#endif

PGDLLEXPORT void _PG_init(void);

/* Called once in each process that loads the library. */
void
_PG_init(void)
{
	settings_init();
	stream_init();
	group_init();
	partition_init();
	relaxed_commit_init();
}
