#!/bin/bash
# Build the fuzz targets with clang under the address and undefined-behaviour sanitizers, and run
# each for so many seconds from its corpus, or with 0 on the corpus alone, which always does the
# same; as many at a time as there are cores. An input that fails is kept and its path printed; run
# the target with that path as its only argument to see it again.
#
#     run.sh SECONDS [TARGET...]
set -u
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." || exit 1
seconds=${1:-}
if ! [[ $seconds =~ ^[0-9]+$ ]]; then
    echo 'usage: tests/fuzz/run.sh SECONDS [TARGET...]' >&2
    exit 2
fi
shift
targets=("$@")
((${#targets[@]} > 0)) || targets=(attention cluster decode shard)

build=${BUILD_DIR:-build-fuzz}
log=$(mktemp)
scratch=$(mktemp -d)
trap 'rm -rf "$log" "$scratch"' EXIT

probe='int LLVMFuzzerTestOneInput(const char *data, long size) { return !data && size; }'
if ! echo "$probe" | ${CLANG:-clang} -x c -fsanitize=fuzzer,address,undefined \
    -o "$scratch/probe" - >"$log" 2>&1; then
    cat "$log"
    echo 'no clang with libFuzzer here: ./quickstart tools installs it'
    exit 77
fi
if [[ ! -f $build/build.ninja ]]; then
    compiler=${CLANG:-clang}
    ! command -v ccache >/dev/null || compiler="ccache $compiler"
    CC=$compiler meson setup -Dfuzz=true -Dtests=false -Dbench=false -Dmpi=disabled \
        -Dhwloc=disabled -Dcuda=disabled -Drocm=disabled -Ddebug=true -Dc_args=-g1 \
        -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false "$build" >"$log" 2>&1 || {
        cat "$log"
        echo '0 passed, 1 failed'
        exit 1
    }
fi
meson compile -C "$build" >"$log" 2>&1 || {
    cat "$log"
    echo '0 passed, 1 failed'
    exit 1
}

# A plan that is too large must be an error of the library, not of the sanitizer's allocator.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:detect_stack_use_after_return=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
found=$PWD/$build/found
mkdir -p "$found"
length=("-max_total_time=$seconds")
((seconds > 0)) || length=(-runs=0)
run_target()
{
    local target=$1 output=$scratch/$1.log runs
    mkdir -p "$scratch/$target"
    if "$build/tests/fuzz/fuzz_$target" "${length[@]}" -timeout=300 -rss_limit_mb=4096 \
        -malloc_limit_mb=2048 -max_len=2048 -print_final_stats=1 \
        -artifact_prefix="$found/$target-" \
        "$scratch/$target" "tests/fuzz/corpus/$target" >"$output" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$output")
        echo "ok       fuzz $target, $runs inputs in $seconds s"
        : >"$scratch/$target.passed"
    else
        tail -n 60 "$output"
        echo "FAILED   fuzz $target"
    fi
}

cores=$(nproc)
running=0
for target in "${targets[@]}"; do
    if ((running == cores)); then
        wait -n
        running=$((running - 1))
    fi
    run_target "$target" &
    running=$((running + 1))
done
wait
passed=0
failed=0
for target in "${targets[@]}"; do
    if [[ -f $scratch/$target.passed ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
((failed == 0))
