#!/bin/sh
# treeattn-bench decode: its table, its JSON and its exit codes, on the host and on GPUs.
#
#     test_bench.sh PROGRAM PYTHON [MODULES]
#
# MODULES is a directory with the module that runs GPU kernels on the CPU, if there is one.
set -u
modules=${3:-}
# shellcheck source=bench/tests/common.sh
. "$(dirname "$0")/common.sh"
: "${python:?}" "${work:?}" "${failed:?}"

small='--heads 4 --kv-heads 2 --head-dim 32 --threads 1 -w 1'

# The table and the JSON agree, nothing is wrong, and a pipe gets no progress line.
# shellcheck disable=SC2086
run 0 decode -b 256 -e 1k -f 2 -n 3 --ranks 1,2,4 --dtype f32,bf16 $small --wide \
    --json "$work/json"
[ ! -s "$work/err" ] || fail "something on standard error"
"$python" - "$work/json" "$work/out" <<'PYTHON' || fail "the JSON or the table is not right"
import json, statistics, sys

report = json.load(open(sys.argv[1]))
rows = report["rows"]
table = [line.lstrip("!").split() for line in open(sys.argv[2]) if not line.startswith("#")]
names = next(line for line in open(sys.argv[2]) if line.startswith("#") and "tokens" in line
             and "#wrong" in line).lstrip("#").split()
assert len(rows) == len(table) == 2 * 3 * 3, (len(rows), len(table))
assert report["arguments"][:2] == ["-b", "256"], report["arguments"]
assert report["machine"]["cpus"] >= 1
loops = []
for row, cells in zip(rows, table):
    cell = dict(zip(names, cells))
    assert len(cells) == len(names), cells
    assert int(cell["tokens"]) == row["tokens"] and int(cell["ranks"]) == row["ranks"]
    assert cell["dtype"] == row["dtype"] and cell["algo"] == row["algorithm"] == "tree"
    assert int(cell["#wrong"]) == row["wrong"] == 0, row
    # Every rank has all 4 heads: 32 outputs and an lse each.
    assert row["checked"] == row["ranks"] * 4 * 33, row["checked"]
    assert 0 < row["worst_error_in_tolerances"] <= 1, row
    step, read = row["step_us"], row["read_us"]
    assert len(step["samples"]) == len(read["samples"]) == row["samples"] == 3
    assert 0 < step["min"] <= step["median"] <= step["p99"] == max(step["samples"]), step
    bytes_per_element = {"f32": 4, "bf16": 2}[row["dtype"]]
    assert row["kv_bytes"] == row["tokens"] * 2 * 64 * bytes_per_element, row["kv_bytes"]
    assert abs(row["kv_gbps"] * step["median"] * 1e3 / row["kv_bytes"] - 1) < 1e-6
    pairs = [r / s for r, s in zip(read["samples"], step["samples"])]
    assert abs(row["fraction"] / statistics.median(pairs) - 1) < 1e-6, row
    assert row["flops"] == 2 * row["tokens"] * 4 * 64 and len(row["fma_us"]) == 3, row
    rates = sorted(f / s for f, s in zip(row["fma_us"], step["samples"]))
    rounded = abs(row["fma_fraction"] - float(cell["fma"]))
    assert min(row["fma_us"]) > 0 and rounded <= 0.00501, (row["fma_fraction"], cell["fma"])
    # Twice the samples of the loop for twice the threads: what one of them counts is a constant.
    loops.append(row["flops"] * rates[1] / row["fma_fraction"] / row["ranks"] / row["threads"])
    memory = row["memory"]
    assert memory["pages"] == cell["pages"] == "small", memory
    assert memory["bytes"] >= row["kv_bytes"] and memory.get("huge_page_bytes", 0) == 0, memory
    # A partial of 34 numbers for each of 4 heads, log2(ranks) times, whatever the length.
    messages = {1: 0, 2: 1, 4: 2}[row["ranks"]]
    assert row["messages_per_rank"] == messages, row["messages_per_rank"]
    partial = 4 * 34 * 4
    assert messages * partial <= row["exchange_bytes_per_rank"] <= messages * (partial + 64), row
    assert len(row["exchange_per_step"]) == row["ranks"]
    assert "algorithm: tree" in row["plan"], row["plan"]
assert max(loops) / min(loops) - 1 < 1e-6, loops
PYTHON

