#!/bin/sh
# plot.py: files that parse, of a size that a page can show, without a NaN; of exchanges a line for
# each kind, none of which hides another. Skipped where there is no matplotlib.
#
#     test_plot.sh PROGRAM PYTHON
set -u
bench=$1
python=$2
plot=$(dirname "$0")/../plot/plot.py
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -c 'import matplotlib' 2>/dev/null || python=/usr/bin/python3
"$python" -c 'import matplotlib' 2>/dev/null || {
    echo 'no matplotlib: plots are not tested'
    exit 77
}

small='--heads 4 --kv-heads 2 --head-dim 32 --threads 1 -w 1 -n 3 --algo tree,ring-kv,ring-q'
command="decode $small"
title=' CPUs; bf16 4/2 heads × 32, batch 1'
lines='ring-kv ring-q'
failed=0

# draws NAMES FLAGS...: run, plot with a prefix, look at the plots, and nothing else is there.
draws()
{
    names=$1
    shift
    rm -rf "$work/plots"
    # shellcheck disable=SC2086
    "$bench" $command "$@" --json "$work/json" >"$work/out" || failed=1
    # By its own first line, which finds a python3 that may not be the one with matplotlib.
    "$plot" --prefix a- --note 'said beside' "$work/json" "$work/plots" || failed=1
    [ "$(find "$work/plots" -type f | wc -l)" = $(($(echo "$names" | wc -w) * 2)) ] || failed=1
    for name in $names; do
        # shellcheck disable=SC2086
        "$python" - "$work/plots/a-$name" "$title" $lines <<'PYTHON' || failed=1
import re, struct, sys, xml.etree.ElementTree

text = open(sys.argv[1] + ".svg", encoding="utf-8").read()
svg = xml.etree.ElementTree.fromstring(text)
assert svg.tag.endswith("svg") and "nan" not in text.lower()
assert len(text.splitlines()) < 1500, len(text.splitlines())
# Titles say the machine and the shape.
for word in (sys.argv[2:] + ["said beside"] + ["predicted"] * ("prediction" in sys.argv[1])):
    assert word in text, word
if "/a-exchange-" in sys.argv[1]: # each over the last, thinner than it, and of another color
    found = re.findall(r'clip-path="[^"]*" style="fill: none; stroke: (#\w+|\w+); '
                       r'stroke-opacity: 0.85(?:; stroke-width: ([\d.]+))?', text)
    widths = [float(width or 1) for _, width in found]
    assert len(found) == len({color for color, _ in found}) == len(sys.argv) - 3, found
    assert all(a > b for a, b in zip(widths, widths[1:])), widths
head = open(sys.argv[1] + ".png", "rb").read(24)
width, height = struct.unpack(">II", head[16:])
assert head[1:4] == b"PNG" and 300 < width < 1000 and 200 < height < 800, (width, height)
PYTHON
    done
}

draws 'time speedup memory' -b 256 -e 1k -f 2 --ranks 2,4
draws 'time speedup memory prediction' -b 256 --ranks 1,2,4 --scaling weak --cluster probe
command='llama --block 16 --chunk 24 --threads 1 --read 0 --new 3 --ring expanded'
title=' CPUs; tiny, weights replicated, cache bf16'
draws 'time speedup memory' --tokens 60,120 --ranks 2,3
title='emulated links of 100 us and 1 GB/s, a node for each rank'
draws 'time speedup memory' --tokens 60,120 --ranks 2,3 --link 100us,1GB/s
command='exchange -n 3 -w 1 -r 2'
title=' CPUs; heads × 128, output on all ranks'
lines='doubling binomial scatter all-gather all-reduce direct bare'
draws 'exchange-3-threads exchange-ratio-3-threads' -b 2k -e 8k -f 2 --ranks 3
title='ranks as in local:2x2'
lines='doubling binomial scatter two-level all-gather all-reduce direct bare'
draws 'exchange-4-threads exchange-ratio-4-threads' -b 2k -e 4k -f 2 --ranks 4 --cluster local:2x2
if "$plot" "$work/json" 2>/dev/null || "$plot" "$work/json" "$work/json" "$work/plots" \
    2>"$work/err" || ! grep -q 'with a --prefix each' "$work/err"; then
    failed=1
fi
[ "$failed" = 0 ] && echo ok
exit "$failed"
