#!/bin/sh
# The library and the GPU modules of a build, as the linker sees them: the library needs no GPU
# library, and a module defines its entry and nothing else. .ci/run and rocm-root.sh call it.
#
#     tests/install/modules.sh BUILD MODULE...      such as: build-cuda cuda
set -eu

[ $# -gt 1 ] || {
    echo "usage: $0 BUILD MODULE..." >&2
    exit 2
}
build=$1
shift

wrong=0
complain()
{
    echo "modules: $*" >&2
    wrong=1
}

library=$build/src/libtreeattn.so
needs=$(ldd "$library") || complain "ldd $library failed"
gpu=$(printf '%s\n' "$needs" |
    grep -Ei 'cuda|nvidia|nccl|amdhip|hsa|rccl|rocm|amd_comgr|nvrtc' || true)
[ -z "$gpu" ] || complain "$library needs a GPU library: $gpu"

for module; do
    file=$build/hip/treeattn-$module.so
    defined=$(nm -D --defined-only "$file" | sed 's/.* //' | paste -s -d ' ' -) ||
        complain "nm $file failed"
    [ "$defined" = ta_module_entry ] || complain "$file defines: $defined"
    # Opened at run time, so it is named in the module and not needed by it.
    case $module in
    cuda) collectives=libnccl.so.2 ;;
    rocm) collectives=librccl.so.1 ;;
    *) collectives=libsimt.so ;;
    esac
    grep -aqF "$collectives" "$file" || complain "$file does not know $collectives"
    ! ldd "$file" | grep -Eq 'libnccl|librccl' || complain "$file is linked against $collectives"
done
[ "$wrong" = 1 ] || echo "modules: $library needs no GPU library; $* define ta_module_entry alone"
exit "$wrong"
