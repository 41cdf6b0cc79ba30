#!/bin/sh
# The kernels of the direct exchange without one rule of the protocol: the lines that end with its
# name in a comment are removed. What RELEASE and ACQUIRE are is in the executor's flags
# (tests/simt/simt_peer.h), which leaves them out by itself.
#     without.sh RULE peers.hip peer_steps.h slab.h OUTPUT.cpp
set -eu
rule=$1
for file in "$2" "$3" "$4"; do
    count=$(grep -c "/\* $rule \*/\$" "$file" || true)
    lines=$((${lines:-0} + count))
done
case $rule in
NONE | RELEASE | ACQUIRE) wanted=0 ;;
*) wanted=1 ;;
esac
[ "$lines" = "$wanted" ] || { echo "$rule: $lines lines have it"; exit 1; }
{
    echo '#include "attend/arrived.h"'
    for file in "$4" "$3" "$2"; do
        sed -e "/\/\* $rule \*\/\$/d" -e '/^#include "slab.h"$/d' \
            -e '/^#include "peer_steps.h"$/d' "$file"
    done
} >"$5"
