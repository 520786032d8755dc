/*
 * concurrency.c
 *		The names of the concurrency policies.
 */
#include "postgres.h"

#include "concurrency.h"

static const struct
{
	const char *name;
	Concurrency concurrency;
}			policies[] = {
	{"parallel", CONCURRENCY_PARALLEL},
	{"exclusive", CONCURRENCY_EXCLUSIVE},
	{"ordered", CONCURRENCY_ORDERED}
};

/* Read a policy's name; false when there is no such policy. */
bool
concurrency_parse(const char *name, int length, Concurrency *concurrency)
{
	for (int i = 0; i < lengthof(policies); i++)
	{
		if (strlen(policies[i].name) == length && memcmp(policies[i].name, name, length) == 0)
		{
			*concurrency = policies[i].concurrency;
			return true;
		}
	}
	return false;
}

/* The policy that an object has as its "concurrency". */
Concurrency
concurrency_read(Jsonb *object)
{
	JsonbValue	value;
	Concurrency concurrency = CONCURRENCY_UNSET;

	if (getKeyJsonValueFromContainer(&object->root, "concurrency", strlen("concurrency"), &value) != NULL &&
		value.type == jbvString)
		(void) concurrency_parse(value.val.string.val, value.val.string.len, &concurrency);
	return concurrency;
}

/* The name of a policy that is set. */
const char *
concurrency_name(Concurrency concurrency)
{
	for (int i = 0; i < lengthof(policies); i++)
	{
		if (policies[i].concurrency == concurrency)
			return policies[i].name;
	}
	return policies[0].name;
}

/* The first of two policies that is set. */
Concurrency
concurrency_first(Concurrency a, Concurrency b)
{
	return a != CONCURRENCY_UNSET ? a : b;
}