# Selected positions, in a mixed batch too; a prefix that the batch shares; and both.
for lists in "--selected 70" "--selected 70 --ragged --query-tokens 9" "--shared-prefix 192" \
    "--shared-prefix 192 --page-tokens 16 --algo tree,ring-q" \
    "--selected 50 --shared-prefix 128"; do
    # shellcheck disable=SC2086
    run 0 decode -b 300 -n 3 --ranks 1,3 --batch 4 $lists $small --json "$work/json"
    "$python" - "$work/json" <<'PYTHON' || fail "the JSON of decode $lists is not right"
import json, sys

report = json.load(open(sys.argv[1]))
options = report["options"]
rows, shared = options["call_tokens"], options["shared_prefix"]
tokens = rows * options["selected"] or 4 * (300 - shared) + shared
for row in report["rows"]:
    assert row["wrong"] == 0 and row["checked"] > 0, row
    assert row["kv_bytes"] == tokens * 2 * 64 * 2, row["kv_bytes"]
PYTHON
done
# shellcheck disable=SC2086
run 2 decode -b 300 --selected 301 $small

# K and V of 8 bits beside 16, with selected positions and pages too: half of the bytes, all right.
for lists in "" "--selected 70" "--page-tokens 16"; do
    # shellcheck disable=SC2086
    run 0 decode -b 300 -n 3 --ranks 1,3 $small --kv-dtype bf16,e4m3,e5m2 $lists --json "$work/json"
    "$python" - "$work/json" <<'PYTHON' || fail "the JSON of decode --kv-dtype $lists is not right"
import json, sys

report = json.load(open(sys.argv[1]))
tokens = report["options"]["selected"] or 300
assert sorted({row["kv_dtype"] for row in report["rows"]}) == ["bf16", "e4m3", "e5m2"]
for row in report["rows"]:
    assert row["wrong"] == 0 and row["checked"] > 0, row
    assert row["kv_bytes"] == tokens * 2 * 64 * (2 if row["kv_dtype"] == "bf16" else 1), row
PYTHON
done
# shellcheck disable=SC2086
run 2 decode -b 300 --kv-dtype e4m4 $small

# A mixed batch: 33 sequences, of which one prefills 40 tokens, three verify 5, the others decode 1.
# shellcheck disable=SC2086
run 0 decode -b 300 -n 3 --ranks 1,2 --algo tree,ring-kv,ring-q --ragged --batch 33 \
    --query-tokens 40 $small --json "$work/json"
"$python" - "$work/json" <<'PYTHON' || fail "the JSON of a mixed batch is not right"
import json, sys

report = json.load(open(sys.argv[1]))
tokens = report["options"]["call_tokens"]
assert tokens == 40 + 3 * 5 + 29, tokens
assert len(report["rows"]) == 6
for row in report["rows"]:
    assert row["wrong"] == 0 and row["checked"] > 0, row
PYTHON

# Both kinds of pages: a row for each, and the header says what the system gave.
# shellcheck disable=SC2086
run 0 decode -b 256 -n 1 --ranks 1,2 --pages both --page-tokens 16 --layout head $small \
    --json "$work/json"
says out "# pages     small: 0 of "
says out "# pages     huge: "
"$python" - "$work/json" <<'PYTHON' || fail "the JSON of both kinds of pages is not right"
import json, sys

report = json.load(open(sys.argv[1]))
assert report["options"]["pages"] == "both"
seen = [(row["memory"]["pages"], row["ranks"]) for row in report["rows"]]
assert seen == [("small", 1), ("small", 2), ("huge", 1), ("huge", 2)], seen
PYTHON

# V as a part of K: nothing is wrong, and only K is counted as read.
# shellcheck disable=SC2086
for flags in '' '--page-tokens 16 --query-tokens 5' '--layout head --algo tree,ring-kv,ring-q'; do
    run 0 decode -b 300 -n 1 --ranks 1,2 --latent --v-dim 24 --dtype f32,bf16 $small $flags \
        --json "$work/json"
    "$python" - "$work/json" <<'PYTHON' || fail "a latent cache is not right"
import json, sys

report = json.load(open(sys.argv[1]))
for row in report["rows"]:
    results = row["ranks"] * report["options"]["call_tokens"] * 4 * 25
    assert row["wrong"] == 0 and row["checked"] == results, row["checked"]
    assert row["kv_bytes"] == 300 * 2 * 32 * {"f32": 4, "bf16": 2}[row["dtype"]], row["kv_bytes"]
PYTHON
done

# Reproducible mode beside the usual one: as many messages, with more bytes.
# shellcheck disable=SC2086
run 0 decode -b 300 -n 3 --ranks 1,2,3 --reproducible 32 $small --json "$work/json"
"$python" - "$work/json" <<'PYTHON' || fail "the JSON of reproducible mode is not right"
import json, sys

