"""docs/kernels.md: a part for each vendor between marks that name its compiler, so that one
vendor's part can be written or compared where only its compiler is. report.py calls this."""
import re

import saturate
from shapes import shape, shape_of

INTRODUCTION = '''# The kernels as compiled

Written by `tests/kernels/report.py` from the compilers' own output; do not edit. How to write it
again: see [gpu.md](gpu.md). CI compares it with a new build, and fails on a spill, or on a load of
K or V narrower than 16 bytes (of 8 bits: 8) in the tile loop of a kernel for aligned caches. No GPU
ran any of this: nothing here is a measurement.

- `attend_direct_fma<element type, largest head dimension, wave width, rows>`: caches of 16 and 32
  bits by fused multiply-adds, one variant that takes everything.
- `attend_direct<element type, head dimension, wave width, rows, variant>`: caches of 16 and of 8
  bits with 64, 128 and 256 dimensions, without shared memory in the loop over tiles. The plain
  variant has one loop for tiles that all rows see and another for the rest; the other takes any
  pages, soft-caps and ALiBi, and has the second only. Of 8 bits (narrow) there is one variant that
  takes everything and has both, the first twice where the device has instructions for a dialect.
  Where there is a loop for tiles that all rows see, there is another for rounded weights.
- `attend_fma<element type, rows of a team, alignment of the cache>`: few query rows, or any
  layout. `attend_mma<element type, tiles of the output per 32 lanes of a wave, wave width>`: 8
  rows and more, matrix cores.
- `attend_latent<element type, wave width, rows>`: latent attention, 16-bit caches whose V is the
  first 512 of K's 576 dimensions. Its dynamic shared memory is that of `hip/attend/latent.h`.
- `attention_forward<element type, alignment>`, `attention_forward_mma<element type, dimensions
  of the widest head, wave width>`: attention over full sequences. `attention_backward_fma<which
  gradients>`, `attention_backward_mma<element type, dimensions, wave width, which gradients>`: its
  gradients, of the keys (dK and dV) or of the queries (dQ). Their dynamic shared memory is not in
  the tables: it is that of `hip/attention/shape.h` and `hip/attention/backward_shape.h`.
- `append<where new tokens come from>`: given with all heads, this rank's alone, or gathered from
  the ranks. `peers_finish`, `peers_part`, `peers_parts`: of tallies, as in reproducible mode, or of
  partials. `peers_lost`: what tells the others of a rank that is lost.
- **registers** of one thread. **spilled**: bytes of stack or scratch memory, on AMD also spilled
  registers.
- **shared**: static + dynamic bytes of a block; what an attend kernel asks for is that of the
  fewest query rows that use it, with 128 dimensions of K and V (`hip/attend/shape.h`).
- **waves / unit**: waves that one SM or CU holds, of those that it has room for: by registers
  alone → with the blocks of that launch, which shared memory limits too.
- **loads of K, V** in the tile loop, and **other loads** of the kernel: how many instructions ×
  bytes of a thread. A kernel for any alignment reads elements; where 4 bytes are enough for a wide
  load, the compiler makes it.
'''

DERIVED = '''### Can they saturate memory?

{devices}: one KV head of 128 dimensions in bf16, a long aligned cache without masks. Derived, not
measured. Of the kernels that take what the direct ones do not, as if they were given this.

- **in flight**: bytes of K and V that the resident blocks of a unit have asked for: of one
  tensor's tile at least, of both at most. **needed**: bandwidth × latency of the unit's share
  (Little's law).
- **instructions / byte** of K and V, of single threads, in the compiled tile loop: each loop as
  often as this shape runs it, every branch of it taken, also those of soft-caps, ALiBi and page
  tables. So they are a little too many. {counted}
- The shares of the unit's **issue** slots, **shared** memory bandwidth (no broadcast assumed) and
  **matrix** cores that the loop takes while K and V arrive at full bandwidth. Above 100 % memory
  waits.

'''

COUNTED = {
    'NVIDIA': 'Counted in PTX, without copies of registers, which are not in machine code.',
    'AMD': 'Vector instructions; scalar ones are issued beside them.',
}

