/*
 * compaction.h
 *		Compaction heads: which message of a key is its newest version.
 */
#ifndef SQLSTREAMS_COMPACTION_H
#define SQLSTREAMS_COMPACTION_H

#include "message_log.h"
#include "state_table.h"
#include "state_walk.h"
#include "stream.h"

typedef struct CompactionReader CompactionReader;
typedef struct CompactionEditor CompactionEditor;

/* Keys that were ever taken, in byte order. */
typedef struct CompactionKeyScan
{
	StateTable	table;
	StateScan	scan;
	bool		is_open;		/* false: there is no table, and so no key */
} CompactionKeyScan;

extern bool compaction_lock_keys(const Stream *stream, text **keys, int count);
extern void compaction_write_heads(const Stream *stream, LogMessage **messages, int count);

extern CompactionReader *compaction_reader_open(const Stream *stream, Snapshot snapshot);
extern bool compaction_find_head(CompactionReader *reader, text *key, int64 *message_id);
extern bool compaction_is_head(CompactionReader *reader, text *key, int64 message_id);
extern void compaction_reader_close(CompactionReader *reader);

extern void compaction_keys_begin(CompactionKeyScan *scan, const Stream *stream, text *after_key, Snapshot snapshot);
extern text *compaction_keys_next(CompactionKeyScan *scan);
extern void compaction_keys_end(CompactionKeyScan *scan);

extern CompactionEditor *compaction_editor_open(const Stream *stream);
extern void compaction_editor_walk(CompactionEditor *editor, StateWalk *walk, text *after_key, int64 max_entries);
extern text *compaction_editor_key(StateWalk *walk);
extern bool compaction_editor_find(CompactionEditor *editor, text *key, int64 *message_id);
extern bool compaction_editor_take(CompactionEditor *editor, text *key);
extern void compaction_editor_remove(CompactionEditor *editor, text *key);
extern void compaction_editor_close(CompactionEditor *editor);

#endif							/* SQLSTREAMS_COMPACTION_H */
