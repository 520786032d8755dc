# shellcheck shell=bash disable=SC2034
# Functions shared by the scripts here; sourced by bash, with `set -eu`.
#
# PostgreSQL refuses to run as root, and what root makes must not be needed by
# the servers. So everything that a server touches lives in one work directory
# that belongs to $SERVER_USER: the caller, or postgres when root calls.

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
PG_CONFIG=${PG_CONFIG:-pg_config}
MAKE=${MAKE:-make}

# The caller's own server, locale and file modes must not leak into ours.
unset PGHOST PGHOSTADDR PGPORT PGDATABASE PGUSER PGPASSWORD PGPASSFILE \
	PGSERVICE PGSERVICEFILE PGOPTIONS PGAPPNAME PGSSLMODE PGDATA \
	PGCLIENTENCODING PGDATESTYLE PGTZ PGREQUIRESSL PGTARGETSESSIONATTRS
export LC_ALL=C.UTF-8
umask 022

say() {
	printf '%s\n' "$*"
}

die() {
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

# Runs a command as root.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		die "this needs root, and there is no sudo: $*"
	fi
}

# Chooses who runs the servers. Only after the packages are installed, because
# Debian's server package makes the user postgres.
choose_server_user() {
	if [ "$(id -u)" -ne 0 ]; then
		SERVER_USER=$(id -un)
	elif id -u postgres >/dev/null 2>&1; then
		SERVER_USER=postgres
	else
		SERVER_USER=nobody
	fi
}

# Runs a command in the work directory as the server's user.
as_server() {
	if [ "$(id -u)" -eq 0 ]; then
		(cd "$WORK" && setpriv --reuid="$SERVER_USER" --regid="$(id -g "$SERVER_USER")" \
			--init-groups env HOME="$WORK" USER="$SERVER_USER" LOGNAME="$SERVER_USER" "$@")
	else
		(cd "$WORK" && "$@")
	fi
}

# Says where the installation that PG_CONFIG names has its parts.
find_postgres() {
	BINDIR=$("$PG_CONFIG" --bindir)
	PGXS_DIR=$(cd "$(dirname "$("$PG_CONFIG" --pgxs)")/../.." && pwd)
	PG_VERSION=$("$PG_CONFIG" --version)
}

# Waits until a command succeeds, at most so many seconds: wait_until 10 test -e x
wait_until() {
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || return 1
		sleep 0.05
	done
}

# A zombie is gone: in a container there may be nobody to reap it.
is_gone() {
	! grep -q '^State:[[:space:]]*[^ZX]' "/proc/$1/status" 2>/dev/null
}

# Stops every server whose data directory lies under a directory. A pid file
# may be older than a reboot: the process is one of ours only if it works there.
stop_servers_under() {
	local dir=$1 file pid
	[ -d "$dir" ] || return 0
	dir=$(readlink -f "$dir")
	find "$dir" -name postmaster.pid | while IFS= read -r file; do
		pid=$(head -n 1 "$file")
		[ "$(readlink "/proc/$pid/cwd")" = "$(dirname "$file")" ] || continue
		kill -QUIT "$pid" 2>/dev/null || continue
		wait_until 20 is_gone "$pid" || kill -KILL "$pid"
	done
}

# Removes a work directory, with the servers in it, and wherever it leads.
remove_work_dir() {
	local name=$1 target
	target=$(readlink -f "$name") || return 0
	stop_servers_under "$target"
	case $target in
		"$name" | /var/tmp/sqlstreams.*) rm -rf "$target" ;;
		*) die "$name leads to $target, which is not a directory of ours" ;;
	esac
	rm -f "$name"
}

# Makes the work directory $TOP/$1 anew and sets WORK. The server's user may
# be unable to come here (a clone in /root): then it is a link to /var/tmp.
make_work_dir() {
	local name=$TOP/$1
	remove_work_dir "$name"
	if [ "$(id -u)" -ne 0 ] || setpriv --reuid="$SERVER_USER" \
		--regid="$(id -g "$SERVER_USER")" --init-groups test -x "$TOP/."; then
		mkdir "$name"
		WORK=$name
	else
		WORK=$(mktemp -d /var/tmp/sqlstreams.XXXXXX)
		ln -s "$WORK" "$name"
		say "The user $SERVER_USER cannot enter $TOP, so $1 is a link to $WORK."
	fi
	[ "$(id -u)" -ne 0 ] || chown "$SERVER_USER:" "$WORK"
	chmod 700 "$WORK"
}

is_free_port() {
	! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

free_port() {
	local port
	until port=$((20000 + RANDOM % 20000)) && is_free_port "$port"; do :; done
	say "$port"
}

# start_server NAME [SETTING=VALUE ...] makes and starts a server in
# $WORK/NAME.data and sets PGHOST, PGPORT, PGUSER and PGDATABASE. It listens on a
# Unix socket only, which nobody else can reach: authentication is trust.
start_server() {
	local name=$1 setting
	shift
	as_server "$BINDIR/initdb" -D "$WORK/$name.data" -A trust -U postgres -E UTF8 \
		--locale=C.UTF-8 --no-sync >"$WORK/$name.initdb.log" 2>&1 ||
		{ cat "$WORK/$name.initdb.log" >&2; die "initdb failed"; }

	# The name of a socket has at most 107 bytes.
	PGHOST=$WORK
	if [ ${#PGHOST} -gt 80 ]; then
		SOCKET_DIR=$(as_server mktemp -d /tmp/sqlstreams.XXXXXX)
		PGHOST=$SOCKET_DIR
	fi
	PGPORT=$(free_port)
	PGUSER=postgres
	PGDATABASE=postgres
	export PGHOST PGPORT PGUSER PGDATABASE
	{
		say "listen_addresses = ''"
		say "unix_socket_directories = '$PGHOST'"
		say "port = $PGPORT"
		for setting in "$@"; do
			say "${setting%%=*} = '${setting#*=}'"
		done
	} >>"$WORK/$name.data/postgresql.conf"
	as_server "$BINDIR/pg_ctl" -D "$WORK/$name.data" -l "$WORK/$name.log" -w -t 60 start \
		>/dev/null 9>&- ||
		{ tail -n 20 "$WORK/$name.log" >&2; die "the server did not start"; }
}

stop_server() {
	as_server "$BINDIR/pg_ctl" -D "$WORK/$1.data" -m "${2:-fast}" -w -t 60 stop >/dev/null
	[ -z "${SOCKET_DIR:-}" ] || rmdir "$SOCKET_DIR" 2>/dev/null || true
	SOCKET_DIR=
}
