/*
 * id_set.c
 *		Sets of message ids, and how they are stored.
 *
 * A claim holds a few hundred ids that are mostly consecutive.  In memory a
 * set is an array of runs; stored, it is the first id, then for each run its
 * length and the distance to the next run, as variable-length integers of 7
 * bits a byte, lowest first.  250 consecutive ids take 2 bytes.
 */
#include "postgres.h"

#include "lib/stringinfo.h"

#include "compat.h"
#include "id_set.h"

#define INITIAL_RUNS 8

/* Order ids, or what begins with one: for qsort. */
int
id_compare(const void *a, const void *b)
{
	int64		x = *(const int64 *) a;
	int64		y = *(const int64 *) b;

	return (x > y) - (x < y);
}

/* Make an empty set in the current memory context. */
void
id_set_init(IdSet *set)
{
	set->run_count = 0;
	set->run_capacity = INITIAL_RUNS;
	set->runs = palloc(sizeof(IdRun) * INITIAL_RUNS);
}

/* Add consecutive ids, or none, that are higher than all in the set. */
void
id_set_append_run(IdSet *set, int64 first, int64 count)
{
	IdRun	   *last = set->run_count > 0 ? &set->runs[set->run_count - 1] : NULL;

	if (count == 0)
		return;
	if (last != NULL && last->first + last->count == first)
	{
		last->count += count;
		return;
	}
	if (set->run_count == set->run_capacity)
	{
		set->run_capacity *= 2;
		set->runs = repalloc_huge(set->runs, sizeof(IdRun) * set->run_capacity);
	}
	set->runs[set->run_count].first = first;
	set->runs[set->run_count++].count = count;
}

/* Add an id that is higher than all in the set. */
void
id_set_append(IdSet *set, int64 id)
{
	id_set_append_run(set, id, 1);
}

/* How many ids the set has. */
int64
id_set_count(const IdSet *set)
{
	int64		count = 0;

	for (int i = 0; i < set->run_count; i++)
		count += set->runs[i].count;
	return count;
}

/* Is the id in the set? */
bool
id_set_contains(const IdSet *set, int64 id)
{
	int			low = 0;
	int			high = set->run_count - 1;

	while (low <= high)
	{
		int			middle = (low + high) / 2;
		const IdRun *run = &set->runs[middle];

		if (id < run->first)
			high = middle - 1;
		else if (id - run->first >= run->count)
			low = middle + 1;
		else
			return true;
	}
	return false;
}

/* The id with this many lower ones in the set. */
int64
id_set_nth(const IdSet *set, int64 n)
{
	for (int i = 0; i < set->run_count; i++)
	{
		if (n < set->runs[i].count)
			return set->runs[i].first + n;
		n -= set->runs[i].count;
	}
	elog(ERROR, "id set has no id number " INT64_FORMAT, n);
	return 0;
}

/* Take ids out of the set; they rise, and need not be in it. */
void
id_set_subtract(IdSet *set, const int64 *sorted_ids, int64 count)
{
	IdSet		rest;
	int64		next = 0;

	id_set_init(&rest);
	for (int i = 0; i < set->run_count; i++)
	{
		int64		first = set->runs[i].first;
		int64		end = first + set->runs[i].count;

		for (; next < count && sorted_ids[next] < end; next++)
		{
			if (sorted_ids[next] < first)
				continue;
			id_set_append_run(&rest, first, sorted_ids[next] - first);
			first = sorted_ids[next] + 1;
		}
		id_set_append_run(&rest, first, end - first);
	}
	pfree(set->runs);
	*set = rest;
}

/* Take all ids up to this one out of the set. */
void
id_set_remove_through(IdSet *set, int64 last)
{
	int			kept = 0;

	for (int i = 0; i < set->run_count; i++)
	{
		IdRun		run = set->runs[i];
		int64		gone = Max(Min(last - run.first + 1, run.count), 0);

		run.first += gone;
		run.count -= gone;
		if (run.count > 0)
			set->runs[kept++] = run;
	}
	set->run_count = kept;
}

/* Take the ids from one to another, both included, out of the set. */
void
id_set_remove_range(IdSet *set, int64 first, int64 last)
{
	IdSet		rest;

	id_set_init(&rest);
	for (int i = 0; i < set->run_count; i++)
	{
		int64		run_first = set->runs[i].first;
		int64		run_last = run_first + set->runs[i].count - 1;

		id_set_append_run(&rest, run_first, Max(Min(run_last, first - 1) - run_first + 1, 0));
		run_first = Max(run_first, last + 1);
		id_set_append_run(&rest, run_first, Max(run_last - run_first + 1, 0));
	}
	pfree(set->runs);
	*set = rest;
}

static void
put_integer(StringInfo buffer, uint64 value)
{
	while (value >= 0x80)
	{
		appendStringInfoCharMacro(buffer, (char) (value | 0x80));
		value >>= 7;
	}
	appendStringInfoCharMacro(buffer, (char) value);
}

/* Raise an error for stored bytes that no set is encoded to. */
static void
raise_corrupted(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("stored set of message ids is corrupted")));
}

static uint64
get_integer(const uint8 **position, const uint8 *end)
{
	uint64		value = 0;

	for (int shift = 0; shift < 64; shift += 7)
	{
		uint8		byte;

		if (*position == end)
			break;
		byte = *(*position)++;
		value |= (uint64) (byte & 0x7F) << shift;
		if ((byte & 0x80) == 0)
			return value;
	}
	raise_corrupted();
	return 0;
}

/* The stored form of a set that is not empty, without its first id. */
bytea *
id_set_encode(const IdSet *set)
{
	StringInfoData buffer;
	bytea	   *result;

	initStringInfo(&buffer);
	for (int i = 0; i < set->run_count; i++)
	{
		if (i > 0)
			put_integer(&buffer, set->runs[i].first - (set->runs[i - 1].first + set->runs[i - 1].count));
		put_integer(&buffer, set->runs[i].count);
	}
	result = palloc(VARHDRSZ + buffer.len);
	SET_VARSIZE(result, VARHDRSZ + buffer.len);
	memcpy(VARDATA(result), buffer.data, buffer.len);
	pfree(buffer.data);
	return result;
}

/* Make the set that was stored, in the current memory context. */
void
id_set_decode(IdSet *set, int64 first_id, const bytea *encoded)
{
	const uint8 *position = (const uint8 *) VARDATA_ANY(encoded);
	const uint8 *end = position + VARSIZE_ANY_EXHDR(encoded);
	uint64		first = first_id;

	id_set_init(set);
	while (position < end)
	{
		uint64		count;

		if (set->run_count > 0)
			first += get_integer(&position, end);
		count = get_integer(&position, end);
		if (count == 0 || first > PG_INT64_MAX || count > PG_INT64_MAX - first)
			raise_corrupted();
		id_set_append_run(set, first, count);
		first += count;
	}
	if (set->run_count == 0)
		raise_corrupted();
}
