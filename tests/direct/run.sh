#!/bin/sh
# run.sh: check the model of the direct exchange, direct.pml, with spin: 2 and 3 ranks, a dead rank,
# a late one, one with a fault; and that it fails without any one of the rules of
# src/exchange/direct.c.
set -eu
model=$(dirname "$(realpath "$0")")/direct.pml
command -v spin >/dev/null || { echo 'no spin: ./quickstart tools installs it'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failed=0

# check WANTED FLAGS...: WANTED errors, 0 or 1, with these flags.
check()
{
    wanted=$1
    shift
    spin -a "$@" "$model" >spin.out || { cat spin.out; exit 1; }
    # MEMLIM keeps a model that grew from taking the machine.
    cc -O1 -DSAFETY -DMEMLIM=2048 -o pan pan.c
    ./pan -m100000 >out || true
    grep -q "^State-vector" out || { cat out; exit 1; }
    if grep -q 'errors: 0' out; then found=0; else found=1; fi
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' out)
    if grep -q 'search depth too small\|out of memory' out || [ "$found" != "$wanted" ]; then
        echo "FAILED: $*: expected $wanted errors"
        cat out
        failed=1
    else
        echo "$*: $([ "$found" = 0 ] && echo holds || echo 'fails, as it must'), $states states"
    fi
}

for ranks in 2 3; do
    check 0 -DRANKS="$ranks"
    check 0 -DRANKS="$ranks" -DFAULT
    check 0 -DRANKS="$ranks" -DDEAD
    check 0 -DRANKS="$ranks" -DLATE
done
for rule in PUBLISH ARRIVE EVERYBODY TURNS MERGED FOLLOW WRAP; do
    check 1 -DRANKS=2 -DNO_"$rule"
done
check 1 -DRANKS=2 -DFAULT -DNO_FAULTS
exit $failed
