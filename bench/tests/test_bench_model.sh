#!/bin/sh
# treeattn-bench model and attention: tables, JSON and exit codes.
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

# Full sequences: both passes are right on every grid and layout, and move what the grid says.
run 0 attention -b 200 -n 1 -w 0 --ranks 1,4 --columns 0,2 --map contiguous,striped,zigzag \
    --algo grid,overlap,ring --heads 4 --kv-heads 2 --head-dim 32 --threads 1 --dtype f32,bf16 \
    --json "$work/attention.json"
"$python" - "$work/attention.json" "$work/out" <<'PYTHON' || fail "attention is wrong"
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
table = [line.split() for line in open(sys.argv[2]) if not line.startswith("#")]
# One rank has no grid of two columns, and a ring has no columns.
assert len(rows) == len(table) == 2 * 2 * 3 * (2 * 3 + 2), len(rows)
for row in rows:
    # Six rows with 32 outputs and an lse; six rows with 32 of dq, six keys with 64 of dk and dv.
    checked = {"forward": 6 * 33, "backward": 6 * 32 + 6 * 64}[row["pass"]]
    assert row["wrong"] == 0 and row["checked"] == checked, row
    assert 0 < row["worst_error_in_tolerances"] <= 1, row
    assert abs(row["fraction"] * row["peak_gflops"] / row["gflops"] - 1) < 1e-6, row
    each = {"f32": 4, "bf16": 2}[row["dtype"]]
    if row["algorithm"] == "ring" and row["ranks"] == 4 and row["pass"] == "forward":
        assert 0 <= row["bytes_received_per_rank"] - 3 * 50 * 2 * 64 * each < 300, row
    assert row["attend_us"] > 0 and row["exchange_us"] > 0 and row["ratio"] > 0, row
    tokens = 200 / row["ranks"]
    assert row["peak_bytes_per_rank"] > tokens * (2 * 6 * 64 * each + 16), row
    if row["algorithm"] != "ring":
        assert row["grid_rows"] * row["grid_columns"] == row["ranks"], row
        assert row["columns"] in (0, row["grid_columns"]), row
    if row["columns"] == 2 and row["pass"] == "forward": # both variants
        expected = 50 * (4 * (32 * each + 34 * 4) + 2 * 64 * each)
        assert expected <= row["bytes_received_per_rank"] < expected * 1.1 + 300, row
PYTHON
# Algorithms take turns: a ratio is that of the calls of one round, and what they come to is the
# same in the table, the JSON and the CSV.
run 0 attention -b 96 -n 8 --ranks 2 --algo ring,grid,overlap --heads 2 --head-dim 16 --threads 1 \
    --json "$work/attention.json" --csv "$work/csv"
[ "$(awk 'length > 100' "$work/out" | wc -l)" = 0 ] || fail "the table has more than 100 columns"
says out "--wide has more columns"
says out "algorithms take turns"
"$python" - "$work/attention.json" "$work/csv" "$work/out" <<'PYTHON' || fail "ratios are wrong"
import csv, json, statistics, sys

rows = json.load(open(sys.argv[1]))["rows"]
lines = list(csv.DictReader(open(sys.argv[2])))
table = [line.split() for line in open(sys.argv[3]) if not line.startswith("#")]
assert len(rows) == len(lines) == len(table) == 6, (len(rows), len(lines), len(table))
for i, (row, line, cells) in enumerate(zip(rows, lines, table)):
    pairs = sorted(a / b for a, b in zip(row["us"], rows[i % 2]["us"]))
    assert len(pairs) == 8 and row["peak_us"] == rows[0]["peak_us"]
    # Of 8 samples the interval leaves out none: 2 / 2^8 is within 5 %, 18 / 2^8 is not.
    for name, right in (("ratio", statistics.median(pairs)), ("ratio_low", pairs[0]),
                        ("ratio_high", pairs[-1])):
        assert abs(row[name] / right - 1) < 1e-6, (name, row[name], right)
        assert float(line[name]) == row[name], (line, row)
    for name in ("tokens", "ranks", "algorithm", "pass", "grid_columns", "wrong", "fraction"):
        assert line[name] == str(row[name]), (name, line[name], row[name])
    assert abs(float(line["median_us"]) / statistics.median(row["us"]) - 1) < 1e-6, line
    assert ("!" in cells[0]) == (row.get("cpus_used_by_others", 0) > 0.05), (cells, row)
    assert f"{row['ratio']:.2f}" in cells and row["wrong"] == 0, (cells, row)
assert [row["algorithm"] for row in rows[::2]] == ["ring", "grid", "overlap"]
PYTHON
run 0 attention -b 64 -n 1 -w 0 --heads 2 --head-dim 16 --check 0 --wide
says out "received"
says out "N/A"
run 2 attention -b 64 --csv /nonexistent/file
says err "the file of --csv cannot be written"
run 2 attention --heads 3 --kv-heads 2
says err "--heads is 3, but must be a multiple of --kv-heads 2"
run 2 attention --algo auto
says err "no --cluster"
run 2 attention --ranks 2 --cluster local:1x1
says err "ranks is 2"
run 0 attention -b 64 -e 128 -f 2 -n 1 -w 0 --ranks 2,4 --scaling weak \
    --algo grid,overlap,auto,ring --heads 2 --head-dim 16 --threads 1 --cluster local:1x4 \
    --json "$work/attention.json"
"$python" - "$work/attention.json" <<'PYTHON' || fail "attention with a cluster is wrong"
import json, sys
file = json.load(open(sys.argv[1]))
rows = file["rows"]
assert file["scaling"] == "weak" and len(rows) == 2 * 2 * 2 * 4, len(rows)
for first in range(0, len(rows), 8): # of the same work: four algorithms, two passes each
    same = rows[first:first + 8]
    assert len({(row["tokens"], row["ranks"]) for row in same}) == 1, same
    assert same[0]["ratio"] == same[1]["ratio"] == 1, same
    both = [same[i]["model_us"] + same[i + 1]["model_us"] for i in range(0, 8, 2)]
    assert both[2] == min(both[:3]), both # auto is the one with the least predicted time
for row in rows:
    assert row["tokens"] / row["ranks"] in (64, 128) and row["wrong"] == 0, row
PYTHON
run 2 attention --head-dim 20
run 2 attention --map spiral
says err "spiral"
run 0 attention --help
says out "--columns LIST"

[ "$failed" = 0 ] && echo "ok"
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

exit "$failed"
