#!/bin/sh
# treeattn-bench under mpirun: one table, from rank 0, with nothing wrong in it.
#
#     test_bench_mpi.sh PROGRAM PYTHON LAUNCHER...
set -u
# shellcheck source=bench/tests/common.sh
. "$(dirname "$0")/common.sh"
: "${bench:?}" "${python:?}" "${work:?}" "${failed:?}"
shift 2

small='--heads 4 --kv-heads 2 --head-dim 32 --threads 1 -w 1 -n 3'

# shellcheck disable=SC2086
"$@" -n 3 "$bench" decode -b 256 -e 1k -f 2 --dtype f32,bf16 $small --json "$work/json" \
    >"$work/out" 2>"$work/err" || fail 'it ended with an error'
"$python" - "$work/json" "$work/out" <<'PYTHON' || fail 'the JSON or the table is not right'
import json, sys

rows = json.load(open(sys.argv[1]))["rows"]
lines = open(sys.argv[2]).read().splitlines()
table = [line.split() for line in lines if line and not line.startswith("#")]
assert len(rows) == len(table) == 2 * 3, (len(rows), len(table))
assert sum(line.startswith("# ranks     3 processes of ") for line in lines) == 1
for row in rows:
    assert row["ranks"] == 3 and row["wrong"] == 0, row
    assert row["checked"] == 3 * 4 * 33, row["checked"]
    assert 0 < row["worst_error_in_tolerances"] <= 1, row
PYTHON

# Every layout of the cache, each rank with its own heads.
# shellcheck disable=SC2086
"$@" -n 4 "$bench" decode -b 1k --map cyclic --block 16 --page-tokens 8 --layout head \
    --placement heads --query-placement root $small >"$work/out" 2>"$work/err" ||
    fail 'it ended with an error'
grep -q ': 0 wrong$' "$work/out" || fail 'no results, or wrong ones'

# The rings.
# shellcheck disable=SC2086
"$@" -n 3 "$bench" decode -b 1k --algo tree,ring-kv,ring-q --cluster probe $small \
    --json "$work/json" >"$work/out" 2>"$work/err" || fail 'it ended with an error'
"$python" - "$work/json" <<'PYTHON' || fail 'the rings are not right'
import json, sys

report = json.load(open(sys.argv[1]))
assert report["launch"]["ranks_are"] == "processes" and report["launch"]["processes"] == 3
assert [row["algorithm"] for row in report["rows"]] == ["tree", "ring-kv", "ring-q"]
for row in report["rows"]:
    assert row["wrong"] == 0 and row["predicted"]["step_us"] > 0, row
    assert row["messages_per_rank"] == row["predicted"]["messages_per_rank"], row
PYTHON

# A GPU for each process, staged through host memory, if the module that runs their kernels on the
# CPU is there.
if [ -n "${TA_SIMT_MODULES:-}" ]; then
    export TREEATTN_MODULE_PATH="$TA_SIMT_MODULES:$TREEATTN_MODULE_PATH"
    # shellcheck disable=SC2086
    "$@" -n 3 "$bench" decode --device simt --group host -b 96 --algo tree,ring-kv,ring-q $small \
        --json "$work/json" >"$work/out" 2>"$work/err" || fail 'it ended with an error'
    grep -q ': 0 wrong$' "$work/out" || fail 'no results of GPUs, or wrong ones'
    grep -q '"clock": "events"' "$work/json" || fail 'the time is not that of events'
    code=0
    # shellcheck disable=SC2086
    "$@" -n 2 "$bench" decode --device simt --group host -b 96 -G $small >"$work/out" \
        2>"$work/err" || code=$?
    [ "$code" = 3 ] || fail "exit $code, not 3: graphs of a group that moves host memory"
    # shellcheck disable=SC2086
    "$@" -n 3 "$bench" attention --device simt --group host -b 96 --algo grid,ring $small \
        --json "$work/json" >"$work/out" 2>"$work/err" || fail 'attention ended with an error'
    "$python" - "$work/json" <<'PYTHON' || fail 'attention on GPUs is not right'
