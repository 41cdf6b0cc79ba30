"""What nvcc said about the kernels of a build with -Dkernel_report=true: registers and spills from
ptxas, loads and loops from the PTX. ptxas neither splits nor widens a load that PTX has.
"""
import glob
import os
import re
import sys

import assembly
from kernel import Kernel

VENDOR = 'NVIDIA'

# The syntax of PTX, for assembly.py.
LABEL = re.compile(r'(\$L__BB\w+):')
CODE = re.compile(r'\s+(?:@!?%p\d+\s+)?([a-z][\w.:]*)')
BRANCH = re.compile(r'\bbra(?:\.uni)?\s+(\$L__BB\w+)')
CONDITIONAL = re.compile(r'@!?%p')
END = re.compile(r'\b(?:ret|exit|trap);')

# An address without a space may be of global memory too.
LOAD = re.compile(r'ld(?:\.volatile|\.relaxed|\.weak|\.gpu|\.cta)*(?:\.global\S*?)?'
                  r'(?:\.v(\d))?\.[a-z](\d+)$')
SHARED = re.compile(r'(?:ld|st)\.shared(?:\.v(\d))?\.[a-z](\d+)$')


def load_bytes(instruction):
    """Of a load from global memory, for each thread; 0 for anything else."""
    if instruction.name.startswith('cp.async.cg'):
        return 16
    found = LOAD.match(instruction.name)
    return int(found[1] or 1) * int(found[2]) // 8 if found else 0


def shared_bytes(instruction):
    """What one thread moves through shared memory or its crossbar."""
    found = SHARED.match(instruction.name)
    if found:
        return max(4, int(found[1] or 1) * int(found[2]) // 8)
    if instruction.name.startswith('ldmatrix'):
        return 16
    return 4 if instruction.name.startswith('shfl') else 0


def multiplications(instruction):
    return 1 if instruction.name == 'fma.rn.f32' else 0


def matrix_products(instruction):
    """Products of 16 × 16 by 16 × 16 elements: mma.sync makes a half."""
    return 0.5 if instruction.name.startswith('mma.sync') else 0


def takes_issue_slot(instruction):
    """Copies and conversions of addresses are in PTX only: ptxas gives both sides one register."""
    return not instruction.name.startswith(('mov.', 'cvta.'))


def read_log(path):
    """(symbol, architecture): what ptxas said of it."""
    facts = {}
    with open(path, encoding='utf-8') as file:
        text = file.read()
    for part in re.split(r"Compiling entry function '", text)[1:]:
        symbol, arch = re.match(r"(\w+)' for '(\w+)'", part).groups()
        spilled = re.search(r'(\d+) bytes stack frame, (\d+) bytes spill stores, '
                            r'(\d+) bytes spill loads', part)
        used = re.search(r'Used (\d+) registers([^\n]*)', part)
        static = re.search(r'(\d+) bytes smem', used[2])
        facts[symbol, arch] = {'registers': int(used[1]),
                               'spilled': sum(int(n) for n in spilled.groups()),
                               'static_shared': int(static[1]) if static else 0}
    return facts


def read_ptx(path, facts):
    with open(path, encoding='utf-8') as file:
        text = file.read()
    arch = re.search(r'^\.target (\w+)', text, re.M)[1]
    version = re.search(r'release \S+, V(\S+)', text)[1]
    files = dict(re.findall(r'\.file\s+(\d+) "([^"]*)"', text))
    for entry in re.finditer(r'\.entry (\w+)\(.*?\n\{\n(.*?)\n\}\n', text, re.S):
        code = assembly.read_kernel(entry[2].split('\n'), files, sys.modules[__name__])
        yield Kernel(entry[1], arch, code, facts[entry[1], arch]), 'nvcc ' + version


def read(build):
    """All kernels of a build, and the compiler."""
    kernels, compilers, facts = [], set(), {}
    for target, source in sorted(assembly.current_sources().items()):
        log = os.path.join(build, 'hip', target + '.cuda.o.log')
        facts.update(read_log(log) if os.path.exists(log) else {})
        for path in sorted(glob.glob(os.path.join(build, 'hip', source + '.*ptx'))):
            for kernel, compiler in read_ptx(path, facts):
                kernels.append(kernel)
                compilers.add(compiler)
    if len(kernels) != len(facts):
        sys.exit(f"nvidia.py: {len(facts)} kernels were compiled, {len(kernels)} are in the PTX")
    return kernels, ', '.join(sorted(compilers))
