#!/bin/sh
# Does README.md come true on a machine that has nothing? Makes a bare Debian root with debootstrap
# for each suite named, clones this tree's last commit into it, and runs every block of shell
# commands of README.md in order, as printed: first as a user who may use sudo, then as root. Before
# that: what a user hears who may not install packages, and one without a network. By hand, and in
# .ci/full: it needs root, a mirror and many minutes.
#
#     sudo tests/install/bare-root.sh [--short] bookworm trixie
#
# --short leaves out `./quickstart test`, and mpirun, which comes with it. So does python3-venv: it
# is then installed by hand, as README.md says. debian-root.sh says where the mirror comes from.
set -eu

tree=$(cd -- "$(dirname -- "$0")/../.." && pwd)
# shellcheck disable=SC2034 # for debian-root.sh
me=bare-root
root=
short=
# shellcheck source=tests/install/debian-root.sh
. "$tree/tests/install/debian-root.sh"

[ "${1:-}" != --short ] || {
    short=1
    shift
}
case ${1:-} in
'' | -*) fail "usage: $0 [--short] SUITE... (such as bookworm, trixie)" ;;
esac
need_tools

trap remove_root EXIT
trap 'exit 1' HUP INT TERM

# as USER DIRECTORY COMMAND: run a shell command there.
as()
{
    inside setpriv --reuid "$1" --regid "$1" --init-groups \
        env HOME="$(inside sh -c "echo ~$1")" sh -c "cd '$2' && $3"
}

# make_clone USER DIRECTORY
make_clone()
{
    rm -rf "${root:?}$2"
    git -c safe.directory='*' clone -q --no-hardlinks "$tree" "$root$2"
    inside chown -R "$1:$1" "$2"
}

# The blocks of README.md in language $1, each into a file of its own: $2.1, $2.2 …
blocks()
{
    awk -v language="$1" -v prefix="$2" '
        $0 == "```" language { number++; inside = 1; next }
        /^```$/ { inside = 0 }
        inside { print > (prefix "." number) }' "$tree/README.md"
}

# The programs that README.md shows, as it names them, into a clone.
write_programs()
{
    blocks c "$root/tmp/program"
    blocks python "$root/tmp/script"
    cp "$root/tmp/program.1" "$root$1/example.c"
    cp "$root/tmp/script.1" "$root$1/example.py"
}

# Every "prints `...`" of README.md was printed, as a line of its own, by a walk whose output is $1.
check_printed()
{
    sed -n 's/^prints `\([^`]*\)`.*/\1/p' "$tree/README.md" | sort | uniq -c >"$root/tmp/promised"
    [ -s "$root/tmp/promised" ] || fail 'README.md does not say what its programs print'
    while read -r times line; do
        seen=$(grep -cxF "$line" "$1" || true)
        [ "$seen" = "$times" ] ||
            fail "$suite: '$line' was printed $seen times, README.md says $times"
    done <"$root/tmp/promised"
}

# walk USER DIRECTORY: every block of commands.
walk()
{
    write_programs "$2"
    blocks sh "$root/tmp/commands"
    number=1
    : >"$root/tmp/all-said"
    while [ -f "$root/tmp/commands.$number" ]; do
        block=$(cat "$root/tmp/commands.$number")
        number=$((number + 1))
        # README.md says so in words: root needs no sudo, and tells Open MPI that it is meant.
        [ "$1" != root ] || block=$(printf '%s\n' "$block" | sed 's/sudo //g
            s/^mpirun /mpirun --allow-run-as-root /')
        [ -z "$short" ] || block=$(printf '%s\n' "$block" |
            grep -Ev '^(\./quickstart test|mpirun)' || true)
        [ -n "$block" ] || continue
        printf '%s\n' "$block" | sed "s/^/$me: $suite, $1: /"
        begin=$(date +%s)
        as "$1" "$2" "set -e
            $block" >"$root/tmp/said" 2>&1 || {
            cat "$root/tmp/said"
            fail "$suite: as $1 these commands of README.md failed"
        }
        tail -n 3 "$root/tmp/said"
        cat "$root/tmp/said" >>"$root/tmp/all-said"
        say "$suite: took $(($(date +%s) - begin)) s"
    done
    [ "$number" -gt 1 ] || fail 'README.md has no block of shell commands'
    check_printed "$root/tmp/all-said"
}

# must_say WORDS COMMAND...: it fails, in few lines, and these words are among them.
must_say()
{
    words=$1
    shift
    ! "$@" >"$root/tmp/said" 2>&1 || fail "$suite: this should have failed: $*"
    grep -qF "$words" "$root/tmp/said" || {
        cat "$root/tmp/said"
        fail "$suite: did not say: $words"
    }
    [ "$(wc -l <"$root/tmp/said")" -le 6 ] || {
        cat "$root/tmp/said"
        fail "$suite: these are too many lines"
    }
    say "$suite: $(tail -n 1 "$root/tmp/said")"
}

for suite; do
    root=$(mktemp -d "${TMPDIR:-/tmp}/bare-root.XXXXXX")
    chmod 755 "$root"
    say "$suite: making a root"
    make_root "$suite"
    pip_settings
    enter_root
    inside useradd -m -s /bin/sh guest

    home='/home/guest/a clone' # with a space, which must not matter
    make_clone guest "$home"
    as guest "$home" './quickstart tools --help' >"$root/tmp/said"
    head -n 1 "$root/tmp/said" | grep -q '^usage: ./quickstart' ||
        fail "$suite: ./quickstart tools --help does not begin with its usage"
    must_say 'may not install' as guest "$home" ./quickstart
    must_say 'offline?' unshare -n chroot "$root" sh -c "cd '$home' && ./quickstart"

    inside apt-get update -q >/dev/null
    inside apt-get install -q -y --no-install-recommends sudo ${short:+python3-venv} \
        >/dev/null 2>&1
    echo 'guest ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/guest"
    make_clone guest "$home"
    walk guest "$home"
    make_clone root /srv/treeattn
    walk root /srv/treeattn
    remove_root
done
say 'all of README.md came true'
