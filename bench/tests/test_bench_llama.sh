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
run 0 llama $small --tokens 60,100 --ranks 1,3 --json "$work/json"
rows 6 1
rows 6 3
says out 'by grid'
# shellcheck disable=SC2086
run 0 llama $small --weights tensor --ranks 5 --json "$work/json"
rows 3 5
says out 'by chunks'
# shellcheck disable=SC2086
run 0 llama $small --prefill none --ranks 2 --json "$work/json" --kv-dtype f32 --dtype f16
rows 3 2
says out 'random numbers'

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
run 0 llama --model 3-70b --cluster h100:1x8 --predict --weights tensor --algo tree
says out ' 17.69  yes' # it fits when it is divided
run 0 llama --model 3-70b --cluster h100:1x8 --predict --algo tree
says out '141.15   no'

# refused TEXT FLAGS...: a usage error that says TEXT, and prints no table.
refused()
{
    text=$1
    shift
    run 2 llama "$@"
    says err "$text"
    [ ! -s "$work/out" ] || fail "output with wrong usage: $*"
}
refused "--model is 'none'" --model none
refused 'config.json' --model "$work"
echo '{"hidden_size": 8}' >"$work/config.json"
refused 'intermediate_size is missing' --model "$work/config.json"
refused "'/nowhere' cannot be read" --words /nowhere
echo '5 250' >"$work/prompt"
refused 'number 2 is not one' --words "$work/prompt"
refused 'must be chunks or none' --weights tensor --prefill grid
refused '--predict needs --cluster' --predict
refused '--cluster' --predict --cluster nothing:1x1
refused '--reproducible needs --algo tree' --reproducible 16
refused '--block must be a multiple' --reproducible 48 --algo tree
refused '--reproducible needs --weights replicated' --reproducible 16 --weights tensor
refused 'is no BLAS' --matmul nothing.so
refused 'weights and cache need' --model 3-70b --tokens 1M
run 3 llama --device cuda
says err '--device must be host'
run 0 llama --help
says out '--temperature'

[ "$failed" = 0 ] && echo ok
exit "$failed"
