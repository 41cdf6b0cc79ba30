#!/bin/sh
# treeattn-bench exchange: every kind at every size, nothing wrong, and JSON that says the same;
# with a launcher also on MPI processes, beside MPI's own calls; and if TA_SIMT_MODULES says where
# the executor's module is, on a GPU of it for each rank instead, beside the group's own calls.
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
# "!" before a row: other programs use this machine.
table = [line.lstrip("!").split() for line in open(sys.argv[2])
         if line.strip() and not line.startswith("#")]
ranks, kinds = int(sys.argv[3]), sys.argv[4:]
one_node = "2x2" not in json.load(open(sys.argv[1]))["options"].get("cluster", "")
assert len(rows) == len(table) == 3 * len(kinds), (len(rows), len(table))
for i, (row, line) in enumerate(zip(rows, table)):
    assert row["kind"] == line[2] == kinds[i % len(kinds)], (row["kind"], line)
    assert row["ranks"] == ranks and row["wrong"] == 0, row
    assert 0 < row["min_us"] <= row["median_us"] <= row["p99_us"] and len(row["us"]) == 4, row
    assert 0 < row["ratio_low"] <= row["ratio"] <= row["ratio_high"], row
    assert i % len(kinds) or row["ratio_low"] == row["ratio_high"] == 1, row
    own = row["kind"] != "bare" and not row["kind"].startswith(("MPI_", "ta_", "nccl"))
    assert (row["checked"] > 0) == own, row
    if own: # direct exchanges have no messages inside a node, all others have
        silent = row["kind"] == "direct" and one_node
        assert (row["messages_received_per_rank"] == 0) == silent, row
    assert line[-1] == ("0" if own else "N/A"), line
    if row["kind"] == "ncclAllReduce": # one call of the library, of as many bytes as a partial has
        assert row["messages_received_per_rank"] == 1, row
        assert row["bytes_received_per_rank"] == row["bytes"], row
assert [row["bytes"] for row in rows[:: len(kinds)]] == [2080, 4160, 8320], rows[0]["bytes"]
PYTHON
}

kinds='doubling binomial scatter all-gather all-reduce direct bare'
sizes='-b 2k -e 8k -f 2 -n 4 -r 3 -w 1'
# shellcheck disable=SC2086
if [ -n "${TA_SIMT_MODULES:-}" ]; then
    export TREEATTN_MODULE_PATH="$TA_SIMT_MODULES"
    gpus='doubling binomial scatter all-gather direct'
    run 0 exchange $sizes --device simt --ranks 3 --json "$work/json" --csv "$work/csv"
    check 3 $gpus ta_all_reduce ncclAllReduce ta_all_gather
    same_csv kind device
    says out 'device    simt, one for each rank; connected by NCCL or RCCL'
    run 0 exchange $sizes --device simt --group host --ranks 2 --placement root --json "$work/json"
    check 2 binomial scatter all-gather all-reduce direct ta_all_reduce ta_all_gather
    # Without peer access there is none, and the table says why.
    export TA_SIMT_PEERS=none
    run 0 exchange $sizes --device simt --ranks 2 --json "$work/json"
    check 2 doubling binomial scatter all-gather ta_all_reduce ncclAllReduce ta_all_gather
    says out '# no direct: '
    run 3 exchange $sizes --device simt --ranks 2 --kinds direct
    says err 'its device is no peer'
    run 2 exchange --device simt:1
    says err '--device is simt:1: must be a kind of GPU'
elif [ $# = 0 ]; then
    run 0 exchange $sizes --ranks 3 --json "$work/json" --csv "$work/csv"
    check 3 $kinds
    same_csv bytes ranks kind placement median_us ratio_high cpus_used_by_others checked wrong
    run 2 exchange --csv /nonexistent/file
    says err "--csv is '/nonexistent/file', which cannot be written"
    run 0 exchange $sizes --ranks 4 --placement heads --kinds direct,scatter --json "$work/json"
    check 4 direct scatter
    run 0 exchange $sizes --ranks 2 --placement root --json "$work/json"
    check 2 binomial scatter all-gather all-reduce direct bare
    run 0 exchange $sizes --ranks 4 --cluster local:2x2 --json "$work/json"
    check 4 doubling binomial scatter two-level all-gather all-reduce direct bare
    says out '# no multi-level: '
    run 0 exchange $sizes --ranks 8 --cluster local:2x2x2 --kinds multi-level,two-level \
        --json "$work/json"
    check 8 multi-level two-level
    run 2 exchange --kinds two-level
    says err 'a config.cluster with several nodes'
    run 2 exchange --group ccl
    says err '--group is ccl, but --device is host'
    run 2 exchange --kinds fastest
    says err 'kinds'
    run 2 exchange -b 8k -e 4k
    says err '--end is 4096: must be at least --begin, 8192'
    run 2 exchange --ranks 1
    says err 'ranks'
else
    "$@" -n 3 "$bench" exchange $sizes --json "$work/json" --csv "$work/csv" >"$work/out" \
        2>"$work/err" || fail 'it ended with an error'
    check 3 $kinds MPI_Allreduce MPI_Allgather
    same_csv kind wrong
fi
exit "$failed"
