"""The shapes of attend blocks, asked of hip/attend/shape.h itself by compiling shapes.c."""
import functools
import os
import subprocess
import tempfile

from assembly import TREE
from kernel import LIMITS

DTYPES = {'f32': 1, 'f16': 2, 'bf16': 3, 'narrow': 4}  # ta_dtype; of 8 bits one for all
HEAD_DIM = 128  # of K and V, in shapes.c
MATRIX_CORES = ('sm_80', 'sm_89', 'sm_90', 'sm_120', 'gfx90a', 'gfx942')
UNITS = {'sm_80': 108, 'sm_89': 128, 'sm_90': 132, 'sm_120': 170, 'gfx90a': 104, 'gfx942': 304,
         'gfx1100': 96}  # A100, RTX 4090, H100, RTX 5090, a die of MI250X, MI300X, RX 7900 XTX


@functools.lru_cache(maxsize=None)
def program():
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, 'shapes')
    subprocess.run([os.environ.get('CC', 'cc'), '-std=gnu11', '-I' + os.path.join(TREE, 'include'),
                    '-I' + os.path.join(TREE, 'src'),
                    os.path.join(TREE, 'tests', 'kernels', 'shapes.c'), '-o', path], check=True)
    return path, folder  # the folder lives as long as this


@functools.lru_cache(maxsize=None)
def shape(arch, dtype, rows, aligned):
    """The shape of a problem with this many query rows per KV head, as a dictionary."""
    limits = LIMITS[arch]
    numbers = [UNITS[arch], limits['wave'], arch in MATRIX_CORES, limits['shared'],
               limits['unit_shared'], DTYPES[dtype], rows, aligned]
    words = subprocess.run([program()[0]] + [str(int(n)) for n in numbers], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.split()
    return {name: int(number) for name, number in zip(words[::2], words[1::2])}


def shape_of(kernel):
    """(rows, shape) of a problem that runs this attend kernel: the fewest rows that do."""
    aligned = 'any alignment' not in kernel.arguments
    for rows in (1, 4, 8, 16, 32, 64):
        s = shape(kernel.arch, kernel.arguments[0], rows, aligned)
        wanted = 'tiles' if s['matrix'] else 'team_rows'
        if s['matrix'] == (kernel.family == 'attend_mma') and \
                s[wanted] == int(kernel.arguments[1]):
            return rows, s
    return None
