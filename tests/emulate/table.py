#!/usr/bin/env python3
"""docs/emulated.md from the lines of run.sh: what each exchange took, what the planner chose."""
import sys
import textwrap

HEAD = """# Exchanges on emulated clusters

Made by `tests/emulate/run.sh BUILD_DIR`, which needs root: hosts are network namespaces on one
machine, joined by a switch in user space (`tests/emulate/relay.c`) that gives every packet a delay
and every host a rate, and Open MPI starts ranks in them. On each cluster `tests/emulate/measure.c`
first probes (`ta_cluster_probe()`), then measures a decode step with one token per rank for every
kind of exchange and size of the partial, and asks the planner for its choice. Times are
microseconds of the slowest rank; the kinds are measured in rounds, and the median of seven
rounds counts. Direct is direct inside the hosts and a tree of messages between them. An empty cell
is a kind that the cluster does not allow: two levels need a host with several ranks.

The machine's cores are shared by all hosts (and by whatever else runs on it), so latencies are far
above the delay that was asked for, and single figures scatter. What counts is the order of the
exchanges. The load is that of the minute before a cluster was started: how many other processes
wanted to run.

Open MPI announces messages above 64 KB before it sends them. Where the probe finds such a
handshake, it is among the numbers ([model.md](model.md)); above 0 KB means that all messages but
the smallest took so much longer.

"""


NAMES = ['doubling', 'binomial', 'scatter', 'all-gather', 'all-reduce', 'two-level', 'direct']
LEVELS = ['two-level', 'direct']


def read(lines):
    """[(nodes, ranks, delay, rate, {key: value}, {bytes: {name: (took, predicted, chosen)}}, load)]
    """
    runs = []
    for line in lines:
        words = line.split()
        if words[:1] == ['run']:
            nodes, ranks = words[1].split('x')
            runs.append((int(nodes), int(ranks), int(words[2]), int(words[3]), {}, {},
                         float(words[4])))
        elif words[:1] == ['cluster']:
            runs[-1][4][words[1]] = ' '.join(words[3:])
        elif words[:1] == ['exchange']:
            row = runs[-1][5].setdefault(int(words[1]), {})
            row[words[2]] = (float(words[3]), float(words[4]), words[5] == '1')
    return runs


def say(text):
    print(textwrap.fill(text, 100) + '\n')


def print_run(run, names):
    """One table; returns [within 20%] of its rows, and how two levels did against the best other:
    two-level, or direct inside the hosts, which is the same between them."""
    nodes, ranks, delay, rate, cluster, rows, load = run
    print(f'## {nodes} hosts × {ranks} ranks, {delay} µs, {rate} Mbit/s\n')
    inside = '' if ranks == 1 else 'inside a host {:.0f} µs and {:.0f} MB/s per rank; '.format(
        float(cluster['node.latency_seconds']) * 1e6,
        float(cluster['node.rank_bytes_per_second']) / 1e6)
    handshake = '' if 'network.handshake_seconds' not in cluster else (
        '; above {:.0f} KB a handshake of {:.0f} µs'.format(
            float(cluster['network.eager_bytes']) / 1024,
            float(cluster['network.handshake_seconds']) * 1e6))
    say('Load {:.1f}. Probed: {}between hosts {:.0f} µs, {:.1f} MB/s per rank, {:.1f} MB/s per '
        'host{}.'.format(
            load, inside,
            float(cluster['network.latency_seconds']) * 1e6,
            float(cluster['network.rank_bytes_per_second']) / 1e6,
            float(cluster['network.total_bytes_per_second']) / 1e6, handshake))
    print('| partial | ' + ' | '.join(names) + ' | chosen | over the best |')
    print('| ---: | ' + ' | '.join(['---:'] * len(names)) + ' | --- | ---: |')
    near, two_level = [], []
    for size, row in sorted(rows.items()):
        best = min(value[0] for value in row.values())
        chosen = next(name for name, value in row.items() if value[2])
        cells = []
        for name in names:
            text = f'{row[name][0]:.0f}' if name in row else ''
            cells.append(f'**{text}**' if name in row and row[name][0] == best else text)
        over = row[chosen][0] / best - 1
        near.append(over <= 0.2)
        if 'two-level' in row:
            flat = min(value[0] for name, value in row.items() if name not in LEVELS)
            two_level.append(flat / min(row[name][0] for name in LEVELS if name in row))
        print(f'| {size // 1024} KB | ' + ' | '.join(cells) + f' | {chosen} | {over:.0%} |')
    print()
    return near, two_level


def main():
    runs = read(sys.stdin)
    measured = {name for run in runs for row in run[5].values() for name in row}
    names = NAMES + sorted(measured - set(NAMES))
    print(HEAD, end='')
    near, two_level = [], {}
    for run in runs:
        run_near, run_two_level = print_run(run, names)
        near += run_near
        two_level.setdefault(run[2:4], []).extend(run_two_level)
    print('## Summary\n')
    lines = [f'The planner\'s choice is within 20% of the best measured exchange in {sum(near)} of '
             f'{len(near)} cases ({sum(near) / len(near):.0%}).']
    for (delay, rate), ratios in two_level.items():
        if not ratios:
            continue
        lines.append(f'Where hosts have several ranks and links have {delay} µs and {rate} Mbit/s, '
                     'two levels (with messages or direct inside the hosts) are '
                     f'{min(ratios):.2f} to {max(ratios):.2f} times as fast as the best of the '
                     f'others, and the fastest in {sum(ratio > 1 for ratio in ratios)} of '
                     f'{len(ratios)} cases.')
    print(textwrap.fill(' '.join(lines), 100))


if __name__ == '__main__':
    main()
