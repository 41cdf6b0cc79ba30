#!/bin/sh
# Shell scripts parse in the shell that their first line names, are executable, and have no warning
# from shellcheck where it is installed (its advice below that level is taste).
set -eu
cd -- "$(dirname -- "$0")/../.."

wrong=0
for script in quickstart .ci/run .ci/full tests/*.sh tests/*/*.sh; do
    [ -f "$script" ] || continue
    read -r first <"$script"
    case $first in
    '#!/bin/sh') shell='sh' ;;
    '#!/bin/bash') shell='bash' ;;
    *)
        echo "$script: the first line names neither /bin/sh nor /bin/bash"
        wrong=1
        continue
        ;;
    esac
    "$shell" -n "$script" || wrong=1
    [ -x "$script" ] || {
        echo "$script: is not executable: chmod +x"
        wrong=1
    }
    if command -v shellcheck >/dev/null; then
        shellcheck --severity=warning --shell="$shell" "$script" || wrong=1
    fi
done
exit "$wrong"
