#!/bin/sh
# The executor's tests in a build with TSan, which names the lines of races between the threads of a
# block, and between blocks. Takes flags of `meson test`; CC and CXX choose the compiler.
set -eu
cd -- "$(dirname -- "$0")/../.."

build=${BUILD_DIR:-build-race}
[ -e "$build/build.ninja" ] || meson setup "$build" --buildtype=debugoptimized -Dsimt=true \
    -Db_sanitize=thread -Db_lundef=false -Dbench=false
TSAN_OPTIONS=halt_on_error=1:exitcode=66 meson test -C "$build" --suite simt "$@"
