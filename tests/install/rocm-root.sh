#!/bin/bash
# Build the module for AMD on a machine that has no ROCm: in a Debian 13 root with hipcc and RCCL,
# which is made once and kept. Takes two minutes and 2.5 GB the first time. The module and what
# tests/kernels/report.py reads come out in build-rocm/hip/.
#
#     sudo tests/install/rocm-root.sh [--fresh] [--root DIR] [--output DIR] [MESON OPTION...]
#
# --fresh makes the root anew. DIR is $TREEATTN_ROCM_ROOT, or a directory of the user's cache,
# unless given. .ci/run calls this; debian-root.sh says where the mirror comes from.
set -euo pipefail

tree=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck disable=SC2034 # for debian-root.sh
me=rocm-root
suite=trixie
packages='hipcc libamdhip64-dev librccl-dev gcc libc6-dev meson ninja-build pkg-config'
home=${TREEATTN_ROCM_ROOT:-${XDG_CACHE_HOME:-$HOME/.cache}/treeattn/rocm-$suite}
output=$tree/build-rocm
fresh=0
options=('-Damd_archs=gfx90a,gfx942,gfx1100')
root=
# shellcheck source=tests/install/debian-root.sh
. "$tree/tests/install/debian-root.sh"

while (($# > 0)); do
    case $1 in
    --fresh) fresh=1 ;;
    --root) home=${2:?--root needs a directory} && shift ;;
    --output) output=${2:?--output needs a directory} && shift ;;
    -D*) options+=("$1") ;;
    *) fail "usage: $0 [--fresh] [--root DIR] [--output DIR] [-DMESON=OPTION...]" ;;
    esac
    shift
done
need_tools
home=$(realpath -m -- "$home")
output=$(realpath -m -- "$output")

leave()
{
    [[ -z $root ]] || leave_root
    root=
}
trap leave EXIT
trap 'exit 1' HUP INT TERM

mkdir -p -- "$(dirname -- "$home")"
exec 9>"$home.lock"
flock 9

# What says that a directory is a root of ours, complete and with these packages.
stamp=etc/treeattn-root

remove_root() # DIRECTORY
{
    root=$1
    leave_root
    rm -rf --one-file-system -- "$root"
    root=
}

# A root is made under another name, so that one of the right name is complete.
if [[ -e $home && ! -f $home/$stamp ]]; then
    fail "$home exists and was not made by this script: remove it, or name another with --root"
fi
if ((fresh)) || [[ $(cat -- "$home/$stamp" 2>/dev/null) != "$packages" ]]; then
    begin=$SECONDS
    remove_root "$home.new"
    say "making a $suite root with ROCm in $home"
    mkdir -- "$home.new"
    root=$home.new
    make_root "$suite"
    enter_root
    # shellcheck disable=SC2086 # a list of names
    { inside apt-get update -q && inside apt-get install -q -y --no-install-recommends $packages &&
        inside apt-get clean; } >"$home.log" 2>&1 || fail "apt-get failed, see $home.log"
    rm -f -- "$home.log"
    leave
    echo "$packages" >"$home.new/$stamp"
    remove_root "$home"
    mv -- "$home.new" "$home"
    say "made in $((SECONDS - begin)) s"
fi

# The tree is copied, with its times, so that a second build compiles what changed only. Each tree
# has a directory of its own: in another's, files that are older than what was built there last
# would not be compiled. Those of the 4 trees that were built last are kept.
root=$home
enter_root
there=/srv/treeattn/$(printf %s "$tree" | sha256sum | cut -c 1-16)
mkdir -p -- "$root$there"
touch -- "$root$there"
find "$root/srv/treeattn" -mindepth 1 -maxdepth 1 -printf '%T@ %p\0' | sort -z -n -r |
    tail -z -n +5 | cut -z -d ' ' -f 2- | xargs -0 -r rm -rf --one-file-system --
rm -rf --one-file-system -- "$root$there/tree"
mkdir -- "$root$there/tree"
(
    cd -- "$tree"
    git -c safe.directory='*' ls-files -z --cached --others --exclude-standard |
        tar -c --null --ignore-failed-read -T - 2>/dev/null
) | tar -x --no-same-owner -C "$root$there/tree"

begin=$SECONDS
again=
[[ ! -f $root$there/build/build.ninja ]] || again=--reconfigure
# shellcheck disable=SC2086 # one word or none
inside meson setup $again -Dcuda=disabled -Drocm=enabled -Dtests=false -Dbench=false \
    -Dkernel_report=true "${options[@]}" "$there/build" "$there/tree" >"$home.log" 2>&1 ||
    { cat -- "$home.log" && fail 'meson setup failed'; }
inside meson compile -C "$there/build" >"$home.log" 2>&1 ||
    { cat -- "$home.log" && fail 'the build failed'; }
inside "$there/tree/tests/install/modules.sh" "$there/build" rocm
rm -f -- "$home.log"
say "built in $((SECONDS - begin)) s with $(inside hipcc --version | paste -s -d ' ' | cut -c 1-70)"

rm -rf -- "$output"
mkdir -p -- "$output/hip"
cp -p -- "$root$there"/build/hip/{treeattn-rocm.so,*.o.log,*-amdgcn-*.s} "$output/hip/"
chown -R --reference="$tree" -- "$output"
say "the module is $output/hip/treeattn-rocm.so"
