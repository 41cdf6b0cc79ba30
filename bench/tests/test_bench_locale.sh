#!/bin/sh
# In a German environment, whose decimal point is a comma, treeattn-bench reads clusters and writes
# JSON as ever. The locale is compiled here; skipped where that is not possible.
#
#     test_bench_locale.sh PROGRAM PYTHON
set -u
. "$(dirname "$0")/common.sh"

localedef -i de_DE -f UTF-8 "$work/de_DE.UTF-8" >"$work/out" 2>&1
export LOCPATH="$work" LC_ALL=de_DE.UTF-8
if [ "$(locale decimal_point)" != , ]; then
    echo 'skipped: localedef cannot make de_DE.UTF-8 here (Debian: package locales)'
    exit 77
fi

run 0 model h100:2x8 --ranks 8,16 --json "$work/model.json"
run 0 decode --heads 2 --kv-heads 1 --head-dim 32 --threads 1 -b 256 -e 256 -w 1 -n 2 \
    --ranks 1,2 --json "$work/decode.json"
grep -q '[0-9][.][0-9]' "$work/out" || fail 'no decimal point in the table'
for name in model decode; do
    "$python" -m json.tool "$work/$name.json" >/dev/null 2>"$work/err" ||
        fail "$name.json is no JSON"
    grep -q '[0-9][.][0-9]' "$work/$name.json" || fail "no decimal point in $name.json"
done
[ "$failed" = 0 ]
