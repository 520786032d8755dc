# sqlstreams: build, install, and the commands that a newcomer types.
#
#   make                     build against the PostgreSQL of PG_CONFIG
#   make install             (root) install the extension there
#   make quickstart          install what is missing, build, run a demonstration
#   make test                install what is missing, build, run every test
#   make stress DURATION=60  the stress test alone, for so many seconds
#   make bench-smoke         a short look at the speed
#
# PG_CONFIG=/path/to/pg_config chooses another PostgreSQL.

EXTENSION = sqlstreams
DATA = sqlstreams--1.0.sql
MODULE_big = sqlstreams
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c)))

WARNINGS = -Wall -Wextra -Werror -Wno-unused-parameter -Wno-sign-compare
PG_CPPFLAGS = -I$(CURDIR)/src

# PostgreSQL's own flags name gcc options that clang has never heard of.
CLANG_QUIET = -Wno-unknown-warning-option -Wno-unused-command-line-argument \
	-Wno-ignored-optimization-argument -Wno-ignored-attributes
PG_CFLAGS = $(WARNINGS) $(if $(findstring clang,$(CC)),$(CLANG_QUIET))

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

# On a fresh machine there is no PostgreSQL yet: `make quickstart` and `make
# test` install it first and then call make again, so its absence is an error
# only for the targets that build.
ifneq (,$(wildcard $(PGXS)))
EXTRA_CLEAN = .build
include $(PGXS)

# Everything is compiled again when the PostgreSQL or the compiler changes.
BUILD_ID := $(VERSION) $(pkglibdir) $(CC)
$(shell mkdir -p .build; echo '$(BUILD_ID)' | cmp -s - .build/id || echo '$(BUILD_ID)' >.build/id)
$(OBJS) $(OBJS:.o=.bc): .build/id $(wildcard src/*.h)

# The second compiler's opinion, without its objects.
check-clang:
	$(or $(CLANG),clang) $(CPPFLAGS) $(CFLAGS) $(CLANG_QUIET) -fsyntax-only $(OBJS:.o=.c)
else
all install uninstall clean installdirs check-clang:
	@echo "The server headers of PostgreSQL were not found ($(PG_CONFIG) --pgxs)." >&2
	@echo "'make deps' installs them, or say PG_CONFIG=/path/to/pg_config." >&2
	@exit 1
endif

DURATION ?= 60
KEEP ?=
export PG_CONFIG DURATION KEEP

.PHONY: deps quickstart test stress bench-smoke check-clang

deps:
	script/install-deps build

quickstart:
	script/quickstart

test:
	script/test

stress:
	script/test stress

bench-smoke:
	script/test bench-smoke
