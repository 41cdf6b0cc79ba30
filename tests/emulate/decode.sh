#!/bin/bash
# Tree against rings on emulated clusters (cluster.sh) of 2, 4 and 8 hosts with one rank each: 64k
# tokens of bf16 on every rank, one KV head of 128 for 16 query heads, links of 1 ms and 1 Gbit/s.
# Needs root, takes about three minutes, and leaves FILE-2.json, FILE-4.json, FILE-8.json.
#
#     tests/emulate/decode.sh BUILD_DIR FILE [NODES…]
set -euo pipefail
# shellcheck source=tests/emulate/bench.sh
. "$(dirname -- "$0")/bench.sh"
: "${build:?}" "${file:?}"

delay_us=${DELAY_US:-1000}
mbit=${MBIT:-1000}
tokens=${TOKENS:-64k} # of each rank
[ $# -gt 0 ] || set -- 2 4 8
for nodes; do
    echo "# $nodes hosts of one rank, $delay_us us, $mbit Mbit/s"
    emulate "$nodes" 1 "$delay_us" "$mbit" "$build/bench/treeattn-bench" decode --threads 1 \
        --algo tree,ring-kv,ring-q --scaling weak -b "$tokens" --heads 16 --kv-heads 1 -w 1 -n 3 \
        --cluster probe --json "$file-$nodes.json"
done
