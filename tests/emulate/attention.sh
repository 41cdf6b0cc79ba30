#!/bin/bash
# Attention over full sequences on emulated clusters (cluster.sh) of 4, 8 and 16 hosts with one rank
# each: the grid without and with overlap against the ring, and what the cost model says of the same
# links, which it measures first. Needs root, takes some two minutes, and prints the tables of
# docs/attention2d.md. DELAY_US, MBIT, TOKENS (of the sequence) and CALLS change what is run.
#
#     tests/emulate/attention.sh BUILD_DIR FILE [NODES…]      leaves FILE-4.json, FILE-8.json, …
set -euo pipefail
# shellcheck source=tests/emulate/bench.sh
. "$(dirname -- "$0")/bench.sh"
: "${here:?}" "${build:?}" "${file:?}"

delay_us=${DELAY_US:-500}
mbit=${MBIT:-100}
tokens=${TOKENS:-4k}
calls=${CALLS:-3}
export seconds=90 # at most for one cluster
[ $# -gt 0 ] || set -- 4 8 16
files=()
for nodes; do
    echo "# $nodes hosts of one rank, $delay_us us, $mbit Mbit/s, $tokens tokens" >&2
    emulate "$nodes" 1 "$delay_us" "$mbit" "$build/bench/treeattn-bench" attention --threads 1 \
        --algo grid,overlap,ring --map zigzag -b "$tokens" --heads 2 --head-dim 64 -w 1 \
        -n "$calls" --cluster probe --json "$file-$nodes.json" >&2
    files+=("$file-$nodes.json")
done
python3 "$here/attention.py" "${files[@]}"
