#!/bin/sh
# Open MPI's mpirun, one process for each GPU of some hosts:
#
#     docs/launch/mpirun.sh HOSTFILE COMMAND...
#     docs/launch/mpirun.sh docs/launch/hosts-1 treeattn-bench decode --device cuda -G
#
# A line of HOSTFILE is a host and its GPUs, "node01 slots=8": hosts-1 is this host alone, hosts-16
# a pattern for 16. Processes are bound to sockets; a rank's GPU is its number on its host.
set -eu
[ $# -ge 2 ] || {
    echo "usage: $0 HOSTFILE COMMAND..." >&2
    exit 2
}
hosts=$1
shift
ranks=$(sed -n 's/^[^#]*slots=\([0-9]*\).*/\1/p' "$hosts" |
    awk '{ sum += $1 } END { print sum + 0 }')
[ "$ranks" -gt 0 ] || {
    echo "$0: $hosts has no line such as: node01 slots=8" >&2
    exit 2
}
exec mpirun --hostfile "$hosts" -n "$ranks" --map-by slot --bind-to socket \
    -x PATH -x LD_LIBRARY_PATH -x TREEATTN_MODULE_PATH ${NCCL_DEBUG:+-x NCCL_DEBUG} "$@"
