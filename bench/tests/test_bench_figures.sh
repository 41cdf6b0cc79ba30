#!/bin/sh
# bench/host_figures.py: every command of its tables runs, and every row has a figure.
#
#     test_bench_figures.sh PROGRAM PYTHON
set -u
# shellcheck source=bench/tests/common.sh
. "$(dirname "$0")/common.sh"
: "${bench:?}" "${python:?}" "${work:?}" "${failed:?}"

figures=$(dirname "$0")/../host_figures.py
"$python" "$figures" "$bench" --small --steps 1 >"$work/out" 2>"$work/err" ||
    fail 'it ended with an error'
"$python" - "$work/out" <<'PYTHON' || fail 'the tables are not right'
import re, sys

text = open(sys.argv[1]).read()
parts = {part.split(":")[0]: part for part in text.split("\n## ")[1:]}
# Cases times types, and where there are several times threads, heads or passes.
expected = {"one-row": 8 * 3 * 2, "four-rows": 8 * 3 * 2, "huge-pages": 2 * 3 * 2 * 2,
            "many-rows": 7 * 3, "pages": 4 * 3 * 2, "prefill": 2 * 2, "narrow": 4 * 2,
            "prefix": 2 * 2 * 2, "overlap": 5 * 3, "exchange": 3 * 7}
assert list(parts) == list(expected), list(parts)
for name, count in expected.items():
    rows = [line for line in parts[name].split("\n") if re.match(r"\|.* \d+\.\d\d \|", line)]
    assert len(rows) == count, (name, len(rows))
PYTHON
"$python" "$figures" "$bench" --only nothing >"$work/out" 2>"$work/err" && fail 'nothing is no name'
says err 'must be of one-row'
exit "$failed"
