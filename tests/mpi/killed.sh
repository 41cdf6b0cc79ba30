#!/bin/sh
# A rank is killed in mid-exchange: the job ends by itself, with an error, and leaves no process.
#     killed.sh LAUNCHER... mpi_faults
set -eu

mark=killed-$$ # an argument that the ranks ignore, to find them by
"$@" killed "$mark" &
job=$!
left=
for _ in $(seq 80); do
    sleep 0.5
    # The brackets keep grep from finding itself.
    left=$(grep -l -a -e "[k]illed-$$" /proc/[0-9]*/cmdline 2>/dev/null || true)
    [ -n "$left" ] || break
done
if [ -n "$left" ]; then
    echo "after 40 s there are still: $left"
    kill "$job"
    exit 1
fi
status=0
wait "$job" || status=$?
echo "the job ended with status $status"
[ "$status" != 0 ]