DIRECT = '''### The loops of the direct kernels

Counted in machine code: {how}. All instructions of the loop over tiles that all rows see, whether
they are reached or not, and what they are for each 16 bytes of K and V. **before**: what
`attend_fma` and `attend_mma` have for them, with {rows}, where it was counted. A unit
holds as many blocks as `hip/kernels.h` says; **in flight** is what they have asked for while
they compute, and **of needed** how often that is what Little's law asks for. Of 256 dimensions two
waves share a tile and both ask for its K: that is counted once.

CI fails above 20 instructions for 16 bytes with 8 rows and 32 with 16 rows on NVIDIA, 30 with 16
rows on AMD, of 128 dimensions; by fused multiply-adds, on NVIDIA, above 16 with 1 row and 38 with 4
of f32, and above 30 and 64 of 16 bits; of 8 bits, of which 16 bytes are twice the elements and each
is widened, above 130, 140 and 240, by instructions of the device 90, 100 and 150; if there is a
barrier, an access of shared memory or a spill in the loop; and if less is in flight than twice what
Little's law asks for on H100 and MI300X. Of 256 dimensions in 16 bits registers have room for K
or V alone: NVIDIA's kernels ask for V all the same, into the second-level cache, which counts.
**A tile of 8 bits has half the bytes**: on H100 1.84 times, and 1.38 of 64 dimensions; on MI300X
2.35 times, and 1.76 of 64 dimensions. There CI fails below 1.8, 1.3, 2 and 1.7. V of 64 dimensions
comes by loads of 4 bytes in waves of 64, which are not counted as loads.

'''

TURNS = '''### One turn of the kernels for full sequences

Counted in machine code: {how}. What a wave executes for a tile that all of its rows see, with
finite values and without a soft-cap, while all of the next one is asked for; and what that is for
each score, without NOPs. Of the gradients of keys, waves that make dV and waves that make dK.
**before**: what a score took when weights went through shared memory and rows were waited for,
counted on sm_90.

CI fails above 0.4 of it in forward and 0.6 in backward on NVIDIA, of 128 dimensions in bf16; and on
a spill, or a wide load that is no asynchronous copy, in the turn.

'''

BEFORE_ROWS = {'NVIDIA': '1, 4 and 8 rows or with 16', 'AMD': '1, 4, 8 and 16 rows'}
HOW = {'NVIDIA': 'SASS, by nvdisasm', 'AMD': 'the assembly, scalar instructions too'}

CONSTANTS = '''
Constants:

{constants}

The first five are from the vendors' data sheets and architecture papers (matrix: the TFLOPS of
dense f16 divided by units and clock). The latency is our assumption for memory under load, more
than twice what is published for idle devices (under 300 ns on H100 and RTX 4090: Luo et al., arXiv
2402.13499).
'''


def widths(counts):
    return ', '.join(f'{counts[w]} × {w}' for w in sorted(counts, reverse=True)) or '–'


def occupancy(kernel):
    """The cells `shared` and `waves / unit`."""
    of = f'{kernel.waves_by_registers()}'
    most = f' of {kernel.limits["waves"]}'
    if not kernel.attends:
        return f'{kernel.static_shared}', of + most
    found = shape_of(kernel)
    if not found:
        return f'{kernel.static_shared} + ?', of + most
    s = found[1]
    waves = kernel.blocks(s['threads'], s['shared_bytes']) * s['threads'] // kernel.limits['wave']
    return f'{kernel.static_shared} + {s["shared_bytes"]}', f'{of} → {waves}{most}'


def summary(kernels, archs):
    """One line for each family, the worst of its kernels on each architecture."""
    rows = ['| | ' + ' | '.join(archs) + ' | spilled | narrowest load of aligned K, V |',
            '| --- ' * (len(archs) + 3) + '|']
    for family in sorted({k.family for k in kernels}):
        all_of = [k for k in kernels if k.family == family]
        most = [max((k.registers for k in all_of if k.arch == arch), default='–') for arch in archs]
        aligned = [w for k in all_of if 'any alignment' not in k.arguments for w in k.kv_loads]
        rows.append(f'| `{family}` | ' + ' | '.join(map(str, most)) +
                    f' | {sum(k.spilled for k in all_of)} | ' +
                    (f'{min(aligned)} bytes |' if aligned else '– |'))
    return '\n'.join(rows)


def table(kernels):
    rows = ['| kernel | registers | spilled | shared | waves / unit | loads of K, V | '
            'other loads |', '| --- ' * 7 + '|']
    for kernel in sorted(kernels, key=lambda k: k.name):
        shared, waves = occupancy(kernel)
        rows.append(f'| `{kernel.name}` | {kernel.registers} | {kernel.spilled} | {shared} | '
                    f'{waves} | {widths(kernel.kv_loads)} | {widths(kernel.other_loads)} |')
    return '\n'.join(rows)


def kernel_for(kernels, arch, rows):
    s = shape(arch, 'bf16', rows, True)
    family, number = ('attend_mma', s['tiles']) if s['matrix'] else ('attend_fma', s['team_rows'])
    for k in kernels:
        if (k.arch, k.family) == (arch, family) and k.arguments[:2] == ('bf16', str(number)) and \
                'any alignment' not in k.arguments:
            return k
    raise saturate.Changed(f'{arch} has no {family}<bf16, {number}> for {rows} rows')


