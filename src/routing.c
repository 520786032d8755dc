/*
 * routing.c
 *		Which messages a consumer group's bindings match.
 *
 * A pattern is literal text but for "*", which matches any run of bytes, also
 * none.  It has to match the whole routing key, byte by byte.
 */
#include "postgres.h"

#include "catalog/pg_type.h"

#include "compat.h"
#include "routing.h"

#define WILDCARD '*'

/*
 * Make the patterns of an array of texts without nulls, in the current memory
 * context.
 */
void
routing_compile(Routing *routing, ArrayType *bindings)
{
	Datum	   *elements;
	bool	   *isnull;

	deconstruct_array(bindings, TEXTOID, -1, false, TYPALIGN_INT, &elements, &isnull, &routing->count);
	routing->patterns = palloc(sizeof(RoutingPattern) * Max(routing->count, 1));
	for (int i = 0; i < routing->count; i++)
	{
		text	   *pattern = DatumGetTextPP(elements[i]);

		routing->patterns[i].length = VARSIZE_ANY_EXHDR(pattern);
		routing->patterns[i].text = pnstrdup(VARDATA_ANY(pattern), routing->patterns[i].length);
	}
}

/*
 * Does one pattern match the key?  When the literal text after a wildcard does
 * not go on, the wildcard takes in one byte more; only the last wildcard has to,
 * so this needs no recursion.
 */
static bool
pattern_matches(const RoutingPattern *pattern, const char *key, int key_length)
{
	int			p = 0;
	int			k = 0;
	int			wildcard = -1;	/* the last one that was met */
	int			taken_to = 0;	/* where what it takes in ends */

	while (k < key_length)
	{
		if (p < pattern->length && pattern->text[p] == WILDCARD)
		{
			wildcard = p++;
			taken_to = k;
		}
		else if (p < pattern->length && pattern->text[p] == key[k])
		{
			p++;
			k++;
		}
		else if (wildcard >= 0)
		{
			p = wildcard + 1;
			k = ++taken_to;
		}
		else
			return false;
	}
	while (p < pattern->length && pattern->text[p] == WILDCARD)
		p++;
	return p == pattern->length;
}

/*
 * Does the group get a message with this routing key?  NULL, no routing key,
 * matches no pattern.
 */
bool
routing_matches(const Routing *routing, const text *routing_key)
{
	if (routing->count == 0)
		return true;
	if (routing_key == NULL)
		return false;
	for (int i = 0; i < routing->count; i++)
	{
		if (pattern_matches(&routing->patterns[i], VARDATA_ANY(routing_key), VARSIZE_ANY_EXHDR(routing_key)))
			return true;
	}
	return false;
}
