"""The loops of the direct kernels, in machine code: what a tile of K and V costs. NVIDIA's is
disassembled from the cubins of a build with -Dkernel_report=true by nvdisasm, AMD's is the
assembly. report.py checks the limits, page.py prints the table. Nothing here was measured."""
import functools
import glob
import os
import re
import shutil
import subprocess
import sys

import assembly

FAMILY = 'attend_direct'
FMA = 'attend_direct_fma'
TILE = 16  # tokens of a wave
WAVES = 4  # of a block

# Instructions of a thread for 16 bytes of K and V, at most: (wave, rows) of 128 dimensions.
# On gfx90a elements of f16 are converted first: no limit there.
LIMITS = {(32, 8): 20, (32, 16): 32, (64, 16): 30}
NO_LIMIT = {('gfx90a', 'f16')}

# Of 8 bits, of which 16 bytes are twice the elements, each widened: by integer operations, or by
# the device's own instructions where the other loop has them.
LIMITS_NARROW = {(32, 8): 130, (32, 16): 140, (64, 16): 240}
LIMITS_NATIVE = {(32, 8): 90, (32, 16): 100, (64, 16): 150}

# By fused multiply-adds, on NVIDIA: (bytes of an element, rows). A part of a tile's work, to make
# weights and to bring them to the lanes, is the same for tiles of half the bytes: those of f32.
LIMITS_FMA = {(4, 1): 16, (4, 4): 38, (2, 1): 30, (2, 4): 64}

# How often what Little's law asks for must be in flight, on these devices.
IN_FLIGHT = {'H100': 2, 'MI300X': 2}
# A tile of 8 bits has half the bytes: 1.84 times on H100, of 64 dimensions 1.38 times, on MI300X
# 1.76.
IN_FLIGHT_LESS = {('H100', 'narrow', 256): 1.8, ('H100', 'narrow', 128): 1.8,
                  ('H100', 'narrow', 64): 1.3, ('MI300X', 'narrow', 64): 1.7}

# What 16 bytes of K and V took before, by (architecture, rows of the group): attend_fma with 1 and
# 4 rows, attend_mma with 8 and 16, 128 dimensions in bf16. Counted once, in SASS; of AMD's,
# report.py counts those kernels in the same build.
BEFORE_NVIDIA = {('sm_90', 8): (92, 120, 145), ('sm_90', 16): (145,), ('sm_90', 1): (92,),
                 ('sm_90', 4): (120,)}


class Sass:
    """The syntax of nvdisasm, for assembly.py."""
    LABEL = re.compile(r'(\.L_x_\w+):')
    CODE = re.compile(r'\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)')
    BRANCH = re.compile(r'\bBRA\b.*?`\((\.L_x_\w+)\)')
    CONDITIONAL = re.compile(r'@!?U?P|\bBRA\.')  # BRA.U has its condition as an operand
    END = re.compile(r'\*/\s+(?:EXIT|RET\S*|BRX\S*)\s')


def find_nvdisasm():
    """The path of nvdisasm: $NVDISASM, the PATH, the CUDA toolkit, or where fetch-nvdisasm.sh puts
    it. None if there is none."""
    cache = os.environ.get('XDG_CACHE_HOME') or os.path.join(os.path.expanduser('~'), '.cache')
    places = [os.environ.get('NVDISASM'), shutil.which('nvdisasm'), '/usr/local/cuda/bin/nvdisasm',
              os.path.join(cache, 'treeattn', 'nvdisasm')]
    return next((p for p in places if p and os.access(p, os.X_OK)), None)


