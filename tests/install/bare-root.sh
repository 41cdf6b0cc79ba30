#!/bin/sh
# Does a fresh clone work on a machine that has nothing? Makes a bare Debian root with debootstrap
# for each suite named, clones this tree's last commit into it, runs ./quickstart and ./quickstart
# test inside, and removes it again. By hand only: it needs root, a mirror and some minutes.
#
#     sudo tests/install/bare-root.sh bookworm trixie
#
# The mirror and its settings are those of this machine's apt.
set -eu

tree=$(cd -- "$(dirname -- "$0")/../.." && pwd)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
clone='/srv/a clone/treeattn' # with a space, which must not matter

fail()
{
    printf 'bare-root: %s\n' "$*" >&2
    exit 1
}

[ $# -gt 0 ] || fail "usage: $0 SUITE... (such as bookworm, trixie)"
[ "$(id -u)" = 0 ] || fail 'this needs root, for chroot and mount'
for tool in debootstrap git apt-get; do
    command -v "$tool" >/dev/null || fail "this needs $tool"
done

# shellcheck disable=SC2016 # apt-get expands it
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
    sed -n 's/ [a-z]*$//p' | head -n 1)
[ -n "$mirror" ] || fail "this machine's apt configuration names no mirror"

root=
leave()
{
    [ -n "$root" ] || return 0
    ! mountpoint -q "$root/proc" || umount "$root/proc"
    rm -rf --one-file-system "$root"
    root=
}
trap leave EXIT
trap 'exit 1' HUP INT TERM

inside()
{
    chroot "$root" env -i HOME=/root TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@"
}

# Run ./quickstart with these arguments, from another directory.
quickstart()
{
    begin=$(date +%s)
    inside "$clone/quickstart" "$@" || fail "$suite: ./quickstart $* failed"
    printf 'bare-root: %s: ./quickstart %s took %d s\n' "$suite" "$*" $(($(date +%s) - begin))
}

for suite; do
    root=$(mktemp -d "${TMPDIR:-/tmp}/bare-root.XXXXXX")
    chmod 755 "$root"
    printf 'bare-root: %s: making a root\n' "$suite"
    debootstrap --variant=minbase --keyring="$keyring" "$suite" "$root" "$mirror" \
        >"$root.log" 2>&1 || fail "$suite: debootstrap failed, see $root.log"
    rm -f "$root.log"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    apt-config dump | grep -E '^Acquire::(http|https|ftp|Check)' \
        >"$root/etc/apt/apt.conf.d/99outside" || true
    mount -t proc proc "$root/proc"

    git clone -q --no-hardlinks "$tree" "$root$clone"
    quickstart
    quickstart test
    quickstart # nothing is missing now
    leave
done
