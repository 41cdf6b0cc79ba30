"""Can an attend kernel keep a device's memory busy? From its compiled tile loop, the shape of its
blocks and the vendors' figures: bytes in flight against latency × bandwidth, and which part of the
unit's issue slots, shared memory and matrix cores the loop takes while K and V arrive at full
bandwidth. page.py prints it. Nothing here was measured."""
import math

from kernel import PLACES
from shapes import HEAD_DIM, UNITS, shape

# gbs and ghz: the vendors' data sheets (H100 SXM: the clock that gives its 989 TFLOPS of dense
# f16). products: multiplications of f16 in a clock of a unit's matrix cores, the data sheet's
# TFLOPS divided by units and clock. issue: wave instructions that a unit starts in a clock: 4
# schedulers on NVIDIA; 4 vector units that take 4 clocks for a wave of 64 on CDNA. shared: bytes
# of shared memory in a clock. ns: our assumption for loaded memory, more than twice what
# pointer-chasing finds on an idle device.
DEVICES = {
    'H100': {'arch': 'sm_90', 'gbs': 3350, 'ghz': 1.83, 'ns': 700, 'issue': 4, 'shared': 128,
             'products': 2048},
    'RTX 4090': {'arch': 'sm_89', 'gbs': 1008, 'ghz': 2.52, 'ns': 600, 'issue': 4, 'shared': 128,
                 'products': 256},
    'MI300X': {'arch': 'gfx942', 'gbs': 5300, 'ghz': 2.1, 'ns': 800, 'issue': 1, 'shared': 128,
               'products': 1024},
}
EDGE = 16
WEIGHT_PARTS = {'f16': 2, 'bf16': 3}
UNIT = 8  # 16-bit elements in 16 bytes
ROW_LANES = 16  # threads that share a row while its scores become weights


class Changed(Exception):
    """The compiled loops are not those that this file knows."""


class Loop:
    """One loop inside the tile loop, without the loops in it."""

    def __init__(self, path, code, vendor):
        self.path, self.code = path, code
        self.functions = {i.function for i in code}
        self.fma = sum(vendor.multiplications(i) for i in code)
        self.products = sum(vendor.matrix_products(i) for i in code)
        self.trips = 0  # for each tile


def loops_of(kernel, vendor):
    code = {}
    for instruction in kernel.tile_loop():
        code.setdefault(instruction.loops[kernel.tile_depth:], []).append(instruction)
    loops = [Loop(path, code[path], vendor) for path in sorted(code)]
    loops[0].trips = 1
    return loops


def require(condition, kernel, what):
    if not condition:
        raise Changed(f'{kernel.name} on {kernel.arch}: {what}: tests/kernels/saturate.py counts '
                      'the trips of its loops and must be told')


def count_fma_trips(kernel, loops, s):
    """attend_fma: scores in a nest of two loops, compiled for one key at a time and for two;
    values in one loop, compiled for rows that see all tokens and for others. No masks."""
    rows = s['team_rows']
    at_once = s['team_threads'] // s['lanes']
    keys = 2 if s['tile'] > at_once else 1
    dot = [l for l in loops if 'unpack' in l.functions and l.fma == keys * UNIT * rows]
    require(len(dot) == 1, kernel, f'{len(dot)} loops of dot products of {keys} keys')
    bases = s['tile'] / (keys * at_once)
    dot[0].trips = bases * HEAD_DIM / UNIT / s['lanes']
    for loop in loops:
        if loop.path == dot[0].path[:-1] and loop.path:
            loop.trips = bases
        elif loop.path[:-1] == dot[0].path[:-1] and 'reduce_rows' in loop.functions:
            loop.trips = bases * math.log2(s['lanes'] / rows)
    needed = rows * 2 * s['tile'] / (s['team_threads'] / (HEAD_DIM / 2))
    values = [l for l in loops if 'add_values' in l.functions and l.path and l.fma]
    require(values, kernel, 'no loop of values')
    most = max(l.fma for l in values)  # not what is left over from unrolling
    plain = min((l for l in values if l.fma == most), key=lambda l: len(l.code))
    plain.trips = needed / plain.fma


