#!/bin/sh
# The remote shell of an emulated cluster: agent.sh HOST COMMAND… runs the command in the network
# namespace of that name, with that host name. Open MPI's launcher calls it (run.sh).
set -eu
host=$1
shift
# In a session of its own, whose priority against other work on the machine can be raised.
exec setsid --wait ip netns exec "$host" unshare --uts sh -c '
    echo -15 >/proc/self/autogroup || true
    hostname "$0" && exec sh -c "$*"' "$host" "$@"
