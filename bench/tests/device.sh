#!/bin/sh
# One suite of `treeattn-bench selftest` on every GPU of this machine; 77, skipped, where none is.
#
#     device.sh PROGRAM SUITE MODULES
set -u
report=$(mktemp)
trap 'rm -f "$report"' EXIT
TREEATTN_MODULE_PATH=$3 "$1" selftest --only "$2" --report "$report"
code=$?
if [ "$code" = 3 ]; then
    exit 77
fi
[ "$code" = 0 ] || cat "$report"
exit "$code"