import json, sys

report = json.load(open(sys.argv[1]))
places = [place["device"] for place in report["launch"]["places"]]
assert places == ["simt:0", "simt:1", "simt:2"], places
assert all(row["wrong"] == 0 and row["checked"] > 0 for row in report["rows"]), report["rows"]
PYTHON
fi

# Full sequences, both variants of the grid and the ring, each process with its own tokens.
# shellcheck disable=SC2086
"$@" -n 4 "$bench" attention -b 300 --algo grid,overlap,ring --map contiguous,zigzag \
    --dtype f32,bf16 $small --json "$work/json" >"$work/out" 2>"$work/err" ||
    fail 'attention ended with an error'
"$python" - "$work/json" "$work/out" <<'PYTHON' || fail 'the JSON or the table is not right'
import json, sys

rows = json.load(open(sys.argv[1]))["rows"]
lines = open(sys.argv[2]).read().splitlines()
table = [line.split() for line in lines if line and not line.startswith("#")]
assert len(rows) == len(table) == 2 * 2 * 3 * 2, (len(rows), len(table))
for row in rows:
    assert row["ranks"] == 4 and row["wrong"] == 0 and row["checked"] > 0, row
    assert 0 < row["worst_error_in_tolerances"] <= 1, row
    assert row["bytes_received_per_rank"] > 0 and row["peak_bytes_per_rank"] > 0, row
PYTHON

# ends CODE TEXT FLAGS...: two processes end with CODE, none waits for another, and one of them says
# TEXT.
ends()
{
    expected=$1
    text=$2
    shift 2
    code=0
    # shellcheck disable=SC2086
    timeout 60 $launch -n 2 "$bench" "$@" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = "$expected" ] || fail "exit $code, not $expected: $*"
    [ "$(grep -cF -e "$text" "$work/err")" = 1 ] || fail "'$text' is not said once"
}
launch="$*"

# The number of ranks is the launcher's business.
ends 2 'there are 2 MPI processes' decode --ranks 3
# What only the first process finds.
for command in decode attention exchange llama; do
    ends 2 "--json is '/nonexistent/file', which cannot be written" $command \
        --json /nonexistent/file
    ends 2 "--csv is '/nonexistent/file', which cannot be written" $command \
        --csv /nonexistent/file
done
# What all of them find: in the flags, in the device, and in the plan.
ends 2 "--kinds is 'fastest'" exchange --kinds fastest
ends 2 '--group is ccl, but --device is host' exchange --group ccl
ends 2 '--group is ccl, but --device is host' attention --group ccl
ends 3 "no device \"nothing\"" exchange --device nothing
ends 2 'a config.cluster with several nodes' exchange --kinds two-level

# A wrong result that one process sees: all sizes are measured, and all processes end.
if [ -n "${TA_WRONG_COMBINE:-}" ]; then
    code=0
    export WRONG_RANK=1 # and a sanitizer is not to mind what is loaded before it
    export "ASAN_OPTIONS=${ASAN_OPTIONS:-}:verify_asan_link_order=0"
    timeout 60 "$@" -n 2 env "LD_PRELOAD=$TA_WRONG_COMBINE" "$bench" exchange --kinds doubling \
        -b 2k -e 4k -f 2 -n 2 -r 2 -w 0 --json "$work/json" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = 1 ] || fail "exit $code, not 1: wrong results of an exchange"
    "$python" - "$work/json" <<'PYTHON' || fail 'wrong results are not in the JSON'
import json, sys

rows = [row for row in json.load(open(sys.argv[1]))["rows"] if row["kind"] == "doubling"]
assert [row["wrong"] for row in rows] == [1, 1], rows
PYTHON
fi

[ "$failed" = 0 ] && echo ok
exit "$failed"
