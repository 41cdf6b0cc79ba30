#!/bin/sh
# What the tests of treeattn-bench share; they source it, with their arguments PROGRAM PYTHON ….
# Sets $bench and $python, $work, a directory that is removed in the end, where a test keeps what
# the program printed in out and err, and $failed.
bench=$1
# shellcheck disable=SC2034 # the script reads it
python=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# fail TEXT...: say so, with what the program printed, and go on.
fail()
{
    echo "FAILED: $*"
    sed 's/^/    out: /' "$work/out"
    sed 's/^/    err: /' "$work/err"
    # shellcheck disable=SC2034 # the script reads it
    failed=1
}

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

# same_csv NAME...: $work/csv has a line for each row of $work/json. These columns are there, and
# all that have names of the JSON have its numbers and words; null is nan.
same_csv()
{
    "$python" - "$work/json" "$work/csv" "$@" <<'PYTHON' || fail 'the CSV is not as the JSON'
import csv, json, math, sys

rows, lines = json.load(open(sys.argv[1]))["rows"], list(csv.DictReader(open(sys.argv[2])))
assert len(rows) == len(lines) > 0, (len(rows), len(lines))
for row, line in zip(rows, lines):
    for name in sys.argv[3:]:
        assert name in line and None not in line.values(), (name, line)
    row.update({f"{name}_us": value for name, value in row.get("step_us", {}).items()})
    for name in line.keys() & row.keys():
        cell, value = line[name], row[name]
        if name == "samples" and isinstance(value, list):
            value = len(value)
        same = (cell == value if isinstance(value, str) else math.isnan(float(cell))
                if value is None else math.isclose(float(cell), value, rel_tol=1e-6))
        assert same, (name, cell, value)
PYTHON
}

# refuses TEXT FLAGS...: a usage error of $refusing that says TEXT, and prints no table.
refusing=decode
refuses()
{
    text=$1
    shift
    run 2 "$refusing" "$@"
    says err "$text"
    [ ! -s "$work/out" ] || fail "output with wrong usage: $*"
}
