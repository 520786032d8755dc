/*
 * relaxed_commit.c
 *		A claim that is its own transaction need not wait for its WAL.
 *
 * If a crash loses a claim, its messages are delivered again: what a lease that
 * runs out does too.  But a transaction can be committed without a flush only
 * if it wrote nothing else.  So the claim notes where its WAL ends, and just
 * before commit that must still be where the transaction's ends; then
 * synchronous_commit is off for this one commit.
 *
 * The same goes for maintenance that others may wait for and that is done again
 * when it is lost.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "utils/guc.h"

#include "relaxed_commit.h"

/* Where the WAL ends that may be lost; invalid when nothing may be relaxed. */
static XLogRecPtr relaxed_end = InvalidXLogRecPtr;

/* Turn the flush off before the commit of a transaction that did nothing else. */
static void
transaction_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT && relaxed_end != InvalidXLogRecPtr &&
		relaxed_end == XactLastRecEnd && synchronous_commit > SYNCHRONOUS_COMMIT_OFF)
		(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
	relaxed_end = InvalidXLogRecPtr;
}

/* Register the callback.  Called once, when the library is loaded. */
void
relaxed_commit_init(void)
{
	RegisterXactCallback(transaction_callback, NULL);
}

/* Has this transaction written nothing yet? */
bool
relaxed_commit_is_clean(void)
{
	return XactLastRecEnd == InvalidXLogRecPtr;
}

/*
 * Let this transaction commit without waiting, if nothing more is written in
 * it.  Called at the end of what may be lost, which began in a clean transaction.
 */
void
relaxed_commit_allow(void)
{
	relaxed_end = XactLastRecEnd;
}
