"""What hipcc said about the kernels of a build with -Dkernel_report=true, all of it in the
assembly: registers, spills and occupancy in its comments and metadata."""
import glob
import os
import re
import sys

import assembly
from kernel import Kernel

VENDOR = 'AMD'

# The syntax of AMD's assembly, for assembly.py.
LABEL = re.compile(r'(\.LBB\w+):')
CODE = re.compile(r'\s+([a-z]\w*)')
BRANCH = re.compile(r'\bs_c?branch\w*\s+(\.LBB\w+)')
CONDITIONAL = re.compile(r'\bs_cbranch')
END = re.compile(r'\bs_(?:endpgm|setpc_b64)\b')

KERNEL = re.compile(r'\n(\w+):[^\n]*; @\1\n(.*?)\.Lfunc_end\d+:.*?; Occupancy: (\d+)', re.S)
MULTIPLICATION = re.compile(r'\bv_(?:dual_)?(?:fma|fmac|fmaak|fmamk)_f32|\bv_fma_mix\w*_f32|'
                            r'\bv_pk_fma_f32')
WORDS = {'dword': 4, 'dwordx2': 8, 'dwordx3': 12, 'dwordx4': 16, 'b32': 4, 'b64': 8, 'b96': 12,
         'b128': 16}


def load_bytes(instruction):
    """Of a load from global memory, for each thread; 0 for anything else."""
    found = re.match(r'(?:global|flat|buffer|scratch)_load_(\w+)', instruction.name)
    if not found:
        return 0
    return WORDS.get(found[1], 1 if re.search(r'byte|8', found[1]) else 2)


def shared_bytes(instruction):
    """What one thread moves through shared memory or its crossbar; a bank has 4 bytes."""
    found = re.match(r'ds_\w*?(2(?:st64)?)?_[bui](\d+)', instruction.name)
    return max(4, int(found[2]) // 8) * (2 if found[1] else 1) if found else 0


def multiplications(instruction):
    found = MULTIPLICATION.findall(instruction.text)
    return sum(2 if name == 'v_pk_fma_f32' else 1 for name in found)


def matrix_products(instruction):
    """Products of 16 × 16 by 16 × 16 elements: in fp32 an instruction makes a quarter."""
    if not instruction.name.startswith('v_mfma'):
        return 0
    return 0.25 if '16x16x4' in instruction.name else 1


def takes_issue_slot(instruction):
    """Vector instructions share the slots of the vector units; others are issued beside them."""
    return instruction.name.startswith('v_') and not instruction.name.startswith('v_mfma')


def read_metadata(text):
    """What a kernel's launcher is told, by the kernel's symbol. Scratch memory is of a thread; a
    scalar register spills to a vector register."""
    kernels = {}
    listed = re.search(r'\namdhsa\.kernels:(.*?)\namdhsa\.', text, re.S)[1]
    for part in re.split(r'\n  - ', listed)[1:]:
        def fact(name):
            return int((re.search(r'\.%s:\s*(\d+)' % name, part) or [0, 0])[1])
        kernels[re.search(r'\n    \.name:\s+(\w+)', part)[1]] = {
            'registers': fact('vgpr_count'), 'static_shared': fact('group_segment_fixed_size'),
            'spilled': fact('private_segment_fixed_size') + fact('vgpr_spill_count') +
            fact('sgpr_spill_count')}
    return kernels


def read_assembly(path):
    with open(path, encoding='utf-8') as file:
        text = file.read()
    arch = re.search(r'amdhsa--(gfx\w+)', text)[1]
    metadata = read_metadata(text)
    files = {number: os.path.join(folder, name) for number, folder, name in
             re.findall(r'\.file\s+(\d+) (?:"([^"]*)" )?"([^"]*)"', text)}
    version = re.search(r'\.ident\s+"[^"]*?(clang version [^" ]*)', text)[1]
    for entry in KERNEL.finditer(text):
        code = assembly.read_kernel(entry[2].split('\n'), files, sys.modules[__name__])
        if len(code) < 4:  # of a wave width that the architecture does not have
            continue
        facts = dict(metadata[entry[1]], waves_per_simd=int(entry[3]))
        yield Kernel(entry[1], arch, code, facts), version


def read(build):
    """All kernels of a build, and the compiler."""
    kernels, compilers = [], set()
    for source in sorted(assembly.current_sources().values()):
        for path in sorted(glob.glob(os.path.join(build, 'hip', source + '-hip-amdgcn-*.s'))):
            for kernel, compiler in read_assembly(path):
                kernels.append(kernel)
                compilers.add(compiler)
    return kernels, ', '.join(sorted(compilers))
