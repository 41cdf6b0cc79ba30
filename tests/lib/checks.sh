#!/bin/sh
# Included by scripts that run many checks and count them: tests/style/run.sh and
# python/tests/torch.sh. A check that exits with 77 was skipped.
passed=0
failed=0
skipped=0

run_check() # NAME COMMAND...
{
    name=$1
    status=0
    shift
    "$@" || status=$?
    case $status in
    0)
        echo "ok       $name"
        passed=$((passed + 1))
        ;;
    77)
        echo "skipped  $name"
        skipped=$((skipped + 1))
        ;;
    *)
        echo "FAILED   $name"
        failed=$((failed + 1))
        ;;
    esac
}

# The line that .ci/run adds up; false if any failed.
end_checks()
{
    summary="$passed passed, $failed failed"
    [ "$skipped" = 0 ] || summary="$summary, $skipped skipped"
    echo "$summary"
    [ "$failed" = 0 ]
}
