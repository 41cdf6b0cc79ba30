#!/bin/sh
# treeattn-bench as a user meets it: output, JSON, exit codes, what it says about wrong usage.
#
#     test_bench.sh PROGRAM PYTHON [MODULES]
#
# MODULES is a directory with the module that runs GPU kernels on the CPU, if there is one.
set -u
bench=$1
python=$2
modules=${3:-}
# shellcheck source=bench/tests/common.sh
. "$(dirname "$0")/common.sh"
: "${work:?}" "${failed:?}"

# run CODE FLAGS...: run the program; it must exit with CODE.
run()
{
    expected=$1
    shift
    code=0
    "$bench" "$@" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = "$expected" ] || fail "exit $code, not $expected: treeattn-bench $*"
}

# says FILE TEXT: the last run's out or err has this text.
says()
{
    grep -qF -e "$2" "$work/$1" || fail "'$2' is not in std$1"
}

# refuses TEXT FLAGS...: a usage error that says TEXT, and prints no table.
refuses()
{
    text=$1
    shift
    run 2 decode "$@"
    says err "$text"
    [ ! -s "$work/out" ] || fail "output with wrong usage: $*"
}

small='--heads 4 --kv-heads 2 --head-dim 32 --threads 1 -w 1'

# The table and the JSON agree, nothing is wrong, and a pipe gets no progress line.
# shellcheck disable=SC2086
run 0 decode -b 256 -e 1k -f 2 -n 3 --ranks 1,2,4 --dtype f32,bf16 $small --json "$work/json"
[ ! -s "$work/err" ] || fail "something on standard error"
"$python" - "$work/json" "$work/out" <<'PYTHON' || fail "the JSON or the table is not right"
import json, sys

report = json.load(open(sys.argv[1]))
rows = report["rows"]
table = [line.split() for line in open(sys.argv[2]) if not line.startswith("#")]
names = next(line for line in open(sys.argv[2]) if line.startswith("#") and "tokens" in line
             and "#wrong" in line).lstrip("#").split()
assert len(rows) == len(table) == 2 * 3 * 3, (len(rows), len(table))
assert report["arguments"][:2] == ["-b", "256"], report["arguments"]
assert report["machine"]["cpus"] >= 1
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
    assert abs(row["fraction"] * step["median"] / read["median"] - 1) < 1e-6
    # A partial of 34 numbers for each of 4 heads, log2(ranks) times, whatever the length.
    messages = {1: 0, 2: 1, 4: 2}[row["ranks"]]
    assert row["messages_per_rank"] == messages, row["messages_per_rank"]
    partial = 4 * 34 * 4
    assert messages * partial <= row["exchange_bytes_per_rank"] <= messages * (partial + 64), row
    assert len(row["exchange_per_step"]) == row["ranks"]
    assert "algorithm: tree" in row["plan"], row["plan"]
PYTHON

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
import json, sys

