#!/usr/bin/env python3
"""The figures of the host device that docs/performance.md has, measured here: for each aim the
command, what it showed, and how many cells are below.

    bench/host_figures.py PROGRAM [--only NAME,...] [--steps 9] [--small] [--mpirun 'mpirun -n 2']

PROGRAM is treeattn-bench. --only takes some of the names that the first column has; all of them
take some ten minutes on two cores. --small runs the same commands over short sequences, to see that
they work; such figures mean nothing. Every command alternates with what it is compared with, step
by step; of each cell the median counts. The machine should have nothing else to do.
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

ALL_DTYPES = '--dtype f16,bf16,f32'
MANY_ROWS = {
    '64/8, head-major': '--heads 64 --kv-heads 8 --layout head',
    '64/8, token-major': '--heads 64 --kv-heads 8 --layout token',
    '32/8, 4 query tokens': '--heads 32 --kv-heads 8 --query-tokens 4 --layout head',
    'MLA 576/512, 16 rows': '--heads 16 --kv-heads 1 --head-dim 576 --v-dim 512',
    'MLA, V a part of K': '--heads 16 --kv-heads 1 --head-dim 576 --v-dim 512 --latent',
    '32/8, ragged, chunks of 64': '--heads 32 --kv-heads 8 --ragged --batch 35 --query-tokens 64',
    '32/8, chunks of 512': '--heads 32 --kv-heads 8 --query-tokens 512',
}


def few_rows(heads, lengths):
    return {f'{layout}-major, {length}{batch and ", 8 sequences"}':
            f'decode -b {length} --threads 1,2 --heads {heads} --kv-heads 8 {ALL_DTYPES} '
            f'--layout {layout}{batch}'
            for layout in ('head', 'token') for length, batch in lengths}


# Of one thread: steps out of memory, and of K and V that stay in the second level of cache.
OVERLAP = {
    '8/8': ('-b 32k --heads 8 --kv-heads 8', '-b 128 --heads 4 --kv-heads 4'),
    '32/8': ('-b 32k --heads 32 --kv-heads 8', '-b 128 --heads 16 --kv-heads 4'),
    '64/8': ('-b 8k --heads 64 --kv-heads 8', '-b 128 --heads 32 --kv-heads 4'),
    '32/8, 4 query tokens': ('-b 8k --heads 32 --kv-heads 8 --query-tokens 4',
                             '-b 128 --heads 16 --kv-heads 4 --query-tokens 4'),
    '32/8, chunks of 512': ('-b 2k --heads 32 --kv-heads 8 --query-tokens 512',
                            '-b 512 --heads 4 --kv-heads 1 --query-tokens 512'),
}
LENGTHS = [('16k', ''), ('32k', ''), ('128k', ''), ('16k', ' --batch 8')]
# Name: what it is, the aim, which figure of a row, and the commands by what differs in them.
FIGURES = {
    'one-row': ('8/8 heads, ordinary pages', {1: 0.80, 2: 0.80}, 'bandwidth',
                few_rows(8, LENGTHS)),
    'four-rows': ('32/8 heads, ordinary pages', {1: 0.75, 2: 0.82}, 'either',
                  few_rows(32, LENGTHS)),
    'huge-pages': ('8/8 and 32/8 heads, huge pages', {}, 'either',
                   {f'{layout}-major, 32k':
                    f'decode -b 32k --threads 1,2 --heads 8,32 --kv-heads 8 {ALL_DTYPES} '
                    f'--layout {layout} --pages huge' for layout in ('head', 'token')}),
    'many-rows': ('many rows', {1: 0.80}, 'arithmetic',
                  {name: f'decode -b {"2k" if "chunks" in name else "8k"} --threads 1 {ALL_DTYPES} '
                         f'{flags}' for name, flags in MANY_ROWS.items()}),
    'pages': ('scattered pages', {1: 0.85}, 'either',
              {f'pages of {tokens}, {layout}-major':
               f'decode -b 32k --threads 1 --heads 8,32 --kv-heads 8 {ALL_DTYPES} '
               f'--page-tokens {tokens} --layout {layout}'
               for tokens in (16, 64) for layout in ('head', 'token')}),
    'prefill': ('full sequences, 4k tokens, causal', {1: 0.85}, 'attention',
                {'': 'attention -b 4k --heads 4 --threads 1 --dtype f32,bf16'}),
    'narrow': ('K and V of 8 bits, 8/8 heads', {}, 'narrow',
               {f'{layout}-major, {length}':
                f'decode -b {length} --threads 2 --heads 8 --kv-heads 8 --dtype bf16 '
                f'--kv-dtype bf16,e4m3,e5m2 --layout {layout}'
                for layout in ('head', 'token') for length in ('32k', '128k')}),
    'prefix': ('16 sequences, with and without a prefix that they share', {}, 'prefix',
               {f'{layout}-major': f'decode -b 64k --threads 1 --heads 8,32 --kv-heads 8 '
                                   f'--batch 16 --dtype bf16,f32 --layout {layout}'
                for layout in ('head', 'token')}),
    'overlap': ('computing and reading', {}, 'overlap',
                {f'{case}{where}': f'decode {flags} --threads 1 {ALL_DTYPES} --layout head'
                 for case, both in OVERLAP.items()
                 for where, flags in zip(('', ', in cache'), both)}),
    'exchange': ('exchange of partials', {}, 'exchange',
                 {'2 threads': 'exchange -b 16k -e 256k --ranks 2'}),
}
SHORTER = {'16k': '256', '32k': '512', '64k': '512', '128k': '1k', '8k': '256', '4k': '256',
           '2k': '512', '256k': '4k'}
# Of the sequences that share a prefix, so many tokens are not in it.
OWN_TOKENS = 64
# bf16 is compared with f32 of the same command where the CPU multiplies it.
BF16_AIMS = {'arithmetic': 1.4, 'attention': 1.5}


def run(words, launcher):
    """The rows of one command's JSON file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'json')
        done = subprocess.run(launcher + words + ['--json', path], capture_output=True, text=True,
                              check=False)
        if done.returncode != 0:
            sys.exit(f'{shlex.join(launcher + words)}: {done.stderr.strip()}')
        with open(path, encoding='utf-8') as file:
            return json.load(file)['rows']


