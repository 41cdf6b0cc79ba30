#!/bin/sh
# What the tests of treeattn-bench share; they source it. Sets $work, a directory that is removed in
# the end, where a test keeps what the program printed in out and err, and $failed.
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
