#!/bin/sh
# C and HIP sources are as clang-format 14 writes them. Other versions lay out some lines in another
# way, so without that one the check is skipped (77).
#
#     tests/style/format.sh         say what differs
#     tests/style/format.sh --fix   rewrite it
set -eu
cd -- "$(dirname -- "$0")/../.."

for formatter in clang-format-14 clang-format ''; do
    case $("$formatter" --version 2>/dev/null) in
    *'version 14.'*) break ;;
    esac
done
if [ -z "$formatter" ]; then
    echo 'clang-format 14 is not installed'
    exit 77
fi

how='--dry-run -Werror'
[ "${1:-}" != --fix ] || how=-i

folders=
for folder in include src hip tests bench; do
    [ ! -d "$folder" ] || folders="$folders $folder"
done
# shellcheck disable=SC2086 # lists of words
if ! find $folders -type f \( -name '*.[ch]' -o -name '*.hip' -o -name '*.cpp' -o -name '*.hpp' \) \
    -exec "$formatter" --style=file $how {} +; then
    echo 'to repair: tests/style/format.sh --fix'
    exit 1
fi
