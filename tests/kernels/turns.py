"""One turn of the loop over tiles of the kernels for full sequences, in machine code: what a wave
executes for each score. NVIDIA's is disassembled from the cubins of a build with
-Dkernel_report=true by nvdisasm, AMD's is the assembly. report.py checks the limits, page.py prints
the table. Nothing here was measured.

Counted is the shortest way around the loop on which all products of a tile are made and all of the
next one is asked for: a tile that all rows see, with finite values and without a soft-cap. NOPs are
not counted: they fill the time until a product is there."""
import functools
import glob
import os
import re

import amd
import assembly
from direct import LOCAL, Sass, demangle, find_nvdisasm, read_sections

FAMILIES = ('attention_forward_mma', 'attention_backward_mma')
EDGE = 16
WEIGHT_PARTS = {'f16': 2, 'bf16': 3}

# Wave instructions for a score before weights stayed in registers and copies were asynchronous, at
# 128 dimensions in bf16: (family, whose gradients). Counted once, in SASS for sm_90, by the same
# rule, with the trips of inner loops filled in. And which part of them the kernels may take.
BEFORE = {('attention_forward_mma', ''): 2.19, ('attention_backward_mma', 'keys'): 8.97,
          ('attention_backward_mma', 'queries'): 5.81}
LIMITS = {'attention_forward_mma': 0.4, 'attention_backward_mma': 0.6}

MATRIX = re.compile(r'HMMA|v_mfma')
COPY = re.compile(r'LDG\S*\.128|LDGSTS|global_load_(?:dwordx4|b128)')
SYNCHRONOUS = re.compile(r'LDG(?!STS)\S*\.128')  # on NVIDIA, where copies are LDGSTS
BARRIER = re.compile(r'BAR\b|s_barrier')


class Way:
    """Instructions on some way through blocks."""

    def __init__(self, code=()):
        self.code = [i for i in code if i.name != 'NOP']

    def count(self, pattern):
        return sum(bool(pattern.match(i.name)) for i in self.code)


def shape(family, dim):
    """(rows of a wave, others at a time), as hip/attention/shape.h and backward_shape.h have it."""
    if family == 'attention_forward_mma':
        return EDGE, 32 if dim == 256 else 64
    return EDGE, 16 if dim == 256 else 32