rows = json.load(open(sys.argv[1]))["rows"]
assert [row["algorithm"] for row in rows] == ["tree", "ring-kv", "ring-q"] * 3
for i, row in enumerate(rows):
    first, ranks = rows[i // 3 * 3], row["ranks"]
    assert row["tokens"] == 256 * ranks and row["wrong"] == 0, row
    assert abs(row["ratio"] * first["step_us"]["median"] / row["step_us"]["median"] - 1) < 1e-6
    assert row["attend_us"] > 0 and row["exchange_us"] >= 0, row
    assert f"algorithm: {row['algorithm']}\n" in row["plan"], row["plan"]
    shard = row["kv_bytes"] / ranks
    assert row["peak_bytes_per_rank"] > shard * (2 if row["algorithm"] == "ring-kv" and ranks > 1
                                                 else 1), row
    if row["algorithm"] == "ring-kv" and ranks > 1:
        assert row["exchange_bytes_per_rank"] > (ranks - 1) * shard, row
PYTHON

# Two runs side by side, and plots where there is a matplotlib.
run 0 compare "$work/json" "$work/json"
says out "B/A"
[ "$(grep -c ' 1.00 ' "$work/out")" = 9 ] || fail "compare has not 9 rows with a ratio of 1"
run 1 compare "$0" "$work/json"
says err "is not a file of"
run 2 compare "$work/json"

# What the model says beside what was measured. Messages and bytes are counted in both, as all
# shards are equal.
# shellcheck disable=SC2086
run 0 decode -b 240 -n 3 --ranks 1,2,3,8 --algo tree,ring-kv,ring-q,auto $small --cluster probe \
    --json "$work/json"
"$python" - "$work/json" <<'PYTHON' || fail "the predictions are not right"
import json, sys

for row in json.load(open(sys.argv[1]))["rows"]:
    p = row["predicted"]
    assert 0 < p["attend_us"] <= p["step_us"] < 1e6, p
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
run 2 decode -b 256 -n 1 --ranks 2 $small --cluster h200:1x8
says err "h200"

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

# Predictions: every row of the paper's table, thousands of devices, wrong clusters.
run 0 model paper --json "$work/model.json"
[ "$(grep -vc '^#\|^$' "$work/out")" = 35 ] || fail "model paper has not 35 rows"
"$python" - "$work/model.json" <<'PYTHON' || fail "the JSON of model is wrong"
import json, sys
rows = json.load(open(sys.argv[1]))
assert len(rows) == 35, len(rows)
for row in rows:
    best = {}
    for c in row["candidates"]:
        assert c["microseconds"] > 0 and c["memory_bytes_per_rank"] > 0, c
        best[c["algorithm"]] = min(best.get(c["algorithm"], 1e99), c["microseconds"])
    assert set(best) == {"tree", "ring pass-KV", "ring pass-Q", "one device"}, best
    assert best["tree"] < best["ring pass-Q"] < best["ring pass-KV"], best
PYTHON
run 0 model paper --work attention --json "$work/model.json"
[ "$(grep -vc '^#\|^$' "$work/out")" = 25 ] || fail "model paper of attention has not 25 rows"
"$python" - "$work/model.json" <<'PYTHON' || fail "the JSON of the model of attention is wrong"
import json, sys
rows = json.load(open(sys.argv[1]))
assert len(rows) == 25, len(rows)
for row in rows:
    ring, grids = row["candidates"][-1], row["candidates"][:-1]
    assert ring["algorithm"] == "ring" and len(grids) == {16: 10, 64: 14}[row["ranks"]], row
    for c in grids:
        assert c["grid_rows"] * c["grid_columns"] == row["ranks"], c
        assert c["forward_microseconds"] > c["forward_attend_microseconds"] > 0, c
    least = min(c["forward_bytes_received_per_rank"] for c in grids)
    assert least < ring["forward_bytes_received_per_rank"], row
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
run 2 model h200:1x8
says err "preset is 'h200'"
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

# The other commands.
run 0 version
says out "treeattn-bench "
run 0 info
says out "cpus: "
says out "version: "
run 0 help
says out "Exit codes"
says out "--query-tokens"
run 0 decode --help
says out "--json FILE"
run 2
run 2 encode
says err "'encode'"

# Wrong usage: the flag, the value, and what would be right.
refuses "--begin is '4q', but must be a whole number from 1 to 2147483647" -b 4q
refuses "--begin is '0'" -b 0
refuses "--end is '99999999999999999999'" -e 99999999999999999999
refuses "--begin is 4096, but must be at most --end, which is 1024" -b 4k -e 1k
refuses "--ranks is '', but must be" --ranks 1,,2
refuses "--ranks is 'x'" --ranks=2,x
refuses "--dtype is 'f64', but must be one of: f32, f16, bf16" --dtype f16,f64
refuses "--algo is 'ring', but must be one of: auto, tree, ring-kv, ring-q, repro" --algo tree,ring
refuses "--end is 1073741824, but with 8 ranks" -b 1024M --ranks 8 --scaling weak
refuses "--map is 'ring', but must be one of: contiguous, cyclic" --map ring
refuses "--heads is 12, but must be a multiple of --kv-heads 8" --heads 16,12
refuses "--head-dim is 20, but must be a multiple of 8" --head-dim 20
refuses "--v-dim is 36, but must be a multiple of 8" --v-dim 36
refuses "--block is 8, but only --map cyclic has blocks" --block 8
refuses "--query-tokens is 64, but must be at most --begin" --query-tokens 64 -b 32
refuses "--check is '2', but must be a whole number from 0 to 1" -c 2
refuses "--json needs a value" --json
refuses "cannot be written" -b 64 --json /nonexistent/file
refuses "unknown flag '--rank'; did you mean '--ranks'?" --rank 2
refuses "unknown flag '-x'" -x
refuses "unexpected argument '8'" 8
refuses "GiB of memory" -b 1024M --batch 64

# Graphs without a GPU, and GPUs that are not one for each rank.
run 3 decode -b 64 --ranks 2 -G
says err "-G is not possible with this device and group"
refuses "--group is ccl, but --device is host: must be a kind of GPU" -b 64 --group ccl

# A device that is not there.
run 3 decode -b 64 --device cuda
says err "device 'cuda' is not available"
run 3 decode -b 64 --device rocm:0
says err "'rocm:0'"
run 3 decode -b 64 --device simt:99
says err "'simt:99'"

# No module anywhere, and one that is not usable: why, and where it was looked for.
mkdir "$work/none" "$work/broken"
echo 'not a module' >"$work/broken/treeattn-rocm.so"
export TREEATTN_MODULE_PATH="$work/broken"
run 3 decode -b 64 --device rocm
says err "$work/broken/treeattn-rocm.so"
run 0 info
says out "module rocm: not used, $work/broken/treeattn-rocm.so"
unset TREEATTN_MODULE_PATH

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

for row in json.load(open(sys.argv[1]))["rows"]:
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
    if graph: # into which nobody sees
        assert row["attend_us"] is None and row["exchange_us"] is None, row
    else:
        step = sum(row["step_us"]["samples"]) / row["samples"]
        assert 0 < row["attend_us"] < step, row
        assert abs(row["attend_us"] + row["exchange_us"] - step) < 1e-3 * step, row
    assert row["read_loop"] == "device copy" and row["read_us"]["min"] > 0, row
    # Counted at every replay: a partial of 34 numbers for 4 heads, and 8 bytes of state.
    if row["algorithm"] == "tree":
        rounds = {1: 0, 2: 1, 3: 2}[row["ranks"]]
        assert row["messages_per_rank"] == rounds, row
        assert row["exchange_bytes_per_rank"] == rounds * (4 * 34 * 4 + 8), row
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
