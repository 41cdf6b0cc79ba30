#!/bin/sh
# treeattn-bench as a user meets it: help, what it says about wrong usage, and devices that are not
# there.
#
#     test_bench_usage.sh PROGRAM PYTHON
set -u
# shellcheck source=bench/tests/common.sh
. "$(dirname "$0")/common.sh"
: "${work:?}" "${failed:?}"

# The other commands.
run 0 version
says out "treeattn-bench "
run 0 info
says out "cpus: "
says out "version: "
run 0 help
says out "usage: treeattn-bench COMMAND"
says out "Exit codes"
run 0 help decode
says out "--query-tokens"
run 0 --help
says out "usage: treeattn-bench COMMAND"
run 2
says err "usage: treeattn-bench COMMAND"
run 2 encode
head -n 1 "$work/err" | grep -q '^usage: treeattn-bench COMMAND' || fail "usage does not come first"
says err "unknown command 'encode'"
says err "did you mean 'decode'?"
run 2 xyzzy
says err "unknown command 'xyzzy'"
run 2 info --json
says err "info takes no arguments, but got '--json'"
run 2 help xyzzy
says err "unknown command 'xyzzy'"

# Every command has a help, and its first line is the usage.
for command in decode attention exchange llama model compare report selftest info version help; do
    run 0 "$command" --help
    head -n 1 "$work/out" | grep -q "^usage: treeattn-bench $command" ||
        fail "$command --help does not begin with its usage"
done
says out "usage: treeattn-bench help [COMMAND]"
run 0 report --help
says out "-o, --output FILE"
run 2 compare one.json
says err "usage: treeattn-bench compare A.json B.json"
says err "needs two files that --json wrote, but got 1"
# The man page has them all.
page=$(dirname "$0")/../../docs/man/treeattn-bench.1
run 2
for command in $(sed -n 's/^  \([a-z]*\) .*/\1/p' "$work/err"); do
    grep -q "^\.B.*$command" "$page" || fail "the man page has no command $command"
done
run 0 decode -b 64 --help
says out "--json FILE"

# What auto chose.
run 0 decode -b 64 --ranks 1 -n 1 --device auto
says out "by auto"
grep -q '^# rank .*, auto' "$work/out" && fail "the header does not say what auto is for a rank"

# Wrong usage: the flag, the value, and what would be right.
refuses "--begin is '4q', but must be a whole number from 1 to 2147483647" -b 4q
refuses "--begin is '0'" -b 0
refuses "--end is '99999999999999999999'" -e 99999999999999999999
refuses "--begin is 4096, but must be at most --end, which is 1024" -b 4k -e 1k
refuses "--ranks is '', but must be" --ranks 1,,2
refuses "--ranks is 'x'" --ranks=2,x
refuses "--dtype is 'f64', but must be one of: f32, f16, bf16" --dtype f16,f64
refuses "--algo is 'ring', but must be one of: auto, tree, ring-kv, ring-q, repro" --algo tree,ring
refuses "--end is 1073741824, but with 8 ranks" -b 1024M --ranks 8 --scaling weak
refuses "--map is 'ring', but must be one of: contiguous, cyclic" --map ring
refuses "--heads is 12, but must be a multiple of --kv-heads 8" --heads 16,12
refuses "--v-dim is 128, but with --latent it must be at most --head-dim, 64" --latent \
    --head-dim 64 --v-dim 128
refuses "--head-dim is 20, but must be a multiple of 8" --head-dim 20
refuses "--v-dim is 36, but must be a multiple of 8" --v-dim 36
refuses "--block is 8, but only --map cyclic has blocks" --block 8
refuses "--query-tokens is 64, but must be at most --begin" --query-tokens 64 -b 32
refuses "--check is '2', but must be a whole number from 0 to 1" -c 2
refuses "--json needs a value" --json
refuses "cannot be written" -b 64 --json /nonexistent/file
refuses "unknown flag '--rank'; did you mean '--ranks'?" --rank 2
refuses "unknown flag '--jsn'; did you mean '--json'?" --jsn file
refuses "unknown flag '--rnaks=2'; did you mean '--ranks'?" --rnaks=2
refuses "unknown flag '--quantum'" --quantum
refuses "--wide takes no value, but got '0'" --wide=0
refuses "unknown flag '-x'" -x
refuses "must be a delay (us, ms, s) and a rate (GB/s, MB/s, KB/s, Gbit/s, Mbit/s)" --link 5us,10Gb
refuses "unexpected argument '8'" 8
refuses "GiB of memory" -b 1024M --batch 64

# Graphs without a GPU, and GPUs that are not one for each rank.
run 3 decode -b 64 --ranks 2 -G
says err "-G is not possible with this device and group"
refuses "--group is ccl, but --device is host: must be a kind of GPU" -b 64 --group ccl

# A device that is not there, on a machine with GPUs either.
run 3 decode -b 64 --device cuda:99
says err "device 'cuda:99' is not available"
run 3 decode -b 64 --device rocm:99
says err "'rocm:99'"
run 3 decode -b 64 --device simt:99
says err "'simt:99'"

# No module anywhere, and one that is not usable: why, and where it was looked for.
mkdir "$work/none" "$work/broken"
echo 'not a module' >"$work/broken/treeattn-rocm.so"
export TREEATTN_MODULE_PATH="$work/broken"
run 3 decode -b 64 --device rocm
says err "$work/broken/treeattn-rocm.so"
run 0 info
says out "module rocm: not used, $work/broken/treeattn-rocm.so"
unset TREEATTN_MODULE_PATH

[ "$failed" = 0 ] && echo "ok"
exit "$failed"