def products(family, arch, element, dim, wave, of_v):
    """Matrix instructions of a turn: scores, and sums by weights in parts. gfx90a multiplies f16 in
    fp32, a quarter at a time."""
    rows, others = shape(family, dim)
    columns = 8 if wave == 32 else 16
    scores = others // columns * (dim // EDGE)
    sums = WEIGHT_PARTS[element] * (dim // columns) * (others // EDGE)
    count = scores * (1 if family == 'attention_forward_mma' or of_v else 2) + sums
    return count * 4 if (arch, element) == ('gfx90a', 'f16') else count


def ways_around(blocks, at_label, head=None):
    """(matrix instructions, copies): the shortest way around a loop, of the longest if its head is
    not given, that has so many."""
    loops = assembly.find_loops(blocks, at_label)
    size = {head: sum(len(blocks[b].code) for b in body) for head, body in loops.items()}
    head = max(size, key=size.get) if head is None else head
    body, ways, found = loops[head], {head: {(0, 0): Way()}}, {}
    heads_of = {b: {h for h in loops if b in loops[h]} for b in body}
    for b in order(blocks, at_label, body, head, loops):
        for key, way in ways.get(b, {}).items():
            longer = Way(way.code + blocks[b].code)
            key = (longer.count(MATRIX), longer.count(COPY))
            for to in assembly.followers(blocks, at_label, b):
                if to == head:
                    keep_shortest(found, key, longer)
                elif to in body and to not in heads_of[b]:
                    keep_shortest(ways.setdefault(to, {}), key, longer)
    return found


def keep_shortest(ways, key, way):
    if key not in ways or len(way.code) < len(ways[key].code):
        ways[key] = way


def order(blocks, at_label, body, head, loops):
    """The blocks of a loop so that each comes after those that lead to it, once inner loops are
    left as they were entered."""
    done, result = set(), []

    def walk(b):
        done.add(b)
        for to in assembly.followers(blocks, at_label, b):
            if to in body and to != head and to not in done and not (to in loops and
                                                                     b in loops[to]):
                walk(to)
        result.append(b)
    walk(head)
    return reversed(result)


class Turn:
    """A turn of one kernel: of_v of backward over keys is what waves that make dV do."""

    def __init__(self, name, arch, ways):
        self.name, self.arch = name, arch
        self.family, arguments = re.match(r'(\w+)<(.*)>', name).groups()
        arguments = arguments.split(', ')
        self.element, self.dim, self.wave = arguments[0], int(arguments[1]), int(arguments[2])
        self.makes = arguments[3] if len(arguments) > 3 else ''
        roles = (True, False) if self.makes == 'keys' else (False,)
        self.ways = [self.choose(ways, of_v) for of_v in roles]

    def choose(self, ways, of_v):
        wanted = products(self.family, self.arch, self.element, self.dim, self.wave, of_v)
        copies = [c for m, c in ways if m == wanted]
        return ways[wanted, max(copies)] if copies else None

    @property
    def per_score(self):
        rows, others = shape(self.family, self.dim)
        return sum(len(way.code) for way in self.ways) / (rows * others)

    @property
    def before(self):
        known = (self.element, self.dim) == ('bf16', 128)
        return BEFORE[self.family, self.makes] if known else None

    def complaints(self):
        where = f'{self.name} on {self.arch}: its loop over tiles'
        if None in self.ways:
            yield f'{where} has no way around on which all products are made once'
            return
        if self.before and self.wave == 32 and self.per_score > LIMITS[self.family] * self.before:
            yield (f'{where} has {self.per_score:.2f} instructions for a score: at most '
                   f'{LIMITS[self.family]} of {self.before}')
        for way in self.ways:
            if way.count(LOCAL):
                yield f'{where} has {way.count(LOCAL)} accesses of spilled registers'
            if way.count(SYNCHRONOUS):
                yield f'{where} has {way.count(SYNCHRONOUS)} loads that are waited for'


def read_kernel(symbol, arch, lines, syntax):
    """The turn of a kernel; None for another family, or a wave that the architecture has not."""
    if not any(family in symbol for family in FAMILIES):
        return None
    blocks, at_label = assembly.cut_into_blocks(lines, {}, syntax)
    if sum(len(block.code) for block in blocks) < 50:
        return None
    return Turn(demangle(symbol, 'keys', 'queries'), arch, ways_around(blocks, at_label))


def files(build, pattern):
    return sorted(path for name in ('forward_mma', 'backward_mma')
                  for path in glob.glob(os.path.join(build, 'hip', name + pattern)))


@functools.lru_cache(maxsize=None)
def read_nvidia(build):
    """All turns of a build's cubins; None without nvdisasm."""
    nvdisasm = find_nvdisasm()
    if not nvdisasm:
        return None
    found = [read_kernel(*section, Sass) for path in files(build, '.*cubin')
             for section in read_sections(path, nvdisasm)]
    return [turn for turn in found if turn]


def read_amd(build):
    found = []
    for path in files(build, '-hip-amdgcn-*.s'):
        with open(path, encoding='utf-8') as file:
            text = file.read()
        arch = re.search(r'amdhsa--(gfx\w+)', text)[1]
        found += [read_kernel(entry[1], arch, entry[2].split('\n'), amd)
                  for entry in amd.KERNEL.finditer(text)]
    return [turn for turn in found if turn]


def table(turns):
    rows = ['| kernel | | instructions | matrix | copies | barriers | instructions / score '
            '| before |', '| --- ' * 8 + '|']
    for turn in sorted(turns, key=lambda t: (t.arch, t.family, t.dim, t.name)):
        if None in turn.ways:
            continue

        def each(count):
            return ' and '.join(str(count(way)) for way in turn.ways)
        old = f'{turn.before}' if turn.before and turn.wave == 32 else '–'
        rows.append(f'| `{turn.name}` | {turn.arch} | {each(lambda w: len(w.code))} | '
                    f'{each(lambda w: w.count(MATRIX))} | {each(lambda w: w.count(COPY))} | '
                    f'{each(lambda w: w.count(BARRIER))} | {turn.per_score:.2f} | {old} |')
    return '\n'.join(rows)
