#!/bin/sh
# treeattn-bench llama on a GPU: the executor's, with each kind of group; tables and JSON.
#
#     test_bench_llama_simt.sh PROGRAM PYTHON MODULES
set -u
# shellcheck source=bench/tests/common.sh
. "$(dirname "$0")/common.sh"
: "${bench:?}" "${python:?}" "${work:?}" "${failed:?}"
TREEATTN_MODULE_PATH=$3
TA_SIMT_DEVICES=3
export TREEATTN_MODULE_PATH TA_SIMT_DEVICES

small='--tokens 40 --new 2 --block 8 --page-tokens 4 --chunk 16 --warmup 0 --dtype f32
       --kv-dtype f32'

# looks GROUP DEVICES: the JSON is of 3 ranks on so many devices, with words as on the host.
looks()
{
    "$python" - "$work/json" "$work/host.json" "$1" "$2" <<'PYTHON' || fail 'the JSON is not right'
import json, sys

report, host = (json.load(open(path)) for path in sys.argv[1:3])
assert report["options"]["group"] == sys.argv[3], report["options"]
places = report["launch"]["places"]
assert len(places) == 3 and len({p["device"] for p in places}) == int(sys.argv[4]), places
assert all(p["device"].startswith("simt:") and p["product"] for p in places), places
assert len(report["rows"]) == 2
for row in report["rows"]:
    assert row["words"] == host["rows"][0]["words"], row
    assert row["logits_differ"] < 1e-4, row
    assert row["prefill_us"] > 0 and len(row["step_us"]["samples"]) == 2, row
    assert row["exchange_bytes_per_rank"] > 0 and row["kv_bytes_per_rank"] > 0, row
    assert 0 < row["weights_share"] + row["attend_share"] + row["exchange_share"] <= 1.001, row
    assert row["one_row_by"] == "own kernel" and row["many_rows_by"], row
    for name in "fraction", "read_gbps", "library_gflops", "prefill_fraction", "prefill_gflops":
        assert row[name] is None, (name, row)  # the host's readers and libraries measure them
    assert "paper_together_seconds" not in row, row
PYTHON
}

# shellcheck disable=SC2086
run 0 llama $small --algo tree --json "$work/host.json"
for group in ccl host; do
    # shellcheck disable=SC2086
    run 0 llama $small --device simt --group $group --ranks 3 --algo tree,ring-q \
        --json "$work/json"
    looks $group 3
    says out "# device    simt, ranks connected by"
done
# One GPU for all ranks.
# shellcheck disable=SC2086
run 0 llama $small --device simt:1 --ranks 3 --algo tree,ring-q --weights tensor \
    --json "$work/json"
looks host 1
# A rank that there is no GPU for.
# shellcheck disable=SC2086
run 1 llama $small --device simt --group host --ranks 4
says err 'simt:3'

[ "$failed" = 0 ] && echo ok
exit "$failed"