def command_of(flags, options, kind):
    words = flags.split()
    if options.small:
        words = [SHORTER.get(word, word) for word in words]
    if kind == 'exchange':
        return words + ['-n', str(10 * options.steps)]
    return words + (['--ranks', '1'] if kind != 'attention' else []) + [
        '-c', '0', '-n', str(options.steps)]


def figure_of(row, kind):
    """A row's figure, and what it is a part of: the read loop's or the multiply-add loop's rate."""
    if kind == 'attention':
        return row['fraction'], 'fma'
    if kind == 'arithmetic' or (kind == 'either' and row['fma_fraction'] > row['fraction']):
        return row['fma_fraction'], 'fma'
    return row['fraction'], 'read'


def name_of(row):
    return ' '.join([row.get('pass', ''), row['dtype'],
                     f'{row["query_heads"]}/{row["kv_heads"]}']).strip()


def cells_of(rows, kind, aims):
    """For each row its name, threads, figure, what of, and aim."""
    f32 = {row.get('pass', ''): figure_of(row, kind)[0] for row in rows if row['dtype'] == 'f32'}
    for row in rows:
        figure, of = figure_of(row, kind)
        aim = aims.get(row['threads'], 0)
        if row['dtype'] == 'bf16' and kind in BF16_AIMS:
            yield (name_of(row), row['threads'], figure / f32[row.get('pass', '')],
                   f'f32, {figure:.2f} of fma', BF16_AIMS[kind])
        else:
            yield name_of(row), row['threads'], figure, of, aim


def show_cells(name, options, program):
    title, aims, kind, commands = FIGURES[name]
    print(f'\n## {name}: {title}\n\n| case | threads | cell | figure | of | aim |')
    print('| --- | --- | --- | --- | --- | --- |')
    figures = {}
    for case, flags in commands.items():
        rows = run([program] + command_of(flags, options, kind), [])
        for cell, threads, figure, of, aim in cells_of(rows, kind, aims):
            figures.setdefault(threads, []).append((figure, aim))
            aimed = f'{aim:.2f}{"" if figure >= aim else ", below"}' if aim else 'none'
            print(f'| {case} | {threads} | {cell} | {figure:.2f} | {of} | {aimed} |', flush=True)
    print()
    for threads, all_of in figures.items():
        numbers = [figure for figure, _ in all_of]
        below = sum(figure < aim for figure, aim in all_of)
        print(f'{threads} thread{"s" * (threads > 1)}: median {statistics.median(numbers):.2f}, '
              f'lowest {min(numbers):.2f}, {below} of {len(numbers)} below')
    for case, flags in commands.items():
        print(f'    treeattn-bench {" ".join(command_of(flags, options, kind))}')


