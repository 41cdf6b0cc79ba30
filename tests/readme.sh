#!/bin/sh
# The program in README.md, compiled as printed there, prints what README.md says it prints.
#
#     readme.sh BUILD_DIR CC [FLAGS...]
set -eu
tree=$(cd -- "$(dirname -- "$0")/.." && pwd)
library=$1/src
shift

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

sed -n '/^```c$/,/^```$/{/^```/!p;}' "$tree/README.md" >"$scratch/example.c"
[ -s "$scratch/example.c" ] || {
    echo 'README.md has no block of C'
    exit 1
}
# The first one: Python's is tried by python/tests/test_wheel.py.
expected=$(sed -n 's/^prints `\([^`]*\)`.*/\1/p;T;q' "$tree/README.md")
[ -n "$expected" ] || {
    echo 'README.md has no line that starts with: prints `...`'
    exit 1
}

"$@" -std=c11 -Wall -Werror -I"$tree/include" -o "$scratch/example" "$scratch/example.c" \
    -L"$library" -ltreeattn
printed=$(LD_LIBRARY_PATH=$library "$scratch/example")
echo "expected: $expected"
echo "printed:  $printed"
[ "$printed" = "$expected" ]
