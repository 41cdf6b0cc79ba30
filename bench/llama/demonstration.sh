#!/bin/bash
# The tables and plots of docs/llama.md, on a machine that is quiet: the shapes of Llama 3.2 1B with
# random weights, 8k tokens with their prompt and 32k without, on 1 to 8 ranks that are threads, and
# on 2 to 8 emulated hosts; then on threads with divided weights. Takes some 20 minutes on two CPUs,
# and some GB of memory. JSON, tables and plots go to FOLDER; --page puts the tables into
# docs/llama.md and their plots beside it.
#
#     demonstration.sh [--small] [--page] BUILD_DIR FOLDER [FLAG...]
#
# --small runs the same commands in seconds, with the shapes of tiny; a FLAG is for every run, such
# as --matmul FILE.
set -euo pipefail
here=$(cd -- "$(dirname -- "$0")" && pwd)
tree=$(cd -- "$here/../.." && pwd)
model=3.2-1b short=8k long=32k page=
while [[ ${1:-} == --* ]]; do
    case $1 in
    --small) model=tiny short=512 long=2k ;;
    --page) page=$tree/docs/llama.md ;;
    *) set -- ;;
    esac
    shift || true
done
[ $# -ge 2 ] || {
    echo "usage: $0 [--small] [--page] BUILD_DIR FOLDER [FLAG...]" >&2
    exit 2
}
bench=$1/bench/treeattn-bench
folder=$2
flags=("${@:3}")
link=1ms,0.125GB/s # 1 Gbit/s
mkdir -p -- "$folder"

# run NAME FLAGS...: what was measured before, in the same folder, is kept.
run()
{
    local name=$1 begin=$SECONDS
    shift
    [ ! -f "$folder/$name.json" ] || return 0
    "$bench" llama --model "$model" "$@" "${flags[@]}" --json "$folder/$name.part" |
        tee "$folder/$name.txt"
    mv -- "$folder/$name.part" "$folder/$name.json"
    echo "# $name took $((SECONDS - begin)) s"
}

run 8k --tokens "$short" --ranks 1,2,4,8 --ring expanded --new 10
run 32k --tokens "$long" --ranks 1,2,4,8 --prefill none --new 10
run 8k-hosts --tokens "$short" --ranks 2,4,8 --ring expanded --new 5 --link "$link"
run 32k-hosts --tokens "$long" --ranks 2,4,8 --prefill none --new 5 --link "$link"
run 8k-tensor --tokens "$short" --ranks 2,4,8 --weights tensor --new 10
run 32k-tensor --tokens "$long" --ranks 2,4,8 --weights tensor --prefill none --new 10

files=()
for name in {8k,32k}{,-hosts,-tensor}; do
    files+=("$folder/$name.json")
    "$tree/bench/plot/plot.py" --prefix "llama-$name-" "$folder/$name.json" "$folder/plots"
done
"$here/tables.py" "${files[@]}" >"$folder/tables.md"
if [ -n "$page" ]; then
    cp -- "$folder"/plots/llama-*-time.svg "$tree/docs/plots/"
    "$here/tables.py" --into "$page" "${files[@]}"
fi
echo "# the tables are in $folder/tables.md, the plots in $folder/plots"
