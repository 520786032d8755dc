/*
 * id_sequence.c
 *		Draws message ids from a stream's sequence.  The only file that touches
 *		the sequence's page.
 *
 * The sequence is an ordinary one, so that pg_dump, psql and WAL replay know
 * it.  It is read and written here because nextval cannot draw several ids at
 * once and caches what it draws.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "commands/sequence.h"
#include "common/int.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "compat.h"
#include "id_sequence.h"

/*
 * As many ids as this are covered by one WAL record, so that not every draw
 * writes one.  A crash skips at most so many ids.
 */
#define IDS_LOGGED_AHEAD 32

/* Pin and lock the sequence's only page; returns its row, which *tuple spans. */
static Form_pg_sequence_data
lock_row(Relation rel, int mode, Buffer *buffer, HeapTupleData *tuple)
{
	Page		page;
	ItemId		item;

	*buffer = ReadBuffer(rel, 0);
	LockBuffer(*buffer, mode);
	page = BufferGetPage(*buffer);
	item = PageGetItemId(page, FirstOffsetNumber);
	if (!ItemIdIsNormal(item))
		elog(ERROR, "sequence \"%s\" has no row", RelationGetRelationName(rel));
	tuple->t_data = (HeapTupleHeader) PageGetItem(page, item);
	tuple->t_len = ItemIdGetLength(item);
	return (Form_pg_sequence_data) GETSTRUCT(tuple);
}

/* The highest id that was drawn; 0 before the first. */
static int64
last_drawn(Form_pg_sequence_data row)
{
	return row->is_called ? row->last_value : row->last_value - 1;
}

/* Write the sequence's state as it will be after the ids logged ahead. */
static void
log_row(Relation rel, Buffer buffer, Form_pg_sequence_data row, HeapTupleData *tuple)
{
	xl_seq_rec	record;
	XLogRecPtr	end;

	COMPAT_SET_SEQ_LOCATOR(record, rel);
	XLogBeginInsert();
	XLogRegisterBuffer(0, buffer, REGBUF_WILL_INIT);
	XLogRegisterData((char *) &record, sizeof(record));
	XLogRegisterData((char *) tuple->t_data, tuple->t_len);
	end = XLogInsert(RM_SEQ_ID, XLOG_SEQ_LOG);
	PageSetLSN(BufferGetPage(buffer), end);
}

/*
 * Draw ids for a stream and set *first to the lowest; the others follow it
 * without a gap.  The caller is inside of the stream's fence, so that it has a
 * transaction id.  Returns false when the sequence does not exist any more.
 */
bool
id_sequence_draw(const Stream *stream, int64 count, int64 *first)
{
	Relation	rel = try_relation_open(stream->sequence_oid, RowExclusiveLock);
	Buffer		buffer;
	HeapTupleData tuple;
	Form_pg_sequence_data row;
	int64		last;
	bool		must_log;

	if (rel == NULL)
		return false;

	row = lock_row(rel, BUFFER_LOCK_EXCLUSIVE, &buffer, &tuple);
	*first = last_drawn(row) + 1;
	if (pg_add_s64_overflow(*first, count - 1, &last) || last > PG_INT64_MAX - IDS_LOGGED_AHEAD)
		ereport(ERROR,
				(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				 errmsg("stream \"%s\" has no more message ids", stream->name)));

	/* as nextval: also when the last record lies before the checkpoint */
	must_log = !row->is_called || row->log_cnt < count ||
		PageGetLSN(BufferGetPage(buffer)) <= GetRedoRecPtr();

	START_CRIT_SECTION();
	MarkBufferDirty(buffer);
	row->is_called = true;
	if (must_log && RelationNeedsWAL(rel))
	{
		row->last_value = last + IDS_LOGGED_AHEAD;
		row->log_cnt = 0;
		log_row(rel, buffer, row, &tuple);
	}
	row->last_value = last;
	if (!RelationNeedsWAL(rel))
		row->log_cnt = 0;		/* nothing is logged ahead */
	else
		row->log_cnt = must_log ? IDS_LOGGED_AHEAD : row->log_cnt - count;
	END_CRIT_SECTION();

	UnlockReleaseBuffer(buffer);
	relation_close(rel, RowExclusiveLock);
	return true;
}

/*
 * Let no id up to a target be drawn any more, unless they were drawn already:
 * the sequence never goes back.  Returns false when it does not exist any more.
 */
bool
id_sequence_raise(const Stream *stream, int64 target)
{
	Relation	rel = try_relation_open(stream->sequence_oid, RowExclusiveLock);
	Buffer		buffer;
	HeapTupleData tuple;
	Form_pg_sequence_data row;

	if (rel == NULL)
		return false;
	if (RelationNeedsWAL(rel))
		(void) GetTopTransactionId();	/* its commit flushes the record */

	row = lock_row(rel, BUFFER_LOCK_EXCLUSIVE, &buffer, &tuple);
	if (last_drawn(row) < target)
	{
		START_CRIT_SECTION();
		MarkBufferDirty(buffer);
		row->is_called = true;
		row->last_value = target;
		row->log_cnt = 0;		/* exactly this is logged, nothing ahead */
		if (RelationNeedsWAL(rel))
			log_row(rel, buffer, row, &tuple);
		END_CRIT_SECTION();
	}
	UnlockReleaseBuffer(buffer);
	relation_close(rel, RowExclusiveLock);
	return true;
}

/*
 * Set *last to the highest id that was drawn, 0 when none was.  Returns false
 * when the sequence does not exist any more.
 */
bool
id_sequence_last(Oid sequence_oid, int64 *last)
{
	Relation	rel = try_relation_open(sequence_oid, AccessShareLock);
	Buffer		buffer;
	HeapTupleData tuple;

	if (rel == NULL)
		return false;
	*last = last_drawn(lock_row(rel, BUFFER_LOCK_SHARE, &buffer, &tuple));
	UnlockReleaseBuffer(buffer);
	relation_close(rel, AccessShareLock);
	return true;
}
