#!/bin/sh
# treeattn-bench model: tables, JSON and exit codes.
#
#     test_bench_model.sh PROGRAM PYTHON
set -u
# shellcheck source=bench/tests/common.sh
. "$(dirname "$0")/common.sh"
: "${python:?}" "${work:?}" "${failed:?}"

# Predictions: every row of the paper's table, thousands of devices, wrong clusters.
run 0 model paper --json "$work/model.json"
[ "$(grep -vc '^#\|^$' "$work/out")" = 35 ] || fail "model paper has not 35 rows"
"$python" - "$work/model.json" <<'PYTHON' || fail "the JSON of model is wrong"
import json, sys
rows = json.load(open(sys.argv[1]))
assert len(rows) == 35, len(rows)
for row in rows:
    best = {}
    assert sum(c["chosen"] is True for c in row["candidates"]) == 1, row
    assert all(type(c[name]) is bool for c in row["candidates"] for name in ("chosen", "fits")), row
    for c in row["candidates"]:
        assert c["microseconds"] > 0 and c["memory_bytes"] > 0, c
        assert [call["name"] for call in c["calls"]] == ["decode"], c
        assert c["calls"][0]["microseconds"] == c["microseconds"], c
        best[c["algorithm"]] = min(best.get(c["algorithm"], 1e99), c["microseconds"])
    assert set(best) == {"tree", "ring pass-KV", "ring pass-Q", "one device"}, best
    assert best["tree"] < best["ring pass-Q"] < best["ring pass-KV"], best
PYTHON
# 65,536 devices: a look at every pair of them would take minutes.
timeout 30 "$bench" model h100:16x512x8 --tokens 1M --kinds >"$work/out" 2>&1 ||
    fail "65,536 devices are not predicted in time"
[ "$(grep -c '^ .* 65536 ' "$work/out")" = 7 ] || fail "65,536 devices have not 7 kinds"
run 0 model paper --work attention --json "$work/model.json"
[ "$(grep -vc '^#\|^$' "$work/out")" = 25 ] || fail "model paper of attention has not 25 rows"
"$python" - "$work/model.json" <<'PYTHON' || fail "the JSON of the model of attention is wrong"
import json, sys
rows = json.load(open(sys.argv[1]))
assert len(rows) == 25, len(rows)
for row in rows:
    ring, grids = row["candidates"][-1], row["candidates"][:-1]
    assert ring["algorithm"] == "ring" and len(grids) == {16: 10, 64: 14}[row["ranks"]], row
    assert sum(c["chosen"] is True for c in row["candidates"]) == 1, row
    assert all(type(c[name]) is bool for c in row["candidates"] for name in ("chosen", "fits")), row
    for c in grids:
        assert c["grid_rows"] * c["grid_columns"] == row["ranks"], c
        assert [call["name"] for call in c["calls"]] == ["forward", "backward"], c
        for call in c["calls"]:
            assert call["microseconds"] > call["attend_microseconds"] > 0, c
    least = min(c["calls"][0]["bytes_received"] for c in grids)
    assert least < ring["calls"][0]["bytes_received"], row
PYTHON
# With grouped heads K and V are small, and only they move; unless a node's links carry the queries.
run 0 model a100:8x1 --work attention --tokens 64k --heads 32 --kv-heads 4 --mask full
says out " 8x1 "
run 0 model a100:2x4 --work attention --tokens 64k --heads 32 --kv-heads 4 --mask full
says out " 2x4 "
printf 'nodes = 1x2\n' >"$work/bare.cluster"
cat >>"$work/bare.cluster" <<'CLUSTER'
device.memory_bytes = 1e9
device.memory_bytes_per_second = 1e9
device.kernel_seconds = 1e-6
nics_per_node = 1
nodes_per_rack = 0
node.latency_seconds = 1e-6
node.rank_bytes_per_second = 1e9
node.total_bytes_per_second = 1e9
network.latency_seconds = 1e-6
network.rank_bytes_per_second = 1e9
network.total_bytes_per_second = 1e9
rack.latency_seconds = 1e-6
rack.rank_bytes_per_second = 1e9
rack.total_bytes_per_second = 1e9
CLUSTER
run 0 model "$work/bare.cluster"
run 2 model "$work/bare.cluster" --work attention
says err "device.half_flops_per_second"
run 0 model h100:512x8 --tokens 1M --placement root
says out " 4096 "
run 2 model
says err "model needs a cluster"
run 2 model h900:1x8
says err "preset is 'h900'"
for preset in h100 h200 b200 a100 mi300x mi325x mi355x l40s rtx4090 local; do
    run 0 model "$preset:1x8" --tokens 64k
    awk 'length > 100 { exit 1 }' "$work/out" || fail "the table of $preset is too wide"
done
run 0 model h100:16x8 --wide --bars
says out "tree sent"
says out "microseconds of a step, predicted"
run 2 model h100:1x8 --ranks 9
says err "ranks is 9: must be from 1 to 8"
run 2 model h100:1x8 --tokens 0
says err "--tokens is '0'"
run 0 model --help
says out "rtx4090:1x2"

# Exchanges by kind: the direct one is chosen for GPUs of a node that address each other's memory,
# and there is one of several nodes.
run 0 model h100:2x8 --tokens 80000 --ranks 2,8,16 --kinds
grep -q '^ *80000 *8 direct .*\*$' "$work/out" || fail 'the direct exchange of GPUs is not chosen'
grep -q '^ *80000 *16 direct ' "$work/out" || fail 'no direct exchange of several nodes'
[ "$(grep -c '\*$' "$work/out")" = 3 ] || fail 'not one chosen kind for each number of ranks'
run 0 model rtx4090:1x2 --tokens 80000 --kinds
! grep -q direct "$work/out" || fail 'a direct exchange of GPUs without peer access'
run 0 model local:1x4 --tokens 80000 --kinds
grep -q '^ *80000 *4 direct .*\*$' "$work/out" || fail 'the direct exchange is not chosen'

[ "$failed" = 0 ] && echo "ok"
exit "$failed"
