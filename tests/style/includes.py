#!/usr/bin/env python3
"""Includes go down the rooms of layers.txt, and each folder sees only what it may.

    include/    <stddef.h>, <stdint.h> and each other
    src/        as layers.txt says; never a GPU header
    hip/        GPU headers in vendor.h only, and its parts vendor_….h by nobody else
    bench/      the public headers, and its own: it is a user of the library like any other;
                bench/llama/ and bench/exchange/ also the tables that ta_device_extension()
                gives them
    anywhere    headers only, never a source file
"""
import os
import re
import sys

TREE = os.path.realpath(os.path.join(os.path.dirname(__file__), '..', '..'))
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
GPU = re.compile(r'^(cuda|hip|nccl|rccl|rocm|cub/|thrust/|cooperative_groups)')
CODE = ('.c', '.h', '.hip', '.cpp', '.hpp')


def read_rooms():
    """Room to the rooms that it may include headers of."""
    rooms = {}
    with open(os.path.join(TREE, 'tests', 'style', 'layers.txt'), encoding='utf-8') as table:
        for line in table:
            room, colon, below = line.split('#')[0].partition(':')
            if colon:
                unknown = [name for name in below.split() if name not in rooms]
                if unknown:
                    sys.exit(f'layers.txt: {room} names {unknown[0]}, which is not above it')
                rooms[room] = below.split()
    return rooms


def room_of(path, rooms):
    """The room that a file of src/ or hip/ is in, or None."""
    return next((room for room in rooms if path.startswith(room + '/')), None)


def resolve(path, name):
    """The file of this tree that an include in `path` means, or None for a system header."""
    for folder in (os.path.dirname(path), 'src', 'include'):
        candidate = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(os.path.join(TREE, candidate)):
            return candidate
    return None


def complaint_about_rooms(path, target, rooms):
    if target.startswith('include/'):
        return None
    here, there = room_of(path, rooms), room_of(target, rooms)
    if there is None:
        return f'{target} is in no room of tests/style/layers.txt'
    if here == there or there in rooms[here]:
        return None
    return f'{there} is not below {here} in tests/style/layers.txt'


def complaint(path, quoted, name, rooms):
    """What is wrong with one include, or None."""
    target = resolve(path, name) if quoted or name.startswith('treeattn/') else None
    folder = path.split('/')[0]
    if name.endswith(('.c', '.hip', '.cpp')):
        return 'a source file is never included; give it a header'
    if GPU.match(name) and target is None:
        vendor = path == 'hip/vendor.h' or folder not in ('include', 'src', 'hip', 'bench')
        return None if vendor else 'GPU headers are included by hip/vendor.h only'
    if target and re.match('hip/vendor_.*', target) and path != 'hip/vendor.h':
        return 'it is a part of hip/vendor.h: include that'
    if folder == 'include' and target is None and name not in ('stddef.h', 'stdint.h'):
        return 'a public header needs <stddef.h> and <stdint.h> only'
    if folder == 'src' and quoted and target is None:
        return 'no such header'
    if (path.startswith(('bench/llama/', 'bench/tests/test_llama')) and
            target == 'src/device/model.h'):
        return None
    if path.startswith('bench/exchange/') and target == 'src/device/ccl_own.h':
        return None
    if folder == 'bench' and target and not target.startswith(('include/', 'bench/')):
        return 'the bench uses the public headers only'
    if folder in ('src', 'hip') and target:
        return complaint_about_rooms(path, target, rooms)
    return None


def code_files():
    for top in ('include', 'src', 'hip', 'bench', 'tests'):
        for folder, _, names in sorted(os.walk(os.path.join(TREE, top))):
            for name in sorted(names):
                if name.endswith(CODE):
                    yield os.path.relpath(os.path.join(folder, name), TREE)


def main():
    rooms = read_rooms()
    wrong = 0
    for path in code_files():
        with open(os.path.join(TREE, path), encoding='utf-8') as file:
            text = file.read()
        if path.startswith('src/') and room_of(path, rooms) is None:
            print(f'{path}: its folder has no line in tests/style/layers.txt: give it one')
            wrong += 1
            continue
        for found in INCLUDE.finditer(text):
            problem = complaint(path, found[1] == '"', found[2], rooms)
            if problem:
                line = text.count('\n', 0, found.start(2)) + 1
                print(f'{path}:{line}: includes {found[2]}: {problem}')
                wrong += 1
    return wrong != 0


if __name__ == '__main__':
    sys.exit(main())
