/*
 * claim_result.c
 *		What a claim returns, and the lease on it.
 *
 * Without a given lease, it lasts as long as the longest timeout of the
 * messages asks for.  Where messages may ask for different ones, the rows are
 * kept until the last is known.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/xact.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "claim.h"
#include "duration.h"
#include "outcome.h"

/* What a lease is longer than the time that its messages may run. */
#define LEASE_MARGIN_US (15 * USECS_PER_SEC)

/* Columns of type claimed_message, less one. */
enum
{
	CLAIMED_CLAIM_ID,
	CLAIMED_MESSAGE_ID,
	CLAIMED_PAYLOAD,
	CLAIMED_MESSAGE_KEY,
	CLAIMED_ROUTING_KEY,
	CLAIMED_HEADERS,
	CLAIMED_SCHEMA_VERSION,
	CLAIMED_COMPACTION_RANK,
	CLAIMED_CREATED_AT,
	CLAIMED_DELIVER_AT,
	CLAIMED_ATTEMPTS,
	CLAIMED_DELAYS,
	CLAIMED_TAKEOVERS,
	CLAIMED_CONCURRENCY,
	CLAIMED_OPTIONS,
	CLAIMED_LEASE_EXPIRES_AT,
	CLAIMED_BODY,
	CLAIMED_COLUMNS
};

/* Make a tuplestore for messages. */
static Tuplestorestate *
make_store(const Claim *claim)
{
	return tuplestore_begin_heap((claim->result->allowedModes & SFRM_Materialize_Random) != 0, false, work_mem);
}

/*
 * Get ready to return messages.  They are kept in a context that does not round
 * their sizes up: one of 1 kB would take 2 kB in an ordinary one, and filling
 * fresh memory is much of what a large claim costs.
 */
void
claim_result_begin(FunctionCallInfo fcinfo, Claim *claim)
{
	MemoryContext old;

	claim->result = (ReturnSetInfo *) fcinfo->resultinfo;
	InitMaterializedSRF(fcinfo, 0);
	tuplestore_end(claim->result->setResult);
	old = MemoryContextSwitchTo(GenerationContextCreate(claim->result->econtext->ecxt_per_query_memory,
														"sqlstreams claimed messages",
														ALLOCSET_DEFAULT_SIZES));
	claim->result->setResult = make_store(claim);
	MemoryContextSwitchTo(old);
	claim->rows = claim->result->setResult;
}

/* Can another message be returned? */
bool
claim_has_room(const Claim *claim)
{
	return claim->messages_left > 0 && claim->bytes_left > 0;
}

/* Is the lease's end known only when all messages are? */
static bool
depends_on_messages(const Claim *claim)
{
	return claim->lease_us == 0 && !claim->group.policy.is_fixed;
}

/* When the claim's lease ends, as far as is known. */
static TimestampTz
lease_end(const Claim *claim)
{
	return duration_add(claim->now, claim->lease_us > 0 ? claim->lease_us :
						duration_add(claim->longest_timeout_us, LEASE_MARGIN_US));
}

/* The effective options of a message that asked for some (NULL: none). */
static Datum
find_options(Claim *claim, Jsonb *asked)
{
	const OptionsPolicy *policy = &claim->group.policy;
	AskedOptions read;
	MessageOptions effective;

	if (policy->is_fixed || (asked == NULL && claim->stream.asked_options.given == 0))
	{
		claim->longest_timeout_us = Max(claim->longest_timeout_us, policy->own.timeout_us);
		return claim->group.options;
	}
	if (asked != NULL)
		message_options_read(asked, &read);
	message_options_resolve(policy, asked != NULL ? &read : NULL, &claim->stream.asked_options, &effective);
	claim->longest_timeout_us = Max(claim->longest_timeout_us, effective.timeout_us);
	return message_options_make_jsonb(&effective);
}

