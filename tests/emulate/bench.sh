#!/bin/bash
# The head of scripts that run treeattn-bench on emulated clusters, which source it: their arguments
# are BUILD_DIR FILE [NODES…]. Sets $here, $build and $file, and leaves NODES… as the arguments.
here=$(cd -- "$(dirname -- "$0")" && pwd)
[ $# -ge 2 ] || {
    echo "usage: $0 BUILD_DIR FILE [NODES...]" >&2
    exit 2
}
# shellcheck disable=SC2034 # cluster.sh and the script read them
build=$(cd -- "$1" && pwd)
# shellcheck disable=SC2034
file=$2
shift 2
# shellcheck source=tests/emulate/cluster.sh
. "$here/cluster.sh"
