#!/bin/sh
# The build refuses architectures that the kernels were not written for, and says which they are.
#
#     tests/install/archs.sh SOURCE MESON
set -eu
source=$1
meson=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# refuses OPTION WORDS: with this option `meson setup` fails, and its message has these words.
refuses()
{
    if "$meson" setup -Dtests=false -Dbench=false -Dmpi=disabled -Dhwloc=disabled \
        -Dcuda=disabled -Drocm=disabled "$1" "$scratch/build" "$source" >"$scratch/log" 2>&1; then
        echo "archs: meson setup $1 was not refused" >&2
        exit 1
    fi
    if ! grep -qF "$2" "$scratch/log"; then
        cat "$scratch/log"
        echo "archs: meson setup $1 did not say: $2" >&2
        exit 1
    fi
    rm -rf "$scratch/build"
}

refuses -Damd_archs=gfx942,gfx906 'amd_archs has gfx906: the kernels are written for gfx90a'
refuses -Damd_archs=gfx908 'amd_archs has gfx908'
refuses -Dnvidia_archs=sm_75,sm_80 'nvidia_archs has sm_75: the kernels are written for sm_80'
refuses -Dnvidia_archs=sm_90a 'nvidia_archs has sm_90a'
