#!/bin/bash
# Emulate clusters on this machine (cluster.sh) and measure every exchange on them (measure.c).
# Needs root.
#
#     tests/emulate/run.sh BUILD_DIR            measure, and write docs/emulated.md
#     tests/emulate/run.sh BUILD_DIR NODESxRANKS DELAY_US MBIT      one cluster, raw lines
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)
[ $# = 1 ] || [ $# = 4 ] || {
    echo "usage: $0 BUILD_DIR [NODESxRANKS DELAY_US MBIT]" >&2
    exit 2
}
build=$(cd -- "$1" && pwd)
# shellcheck source=tests/emulate/cluster.sh
. "$here/cluster.sh"
# shellcheck disable=SC2034 # cluster.sh reads it
seconds=200 # at most for one cluster; on a machine with nothing else to do it takes 20 to 50

measure() # NODES RANKS DELAY_US MBIT: print the lines of measure.c
{
    emulate "$@" "$build/tests/emulate/measure"
}

if [ $# = 4 ]; then
    measure "${2%x*}" "${2#*x}" "$3" "$4"
    exit
fi

clusters='2x2 4x2 8x1'
links='5000:100 500:1000'
for cluster in $clusters; do
    for link in $links; do
        echo "# $cluster hosts x ranks, ${link%:*} us, ${link#*:} Mbit/s" >&2
        echo "run $cluster ${link%:*} ${link#*:} $(cut -d ' ' -f 1 /proc/loadavg)"
        measure "${cluster%x*}" "${cluster#*x}" "${link%:*}" "${link#*:}"
    done
done >"$build/emulated.txt"
python3 "$here/table.py" <"$build/emulated.txt" >"$build/emulated.md" # the page, once it is whole
mv "$build/emulated.md" "$here/../../docs/emulated.md"
