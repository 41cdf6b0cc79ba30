#!/bin/sh
# The shared library exports the functions of symbols.txt, each in its version, and nothing else;
# the public headers declare the same, and treeattn.map names them one by one. A line that was in a
# release is never changed or taken away. Builds first; see `./quickstart help` for BUILD_DIR.
set -eu
cd -- "$(dirname -- "$0")/../.."
list=tests/style/symbols.txt
library=${BUILD_DIR:-build}/src/libtreeattn.so
./quickstart build

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export LC_ALL=C
wrong=0

differ() # NAME FILE WANTED: complain unless FILE has the lines of WANTED, which are of symbols.txt
{
    if ! diff "$3" "$2" >"$scratch/diff"; then
        echo "$1 (>) and $list (<) differ:"
        cat "$scratch/diff"
        wrong=1
    fi
}

# Beside functions there is one absolute symbol for each version itself.
nm -D --defined-only --with-symbol-versions "$library" | sed -n 's/.* [^A] //p' |
    sort >"$scratch/exported"
differ "what $library exports" "$scratch/exported" "$list"
sed 's/@.*//' "$list" | sort >"$scratch/names"

cat include/treeattn/*.h | cc -E -P -Iinclude/treeattn -x c - | tr '\n' ' ' | tr ';' '\n' |
    sed -n 's/.*visibility *( *"default" *).*[ *]\(ta_[a-z0-9_]*\) *(.*/\1/p' |
    sort >"$scratch/declared"
differ 'what the public headers declare' "$scratch/declared" "$scratch/names"

sed -n 's/^ *\(ta_[a-z0-9_]*\);$/\1/p' src/treeattn.map | sort >"$scratch/mapped"
differ 'what src/treeattn.map names' "$scratch/mapped" "$scratch/names"

if grep -vE '^ta_[a-z0-9_]+@@TREEATTN_[0-9]+\.[0-9]+$' "$list"; then
    echo 'these are no ta_NAME@@TREEATTN_VERSION'
    wrong=1
fi
exit "$wrong"
