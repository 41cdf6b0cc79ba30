#!/bin/sh
# The programs in docs/engines.md, compiled as printed there, print what the page says they print.
#
#     engines.sh BUILD_DIR CC [FLAGS...]
set -eu
tree=$(cd -- "$(dirname -- "$0")/.." && pwd)
page=$tree/docs/engines.md
library=$1/src
shift

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

awk -v to="$scratch" '
    /^```c$/ { file = to "/" ++count ".c"; next }
    /^```$/ { file = "" }
    file { print > file }' "$page"
sed -n 's/^prints `\([^`]*\)`.*/\1/p' "$page" >"$scratch/expected"
programs=$(grep -c '^```c$' "$page")
[ "$programs" -ge 1 ] && [ "$programs" = "$(wc -l <"$scratch/expected")" ] || {
    echo 'docs/engines.md must have blocks of C, each with a line that starts with: prints `...`'
    exit 1
}

wrong=0
for i in $(seq "$programs"); do
    expected=$(sed -n "${i}p" "$scratch/expected")
    "$@" -std=c11 -Wall -Werror -I"$tree/include" -o "$scratch/$i" "$scratch/$i.c" \
        -L"$library" -ltreeattn -lm
    printed=$(LD_LIBRARY_PATH=$library "$scratch/$i")
    echo "expected: $expected"
    echo "printed:  $printed"
    [ "$printed" = "$expected" ] || wrong=1
done
exit "$wrong"
