/*
 * relaxed_commit.c
 *		A claim that is its own transaction need not wait for its WAL.
 *
 * If a crash loses a claim, its messages are delivered again: what a lease that
 * runs out does too.  But a transaction can be committed without a flush only
 * if it wrote nothing else.  So the claim notes where its WAL ends, and just
 * before commit that must still be where the transaction's ends; then
 * synchronous_commit is off for this one commit.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "utils/guc.h"

#include "relaxed_commit.h"
#include "settings.h"

/* Where the WAL of the claim ends; invalid when nothing may be relaxed. */
static XLogRecPtr claim_end = InvalidXLogRecPtr;

/* Turn the flush off before the commit of a transaction that only claimed. */
static void
transaction_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT && claim_end != InvalidXLogRecPtr &&
		claim_end == XactLastRecEnd && synchronous_commit > SYNCHRONOUS_COMMIT_OFF)
		(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, 0, false);
	claim_end = InvalidXLogRecPtr;
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
 * it.  Called at the end of a claim that began in a clean transaction.
 */
void
relaxed_commit_allow(void)
{
	if (sqlstreams_relaxed_claim)
		claim_end = XactLastRecEnd;
}