def verdict(d):
    """Whether memory can be saturated, else what bounds the kernel, and at which part of it."""
    bounds = {'instructions': 1 / d['issue'], 'shared memory': 1 / d['shared'],
              'bytes in flight': d['in_flight_most'] / d['needed']}
    if d['matrix']:
        bounds['matrix cores'] = 1 / d['matrix']
    least = min(bounds, key=bounds.get)
    if bounds[least] < 1:
        return f'no: {least}, at {bounds[least]:.0%} of the bandwidth'
    if d['in_flight'] < d['needed']:
        return 'if K and V overlap; else bytes in flight, at ' \
            f'{d["in_flight"] / d["needed"]:.0%} of the bandwidth'
    if bounds[least] < 1.25:
        return f'just: {least} at {1 / bounds[least]:.0%}'
    return f'yes; {least} would be next'


def saturation(vendor, kernels, devices):
    rows = ['| | query rows | kernel | blocks / unit | in flight | needed | '
            'instructions / byte | issue | shared | matrix | saturates memory |',
            '| --- ' * 11 + '|']
    for device in devices:
        for count in (1, 4, 8, 16, 64):
            kernel = kernel_for(kernels, saturate.DEVICES[device]['arch'], count)
            d = saturate.derive(device, kernel, vendor, count)
            rows.append(f'| {device} | {count} | `{kernel.name}` | {d["blocks"]} × '
                        f'{d["shape"]["threads"]} threads | {d["in_flight"] / 1024:.0f} to '
                        f'{d["in_flight_most"] / 1024:.0f} KiB | {d["needed"] / 1024:.0f} KiB | '
                        f'{d["per_byte"]:.1f} | {d["issue"]:.0%} | {d["shared"]:.0%} | '
                        f'{d["matrix"]:.0%} | {verdict(d)} |')
    return '\n'.join(rows)


def constants(devices):
    rows = ['| | bandwidth | units, clock | wave instructions / clock | shared memory / clock | '
            'matrix multiplications / clock | latency |', '| --- ' * 7 + '|']
    for device in devices:
        c = saturate.DEVICES[device]
        rows.append(f'| {device} | {c["gbs"]} GB/s | {saturate.UNITS[c["arch"]]}, {c["ghz"]} GHz | '
                    f'{c["issue"]} | {c["shared"]} bytes | {c["products"]} | {c["ns"]} ns |')
    return '\n'.join(rows)


def part(vendor, kernels, compiler, loops, turns):
    """What the page says of one vendor. `loops`: the table of the direct kernels' loops, `turns`:
    that of the kernels for full sequences."""
    archs = sorted({k.arch for k in kernels}, key=lambda a: (len(a), a))
    kernels = sorted(kernels, key=lambda k: archs.index(k.arch))
    devices = [n for n, d in saturate.DEVICES.items() if d['arch'] in archs]
    text = [f'<!-- {vendor.VENDOR}: {compiler} -->', f'## {vendor.VENDOR}, by {compiler}', '',
            'The most registers of a thread, and the worst of all variants and architectures:', '',
            summary(kernels, archs), '']
    if devices:
        text += [DERIVED.format(devices=' and '.join(devices), counted=COUNTED[vendor.VENDOR])
                 + saturation(vendor, kernels, devices),
                 CONSTANTS.format(constants=constants(devices))]
    if loops:
        text += [DIRECT.format(how=HOW[vendor.VENDOR], rows=BEFORE_ROWS[vendor.VENDOR]) + loops,
                 '']
    if turns:
        text += [TURNS.format(how=HOW[vendor.VENDOR]) + turns, '']
    for arch in archs:
        text += [f'### {arch}', '', table([k for k in kernels if k.arch == arch]), '']
    return '\n'.join(text) + '<!-- end -->\n'


def read_parts(text):
    """Vendor: (compiler, part) of a page that was written before."""
    found = re.finditer(r'<!-- (\w+): (.*?) -->\n.*?<!-- end -->\n', text, re.S)
    return {f[1]: (f[2], f[0]) for f in found}


def archs_of(part):
    """The architectures that a vendor's part has tables of."""
    return re.findall(r'^### ((?:sm_|gfx)\w+)$', part, re.M)


def without(part, archs):
    """A vendor's part without what it says of these architectures, and without the table of the
    most registers, which is of all."""
    part = re.sub(r'^\| \| (?:sm_|gfx).*\n(?:\|.*\n)*', '', part, flags=re.M)
    for arch in archs:
        part = re.sub(rf'^### {arch}\n.*?(?=^### |^<!-- end)', '', part, flags=re.M | re.S)
        part = re.sub(rf'^\| .* \| {arch} \| .*\n', '', part, flags=re.M)
    return re.sub(r'\n+(?=<!-- end)', '\n', part)


def whole(parts):
    return INTRODUCTION + ''.join('\n' + parts[v] for v in ('NVIDIA', 'AMD') if v in parts)
