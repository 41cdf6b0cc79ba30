#!/usr/bin/env python3
"""Check the kernels of builds with -Dkernel_report=true, and write docs/kernels.md or compare it.

    tests/kernels/report.py --cuda build-cuda --rocm build-rocm            write the page
    tests/kernels/report.py --check --cuda build-cuda --rocm build-rocm    compare

Fails on a spill, on a load of K or V narrower than 16 bytes in the tile loop of a kernel for
aligned caches, where the loop of a direct kernel is too long, waits or uses shared memory
(direct.py), where a turn of the kernels for full sequences is too long or waits for memory
(turns.py), and with --check if the page is not what the compilers say now. With one build
only, or another compiler than the page's, the rest of the page is left as it is, and that is said.
With --check a build may have fewer architectures than the page: those that it has are compared.
kernel.py has the checks, page.py the text, saturate.py what is derived."""
import argparse
import difflib
import os
import sys

sys.dont_write_bytecode = True

import amd
import direct
import nvidia
import page
import turns
from assembly import TREE
from kernel import name_all
from saturate import DEVICES, Changed, per_16_bytes
from shapes import UNITS

PAGE = os.path.join(TREE, 'docs', 'kernels.md')


def read_page():
    if not os.path.exists(PAGE):
        return ''
    with open(PAGE, encoding='utf-8') as file:
        return file.read()


def old_loops(kernels):
    """What the kernels that do not take what the direct ones do would need for it, on AMD."""
    return {(device['arch'], 16): [
        per_16_bytes(name, page.kernel_for(kernels, device['arch'], rows), amd, rows)
        for rows in (1, 4, 8, 16)]
        for name, device in DEVICES.items() if any(k.arch == device['arch'] for k in kernels)}


def inspect_loops(vendor, kernels, build):
    """The table of the direct kernels' loops, and what is wrong with them."""
    loops = direct.read_amd(kernels) if vendor is amd else direct.read_nvidia(build)
    if loops is None:
        return '', ['no nvdisasm: the loops of the direct kernels cannot be counted; '
                    'tests/kernels/fetch-nvdisasm.sh brings one']
    if not loops and any(kernel.direct for kernel in kernels):
        return '', [f'{vendor.VENDOR}: the direct kernels were not found in machine code']
    before = old_loops(kernels) if vendor is amd else direct.BEFORE_NVIDIA
    table, wrong = direct.table(loops, DEVICES, UNITS, before)
    return table, wrong + [text for loop in loops for text in loop.complaints()]


def inspect_turns(vendor, build):
    """The table of the kernels for full sequences, and what is wrong with them."""
    found = turns.read_amd(build) if vendor is amd else turns.read_nvidia(build)
    if not found:
        return '', [f'{vendor.VENDOR}: the kernels for full sequences were not found in machine '
                    'code']
    return turns.table(found), [text for turn in found for text in turn.complaints()]


def inspect(vendor, build):
    """The vendor's part of the page, its compiler, and what is wrong."""
    kernels, compiler = vendor.read(build)
    if not kernels:
        return '', '', [f'{build} has no kernels: was it built with -Dkernel_report=true?']
    name_all(kernels)
    for kernel in kernels:
        kernel.count_loads(vendor)
    wrong = [text for kernel in kernels for text in kernel.complaints()]
    try:
        loops, complaints = inspect_loops(vendor, kernels, build)
        turn_table, more = inspect_turns(vendor, build)
        wrong += complaints + more
        text = page.part(vendor, kernels, compiler, loops, turn_table)
    except Changed as change:
        text = ''
        wrong.append(str(change))
    print(f'kernels: {vendor.VENDOR}: {len(kernels)} by {compiler}, {len(wrong)} complaints')
    return text, compiler, wrong


def leave_out(vendor, old, new):
    """The page's part and the build's, of the architectures that both have."""
    missing = [arch for arch in page.archs_of(old) if arch not in page.archs_of(new)]
    if not missing:
        return old, new
    print(f'kernels: {vendor.VENDOR}: this build has no {", ".join(missing)}: what the page says '
          'of that is NOT COMPARED')
    return page.without(old, missing), page.without(new, missing)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--cuda', metavar='BUILD', help='a build of the module for NVIDIA')
    parser.add_argument('--rocm', metavar='BUILD', help='a build of the module for AMD')
    parser.add_argument('--check', action='store_true', help='compare the page, do not write it')
    options = parser.parse_args()
    if not options.cuda and not options.rocm:
        parser.error('name a build with --cuda or --rocm')
    before = read_page()
    old = page.read_parts(before)
    parts, wrong = {}, []
    for vendor, build in ((nvidia, options.cuda), (amd, options.rocm)):
        there, part = old.get(vendor.VENDOR, ('', ''))
        parts[vendor.VENDOR] = part
        if not build:
            print(f'kernels: {vendor.VENDOR}: NO BUILD GIVEN, its part of the page is NOT CHECKED')
            continue
        new, compiler, complaints = inspect(vendor, build)
        wrong += complaints
        if options.check and there and compiler != there:
            print(f'kernels: {vendor.VENDOR}: the page is of {there}, this is {compiler}: its part '
                  'is NOT COMPARED')
        elif new:
            compared = part
            if options.check:
                compared, new = leave_out(vendor, part, new)
            before = before.replace(part, compared) if part else before
            parts[vendor.VENDOR] = new
    text = page.whole({vendor: part for vendor, part in parts.items() if part})
    if not options.check:
        with open(PAGE, 'w', encoding='utf-8') as file:
            file.write(text)
    elif text != before:
        sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), text.splitlines(True),
                                                   'docs/kernels.md', 'what the compilers say now'))
        wrong.append('docs/kernels.md is not current: run tests/kernels/report.py without --check')
    for complaint in wrong:
        print('kernels: ' + complaint)
    return bool(wrong)


if __name__ == '__main__':
    sys.exit(main())