report = json.load(open(sys.argv[1]))
rows = report["rows"]
assert report["options"]["reproducible_tile"] == 32
assert [row["algorithm"] for row in rows] == ["tree", "repro"] * 3
for tree, repro in zip(rows[::2], rows[1::2]):
    assert tree["wrong"] == repro["wrong"] == 0, repro
    assert "reproducible: tiles of 32 tokens" in repro["plan"], repro["plan"]
    assert "reproducible" not in tree["plan"], tree["plan"]
    messages = tree["messages_per_rank"]
    assert messages == repro["messages_per_rank"]
    more = repro["exchange_bytes_per_rank"] - tree["exchange_bytes_per_rank"]
    assert more == messages * 4 * (16 * 33 + 8 - 4 * 34), (tree, repro)
PYTHON

# Three algorithms, and lengths that are those of each rank's part.
# shellcheck disable=SC2086
run 0 decode -b 256 -n 3 --ranks 1,2,4 --algo tree,ring-kv,ring-q --scaling weak $small \
    --json "$work/json"
"$python" - "$work/json" <<'PYTHON' || fail "the JSON of three algorithms is not right"
import json, statistics, sys

rows = json.load(open(sys.argv[1]))["rows"]
assert [row["algorithm"] for row in rows] == ["tree", "ring-kv", "ring-q"] * 3
for i, row in enumerate(rows):
    first, ranks = rows[i // 3 * 3], row["ranks"]
    assert row["tokens"] == 256 * ranks and row["wrong"] == 0, row
    pairs = [a / b for a, b in zip(row["step_us"]["samples"], first["step_us"]["samples"])]
    assert abs(row["ratio"] / statistics.median(pairs) - 1) < 1e-6, row
    assert abs(row["ratio_low"] / min(pairs) - 1) < 1e-6, row  # three are too few to leave one out
    assert abs(row["ratio_high"] / max(pairs) - 1) < 1e-6, row
    assert row["read_us"] == first["read_us"], row  # one sweep a turn
    assert row["attend_us"] > 0 and row["exchange_us"] >= 0, row
    name = {"tree": "tree", "ring-kv": "ring pass-KV", "ring-q": "ring pass-Q"}[row["algorithm"]]
    assert f"algorithm: {name}\n" in row["plan"], row["plan"]
    shard = row["kv_bytes"] / ranks
    assert row["peak_bytes_per_rank"] > shard * (2 if row["algorithm"] == "ring-kv" and ranks > 1
                                                 else 1), row
    if row["algorithm"] == "ring-kv" and ranks > 1:
        assert row["exchange_bytes_per_rank"] > (ranks - 1) * shard, row
PYTHON

# The table fits a terminal, and has more columns where rows differ in more.
awk 'length > 100' "$work/out" | grep -v '^#' && fail "a row has more than 100 columns"
grep -q '^#.* ratio *range ' "$work/out" || fail "there is no ratio with its range"
# shellcheck disable=SC2086
run 0 decode -b 256 -n 1 --ranks 1 $small --dtype f32,bf16
grep -q '^#.* dtype ' "$work/out" || fail "rows differ in dtype and the table does not say it"

# Emulated links: rounds cost their delay, and it says so wherever it shows.
# shellcheck disable=SC2086
run 0 decode -b 256 -n 3 --ranks 1,4 --algo tree,ring-q $small --link 2ms,1GB/s --bars \
    --json "$work/links.json"
says out "emulated links of 2000 us and 1 GB/s"
says out "microseconds of a step, emulated links"
"$python" - "$work/links.json" <<'PYTHON' || fail "the JSON of emulated links is not right"
import json, sys

report = json.load(open(sys.argv[1]))
assert "emulated links" in report["options"]["link"]["what"], report["options"]
assert report["options"]["link"]["delay_us"] == 2000 and report["options"]["link"]["gbps"] == 1
for row in report["rows"]:
    rounds = {("tree", 4): 2, ("ring-q", 4): 3}.get((row["algorithm"], row["ranks"]), 0)
    assert row["wrong"] == 0 and row["step_us"]["min"] >= 2000 * rounds, row
PYTHON
refuses "--link is '50', but must be a delay (us, ms, s) and a rate" -b 64 --link 50

# Two runs side by side, and plots where there is a matplotlib.
run 0 compare "$work/json" "$work/json"
says out "B/A"
[ "$(grep -c ' 1.00 ' "$work/out")" = 9 ] || fail "compare has not 9 rows with a ratio of 1"
run 1 compare "$0" "$work/json"
says err "is not a file of"
run 2 compare "$work/json"

# Work is the same only if all of it is: the same rows with another batch, placement or link.
# shellcheck disable=SC2086
run 0 decode -b 256 -n 3 --ranks 1,2,4 --algo tree,ring-kv,ring-q --scaling weak $small --batch 2 \
    --placement root --json "$work/other.json"
run 1 compare "$work/json" "$work/other.json"
says err "no row of the same work"
says err "batch is 1 and 2"
says err "out_placement is all and root"
run 0 compare "$work/links.json" "$work/links.json"
says out "emulated links"

# Rounded weights are other work; files from before there was a choice have exact ones.
# shellcheck disable=SC2086
run 0 decode -b 256 -n 2 --ranks 1 $small --json "$work/exact.json"
! grep -q "weights" "$work/out" || fail "the header has weights that are exact"
# shellcheck disable=SC2086
run 0 decode -b 256 -n 2 --ranks 1 $small --weights rounded --json "$work/rounded.json"
says out "; weights rounded"
run 1 compare "$work/exact.json" "$work/rounded.json"
says err "weights is exact and rounded"
"$python" - "$work/exact.json" "$work/before.json" <<'PYTHON' || fail "options have no weights"
import json, sys

report = json.load(open(sys.argv[1]))
assert report["options"].pop("weights") == "exact"
json.dump(report, open(sys.argv[2], "w"))
PYTHON
run 0 compare "$work/before.json" "$work/exact.json"
run 1 compare "$work/before.json" "$work/rounded.json"
refuses "--weights is 'some', but must be one of: exact, rounded" -b 64 --weights some
for text in '' '[]' '{}' 'null' '{"rows": 1}' '{"program": "treeattn-bench decode", "rows": [{}]}' \
    '{"program": "treeattn-bench decode", "rows": [{"step_us": {"samples": ["x"]}}]}' \
    '{"program": "treeattn-bench decode", "rows": 5}' '{"program": 7, "rows": []}'; do
    printf '%s' "$text" >"$work/bad.json"
    run 1 compare "$work/bad.json" "$work/json"
    ! grep -q Traceback "$work/err" || fail "a traceback for the file: $text"
done

# JSON on standard output with the table on the other, and rows with commas.
# shellcheck disable=SC2086
run 0 decode -b 256 -n 2 --ranks 2 --algo tree,ring-q $small -J - --csv "$work/csv"
says err "#wrong"
"$python" - "$work/out" "$work/csv" <<'PYTHON' || fail "standard output or the CSV is not right"
import csv, json, sys

report = json.load(open(sys.argv[1]))
places = report["launch"]["places"]
assert len(places) == 2 and all(p["host"] and p["device"] == "host" for p in places), places
lines = list(csv.DictReader(open(sys.argv[2])))
assert len(lines) == len(report["rows"]) == 2
for line, row in zip(lines, report["rows"]):
    for name in ("tokens", "ranks", "threads", "algorithm", "ratio", "exchange_bytes_per_rank"):
        assert str(row[name]) == line[name], (name, row[name], line[name])
    assert float(line["median_us"]) == row["step_us"]["median"] and line["wrong"] == "0", line
PYTHON
# shellcheck disable=SC2086
run 2 decode -b 256 -n 1 --ranks 1 $small --csv /nonexistent/file
says err "--csv is '/nonexistent/file', which cannot be written"
# nccl-tests' spelling of graphs: 0 is off.
# shellcheck disable=SC2086
run 0 decode -b 256 -n 1 --ranks 2 $small -G 0

# What the model says beside what was measured. Messages and bytes are counted in both, as all
# shards are equal.
# shellcheck disable=SC2086
run 0 decode -b 240 -n 3 --ranks 1,2,3,8 --algo tree,ring-kv,ring-q,auto $small --cluster probe \
    --json "$work/json"
"$python" - "$work/json" <<'PYTHON' || fail "the predictions are not right"
import json, math, sys

for row in json.load(open(sys.argv[1]))["rows"]:
    p = row["predicted"] # from what was probed: on a busy machine it may be any number
    assert 0 < p["attend_us"] <= p["step_us"] and math.isfinite(p["step_us"]), p
    assert p["cluster"].startswith("name = probed\n"), p["cluster"]
    assert p["peak_bytes_per_rank"] > 0
    if row["algorithm"] != "auto":
        assert p["messages_per_rank"] == row["messages_per_rank"], (row["algorithm"], p)
        assert p["exchange_bytes_per_rank"] == row["exchange_bytes_per_rank"], (row["algorithm"], p)
PYTHON
# shellcheck disable=SC2086
run 0 decode -b 256 -n 1 --ranks 2 $small --cluster h100:1x8 --json "$work/json"
grep -q '"cluster": "name = h100' "$work/json" || fail "no prediction on h100"
# shellcheck disable=SC2086
run 2 decode -b 256 -n 1 --ranks 2 $small --cluster h900:1x8
says err "h900"

# Both spellings of a flag, one length with -b alone, no check on request.
# shellcheck disable=SC2086
run 0 decode --begin=512 --iterations=1 --ranks=2 --check=0 $small
[ "$(grep -vc '^#' "$work/out")" = 1 ] || fail "-b alone is not one row"
says out "N/A"
# shellcheck disable=SC2086
run 0 decode -b512 -n=1 --ranks 3 --map cyclic --block 16 --layout head --page-tokens 8 --batch 2 \
    --query-tokens 3 --placement heads --query-placement root --v-dim 16 $small
says out "pages of 8 tokens"
says out " 0 wrong"

# The GPU kernels: right results, and what a step does.
if [ -n "$modules" ]; then
    export TREEATTN_MODULE_PATH="$modules"
    for flags in '--ranks 1 --dtype f16' \
        '--ranks 2 --group host --map cyclic --block 16 --placement heads'; do
        # shellcheck disable=SC2086
        run 0 decode --device simt -b 128 -n 2 $small $flags --json "$work/json"
        says out " 0 wrong"
        "$python" - "$work/json" <<'PYTHON' || fail "the plan has no launches of a step: $flags"
import json, re, sys

report = json.load(open(sys.argv[1]))
places = [place["device"] for place in report["launch"]["places"]]
assert places == ["simt:0", "simt:1"][:len(places)], places  # also where the host connects them
for row in report["rows"]:
    assert "device: simt:0\n" in row["plan"], row["plan"]
    assert int(re.search("last step launches: ([0-9]+)\n", row["plan"])[1]) in (2, 3), row["plan"]
    to_device = int(re.search("last step copies: ([0-9]+) bytes to", row["plan"])[1])
    assert (to_device > 0) == (row["ranks"] > 1), row["plan"]
PYTHON
    done
    # A device for each rank, and a group that moves their memory: nothing is copied to the host.
    # shellcheck disable=SC2086
    for flags in '' '-G'; do
        # shellcheck disable=SC2086
        run 0 decode --device simt --algo tree,ring-kv,ring-q --ranks 1,2,3 -b 128 -n 2 $small \
            $flags --json "$work/json"
        says out " 0 wrong"
        "$python" - "$work/json" "$flags" <<'PYTHON' || fail "the step does not stay on the device"
import json, sys

report = json.load(open(sys.argv[1]))
graph = sys.argv[2] == "-G"
assert report["options"]["group"] == "ccl" and report["options"]["graph"] == graph
assert report["launch"]["ranks_are"] == "threads"
for row in report["rows"]:
    assert "last step copies: 0 bytes to the device, 0 bytes from it" in row["plan"], row["plan"]
    assert (", replayed from a graph" in row["plan"]) == graph, row["plan"]
    assert row["clock"] == "events" and row["step_us"]["min"] > 0, row
    assert row["fma_fraction"] is None, row
    if graph: # into which nobody sees
        assert row["attend_us"] is None and row["exchange_us"] is None, row
    else:
        step = sum(row["step_us"]["samples"]) / row["samples"]
        assert 0 < row["attend_us"] < step, row
        assert abs(row["attend_us"] + row["exchange_us"] - step) < 1e-3 * step, row
    assert row["read_loop"] == "device copy" and row["read_us"]["min"] > 0, row
    # Counted at every replay: a partial of 34 numbers for 4 heads, and the fault record.
    if row["algorithm"] == "tree":
        rounds = {1: 0, 2: 1, 3: 2}[row["ranks"]]
        assert row["messages_per_rank"] == rounds, row
        assert row["exchange_bytes_per_rank"] == rounds * (4 * 34 * 4 + 32), row
PYTHON
    done
    # A graph of a step that waits for the host can't be.
    # shellcheck disable=SC2086
    run 3 decode --device simt --group host --ranks 2 -b 128 $small -G
    says err "-G is not possible with this device and group"
    says err "group threads moves host memory"
    run 0 info
    says out "module simt devices: "
    says out "compiled for simt"
    run 3 decode -b 64 --device simt:99
    says err "module simt sees 8 devices"
fi

[ "$failed" = 0 ] && echo "ok"
exit "$failed"
