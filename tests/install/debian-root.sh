#!/bin/sh
# How to make a Debian root and run commands in it, for the scripts beside this one, which source it
# after setting `root`, the directory, and `me`, their name in messages. The mirror and its settings
# are those of this machine's apt, or $DEBIAN_MIRROR. Nothing here runs by itself.

: "${me:?}" "${root=}"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

say()
{
    printf '%s: %s\n' "$me" "$*"
}

fail()
{
    say "$*" >&2
    exit 1
}

# What making a root needs. What apt can install is installed.
need_tools()
{
    [ "$(id -u)" = 0 ] || fail "this needs root, for chroot and mount: sudo $0"
    missing=
    command -v git >/dev/null || missing="$missing git"
    command -v debootstrap >/dev/null || missing="$missing debootstrap"
    [ -f "$keyring" ] || missing="$missing debian-archive-keyring"
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || fail "this needs$missing: install these first"
    say "installing$missing"
    # shellcheck disable=SC2086 # a list of names
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing \
        >/dev/null || fail "apt-get could not install$missing"
}

find_mirror()
{
    if [ -n "${DEBIAN_MIRROR:-}" ]; then
        echo "$DEBIAN_MIRROR"
        return
    fi
    # shellcheck disable=SC2016 # apt-get expands it
    apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        sed -n 's/ [a-z]*$//p' | head -n 1
}

# make_root SUITE: the smallest root of this Debian, in $root, which is an empty directory.
make_root()
{
    mirror=$(find_mirror)
    [ -n "$mirror" ] ||
        fail "this machine's apt configuration names no mirror: set DEBIAN_MIRROR to one"
    debootstrap --variant=minbase --keyring="$keyring" "$1" "$root" "$mirror" \
        >"$root.log" 2>&1 || fail "$1: debootstrap failed, see $root.log"
    rm -f "$root.log"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    apt-config dump | grep -E '^Acquire::(http|https|ftp|Check)' \
        >"$root/etc/apt/apt.conf.d/99outside" || true
}

# Let pip inside find its packages as it does outside: a certificate and a place of PyPI's own.
pip_settings()
{
    {
        echo '[global]'
        [ -z "${PIP_INDEX_URL:-}" ] || echo "index-url = $PIP_INDEX_URL"
        if [ -n "${PIP_CERT:-}" ]; then
            mkdir -p "$root/etc/ssl/certs"
            cp "$PIP_CERT" "$root/etc/ssl/certs/outside.crt"
            echo 'cert = /etc/ssl/certs/outside.crt'
        fi
    } >"$root/etc/pip.conf"
}

# What a machine that has started has: without /dev/shm users have no shared memory.
enter_root()
{
    mkdir -p "$root/dev/shm"
    mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
    mountpoint -q "$root/sys" || mount -t sysfs -o ro sysfs "$root/sys"
    mountpoint -q "$root/dev/shm" || mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
}

leave_root()
{
    for place in dev/shm sys proc; do
        ! mountpoint -q "$root/$place" || umount "$root/$place"
    done
}

inside()
{
    chroot "$root" env -i HOME=/root TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C \
        DEBIAN_FRONTEND=noninteractive \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@"
}

# new_root SUITE: a bare root in a directory of its own, entered; the one before is removed, and so
# is this one when the script ends.
new_root()
{
    remove_root
    trap remove_root EXIT
    trap 'exit 1' HUP INT TERM
    root=$(mktemp -d "${TMPDIR:-/tmp}/$me.XXXXXX")
    chmod 755 "$root"
    say "$1: making a root"
    make_root "$1"
    enter_root
}

remove_root()
{
    [ -n "$root" ] || return 0
    leave_root
    rm -rf --one-file-system "$root"
    root=
}
