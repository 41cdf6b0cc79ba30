#!/bin/sh
# Each public header compiles alone and twice, as C11 and as C++17, without a warning. Each INIT
# macro initialises every field of its struct, and no struct has a gap: a field that is added where
# a gap was would be read from old programs that never set it. Structs with a size are in
# arguments.h.
set -eu
cd -- "$(dirname -- "$0")/../.."

list=src/base/arguments.h
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
wrong=0

compile() # STANDARD SOURCE COMPILER...: with each of the compilers that is there
{
    standard=$1
    source=$2
    shift 2
    for compiler; do
        command -v "$compiler" >/dev/null || continue
        "$compiler" -std="$standard" -Wall -Wextra -Wpadded -pedantic -Werror -Iinclude \
            -fsyntax-only "$source" || wrong=1
    done
}

for header in include/treeattn/*.h; do
    name=${header#include/}
    file=$scratch/$(basename "$header" .h)
    {
        echo "#include <$name>"
        echo "#include <$name>"
        # TA_KV_INIT is for ta_kv, and so on.
        # shellcheck disable=SC2013 # a name is a word
        for macro in $(sed -n 's/^#define \(TA_[A-Z_]*_INIT\)\( .*\)*$/\1/p' "$header"); do
            type=$(echo "${macro%_INIT}" | tr '[:upper:]' '[:lower:]')
            echo "$type made_by_$macro = $macro;"
            # These stand inside other structs and never grow.
            case $macro in
            TA_SHARD_MAP_INIT | TA_PREDICTED_CALL_INIT) continue ;;
            esac
            grep -q "X($type, $macro, " "$list" || {
                echo "$name: $type is not in TA_STRUCT_LIST of $list" >&2
                touch "$scratch/wrong"
            }
        done
        echo 'int not_empty;'
    } >"$file.c"
    cp "$file.c" "$file.cpp"
    compile c11 "$file.c" cc clang
    compile c++17 "$file.cpp" c++ clang++
done

if [ "$wrong" != 0 ]; then
    echo 'a public header must compile alone, as C11 and as C++17, with no warning; a gap in a'
    echo 'struct becomes a field named reserved that must be 0'
fi
[ ! -e "$scratch/wrong" ] || wrong=1
command -v c++ >/dev/null || {
    echo 'no C++ compiler: ./quickstart tools installs one'
    exit 1
}
exit "$wrong"
