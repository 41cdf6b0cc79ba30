#!/bin/sh
# keep_output.sh FILE COMMAND...: run a compiler and keep what it says in FILE, for report.py; show
# it if the command fails. hip/meson.build uses it with -Dkernel_report=true.
set -eu

file=$1
shift
"$@" >"$file" 2>&1 || {
    status=$?
    cat "$file" >&2
    exit "$status"
}
