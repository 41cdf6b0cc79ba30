#!/bin/sh
# Does a fresh clone work on a machine that has nothing? Makes a bare Debian root with debootstrap
# for each suite named, clones this tree's last commit into it, runs ./quickstart and ./quickstart
# test inside, and removes it again. By hand only: it needs root, a mirror and some minutes.
#
#     sudo tests/install/bare-root.sh bookworm trixie
#
# debian-root.sh says where the mirror comes from.
set -eu

tree=$(cd -- "$(dirname -- "$0")/../.." && pwd)
clone='/srv/a clone/treeattn' # with a space, which must not matter
# shellcheck disable=SC2034 # for debian-root.sh
me=bare-root
root=
# shellcheck source=tests/install/debian-root.sh
. "$tree/tests/install/debian-root.sh"

[ $# -gt 0 ] || fail "usage: $0 SUITE... (such as bookworm, trixie)"
need_tools

leave()
{
    [ -n "$root" ] || return 0
    leave_root
    rm -rf --one-file-system "$root"
    root=
}
trap leave EXIT
trap 'exit 1' HUP INT TERM

# Run ./quickstart with these arguments, from another directory.
quickstart()
{
    begin=$(date +%s)
    inside "$clone/quickstart" "$@" || fail "$suite: ./quickstart $* failed"
    say "$suite: ./quickstart $* took $(($(date +%s) - begin)) s"
}

for suite; do
    root=$(mktemp -d "${TMPDIR:-/tmp}/bare-root.XXXXXX")
    chmod 755 "$root"
    say "$suite: making a root"
    make_root "$suite"
    enter_root

    git clone -q --no-hardlinks "$tree" "$root$clone"
    quickstart
    quickstart test
    quickstart # nothing is missing now
    leave
done