def show_narrow(options, program):
    _, _, kind, commands = FIGURES['narrow']
    print('\n## narrow: K and V of 8 bits, as a part of the read loop and beside bf16\n')
    print('| case | cell | of read (aim: 0.75) | tokens to those of bf16 (aim: 1.6) |')
    print('| --- | --- | --- | --- |')
    for case, flags in commands.items():
        rows = run([program] + command_of(flags, options, kind), [])
        bf16 = rows[0]['step_us']['median']
        for row in rows[1:]:
            print(f'| {case} | {row["kv_dtype"]} | {row["fraction"]:.2f} | '
                  f'{bf16 / row["step_us"]["median"]:.2f} |', flush=True)
    for flags in commands.values():
        print(f'    treeattn-bench {" ".join(command_of(flags, options, kind))}')


def show_prefix(options, program):
    _, _, kind, commands = FIGURES['prefix']
    print('\n## prefix: 16 sequences that share all but 64 tokens\n')
    shown = []
    print('| case | cell | without, ms | with, ms | quotient (aim at 8/8: 6) | of fma (aim: 0.8) |')
    print('| --- | --- | --- | --- | --- | --- |')
    for case, flags in commands.items():
        words = command_of(flags, options, kind)
        length = words[words.index('-b') + 1]
        tokens = int(length[:-1]) * 1024 if length.endswith('k') else int(length)
        shared = ['--shared-prefix', str(tokens - OWN_TOKENS)]
        for alone, together in zip(run([program] + words, []), run([program] + words + shared, [])):
            times = [row['step_us']['median'] / 1e3 for row in (alone, together)]
            print(f'| {case} | {name_of(alone)} | {times[0]:.1f} | {times[1]:.1f} | '
                  f'{times[0] / times[1]:.2f} | {together["fma_fraction"]:.2f} |', flush=True)
        shown.append(f'    treeattn-bench {" ".join(words + shared)}')
    print('\n'.join(shown))


def show_overlap(options, program):
    _, _, kind, commands = FIGURES['overlap']
    print('\n## overlap: computing alone, reading alone, and a step out of memory, in GB/s\n')
    print('| case | cell | computing | of fma | reading | step | of fma | of the slower | '
          'of one after the other |')
    print('| --- | --- | --- | --- | --- | --- | --- | --- | --- |')
    for case in OVERLAP:
        pair = [run([program] + command_of(commands[name], options, kind), [])
                for name in (case, f'{case}, in cache')]
        for row, cached in zip(*pair):
            computing, reading, step = cached['kv_gbps'], row['read_gbps'], row['kv_gbps']
            print(f'| {case} | {row["dtype"]} | {computing:.3g} | {cached["fma_fraction"]:.2f} | '
                  f'{reading:.3g} | {step:.3g} | {row["fma_fraction"]:.2f} | '
                  f'{step / min(computing, reading):.2f} | '
                  f'{step * (1 / computing + 1 / reading):.2f} |', flush=True)
    for flags in commands.values():
        print(f'    treeattn-bench {" ".join(command_of(flags, options, kind))}')


def show_exchange(options, program):
    _, _, kind, commands = FIGURES['exchange']
    launches = [([], case, flags) for case, flags in commands.items()]
    if options.mpirun:
        launches.append((shlex.split(options.mpirun), 'processes', 'exchange -b 16k -e 256k'))
    print('\n## exchange: median of a step, and as a part of others\n')
    print('| ranks | bytes | kind | us | of doubling | of MPI_Allreduce | of bare |')
    print('| --- | --- | --- | --- | --- | --- | --- |')
    for launcher, case, flags in launches:
        rows = run([program] + command_of(flags, options, kind), launcher)
        for row in rows:
            same = {other['kind']: other['median_us'] for other in rows
                    if other['bytes'] == row['bytes']}
            of_mpi = (f'{row["median_us"] / same["MPI_Allreduce"]:.2f}'
                      if 'MPI_Allreduce' in same else '')
            print(f'| {case} | {row["bytes"]} | {row["kind"]} | {row["median_us"]:.2f} | '
                  f'{row["median_us"] / same["doubling"]:.2f} | {of_mpi} | '
                  f'{row["median_us"] / same["bare"]:.2f} |')


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('program')
    parser.add_argument('--only', default=','.join(FIGURES))
    parser.add_argument('--steps', type=int, default=9)
    parser.add_argument('--small', action='store_true')
    parser.add_argument('--mpirun', default='')
    options = parser.parse_args()
    names = options.only.split(',')
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        parser.error(f'--only {unknown[0]}: must be of {", ".join(FIGURES)}')
    own = {'narrow': show_narrow, 'prefix': show_prefix, 'overlap': show_overlap,
           'exchange': show_exchange}
    for name in names:
        if name in own:
            own[name](options, options.program)
        else:
            show_cells(name, options, options.program)


if __name__ == '__main__':
    main()
