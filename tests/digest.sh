#!/bin/bash
# digest.sh BUILD [BUILD-SIMT]: the bits of the results of the decode and attention suites, as one
# line for each run: on the host at all SIMD levels of this CPU, and with a build that has
# -Dsimt=true on the GPU kernels at both wave widths. Two trees that print the same on one machine
# give the same results, to the bit.
set -eu
build=$(realpath -- "${1:?usage: digest.sh BUILD [BUILD-SIMT]}")
simt=${2:+$(realpath -- "$2")}
file=$(mktemp)
trap 'rm -f "$file"' EXIT

# run BUILD PROGRAM ARGUMENTS...
run()
{
    local programs=$1/tests name=$2
    shift 2
    : >"$file"
    TA_TEST_DIGEST=$file "$programs/test_$name" "$@" >/dev/null ||
        echo "test_$name $* FAILED"
    echo "${TA_SIMT_WAVE:+wave $TA_SIMT_WAVE }$name${*:+ $*}: $(cat "$file")"
}

for program in decode decode_small pitfalls reproducible attention; do
    run "$build" "$program"
done
for ring in ring-kv ring-q; do
    run "$build" decode --algorithm "$ring" --cases 1000
done
[[ -n $simt ]] || exit 0
export TREEATTN_MODULE_PATH=$simt/hip TA_SIMT_ORDER=random TA_SIMT_DEVICES=16
for TA_SIMT_WAVE in 32 64; do
    export TA_SIMT_WAVE
    for program in decode decode_small pitfalls reproducible; do
        run "$simt" "$program" --device simt --cases 24
    done
    for algorithm in tree ring-kv ring-q; do
        run "$simt" decode --device simt --group ccl --algorithm "$algorithm" --cases 24 --every 6
    done
    run "$simt" reproducible --device simt --group ccl --algorithm tree --cases 24 --every 6
    run "$simt" gpu_attention
done
