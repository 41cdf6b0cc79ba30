#!/bin/sh
# treeattn-bench llama: tables, JSON, predictions and what it refuses; with a LAUNCHER, under
# mpirun.
#
#     test_bench_llama.sh PROGRAM PYTHON [LAUNCHER...]
set -u
# shellcheck source=bench/tests/common.sh
. "$(dirname "$0")/common.sh"
: "${bench:?}" "${python:?}" "${work:?}" "${failed:?}"
shift 2

# rows COUNT RANKS: the JSON has so many rows of so many ranks, with sound numbers, and algorithms
# that agree.
rows()
{
    "$python" - "$work/json" "$1" "$2" <<'PYTHON' || fail 'the JSON is not right'
import json, sys

report = json.load(open(sys.argv[1]))
rows = [row for row in report["rows"] if row["ranks"] == int(sys.argv[3])]
assert len(rows) == int(sys.argv[2]), len(rows)
for row in rows:
    samples = row["step_us"]["samples"]
    assert len(samples) == 4 and min(samples) > 0 and len(row["words"]) == 5, row
    assert row["step_us"]["min"] == min(samples), row
    assert all(0 <= word < 250 for word in row["words"]), row
    assert row["words"] == rows[0]["words"] or row["tokens"] != rows[0]["tokens"], row
    assert row["logits_differ"] < 0.1, row
    shares = row["weights_share"] + row["attend_share"] + row["exchange_share"]
    assert 0 < shares <= 1.001, row
    assert (row["exchange_bytes_per_rank"] > 0) == (row["ranks"] > 1), row
    assert row["fraction"] > 0 and row["read_gbps"] > 0 and row["kv_bytes_per_rank"] > 0, row
    if report["options"]["prefill"] == "none":
        assert "prefill_us" not in row, row
    else:
        assert row["together_us"] > row["prefill_us"] > 0 and row["prefill_gflops"] > 0, row
        assert row["library_gflops"] > 0, row
        fraction = row["prefill_gflops"] / row["library_gflops"]
        assert abs(row["prefill_fraction"] - fraction) < 1e-6 * fraction, row
    # The embedding of tiny is not its head: it is held, and a step reads one row of it.
    assert row["weight_bytes_per_rank"] - row["step_weight_bytes"] == 250 * 56 * 2, row
assert report["program"] == "treeattn-bench llama" and report["launch"]["places"], report
for place in report["launch"]["places"]:
    assert place["host"] and place["device"] == "host" and not place["product"], place
PYTHON
}

# words: those that the last JSON has.
words()
{
    "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["rows"][0]["words"])' \
        "$work/json"
}

small='--tokens 100 --new 4 --block 16 --page-tokens 8 --chunk 24 --threads 1'