def count_mma_trips(kernel, loops, s, dtype):
    """attend_mma: scores in the innermost of four loops, weights row by row, values in one loop
    for each tile of the output that a wave has. No masks."""
    waves = s['threads'] // kernel.limits['wave']
    score_tiles = s['row_tiles'] * s['tile'] / EDGE
    dot = [l for l in loops if l.products and 'score' in l.functions]
    require(len(dot) == 1 and len(dot[0].path) == 4, kernel, 'no nest of four loops of scores')
    dot[0].trips = score_tiles * HEAD_DIM / EDGE / waves / dot[0].products
    around = {dot[0].path[:3]: score_tiles * s['k_parts'] / waves, dot[0].path[:2]: score_tiles,
              dot[0].path[:1]: s['row_tiles']}
    parts = WEIGHT_PARTS[dtype]
    outputs = s['row_tiles'] * HEAD_DIM / EDGE / waves
    weights = [l for l in loops if 'ta_store_weight' in l.functions and len(l.path) == 1]
    require(len(weights) == 1, kernel, 'no loop of weights')
    weights[0].trips = math.ceil(s['rows'] / (s['threads'] / EDGE))
    left = outputs
    for loop in loops:
        if loop.path in around:
            loop.trips = around[loop.path]
        elif loop.products and 'add_values' in loop.functions:
            loop.trips = min(left, 1) * s['tile'] / EDGE * parts / loop.products
            left = max(0, left - 1)
        elif loop.path[:1] == weights[0].path and len(loop.path) == 2:
            loop.trips = weights[0].trips * s['tile'] / EDGE
        elif loop.path[:1] == weights[0].path and len(loop.path) == 3:
            unrolled = max(1, sum('ld' in i.name or 'ds_read' in i.name for i in loop.code))
            loop.trips = weights[0].trips * s['tile'] / EDGE * (s['k_parts'] - 1) / unrolled
    require(left == 0, kernel, 'fewer loops of values than tiles of the output')
    for loop in loops:  # what is around the loops of values
        if not loop.trips and any(l.trips and l.path[:len(loop.path)] == loop.path for l in loops):
            loop.trips = 1


def share_of_waves(instruction, s, wave):
    """Which part of a block's waves comes by here: one thread looks up each token, and in
    attend_fma 16 make the scores of a row."""
    waves = s['threads'] // wave
    if PLACES.match(instruction.function):
        return min(1, math.ceil(s['tile'] / wave) / waves)
    if instruction.function == 'ta_make_score' and not s['matrix']:
        of_team = s['team_threads'] // wave
        return min(1, math.ceil(s['team_rows'] * ROW_LANES / wave) / of_team)
    return 1


def count_in_tile(device, kernel, vendor, rows):
    """The shape of the launch, and a function that sums a measure of instructions over all waves of
    a block while they take a tile."""
    s = shape(DEVICES[device]['arch'], kernel.arguments[0], rows, True)
    loops = loops_of(kernel, vendor)
    if s['matrix']:
        count_mma_trips(kernel, loops, s, kernel.arguments[0])
    else:
        count_fma_trips(kernel, loops, s)
    waves = s['threads'] // kernel.limits['wave']

    def in_all(measure):
        return waves * sum(l.trips * measure(i) * share_of_waves(i, s, kernel.limits['wave'])
                           for l in loops for i in l.code)

    return s, in_all


def bytes_of_tile(s):
    return s['tile'] * 2 * HEAD_DIM * 2


def per_16_bytes(device, kernel, vendor, rows):
    """Instructions of any kind of a thread for 16 bytes of K and V."""
    s, in_all = count_in_tile(device, kernel, vendor, rows)
    return in_all(lambda instruction: 1) * kernel.limits['wave'] / bytes_of_tile(s) * 16


def derive(device, kernel, vendor, rows):
    """What the page has of one kernel on one device, as a dictionary."""
    d = DEVICES[device]
    s, in_all = count_in_tile(device, kernel, vendor, rows)
    tile_bytes = bytes_of_tile(s)
    reads = math.ceil(rows / s['rows'])  # row groups that read the same K and V
    clocks = tile_bytes / reads / (d['gbs'] / UNITS[d['arch']] / d['ghz'])  # while a tile arrives
    blocks = min(kernel.blocks(s['threads'], s['shared_bytes']), s['blocks_per_unit'])
    products = in_all(vendor.matrix_products) * EDGE ** 3
    return {
        'shape': s, 'blocks': blocks,
        'in_flight': blocks * tile_bytes / 2, 'in_flight_most': blocks * tile_bytes,
        'needed': d['gbs'] / UNITS[d['arch']] * d['ns'],
        'per_byte': in_all(vendor.takes_issue_slot) * kernel.limits['wave'] / tile_bytes,
        'issue': in_all(vendor.takes_issue_slot) / d['issue'] / clocks,
        'shared': in_all(vendor.shared_bytes) * kernel.limits['wave'] / d['shared'] / clocks,
        'matrix': products / d['products'] / clocks,
    }
