#!/bin/sh
# Run every style check. Each can be run alone as well; status 77 means skipped.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)

passed=0
failed=0
skipped=0
check() # SCRIPT
{
    status=0
    "$here/$1" || status=$?
    case $status in
    0)
        echo "ok       style/$1"
        passed=$((passed + 1))
        ;;
    77)
        echo "skipped  style/$1"
        skipped=$((skipped + 1))
        ;;
    *)
        echo "FAILED   style/$1"
        failed=$((failed + 1))
        ;;
    esac
}

check text.py
check prose.py
check format.sh
check includes.py
check names.py
check headers.sh
check shell.sh
check symbols.sh

summary="$passed passed, $failed failed"
[ "$skipped" = 0 ] || summary="$summary, $skipped skipped"
echo "$summary"
[ "$failed" = 0 ]
