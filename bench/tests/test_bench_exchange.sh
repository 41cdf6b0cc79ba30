#!/bin/sh
# treeattn-bench exchange: every kind at every size, nothing wrong, and JSON that says the same;
# with a launcher also on MPI processes, beside MPI's own calls.
#
#     test_bench_exchange.sh PROGRAM PYTHON [LAUNCHER...]
set -u
# shellcheck source=bench/tests/common.sh
. "$(dirname "$0")/common.sh"
: "${bench:?}" "${python:?}" "${work:?}" "${failed:?}"
shift 2

check()
{
    "$python" - "$work/json" "$work/out" "$@" <<'PYTHON' || fail 'JSON or table are not right'
import json, sys

rows = json.load(open(sys.argv[1]))["rows"]
table = [line.split() for line in open(sys.argv[2]) if line.strip() and not line.startswith("#")]
ranks, kinds = int(sys.argv[3]), sys.argv[4:]
assert len(rows) == len(table) == 3 * len(kinds), (len(rows), len(table))
for i, (row, line) in enumerate(zip(rows, table)):
    assert row["kind"] == line[2] == kinds[i % len(kinds)], (row["kind"], line)
    assert row["ranks"] == ranks and row["wrong"] == 0, row
    assert 0 < row["min_us"] <= row["median_us"] <= row["p99_us"] and len(row["us"]) == 4, row
    own = not row["kind"].startswith("MPI_")
    assert (row["checked"] > 0) == own, row
    if own: # direct exchanges have no messages, all others have
        assert (row["messages_received_per_rank"] == 0) == (row["kind"] == "direct"), row
    assert line[-1] == ("0" if own else "N/A"), line
assert [row["bytes"] for row in rows[:: len(kinds)]] == [2080, 4160, 8320], rows[0]["bytes"]
PYTHON
}

kinds='doubling binomial scatter all-gather all-reduce direct'
sizes='-b 2k -e 8k -f 2 -n 4 -r 3 -w 1'
# shellcheck disable=SC2086
if [ $# = 0 ]; then
    run 0 exchange $sizes --ranks 3 --json "$work/json"
    check 3 $kinds
    run 0 exchange $sizes --ranks 4 --placement heads --kinds direct,scatter --json "$work/json"
    check 4 direct scatter
    run 0 exchange $sizes --ranks 2 --placement root --json "$work/json"
    check 2 binomial scatter all-gather all-reduce direct
    run 2 exchange --kinds fastest
    says err 'kinds'
    run 2 exchange -b 8k -e 4k
    says err '--end is 4096: must be at least --begin, 8192'
    run 2 exchange --ranks 1
    says err 'ranks'
else
    "$@" -n 3 "$bench" exchange $sizes --json "$work/json" >"$work/out" 2>"$work/err" ||
        fail 'it ended with an error'
    check 3 $kinds MPI_Allreduce MPI_Allgather
fi
exit "$failed"
