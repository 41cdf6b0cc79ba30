#!/usr/bin/env python3
"""Includes go down the layers of layers.txt, and each folder sees only what it may.

    include/    <stddef.h>, <stdint.h> and each other
    src/        as layers.txt says; never a GPU header
    hip/        GPU headers in vendor.h only
    bench/      the public headers, and its own: it is a user of the library like any other
    anywhere    headers only, never a source file
"""
import os
import re
import sys

TREE = os.path.realpath(os.path.join(os.path.dirname(__file__), '..', '..'))
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
GPU = re.compile(r'^(cuda|hip|nccl|rccl|rocm|cub/|thrust/|cooperative_groups)')
CODE = ('.c', '.h', '.hip', '.cpp', '.hpp')


def read_layers():
    """File name, as written in the table, to the number of its line."""
    layers = {}
    with open(os.path.join(TREE, 'tests', 'style', 'layers.txt'), encoding='utf-8') as table:
        for number, line in enumerate(table):
            for name in line.split('#')[0].split():
                layers[name] = number
    return layers


def name_in_table(path):
    """How the table spells a file of src/ or include/."""
    name = path.split('/', 1)[1]
    return 'host/' if name.startswith('host/') else name


def resolve(path, name):
    """The file of this tree that an include in `path` means, or None for a system header."""
    for folder in (os.path.dirname(path), 'src', 'include'):
        candidate = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(os.path.join(TREE, candidate)):
            return candidate
    return None


def complaint_about_layers(path, target, layers):
    if os.path.splitext(path)[0] == os.path.splitext(target)[0]:
        return None
    if not target.startswith(('src/', 'include/')):
        return f'{target} is not part of the library'
    here, there = name_in_table(path), name_in_table(target)
    for name, owner in ((here, path), (there, target)):
        if name not in layers:
            return f'{owner} has no line in tests/style/layers.txt: give it one'
    if layers[there] < layers[here] or here == there == 'host/':
        return None
    return f'{target} is not below {path} in tests/style/layers.txt'


def complaint(path, quoted, name, layers):
    """What is wrong with one include, or None."""
    target = resolve(path, name) if quoted or name.startswith('treeattn/') else None
    folder = path.split('/')[0]
    if name.endswith(('.c', '.hip', '.cpp')):
        return 'a source file is never included; give it a header'
    if GPU.match(name) and target is None:
        vendor = path == 'hip/vendor.h' or folder not in ('include', 'src', 'hip', 'bench')
        return None if vendor else 'GPU headers are included by hip/vendor.h only'
    if folder == 'include' and target is None and name not in ('stddef.h', 'stdint.h'):
        return 'a public header needs <stddef.h> and <stdint.h> only'
    if folder == 'src' and quoted and target is None:
        return 'no such header'
    if folder == 'bench' and target and not target.startswith(('include/', 'bench/')):
        return 'the bench uses the public headers only'
    if folder in ('include', 'src') and target:
        return complaint_about_layers(path, target, layers)
    return None


def code_files():
    for top in ('include', 'src', 'hip', 'bench', 'tests'):
        for folder, _, names in sorted(os.walk(os.path.join(TREE, top))):
            for name in sorted(names):
                if name.endswith(CODE):
                    yield os.path.relpath(os.path.join(folder, name), TREE)


def main():
    layers = read_layers()
    wrong = 0
    for path in code_files():
        with open(os.path.join(TREE, path), encoding='utf-8') as file:
            text = file.read()
        if path.startswith('src/') and name_in_table(path) not in layers:
            print(f'{path}: has no line in tests/style/layers.txt: give it one')
            wrong += 1
        for found in INCLUDE.finditer(text):
            problem = complaint(path, found[1] == '"', found[2], layers)
            if problem:
                line = text.count('\n', 0, found.start(2)) + 1
                print(f'{path}:{line}: includes {found[2]}: {problem}')
                wrong += 1
    return wrong != 0


if __name__ == '__main__':
    sys.exit(main())