/* Return the row where the scan is. */
void
claim_return_message(Claim *claim, LogScan *scan, const DeliveryCounts *counts)
{
	Datum	   *row;
	bool	   *row_isnull;
	Datum		values[CLAIMED_COLUMNS];
	bool		isnull[CLAIMED_COLUMNS] = {false};

	message_log_scan_row(scan, &row, &row_isnull);

#define COPY_COLUMN(to, from) \
	(values[to] = row[(from) - 1], isnull[to] = row_isnull[(from) - 1])

	values[CLAIMED_CLAIM_ID] = Int64GetDatum(claim->claim_id);
	isnull[CLAIMED_CLAIM_ID] = claim->is_pop;
	COPY_COLUMN(CLAIMED_MESSAGE_ID, Anum_log_id);
	COPY_COLUMN(CLAIMED_PAYLOAD, Anum_log_payload);
	COPY_COLUMN(CLAIMED_MESSAGE_KEY, Anum_log_message_key);
	COPY_COLUMN(CLAIMED_ROUTING_KEY, Anum_log_routing_key);
	COPY_COLUMN(CLAIMED_HEADERS, Anum_log_headers);
	COPY_COLUMN(CLAIMED_SCHEMA_VERSION, Anum_log_schema_version);
	COPY_COLUMN(CLAIMED_COMPACTION_RANK, Anum_log_compaction_rank);
	COPY_COLUMN(CLAIMED_CREATED_AT, Anum_log_created_at);
	COPY_COLUMN(CLAIMED_DELIVER_AT, Anum_log_deliver_at);
	values[CLAIMED_ATTEMPTS] = Int32GetDatum(counts->attempts);
	values[CLAIMED_DELAYS] = Int32GetDatum(counts->delays);
	values[CLAIMED_TAKEOVERS] = Int32GetDatum(counts->takeovers);
	values[CLAIMED_CONCURRENCY] = CStringGetTextDatum(concurrency_name(claim_concurrency(claim, scan)));
	values[CLAIMED_OPTIONS] = find_options(claim, row_isnull[Anum_log_options - 1] ? NULL :
										   DatumGetJsonbP(row[Anum_log_options - 1]));
	values[CLAIMED_LEASE_EXPIRES_AT] = TimestampTzGetDatum(lease_end(claim));
	isnull[CLAIMED_LEASE_EXPIRES_AT] = claim->is_pop;
	COPY_COLUMN(CLAIMED_BODY, Anum_log_body);

#undef COPY_COLUMN

	if (claim->returned_count == 0 && depends_on_messages(claim))
		claim->rows = make_store(claim);
	tuplestore_putvalues(claim->rows, claim->result->setDesc, values, isnull);
	pfree(DatumGetPointer(values[CLAIMED_CONCURRENCY]));

	claim->returned_count++;
	claim->messages_left--;
	if (!isnull[CLAIMED_PAYLOAD])
		claim->bytes_left -= toast_raw_datum_size(values[CLAIMED_PAYLOAD]) - VARHDRSZ;
	if (!isnull[CLAIMED_BODY])
		claim->bytes_left -= toast_raw_datum_size(values[CLAIMED_BODY]) - VARHDRSZ;
}

/* Lease messages that were returned to the holder of the claim. */
void
claim_lease_messages(Claim *claim, const IdSet *members, int32 takeovers,
					 bool has_exceptions, bool has_keys)
{
	LeaseSegment *segment;

	if (members->run_count == 0)
		return;
	segment = palloc0(sizeof(LeaseSegment));
	segment->claim_id = claim->claim_id;
	segment->segment = list_length(claim->segments);
	segment->claimed_at = claim->now;
	segment->takeovers = takeovers;
	segment->members = *members;
	segment->consumer = claim->consumer;
	segment->has_exceptions = has_exceptions;
	segment->keys = has_keys ? LEASE_KEYS_ONE : LEASE_KEYS_NONE;
	claim->segments = lappend(claim->segments, segment);
}

/* Give the rows that were kept their lease's end, and return them. */
static void
return_kept_rows(Claim *claim)
{
	TupleDesc	desc = claim->result->setDesc;
	TupleTableSlot *slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	Datum		values[CLAIMED_COLUMNS];
	bool		isnull[CLAIMED_COLUMNS];

	while (tuplestore_gettupleslot(claim->rows, true, false, slot))
	{
		slot_getallattrs(slot);
		memcpy(values, slot->tts_values, sizeof(values));
		memcpy(isnull, slot->tts_isnull, sizeof(isnull));
		values[CLAIMED_LEASE_EXPIRES_AT] = TimestampTzGetDatum(lease_end(claim));
		tuplestore_putvalues(claim->result->setResult, desc, values, isnull);
	}
	ExecDropSingleTupleTableSlot(slot);
	tuplestore_end(claim->rows);
}

/* Store the lease on what was returned. */
static void
insert_leases(Claim *claim)
{
	TimestampTz end = lease_end(claim);
	ListCell   *cell;

	foreach(cell, claim->segments)
	{
		LeaseSegment *segment = lfirst(cell);

		segment->expires_at = end;
		segment->lease_us = end - claim->now;
		if (segment->keys == LEASE_KEYS_ONE && claim->has_several_per_key)
			segment->keys = LEASE_KEYS_SEVERAL;
		lease_insert(&claim->leases, claim->group.group_id, segment);
	}
	if (claim->segments != NIL)
		lease_hint_not_after(&claim->cursor, end);
}

/* Write down that what was returned is done. */
static void
ack_returned(Claim *claim)
{
	OutcomeWriter writer;
	ListCell   *cell;

	/* see the exceptions that this claim took */
	CommandCounterIncrement();
	outcome_begin(&writer, &claim->stream, &claim->group, &claim->cursor);
	foreach(cell, claim->segments)
		outcome_write_all(&writer, lfirst(cell), OUTCOME_ACK);
	outcome_end(&writer);
}

/* End returning messages. */
void
claim_result_end(Claim *claim)
{
	if (claim->is_pop)
		ack_returned(claim);
	else
		insert_leases(claim);
	if (claim->rows != claim->result->setResult)
		return_kept_rows(claim);
}
