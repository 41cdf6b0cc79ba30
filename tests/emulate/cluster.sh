#!/bin/bash
# A cluster on this machine, for scripts that source this file after setting `build` to the build
# directory: hosts are network namespaces, joined by a switch in user space with a given delay and
# rate (relay.c), and Open MPI starts ranks in them. Needs root. All traffic stays inside the
# namespaces, each run is bounded in time, and whatever was made is removed on every way out.
#
#     emulate NODES RANKS DELAY_US MBIT COMMAND…     run it with RANKS ranks on each of the hosts
: "${build:?is set by the script that sources this}"
emulate_here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
seconds=240 # at most for one cluster
prefix=treeattn$$

[ "$(id -u)" = 0 ] || {
    echo "$0: needs root, to make network namespaces" >&2
    exit 77
}
for tool in ip unshare mpirun; do
    command -v "$tool" >/dev/null || {
        echo "$0: $tool is not installed" >&2
        exit 77
    }
done
[ -c /dev/net/tun ] || {
    echo "$0: there is no /dev/net/tun" >&2
    exit 77
}

work=$(mktemp -d)
relay=
job=
remove() # PREFIX: its namespaces, and what still runs in them
{
    local space process
    for space in $(ip netns list | sed -n "s/^\($1-[0-9]*\).*/\1/p"); do
        for process in $(ip netns pids "$space"); do
            kill -9 "$process" 2>/dev/null || true
        done
        ip netns del "$space" || true
    done
}
clean() # End the command and the relay, and remove the namespaces of this run.
{
    local process
    for process in $job $relay; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    job=
    relay=
    remove "$prefix"
}
trap 'clean; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP

# A script that was killed could not remove its own.
for old in $(ip netns list | sed -n 's/^treeattn\([0-9]*\)-0.*/\1/p'); do
    [ -d "/proc/$old" ] || remove "treeattn$old"
done

start() # NODES DELAY_US MBIT: make the hosts and the switch between them
{
    local spaces=() k
    for ((k = 0; k < $1; k++)); do
        ip netns add "$prefix-$k"
        spaces+=("$prefix-$k")
    done
    rm -f "$work/alive" "$work/ready"
    mkfifo "$work/alive"
    : >"$work/ready"
    # In a session of its own, whose priority against other work on the machine can be raised.
    setsid --wait sh -c 'echo -20 >/proc/self/autogroup || true; exec "$@"' relay \
        "$build/tests/emulate/relay" "$2" "$3" $((seconds + 30)) "${spaces[@]}" \
        <"$work/alive" >"$work/ready" &
    relay=$!
    exec 9>"$work/alive" # the relay ends when this shell does
    for ((k = 0; k < 300; k++)); do
        ! grep -q ready "$work/ready" || break
        sleep 0.1
    done
    grep -q ready "$work/ready" || {
        echo "$0: the network of $1 hosts was not there after 30 s" >&2
        return 1
    }
    for ((k = 0; k < $1; k++)); do
        ip -n "$prefix-$k" link set lo up
        ip -n "$prefix-$k" addr add "10.77.0.$((k + 1))/24" dev ta0
        ip -n "$prefix-$k" link set ta0 mtu 16000 up
    done
}

emulate() # NODES RANKS DELAY_US MBIT COMMAND…: run the command, one process for each rank
{
    local hosts k status=0 nodes=$1 ranks=$2
    start "$1" "$3" "$4"
    shift 4
    for ((k = 0; k < nodes; k++)); do
        printf '10.77.0.%d %s-%d\n' $((k + 1)) "$prefix" "$k"
    done >"$work/names"
    hosts=$(for ((k = 0; k < nodes; k++)); do printf '%s-%d:%d,' "$prefix" "$k" "$ranks"; done)
    # The launcher is on the first host too. Names are looked up in a file of this run's own. In the
    # background, since a shell that waits for a command looks at no signal, and without what keeps
    # the relay alive.
    timeout -k 10 "$seconds" setsid --wait ip netns exec "$prefix-0" unshare --uts --mount sh -c '
        echo -15 >/proc/self/autogroup || true
        hostname "$1"
        cat /etc/hosts "$2" >"$2.all"
        mount --bind "$2.all" /etc/hosts
        shift 2
        exec "$@"' run "$prefix-0" "$work/names" \
        mpirun --allow-run-as-root --leave-session-attached \
        --host "${hosts%,}" -n $((nodes * ranks)) \
        --mca plm_rsh_agent "$emulate_here/agent.sh" --mca plm_rsh_no_tree_spawn 1 \
        --bind-to none --mca mpi_yield_when_idle 1 --mca btl vader,tcp,self \
        --mca btl_vader_single_copy_mechanism none \
        --mca btl_tcp_if_include ta0 --mca oob_tcp_if_include ta0 \
        -x TREEATTN_MODULE_PATH="$build/src" "$@" 9>&- &
    job=$!
    wait "$job" || status=$?
    job=
    exec 9>&-
    clean
    case $status in
    0) ;;
    124 | 137) echo "$0: $nodes hosts of $ranks ranks did not end within $seconds s" >&2 ;;
    *) echo "$0: $1 on $nodes hosts of $ranks ranks ended with status $status" >&2 ;;
    esac
    return "$status"
}
