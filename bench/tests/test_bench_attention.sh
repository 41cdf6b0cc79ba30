#!/bin/sh
# treeattn-bench attention: its table, JSON, CSV and exit codes; if TA_SIMT_MODULES says where the
# executor's module is, on GPUs of it instead.
#
#     test_bench_attention.sh PROGRAM PYTHON
set -u
# shellcheck source=bench/tests/common.sh
. "$(dirname "$0")/common.sh"
: "${python:?}" "${work:?}" "${failed:?}"

# A GPU for each rank, of which the host sees no rate of multiply-adds and no parts of a call; with
# a number one GPU for all.
on_gpus()
{
    small='-b 64 -n 2 -w 0 --ranks 3 --algo grid,ring --heads 2 --head-dim 16'
    for flags in '--device simt' '--device simt --group host' '--device simt:1'; do
        # shellcheck disable=SC2086
        run 0 attention $small $flags --wide --json "$work/json" --csv "$work/csv"
        "$python" - "$work/json" "$work/csv" "$work/out" "$flags" <<'PYTHON' || fail "wrong: $flags"
import csv, json, math, sys

report, lines = json.load(open(sys.argv[1])), list(csv.DictReader(open(sys.argv[2])))
table = [line for line in open(sys.argv[3]) if not line.startswith("#")]
devices = ["simt:1"] * 3 if ":" in sys.argv[4] else ["simt:0", "simt:1", "simt:2"]
assert [p["device"] for p in report["launch"]["places"]] == devices, report["launch"]
assert report["options"]["group"] == ("ccl" if sys.argv[4] == "--device simt" else "host"), report
assert len(report["rows"]) == len(lines) == len(table) == 4
for row, line, words in zip(report["rows"], lines, table):
    assert row["wrong"] == 0 and row["checked"] > 0 and row["gflops"] > 0, row
    for name in "attend_us", "exchange_us", "peak_gflops", "fraction":
        assert row[name] is None and math.isnan(float(line[name])), (name, row)
    assert row["peak_us"] is None and words.split().count("N/A") == 4, words
PYTHON
    done
    says out 'simt:1'
    run 0 compare "$work/json" "$work/json"
    # shellcheck disable=SC2086
    TA_SIMT_DEVICES=2 run 3 attention $small --device simt
    says err 'simt:2'
    run 2 attention --device simt:1 --group ccl
    says err '--group is ccl, but --device is simt:1'
}

if [ -n "${TA_SIMT_MODULES:-}" ]; then
    export TREEATTN_MODULE_PATH="$TA_SIMT_MODULES"
    on_gpus
    [ "$failed" = 0 ] && echo "ok"
    exit "$failed"
fi

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
    assert any(f"{row['ratio']:.{n}f}" in cells for n in range(3)), (cells, row["ratio"])
    assert row["wrong"] == 0, row
assert [row["algorithm"] for row in rows[::2]] == ["ring", "grid", "overlap"]
PYTHON
run 0 attention -b 64 -n 1 -w 0 --heads 2 --head-dim 16 --check 0 --wide
says out "received"
says out "N/A"
run 2 attention -b 64 --csv /nonexistent/file
says err "--csv is '/nonexistent/file', which cannot be written"
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

run 2 attention --group ccl
says err "--group is ccl, but --device is host"

[ "$failed" = 0 ] && echo "ok"
exit "$failed"
