#!/bin/sh
# A rank is killed in mid-exchange: the job ends by itself, with an error, and leaves no process and
# no shared memory with a name.
#     killed.sh FAULT LAUNCHER... mpi_faults
set -eu
fault=$1
shift
# Of the jobs that other tests run at this time there may be some, for moments.
segments()
{
    find /dev/shm -maxdepth 1 -name 'treeattn-*' 2>/dev/null | sort
}
before=$(segments)

mark=killed-$$ # an argument that the ranks ignore, to find them by
"$@" "$fault" "$mark" &
job=$!
left=
for _ in $(seq 400); do
    sleep 0.5
    # The brackets keep grep from finding itself.
    left=$(grep -l -a -e "[k]illed-$$" /proc/[0-9]*/cmdline 2>/dev/null || true)
    [ -n "$left" ] || break
done
if [ -n "$left" ]; then
    echo "after 200 s there are still: $left"
    kill "$job"
    exit 1
fi
status=0
wait "$job" || status=$?
echo "the job ended with status $status"
for segment in $(segments); do
    case $before in *"$segment"*) continue ;; esac
    for _ in $(seq 120); do # another test's is gone by then
        [ -e "$segment" ] || break
        sleep 0.5
    done
    [ ! -e "$segment" ] || { echo "it left $segment"; exit 1; }
done
[ "$status" != 0 ]
