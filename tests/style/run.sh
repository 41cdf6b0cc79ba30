#!/bin/sh
# Run every style check. Each can be run alone as well; status 77 means skipped.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
# shellcheck source=tests/lib/checks.sh
. "$here/../lib/checks.sh"

for check in text.py prose.py format.sh includes.py names.py headers.sh shell.sh symbols.sh; do
    run_check "style/$check" "$here/$check"
done
end_checks
