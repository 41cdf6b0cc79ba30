#!/bin/bash
# Make the plots of docs/benchmarks.md and README.md again, on a machine that is quiet: ranks as
# threads, and emulated clusters where there is root (tests/emulate/decode.sh). Takes about five
# minutes. What was measured stays in BUILD_DIR/plots as JSON.
#
#     bench/plot/plots.sh BUILD_DIR
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)
[ $# = 1 ] || {
    echo "usage: $0 BUILD_DIR" >&2
    exit 2
}
build=$(cd -- "$1" && pwd)
results=$build/plots
tree=$here/../..
plots=$tree/docs/plots
mkdir -p "$results"

"$build/bench/treeattn-bench" decode -b 4k -e 64k -f 2 --ranks 2,4,8 -n 9 \
    --algo tree,ring-kv,ring-q --cluster probe --json "$results/threads.json"
"$here/plot.py" "$results/threads.json" "$plots"

"$build/bench/treeattn-bench" model h100:16x8 --ranks 8,16,32,64,128 --tokens 1280000 \
    --json "$results/model.json"
"$here/model_plot.py" "$results/model.json" "$plots/model-ranks.svg" '16 heads × 128, bf16'

status=0
"$tree/tests/emulate/decode.sh" "$build" "$results/emulated" || status=$?
if [ "$status" = 77 ]; then
    echo "no emulated cluster here: its plots stay as they are" >&2
else
    [ "$status" = 0 ]
    "$here/plot.py" --prefix emulated- --note 'hosts emulated: links of 1 ms and 1 Gbit/s' \
        "$results"/emulated-[248].json "$plots"
fi
rm -f "$plots"/*.png # the page shows the SVGs