if [ $# -gt 0 ]; then
    for ranks in 2 3; do
        for flags in '--weights replicated' '--weights tensor' '--prefill none'; do
            # shellcheck disable=SC2086
            "$@" -n "$ranks" "$bench" llama $small $flags --json "$work/json" >"$work/out" \
                2>"$work/err" || fail "$flags on $ranks processes ended with an error"
            rows 3 "$ranks"
            [ "$(grep -c '^# treeattn-bench llama' "$work/out")" = 1 ] || fail 'more than one table'
        done
        # shellcheck disable=SC2086
        "$@" -n "$ranks" "$bench" llama $small --reproducible 16 --algo tree --json "$work/json" \
            >"$work/out" 2>"$work/err" || fail 'reproducible mode ended with an error'
        words >"$work/words.$ranks"
    done
    # shellcheck disable=SC2086
    run 0 llama $small --reproducible 16 --algo tree --json "$work/json"
    words >"$work/words.1"
    cmp "$work/words.1" "$work/words.2" || fail 'other words on 2 processes'
    cmp "$work/words.1" "$work/words.3" || fail 'other words on 3 processes'
    [ "$failed" = 0 ] && echo ok
    exit "$failed"
fi

# shellcheck disable=SC2086
run 0 llama $small --tokens 60,100 --ranks 1,3 --json "$work/json" --csv "$work/csv"
same_csv tokens algorithm model kv_dtype median_us ratio_low together_us fraction weights_share
rows 6 1
rows 6 3
says out 'by grid'
# A ratio is that of the steps of each word, and what they come to is the same in table and JSON.
"$python" - "$work/json" "$work/out" <<'PYTHON' || fail 'ratios, or rows of the table, are wrong'
import json, statistics, sys

rows = json.load(open(sys.argv[1]))["rows"]
table = [line for line in open(sys.argv[2]) if line[0] in " !"]
assert len(rows) == len(table) == 12, table
for i, (row, line) in enumerate(zip(rows, table)):
    first = rows[i // 3 * 3]["step_us"]["samples"]
    pairs = sorted(a / b for a, b in zip(row["step_us"]["samples"], first))
    # Of 4 samples the interval leaves out none.
    for name, right in (("ratio", statistics.median(pairs)), ("ratio_low", pairs[0]),
                        ("ratio_high", pairs[-1])):
        assert abs(row[name] / right - 1) < 1e-6, (name, row[name], right)
    assert (line[0] == "!") == (row.get("cpus_used_by_others", 0) > 0.05), (line, row)
    assert any(f"{row['ratio']:.{n}f}" in line.split() for n in range(3)), (line, row["ratio"])
    assert len(line) <= 101, line
PYTHON
says out 'wide has more columns'
# shellcheck disable=SC2086
run 0 llama $small --weights tensor --ranks 5 --json "$work/json"
rows 3 5
says out 'by chunks'
# shellcheck disable=SC2086
run 0 llama $small --prefill none --ranks 2 --json "$work/json" --kv-dtype f32 --dtype f16 \
    --read 0 --csv "$work/csv"
same_csv read_gbps prefill_us
# shellcheck disable=SC2086
run 0 llama $small --prefill none --ranks 2 --json "$work/json" --kv-dtype f32 --dtype f16
rows 3 2
says out 'random numbers'
# Heads that are repeated: the same numbers, and more bytes.
for prefill in grid chunks none; do
    # shellcheck disable=SC2086
    run 0 llama $small --prefill $prefill --ranks 3 --ring expanded --json "$work/json"
    rows 4 3
    says out 'expanded: ring-kv over KV heads repeated'
    "$python" - "$work/json" <<'PYTHON' || fail 'the ring with expanded heads is not right'
import json, sys

bytes = {r["algorithm"]: r["exchange_bytes_per_rank"] for r in json.load(open(sys.argv[1]))["rows"]}
assert 1.8 * bytes["ring-kv"] < bytes["expanded"] <= 2 * bytes["ring-kv"], bytes
PYTHON
done
# A cache of 8 bits.
for flags in '--prefill grid' '--weights tensor' '--prefill none'; do
    # shellcheck disable=SC2086
    run 0 llama $small $flags --ranks 2 --kv-dtype e4m3 --json "$work/json"
    rows 3 2
    says out 'cache     e4m3'
done

# What a longer prompt adds to a rank's memory is less with more ranks: one that no rank could hold
# alone can be computed.
for weights in replicated tensor; do
    run 0 llama --tokens 512,2k --ranks 1,8 --weights $weights --algo tree --new 1 --threads 1 \
        --read 0 --json "$work/json"
    "$python" - "$work/json" <<'PYTHON' || fail 'long prompts need too much memory on a rank'
import json, sys

def grows(rows, what):
    short, long = (r[what + "_bytes_per_rank"] for r in rows)
    return long - short

rows = json.load(open(sys.argv[1]))["rows"]
one, eight = ([r for r in rows if r["ranks"] == ranks] for ranks in (1, 8))
assert 0 < 8 * grows(eight, "kv") <= grows(one, "kv"), rows
assert 0 < 2 * grows(eight, "other") < grows(one, "other"), rows
PYTHON
done

# Emulated links: the same words, steps that wait for them, and a label.
# shellcheck disable=SC2086
run 0 llama $small --ranks 3 --json "$work/json"
plain=$(words)
# Most of a step is waiting, and counts as that. How slow a link must be for it is up to how busy
# the machine is: slower ones are tried until it is so.
waits()
{
    "$python" - "$work/json" <<'PYTHON'
import json, sys
sys.exit(not all(row["exchange_share"] > 0.5 for row in json.load(open(sys.argv[1]))["rows"]))
PYTHON
}
for delay in 20 100 500; do
    # shellcheck disable=SC2086
    run 0 llama $small --ranks 3 --link ${delay}ms,0.125GB/s --prefill none --tokens 8 --new 2 \
        --json "$work/json"
    ! waits || break
done
waits || fail 'steps do not wait for slow links, or do not say so'
# shellcheck disable=SC2086
run 0 llama $small --ranks 3 --link 2ms,0.125GB/s --json "$work/json"
rows 3 3
[ "$plain" = "$(words)" ] || fail 'links changed the words'
says out '# links     emulated links of 2000 us and 0.125 GB/s, a node for each rank'
"$python" - "$work/json" <<'PYTHON' || fail 'the links are not right'
import json, sys

report = json.load(open(sys.argv[1]))
assert report["options"]["link"]["delay_us"] == 2000, report["options"]
assert report["options"]["link"]["gbps"] == 0.125, report["options"]
for row in report["rows"]:  # 2 layers, each of which waits for a message at least
    assert row["step_us"]["min"] > 2 * 2000, row
    assert row["exchange_share"] > 0, row
PYTHON

# Two files beside each other, and one with itself.
cp "$work/json" "$work/linked.json"
# shellcheck disable=SC2086
run 0 llama $small --ranks 3 --json "$work/json"
run 0 compare "$work/json" "$work/json"
says out ring-kv
run 0 compare "$work/linked.json" "$work/json"
says out 'emulated links of 2000 us'
cat >"$work/tiny.json" <<'JSON'
{"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 250}
JSON
for flags in '--kv-dtype f32' '--weights tensor' "--model $work/tiny.json"; do
    # shellcheck disable=SC2086
    run 0 llama $small --ranks 3 $flags --json "$work/other.json"
    run 1 compare "$work/json" "$work/other.json"
    says err 'the files have no row of the same work'
done

# Tables for a page, with a prompt and without: a line for each row, and nothing else is changed.
tables=$(dirname "$0")/../llama/tables.py
# shellcheck disable=SC2086
run 0 llama $small --ranks 1,3 --prefill none --json "$work/none.json"
printf 'before\n<!-- measured: begin -->\nold\n<!-- measured: end -->\nafter\n' >"$work/page"
"$python" "$tables" --into "$work/page" "$work/linked.json" "$work/none.json" || fail 'no tables'
"$python" - "$work/page" <<'PYTHON' || fail 'the tables are not right'
import sys

lines = open(sys.argv[1], encoding="utf-8").read().split("\n")
assert lines[:2] == ["before", "<!-- measured: begin -->"], lines
assert lines[-3:] == ["<!-- measured: end -->", "after", ""] and "old" not in lines, lines
for ranks, name, count in ((1, "tree", 1), (3, "tree", 2), (3, "ring-kv", 2), (3, "ring-q", 2)):
    assert sum(line.startswith(f"| {ranks} | {name} | ") for line in lines) == count, lines
assert sum("together, s" in line for line in lines) == 1, lines
assert sum("prefill, s" in line for line in lines) == 1, lines
text = " ".join(lines)
assert "emulated links of 2000 us" in text and "no prompt: random numbers" in text, lines
assert text.count("all weights read by every rank") == 2 and "CPUs. " in text, lines
assert max(len(line) for line in lines if not line.startswith("|")) <= 120, lines
PYTHON
sed -i '/begin/d' "$work/page"
"$python" "$tables" --into "$work/page" "$work/none.json" 2>"$work/err" &&
    fail 'a page without marks'
says err 'must have one line'

# A logit that is no number, between others, is an error and is seen in the table.
"$python" - "$work/nan" <<'PYTHON'
import array, json, os, sys

os.mkdir(sys.argv[1])
config = dict(model_type="llama", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
              num_attention_heads=1, num_key_value_heads=1, vocab_size=16, head_dim=8)
json.dump(config, open(os.path.join(sys.argv[1], "config.json"), "w"))
layer = "model.layers.0."
shapes = {"model.embed_tokens.weight": [16, 8], "lm_head.weight": [16, 8], "model.norm.weight": [8],
          layer + "input_layernorm.weight": [8], layer + "post_attention_layernorm.weight": [8]}
for name in "self_attn.q self_attn.k self_attn.v self_attn.o mlp.gate mlp.up mlp.down".split():
    shapes[layer + name + "_proj.weight"] = [8, 8]
header, data = {}, array.array("f")
for name, shape in shapes.items():
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    values = [0.01 * (i % 7 - 3) if len(shape) > 1 else 1.0 for i in range(count)]
    if name == "lm_head.weight":
        values[3 * 8] = float("nan")  # word 3 of 16
    at = 4 * len(data)
    data.extend(values)
    header[name] = dict(dtype="F32", shape=shape, data_offsets=[at, 4 * len(data)])
text = json.dumps(header).encode()
with open(os.path.join(sys.argv[1], "model.safetensors"), "wb") as file:
    file.write(len(text).to_bytes(8, "little") + text + data.tobytes())
PYTHON
for ranks in 1 3; do
    run 1 llama --model "$work/nan" --tokens 20 --new 2 --block 4 --threads 1 --ranks $ranks \
        --json "$work/json"
    says err 'are NaN or infinite'
    grep -Eq ' -?nan( |$)' "$work/out" || fail 'the table does not show it'
done

# Words of a file, and words by chance, which a seed decides.
echo '5, 7 249 0' >"$work/prompt"
# shellcheck disable=SC2086
run 0 llama $small --words "$work/prompt" --algo ring-q --temperature 100 --seed 3 \
    --json "$work/json"
first=$(words)
run 0 llama --words "$work/prompt" --algo tree --temperature 100 --seed 3 --dtype bf16 --new 4 \
    --json "$work/json"
[ "$first" = "$(words)" ] || fail "the same seed chose other words: $first"
run 0 llama --words "$work/prompt" --algo tree --temperature 100 --seed 4 --new 4 \
    --json "$work/json"
[ "$first" != "$(words)" ] || fail 'another seed chose the same words'

# The logits are those that the words follow from.
run 0 llama --words "$work/prompt" --algo tree --new 4 --json "$work/json" --logits "$work/logits"
"$python" - "$work/json" "$work/logits" <<'PYTHON' || fail 'the logits are not right'
import array, json, sys

row = json.load(open(sys.argv[1]))["rows"][0]
logits = array.array("f", open(sys.argv[2], "rb").read())
assert len(logits) == 5 * 250, len(logits)
for i, word in enumerate(row["words"]):
    one = logits[250 * i:250 * (i + 1)]
    assert one.index(max(one)) == word, (i, word)
PYTHON

# Every column, and those of a prediction within the usual width.
# shellcheck disable=SC2086
run 0 llama $small --wide
says out 'words/s'
# shellcheck disable=SC2086
run 0 llama $small --ranks 2 --ring expanded --cluster h100:1x2
! grep -v '^#' "$work/out" | awk 'length > 100' | grep -q . ||
    fail 'a row has more than 100 columns'
grep -q '^#.* range .* model *paper$' "$work/out" || fail 'a column is missing'

# Predictions, beside the paper's figures.
run 0 llama --model 3.1-8b --tokens 32k,256k --cluster h100:1x8 --predict --json "$work/json"
"$python" - "$work/json" <<'PYTHON' || fail 'the predictions are not right'
import json, sys

rows = json.load(open(sys.argv[1]))["rows"]
assert [row["algorithm"] for row in rows] == ["tree", "ring-kv", "ring-q"] * 2
for row in rows:
    p = row["predicted"]
    assert row["ranks"] == 8 and p["fits"], row
    parts = p["weights_us"] + p["attend_us"] + p["exchange_us"]
    assert abs(parts - p["step_us"]) < 1e-3 * parts, row
    # 7.5 thousand million weights that a step reads, 2 bytes each, at 3.35 TB/s
    assert abs(p["weights_us"] - 7.504e9 * 2 / 3.35e6) < 10, row
assert rows[0]["predicted"]["paper_together_seconds"] == 0.60
assert rows[4]["predicted"]["paper_together_seconds"] == 8.19
assert "paper_together_seconds" not in rows[2]["predicted"]
assert rows[0]["predicted"]["step_us"] < rows[1]["predicted"]["step_us"]
PYTHON
# A folder's model of the same shape, whatever it is called.
cat >"$work/8b.json" <<'JSON'
{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
 "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "rope_theta": 500000}
JSON
run 0 llama --model "$work/8b.json" --tokens 64k --cluster h100:1x8 --predict --algo tree
says out '  1.08 '
run 0 llama --model "$work/8b.json" --tokens 64k --cluster h100:2x4 --predict --algo tree
! grep -q ' 1.08 ' "$work/out" || fail 'the figure of one node beside two nodes'
run 0 llama --model 3-70b --cluster h100:1x8 --predict --weights tensor --algo tree
says out ' 19.52  yes' # it fits when it is divided; the embedding is whole on every rank
run 0 llama --model 3-70b --cluster h100:1x8 --predict --algo tree
says out '141.15   no'

# shellcheck disable=SC2034 # for common.sh
refusing=llama
refuses "--model is 'none'" --model none
refuses 'config.json' --model "$work"
echo '{"hidden_size": 8}' >"$work/config.json"
refuses 'intermediate_size is missing' --model "$work/config.json"
refuses "'/nowhere' cannot be read" --words /nowhere
echo '5 250' >"$work/prompt"
refuses 'number 2 is not one' --words "$work/prompt"
echo '5 0k' >"$work/prompt"
refuses 'number 2 is not one' --words "$work/prompt"
refuses "--link is 'fast'" --link fast
refuses '--link is for --device host' --link 1ms,1GB/s --device cuda
refuses '--logits is for one row' --logits "$work/logits" --ranks 1,2
refuses 'must be chunks or none' --weights tensor --prefill grid
refuses '--predict needs --cluster' --predict
refuses '--csv is for rows that are measured' --predict --cluster h100:1x8 --csv "$work/csv"
refuses "--csv is '/nonexistent/file', which cannot be written" --csv /nonexistent/file
refuses '--cluster' --predict --cluster nothing:1x1
refuses '--reproducible needs --algo tree' --reproducible 16
refuses '--block must be a multiple' --reproducible 48 --algo tree
refuses '--reproducible needs --weights replicated' --reproducible 16 --weights tensor
refuses 'is no BLAS' --matmul nothing.so
refuses 'weights and cache need' --model 3-70b --tokens 1024M # 352 TB of K and V
refuses '--ring expanded needs --weights replicated' --ring expanded --weights tensor
refuses '--group is ccl' --group ccl
TREEATTN_MODULE_PATH=$work run 3 llama --device nothing
says err '--device is nothing: '
run 0 llama --help
says out '--temperature'

[ "$failed" = 0 ] && echo ok
exit "$failed"
