#!/bin/bash
# Tests in a build with TSan, which names the lines of a race: between threads of the library (the
# host pool, groups of threads, groups of GPUs), between the threads of a block on the executor, and
# between blocks. The last line sums up.
#
#     race.sh [FLAGS]       the host's threads and the whole simt suite; flags of `meson test`
#     race.sh --short       a part of both that .ci/run has the time for, built alone
#
# CC and CXX choose the compiler.
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." || exit 1

build=${BUILD_DIR:-build-race}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export TSAN_OPTIONS=halt_on_error=1:exitcode=66

host=(direct group_threads host_pool run_threads)
steps=(append collectives combine custom_steps group_custom ragged reshard) # of groups of threads
glue=(ccl_lifetime ccl_steps 'peers without '{none,arrive,release,acquire} simt_ccl simt_streams)
kernels=({gpu_{caller,device,direct,direct_fma,pieces,race},merge}' wave 32 random'
    {gpu_device,gpu_race}' wave 64 random')

give_up()
{
    cat "$log"
    echo '0 passed, 1 failed'
    exit 1
}

if [[ ! -f $build/build.ninja ]]; then
    meson setup "$build" --buildtype=debugoptimized -Dsimt=true -Dsimt_orders=random -Dcases=few \
        -Dc_args=-g1 -Dcpp_args=-g1 -Db_sanitize=thread -Db_lundef=false -Davx512=false \
        -Dbench=false -Dmpi=disabled -Dhwloc=disabled -Dcuda=disabled -Drocm=disabled \
        >"$log" 2>&1 || give_up
fi
status=0 # of meson, which may also end before it has counted
if [[ ${1:-} == --short ]]; then
    shift
    programs=("${host[@]}" "${steps[@]}" ccl_lifetime ccl_steps gpu_caller gpu_device gpu_direct
        gpu_direct_fma gpu_pieces gpu_race merge)
    ninja -C "$build" hip/treeattn-simt.so "${programs[@]/#/tests/test_}" \
        tests/peers/test_peers_without_{none,arrive,release,acquire} \
        tests/simt/test_simt_{ccl,streams} \
        >"$log" 2>&1 || give_up
    meson test -C "$build" --no-rebuild --timeout-multiplier 4 "${host[@]}" "${steps[@]}" \
        "${glue[@]}" "${kernels[@]}" "$@" |& tee "$log" || status=1
else
    meson test -C "$build" --timeout-multiplier 10 "${host[@]}" "${steps[@]}" group_conformance \
        "$@" |& tee "$log.host" || status=1
    meson test -C "$build" --timeout-multiplier 10 --suite simt "$@" |& tee "$log" || status=1
    cat "$log.host" >>"$log"
    rm -f "$log.host"
fi

# The sum over all lines "WORD: N".
count_of()
{
    awk -v word="$1:" '$1 == word && NF == 2 { sum += $2 } END { print sum + 0 }' "$log"
}
passed=$(count_of Ok)
failed=$(($(count_of Fail) + $(count_of Timeout)))
echo "$passed passed, $failed failed"
((status == 0 && failed == 0 && passed > 0))
