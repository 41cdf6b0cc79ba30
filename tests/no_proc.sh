#!/bin/sh
# Run a test program where /proc is empty, as in some chroots and sandboxes: no_proc.sh PROGRAM ...
# That takes a mount namespace of its own; where this user may not have one, the test is skipped.
# $ORIGIN in run paths needs /proc too, so the caller sets LD_LIBRARY_PATH.
set -u

if [ "${1:-}" = --inside ]; then
    shift
    mount -t tmpfs none /proc || exit 77
    [ ! -e /proc/self ] || exit 99
    exec "$@"
fi
set -- "$0" --inside "$@"
for flags in --mount '--user --map-root-user --mount'; do
    # shellcheck disable=SC2086 # flags
    if unshare $flags true 2>/dev/null; then
        # shellcheck disable=SC2086
        exec unshare $flags "$@"
    fi
done
echo 'this user may not have a mount namespace'
exit 77
