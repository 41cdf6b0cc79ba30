#!/bin/sh
# plot.py: files that parse, of a size that a page can show, without a NaN. Skipped where there is
# no matplotlib.
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
failed=0

# draws NAMES FLAGS...: run, plot with a prefix, look at the plots, and nothing else is there.
draws()
{
    names=$1
    shift
    rm -rf "$work/plots"
    # shellcheck disable=SC2086
    "$bench" decode $small "$@" --json "$work/json" >"$work/out" || failed=1
    # By its own first line, which finds a python3 that may not be the one with matplotlib.
    "$plot" --prefix a- "$work/json" "$work/plots" || failed=1
    [ "$(find "$work/plots" -type f | wc -l)" = $(($(echo "$names" | wc -w) * 2)) ] || failed=1
    for name in $names; do
        "$python" - "$work/plots/a-$name" <<'PYTHON' || failed=1
import struct, sys, xml.etree.ElementTree

text = open(sys.argv[1] + ".svg", encoding="utf-8").read()
svg = xml.etree.ElementTree.fromstring(text)
assert svg.tag.endswith("svg") and "nan" not in text.lower()
assert len(text.splitlines()) < 1500, len(text.splitlines())
for word in ["ring-kv", "ring-q"] + ["predicted"] * ("prediction" in sys.argv[1]):
    assert word in text, word
head = open(sys.argv[1] + ".png", "rb").read(24)
width, height = struct.unpack(">II", head[16:])
assert head[1:4] == b"PNG" and 300 < width < 1000 and 200 < height < 800, (width, height)
PYTHON
    done
}

draws 'time speedup memory' -b 256 -e 1k -f 2 --ranks 2,4
draws 'time speedup memory prediction' -b 256 --ranks 1,2,4 --scaling weak --cluster probe
if "$plot" "$work/json" 2>/dev/null; then
    failed=1
fi
[ "$failed" = 0 ] && echo ok
exit "$failed"
