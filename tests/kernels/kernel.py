"""One compiled kernel of one architecture, what is wrong with it, and the blocks of it that one
unit (an SM or a CU) holds. nvidia.py and amd.py make these, report.py checks them."""
import re
import subprocess
from collections import Counter

# For each architecture: the vendors' limits of a unit. `shared` is the most of one block; waves,
# registers and shared memory are of the unit. NVIDIA: CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability". AMD: the ISA guides of CDNA 2, CDNA 3 and RDNA 3.
LIMITS = {
    'sm_80': {'wave': 32, 'waves': 64, 'shared': 166912, 'unit_shared': 167936},
    'sm_89': {'wave': 32, 'waves': 48, 'shared': 101376, 'unit_shared': 102400},
    'sm_90': {'wave': 32, 'waves': 64, 'shared': 232448, 'unit_shared': 233472},
    'sm_120': {'wave': 32, 'waves': 48, 'shared': 101376, 'unit_shared': 102400},
    'gfx90a': {'wave': 64, 'waves': 32, 'shared': 65536, 'unit_shared': 65536, 'simds': 4},
    'gfx942': {'wave': 64, 'waves': 32, 'shared': 65536, 'unit_shared': 65536, 'simds': 4},
    'gfx1100': {'wave': 32, 'waves': 32, 'shared': 65536, 'unit_shared': 65536, 'simds': 2},
}
NVIDIA_REGISTERS, NVIDIA_REGISTERS_OF_WAVE = 65536, 256  # of a unit; the unit of allocation
NVIDIA_SHARED_OF_SYSTEM = 1024  # of each block

# Functions whose loads find out where tokens are, or how they are numbered: page tables and bounds.
# Every other load in the tile loop of an attend kernel is of K or V.
PLACES = re.compile(r'read_page|ta_load_global|look_up|has_place|scale_at|ta_shard_\w+|'
                    r'ta_sequence_bounds')

# append_source of hip/attend/append.hip, in its order.
APPEND_SOURCES = ('given', 'local', 'gathered')


class Kernel:
    def __init__(self, symbol, arch, code, facts):
        self.symbol, self.arch, self.code = symbol, arch, code
        self.registers, self.spilled = facts['registers'], facts['spilled']
        self.static_shared = facts['static_shared']
        self.waves_per_simd = facts.get('waves_per_simd')
        self.limits = LIMITS[arch]
        self.name, self.family, self.arguments = symbol, symbol, ()
        self.kv_loads, self.other_loads = Counter(), Counter()  # bytes: how many

    def set_name(self, demangled):
        """`void attend_fma<ta_type_f16, 4, true>(…)` becomes `attend_fma<f16, 4, aligned>`."""
        name = re.sub(r'\(append_source\)(\d)', lambda m: APPEND_SOURCES[int(m[1])], demangled)
        self.name = re.sub(r'^void |\(.*', '', name).replace('ta_type_', '')
        self.family = self.name.split('<')[0]
        yes, no = ('aligned', 'any alignment')
        if 'backward' in self.family:
            yes, no = 'keys', 'queries'
        if self.direct:
            yes, no = 'any', 'plain'
        if self.family.startswith('peers_'):
            yes, no = 'tallies', 'partials'
        self.name = self.name.replace('true', yes).replace('false', no)
        found = re.search(r'<(.*)>', self.name)
        self.arguments = tuple(found[1].split(', ')) if found else ()

    @property
    def attends(self):
        """Has it a shape of hip/attend/shape.h?"""
        return self.family in ('attend_fma', 'attend_mma')

    @property
    def direct(self):
        """Its loops are counted in machine code (direct.py)."""
        return self.family in ('attend_direct', 'attend_direct_fma')

    @property
    def tiles_kv(self):
        """Does it read K and V in a loop over tiles?"""
        return self.attends or self.family.startswith('attention_forward')

    @property
    def tile_depth(self):
        """Loops from the outermost to that over tiles: attend kernels have two around it, over the
        block's pieces, and over parts of what is selected."""
        return 3 if self.attends else 1

    def tile_loop(self):
        """Its instructions: of the longest loop of that depth."""
        depth = self.tile_depth
        sizes = Counter(i.loops[:depth] for i in self.code if len(i.loops) >= depth)
        head = sizes.most_common(1)[0][0]
        return [i for i in self.code if i.loops[:depth] == head]

    def count_loads(self, vendor):
        in_loop = set(map(id, self.tile_loop())) if self.tiles_kv else ()
        for instruction in self.code:
            width = vendor.load_bytes(instruction)
            if not width:
                continue
            kv = id(instruction) in in_loop and not PLACES.match(instruction.function)
            (self.kv_loads if kv else self.other_loads)[width] += 1

    def complaints(self):
        if self.spilled:
            yield f'{self.name} on {self.arch} spills: {self.spilled} bytes or registers'
        if not self.tiles_kv or 'any alignment' in self.arguments:
            return
        possible = 8 if self.arguments[0] == 'narrow' else 16  # 8 elements, which divide all dims
        narrow = sorted(width for width in self.kv_loads if width < possible)
        if narrow:
            yield (f'{self.name} on {self.arch} reads K or V in its tile loop by '
                   f'{", ".join(map(str, narrow))} bytes: {possible} are possible')
        if not self.kv_loads:
            yield f'{self.name} on {self.arch}: no load of K or V was found in its tile loop'

    def waves_by_registers(self):
        """Waves that the registers of a unit hold; AMD's compiler says it."""
        if self.waves_per_simd:
            return min(self.waves_per_simd * self.limits['simds'], self.limits['waves'])
        of_wave = -(-self.registers * 32 // NVIDIA_REGISTERS_OF_WAVE) * NVIDIA_REGISTERS_OF_WAVE
        return min(NVIDIA_REGISTERS // of_wave, self.limits['waves'])

    def blocks(self, threads, dynamic_shared):
        """Blocks of this many threads that a unit holds."""
        by_registers = self.waves_by_registers() // -(-threads // self.limits['wave'])
        shared = self.static_shared + dynamic_shared
        if not self.waves_per_simd:
            shared += NVIDIA_SHARED_OF_SYSTEM
        return min(by_registers, self.limits['unit_shared'] // shared) if shared else by_registers


def name_all(kernels):
    names = subprocess.run(['c++filt'] + [k.symbol for k in kernels], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.strip().split('\n')
    for kernel, name in zip(kernels, names):
        kernel.set_name(name)
