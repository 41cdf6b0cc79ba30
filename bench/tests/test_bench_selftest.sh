#!/bin/sh
# treeattn-bench selftest on the module that runs GPU kernels on the CPU: report and exit codes.
#
#     test_bench_selftest.sh PROGRAM PYTHON MODULES
#
# MODULES is the directory of that module.
set -u
export TREEATTN_MODULE_PATH="$3" TA_SIMT_DEVICES=2
# shellcheck source=bench/tests/common.sh
. "$(dirname "$0")/common.sh"
: "${python:?}" "${work:?}" "${failed:?}"
report=$work/report.json

run 0 selftest --device simt --quick --only capture,reshard --report "$report"
says out 'all passed'
"$python" - "$report" <<'PYTHON' || fail "the report is not right"
import json, sys

report = json.load(open(sys.argv[1]))
assert report["program"] == "treeattn-bench selftest" and report["failed"] == 0, report
assert report["devices"] == ["simt:0", "simt:1"], report["devices"]
assert report["machine"]["cpus"] >= 1 and report["date"].endswith("Z")
assert any(line.startswith("simt driver version") for line in report["library"]), report["library"]
ran = [(s["suite"], s["device"], s["group_ranks"]) for s in report["suites"]]
assert ran == [("reshard", "simt:0", 0), ("reshard", "simt", 2), ("capture", "simt:0", 0),
               ("capture", "simt", 2)], ran
for suite in report["suites"]:
    assert suite["passed"] is True and suite["result"] == "passed", suite
    assert suite["tests"] > 0 and suite["failures"] == 0 and suite["failed"] == [], suite
    assert suite["command"].startswith("test_") and "--device simt" in suite["command"], suite
left_out = report["suites"][3]["errors_in_bounds"]
assert any("more than 2 ranks" in line for line in left_out), left_out
assert report["decode"] == [], report["decode"]  # --only names what is run
PYTHON

# GPUs that write to each other's memory, and a machine whose GPUs cannot: that is no failure.
for peers in all none; do
    export TA_SIMT_PEERS=$peers
    run 0 selftest --device simt --quick --only direct --report "$report"
    says out 'all passed'
    "$python" - "$report" $peers <<'PYTHON' || fail "the report on the direct exchange is not right"
import json, sys

report = json.load(open(sys.argv[1]))
suite, = report["suites"]
assert suite["suite"] == "direct" and suite["group_ranks"] == 2 and suite["tests"] > 0, suite
assert "--exchange direct" in suite["command"], suite
left_out = [line for line in suite["errors_in_bounds"] if "the direct exchange: " in line]
assert len(left_out) == (sys.argv[2] == "none"), suite
assert all("TA_EXCHANGE_DIRECT" in line and "no peer" in line for line in left_out), left_out
PYTHON
done
unset TA_SIMT_PEERS

# A suite that is not done in its time is a failure, and what it printed is in the report.
run 1 selftest --device simt:1 --only decode --seconds 1 --report "$report"
says out 'not done after 1 s'
says out 'SOMETHING FAILED'
"$python" - "$report" <<'PYTHON' || fail "the report of a failure is not right"
import json, sys

report = json.load(open(sys.argv[1]))
assert report["failed"] == 1 and report["devices"] == ["simt:1"], report
suite = report["suites"][0]
assert suite["passed"] is False and "output" in suite and suite["seconds"] >= 1, suite
PYTHON

# Started by a launcher: once is as by hand, with children that are no ranks of it; several times is
# refused before a file is written, and only the first of them says so.
rm -f "$report"
export PMIX_RANK=0 PMIX_NAMESPACE=job PMI_SIZE=1 SLURM_STEP_NUM_TASKS=1
run 0 selftest --device host --quick --only benchmark --report "$report"
says out 'all passed'
"$python" - "$report" <<'PYTHON' || fail "under a launcher the benchmark did not run"
import json, sys

report = json.load(open(sys.argv[1]))
assert report["suites"] == [] and report["decode"][0]["passed"] is True, report
assert "0 wrong" in report["decode"][0]["output"], report["decode"]
PYTHON
unset PMIX_RANK PMIX_NAMESPACE PMI_SIZE SLURM_STEP_NUM_TASKS
rm -f "$report"
for variables in 'OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=0' 'PMI_SIZE=8 PMI_RANK=0' \
    'PMIX_RANK=0 SLURM_STEP_NUM_TASKS=8' 'SLURM_STEP_NUM_TASKS=8 SLURM_PROCID=0'; do
    # shellcheck disable=SC2086 # several variables
    env $variables "$bench" selftest --device host --quick --report "$report" \
        >"$work/out" 2>"$work/err"
    [ $? = 2 ] || fail "not refused: $variables"
    says err 'was started 8 times by a launcher'
done
PMIX_RANK=3 "$bench" selftest --device host --quick --report "$report" >"$work/out" 2>"$work/err"
[ $? = 2 ] && [ ! -s "$work/err" ] || fail "rank 3 is not refused in silence"
[ ! -e "$report" ] || fail "a report of a refused self-test"

run 3 selftest --device simt:7 --report "$report"
says err 'simt:7'
run 2 selftest --device simt --only capture,nothing
says err "--only has 'nothing'"
run 2 selftest --device simt --only capture --report "$work/none/report.json"
says err 'cannot be written'
run 2 selftest --every 3
run 0 selftest --help
says out 'pitfalls'

exit "$failed"