class DirectLoop:
    """What one loop over tiles has, of one kernel and architecture."""

    def __init__(self, name, arch, loop, native=False, rounds=False):
        self.name, self.arch, self.native, self.rounds = name, arch, native, rounds
        self.arguments = re.search(r'<(.*)>', name)[1].split(', ')
        self.dim, self.wave, self.rows = (int(n) for n in self.arguments[1:4])
        self.narrow = self.arguments[0] == 'narrow'
        self.bytes = 1 if self.narrow else 2  # of an element
        self.plain = 'plain' in self.arguments or self.narrow
        self.instructions = len(loop)
        self.loaded = sum(map(load_bytes, loop))
        self.loads = sum(load_bytes(i) > 0 for i in loop)
        self.asked = sum(bool(ASKED.match(i.name)) for i in loop)  # by each lane, 128 bytes
        self.barriers = sum(bool(BARRIER.match(i.name)) for i in loop)
        self.shared = sum(bool(SHARED.match(i.name)) for i in loop)
        self.local = sum(bool(LOCAL.match(i.name)) for i in loop)
        self.matrix = sum(map(is_product, loop))

    @property
    def kind(self):
        """Which of a kernel's loops it is, if there are several."""
        return (', by its own instructions' if self.native else '') + (
            ', rounded weights' if self.rounds else '')

    @property
    def sharers(self):
        """Waves that make the scores of the same tile."""
        return 2 if self.dim == 256 else 1

    @property
    def per_load(self):
        """Instructions for each 16 bytes of K and V."""
        pieces = TILE * self.dim * 2 * self.bytes / 16 / self.wave
        return self.instructions * self.sharers / pieces

    @property
    def expected(self):
        """Bytes of K and V that a lane loads."""
        both = TILE * (self.dim + self.dim // self.sharers) * self.bytes / self.wave
        few = self.wave == 64 and self.dim * self.bytes == 64
        return both / 2 if few else both  # V comes by 4 bytes there, as other things do

    @property
    def blocks(self):
        """Of a unit."""
        return blocks_per_unit(self.dim)

    @property
    def tile_bytes(self):
        """Of K and V that a wave, or the waves that share a tile, have on the way while they
        compute: where V waits of K alone, and what is asked for of V. K that both of them load
        crosses the memory once, and counts once."""
        both = TILE * self.dim * 2 * self.bytes
        if self.dim * self.bytes < 512:
            return both
        return both // 2 + self.sharers * self.asked * self.wave * 128

    def limit(self):
        """Of instructions for 16 bytes; None if there is none."""
        if self.dim != 128 or (self.arch, self.arguments[0]) in NO_LIMIT:
            return None
        limits = LIMITS
        if self.narrow:
            limits = LIMITS_NATIVE if self.native else LIMITS_NARROW
        return limits.get((self.wave, self.rows))

    def complaints(self):
        if not self.plain:
            return
        where = f'{self.name} on {self.arch}: its loop over tiles{self.kind}'
        limit = self.limit()
        if limit and self.per_load > limit:
            yield (f'{where} has {self.per_load:.1f} instructions for 16 bytes of K and V: '
                   f'at most {limit}')
        if self.barriers:
            yield f'{where} has {self.barriers} barriers'
        if self.shared:
            yield f'{where} has {self.shared} accesses of shared memory'
        if self.local:
            yield f'{where} has {self.local} accesses of spilled registers'
        if self.loaded != self.expected:
            yield (f'{where} loads {self.loaded} bytes of K and V in a thread: '
                   f'expected {self.expected:.0f}')


class FmaLoop(DirectLoop):
    """The same of attend_direct_fma: ta_fma_wave of hip/attend/direct_fma_wave.h has these numbers,
    by the same names."""

    def __init__(self, name, arch, loop):
        super().__init__(name, arch, loop)
        self.bytes = 4 if self.arguments[0] == 'f32' else 2
        self.plain = True
        pieces = self.dim * self.bytes // 16
        group = min(pieces, self.wave)
        self.pieces = pieces // group  # of a token in a lane
        few = 4 if self.bytes == 4 or self.rows == 1 else 2
        self.tokens = (8 if self.wave == 32 else few) // self.pieces  # in a lane

    @property
    def sharers(self):
        return 1

    @property
    def expected(self):
        """Bytes of K and V that a lane loads."""
        return 2 * 16 * self.tokens * self.pieces

    @property
    def per_load(self):
        return self.instructions / (self.expected / 16)

    @property
    def tile_bytes(self):
        return self.expected * self.wave

    @property
    def blocks(self):
        return 3 if self.rows == 1 else 2

    def limit(self):
        on_nvidia = self.arch.startswith('sm_')
        return LIMITS_FMA.get((self.bytes, self.rows)) if on_nvidia else None


# Barriers of a block; on NVIDIA those of a wave are WARPSYNC. Exchanges between lanes are no access
# of shared memory: SHFL and ds_bpermute use its wires only.
BARRIER = re.compile(r'BAR\b|s_barrier')
SHARED = re.compile(r'(?:LDS|STS|LDSM|ATOMS)\b|ds_(?!bpermute|permute|swizzle)')
LOCAL = re.compile(r'(?:LDL|STL)\b|scratch_|buffer_(?:load|store)')
ASKED = re.compile(r'CCTL\S*\.PF2')
NATIVE = re.compile(r'F2FP\S*\.E4M3|v_cvt_pk_f32_fp8')
WIDTHS = {'128': 16, 'dwordx4': 16, 'b128': 16, '64': 8, 'dwordx2': 8, 'b64': 8}
LOAD = re.compile(r'(?:LDG\S*\.|global_load_)(128|64|dwordx4|dwordx2|b128|b64)\b')


def load_bytes(instruction):
    """Of a wide load, which only K and V have in these loops; 0 for anything else."""
    found = LOAD.match(instruction.name)
    return WIDTHS[found[1]] if found else 0


def is_product(instruction):
    return instruction.name.startswith(('HMMA', 'v_mfma'))


def tile_loops(name, arch, code):
    """The loops over tiles of a kernel: the shortest with several wide loads and with products, one
    that rounds weights and one, with more products, that does not. Of 8 bits there are two
    of each if the device has instructions for a dialect, the shorter ones with them. Kernels that
    take all tiles for edges have one loop for both."""
    loops = {}
    for instruction in code:
        for head in instruction.loops:
            loops.setdefault(head, []).append(instruction)
    fma = name.startswith(FMA + '<')
    least = 16 if 'narrow' in name else 64
    wide = sorted((body for body in loops.values() if sum(map(load_bytes, body)) >= least and
                   (fma or any(is_product(i) for i in body))), key=len)
    if not wide:
        sys.exit('direct.py: a kernel has no loop over tiles of K and V')
    if fma:
        yield FmaLoop(name, arch, wide[0])
        return
    native = [body for body in wide if any(NATIVE.match(i.name) for i in body)]
    if 'narrow' in name and native:
        yield from loop_pair(name, arch, native, True)
        wide = [body for body in wide if body not in native]
    if DirectLoop(name, arch, wide[0]).plain:
        yield from loop_pair(name, arch, wide, False)
    else:
        yield DirectLoop(name, arch, wide[0])


def loop_pair(name, arch, wide, native):
    """The loops for exact and for rounded weights, of some in the order of their length. The
    latter has fewer products."""
    pair = sorted(wide[:2], key=lambda body: sum(map(is_product, body)))
    loops = [DirectLoop(name, arch, body, native, body is pair[0]) for body in pair]
    if len(loops) < 2 or loops[0].matrix == loops[1].matrix:
        sys.exit(f'direct.py: {name} on {arch} has no two loops over tiles, for exact and for '
                 'rounded weights')
    yield from reversed(loops)


def demangle(symbol, yes, no):
    """A kernel's name as kernel.py has it, with words for its flag."""
    text = subprocess.run(['c++filt', symbol], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()
    text = re.sub(r'^void |\(.*', '', text).replace('ta_type_', '')
    return text.replace('false', no).replace('true', yes)


def read_sections(path, nvdisasm):
    """(symbol, architecture, lines) of the kernels of a cubin."""
    text = subprocess.run([nvdisasm, '-c', path], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    arch = re.search(r'\.target\s+(sm_\d+)', text)[1]
    for part in re.split(r'\n\s*\.section\s+\.text\.', text)[1:]:
        yield part.split(',')[0], arch, part.split('\n')


def read_cubin(path, nvdisasm):
    for symbol, arch, lines in read_sections(path, nvdisasm):
        if f'{len(FAMILY)}{FAMILY}I' in symbol or f'{len(FMA)}{FMA}I' in symbol:
            yield from tile_loops(demangle(symbol, 'any', 'plain'), arch,
                                  assembly.read_kernel(lines, {}, Sass))


@functools.lru_cache(maxsize=None)
def read_nvidia(build):
    """All loops of a build's cubins; None without nvdisasm."""
    nvdisasm = find_nvdisasm()
    if not nvdisasm:
        return None
    paths = sorted(glob.glob(os.path.join(build, 'hip', 'direct_*.cubin')))
    return [loop for path in paths for loop in read_cubin(path, nvdisasm)]


def in_flight(loop, blocks):
    """Bytes of K and V that the blocks of a unit have asked for, each counted once."""
    return blocks * WAVES // loop.sharers * loop.tile_bytes


def blocks_per_unit(dim):
    """TA_DIRECT_BLOCKS of hip/kernels.h, as it is written there."""
    path = os.path.join(assembly.TREE, 'hip', 'kernels.h')
    with open(path, encoding='utf-8') as file:
        text = re.search(r'#define TA_DIRECT_BLOCKS\(dim\) (.*)', file.read())[1]
    if text != '((dim) == 64 ? 3 : 2)':
        sys.exit(f'direct.py: TA_DIRECT_BLOCKS is {text}: tell blocks_per_unit()')
    return 3 if dim == 64 else 2


def little(loop, device, units):
    """Little's law: bytes that a unit must have asked for to keep the device's memory busy."""
    return device['gbs'] / units * device['ns']


def table(loops, devices, units, before):
    """The page's table, and complaints about bytes in flight: of the devices of these loops.
    `before` is as BEFORE_NVIDIA."""
    rows = ['| kernel | | instructions | matrix | loads | instructions / 16 bytes | before '
            '| barriers, shared memory, spills | in flight | of needed |', '| --- ' * 10 + '|']
    wrong = []
    for loop in sorted(loops, key=lambda l: (l.arch, l.dim, l.rows, l.name, l.rounds)):
        if not loop.plain:
            continue
        flight, needed = in_flight(loop, loop.blocks), '–'
        for name, device in devices.items():
            if device['arch'] == loop.arch:
                least = little(loop, device, units[loop.arch])
                needed = f'{flight / least:.2f} × {least / 1024:.0f} KiB ({name})'
                times = IN_FLIGHT_LESS.get((name, loop.arguments[0], loop.dim),
                                           IN_FLIGHT.get(name, 0))
                if flight < times * least:
                    wrong.append(f'{loop.name} on {loop.arch}{loop.kind}: {flight} bytes in '
                                 f'flight, {times} times {least:.0f} are needed')
        known = before.get((loop.arch, loop.rows), ())
        if loop.arguments[:2] != ['bf16', '128'] or loop.rounds:
            known = ()
        old = ', '.join(f'{n:.0f}' for n in known) or '–'
        rows.append(f'| `{loop.name}`{loop.kind} | {loop.arch} | {loop.instructions} | '
                    f'{loop.matrix} | {loop.loads} | {loop.per_load:.1f} | {old} | '
                    f'{loop.barriers}, {loop.shared}, {loop.local} | {flight / 1024:.0f} KiB | '
                    f'{needed} |')
    return '\n'.join(rows), wrong


def read_amd(kernels):
    return [loop for k in kernels if k.family in (FAMILY, FMA)
            for loop in tile_loops(k.name, k.arch, k.code)]
