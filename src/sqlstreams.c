/*
 * sqlstreams.c
 *		The extension's module: what happens when the library is loaded.
 */
#include "postgres.h"

#include "fmgr.h"

#include "group.h"
#include "launcher.h"
#include "partition.h"
#include "relaxed_commit.h"
#include "settings.h"
#include "stream.h"
#include "worker_registry.h"
#include "worker_start.h"

#ifdef PG_MODULE_MAGIC_EXT
PG_MODULE_MAGIC_EXT(.name = "sqlstreams", .version = "1.0");
#else
PG_MODULE_MAGIC;
#endif

PGDLLEXPORT void _PG_init(void);

/*
 * A batch needs some megabytes for the length of a statement.  By default the
 * C library of Linux gives them back to the kernel each time and pays for fresh
 * pages with the next batch, which can cost more than all else; having freed a
 * chunk of this size once, it keeps up to twice as much.
 */
#define KEPT_MEMORY_BYTES (8 * 1024 * 1024)

/* Called once in each process that loads the library. */
void
_PG_init(void)
{
	pfree(palloc(KEPT_MEMORY_BYTES));

	settings_init();
	stream_init();
	group_init();
	partition_init();
	relaxed_commit_init();
	worker_registry_init();
	launcher_init();
	worker_start_init();
}
