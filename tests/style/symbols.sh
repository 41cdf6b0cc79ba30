#!/bin/sh
# The shared library exports the functions of symbols.txt and nothing else, and the public headers
# declare the same. Builds first; see `./quickstart help` for BUILD_DIR.
set -eu
cd -- "$(dirname -- "$0")/../.."
list=tests/style/symbols.txt
library=${BUILD_DIR:-build}/src/libtreeattn.so
./quickstart build

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export LC_ALL=C
wrong=0

differ() # NAME FILE: complain unless FILE has the lines of symbols.txt
{
    if ! diff "$list" "$2" >"$scratch/diff"; then
        echo "$1 (>) and $list (<) differ:"
        cat "$scratch/diff"
        wrong=1
    fi
}

nm -D --defined-only "$library" | sed 's/.* //' | sort >"$scratch/exported"
differ "what $library exports" "$scratch/exported"

cat include/treeattn/*.h | cc -E -P -Iinclude/treeattn -x c - | tr '\n' ' ' | tr ';' '\n' |
    sed -n 's/.*visibility *( *"default" *).*[ *]\(ta_[a-z0-9_]*\) *(.*/\1/p' |
    sort >"$scratch/declared"
differ 'what the public headers declare' "$scratch/declared"

if grep -v '^ta_' "$list"; then
    echo 'these do not start with ta_'
    wrong=1
fi
exit "$wrong"
