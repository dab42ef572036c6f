# shellcheck shell=sh
# Runs a PostgreSQL server in a directory of its own until standard input ends, however the process that holds its other
# end has exited. Then nothing of the server remains.
#
#   sh -c "$(cat postgres.sh)" sh BIN
#
# BIN is the directory of initdb and pg_ctl. Prints the directory that has the socket, then one line for each command on
# standard input: `stop` (without a checkpoint, as after a crash) and `start`. PostgreSQL refuses to run as root.
set -eu
bin=$1
# Signals of a terminal are for the tests, which may exit before they have read the first line: only `exit` cleans up.
trap '' HUP INT PIPE
trap 'exit 1' TERM
directory=$(mktemp -d "/tmp/saggar-postgres-XXXXXX")
cd "$directory"
trap '"$bin/pg_ctl" -D data -m immediate -w stop >>log 2>&1 || true; rm -rf "$directory"' EXIT

# The language is one whose order of words is not that of bytes.
"$bin/initdb" -D data -U saggar -A trust -E UTF8 --locale-provider=icu --icu-locale=en --no-sync >log 2>&1 || {
    cat log >&2
    exit 1
}
cat >>data/postgresql.conf <<END
listen_addresses = ''
unix_socket_directories = '$directory'
max_connections = 300
# An operator may have set a stricter level than the server needs.
default_transaction_isolation = 'serializable'
fsync = off
shared_buffers = 16MB
END
start() {
    "$bin/pg_ctl" -D data -l server.log -w start >>log 2>&1 </dev/null || {
        cat server.log >&2
        exit 1
    }
}
start
echo "$directory"
while read -r command; do
    case $command in
        start) start ;;
        stop) "$bin/pg_ctl" -D data -m immediate -w stop >>log 2>&1 ;;
    esac
    echo "$command"
done
