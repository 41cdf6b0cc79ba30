#!/usr/bin/env python3
"""What every text file of the tree keeps to: UTF-8, LF, no tabs, no space at the end of a line, a
newline at the end of the file, code of at most 100 columns and 800 lines, and no note that
something is still to be done.
"""
import os
import re
import subprocess
import sys

TREE = os.path.realpath(os.path.join(os.path.dirname(__file__), '..', '..'))
COLUMNS, LINES = 100, 800
CODE = re.compile(r'\.(c|h|hip|cpp|hpp|sh|py)$|(^|/)(quickstart|run|meson\.build)$')
UNFINISHED = re.compile(r'\b(TO' r'DO|FIX' r'ME|XX' r'X|HA' r'CK)\b')


def tree_files():
    """Files that are in the repository, or would be."""
    listed = subprocess.run(
        ['git', '-c', 'safe.directory=*', 'ls-files', '-z', '--cached', '--others',
         '--exclude-standard'],
        cwd=TREE, check=True, stdout=subprocess.PIPE).stdout.decode()
    return [name for name in listed.split('\0') if os.path.isfile(os.path.join(TREE, name))]


def complaints(name, data):
    """(line, what is wrong) for one file."""
    try:
        text = data.decode('utf-8')
    except UnicodeDecodeError as error:
        yield data.count(b'\n', 0, error.start) + 1, 'is not UTF-8'
        return
    if text and not text.endswith('\n'):
        yield text.count('\n') + 1, 'the last line has no newline'
    code = CODE.search(name)
    lines = text.split('\n')
    for number, line in enumerate(lines, 1):
        if '\r' in line:
            yield number, 'ends with CR: use LF alone'
        if '\t' in line:
            yield number, 'has a tab: indent with four spaces'
        if line.rstrip(' \r') != line.rstrip('\r'):
            yield number, 'has space at its end'
        if code and len(line) > COLUMNS:
            yield number, f'has {len(line)} columns: at most {COLUMNS}'
        if UNFINISHED.search(line):
            yield number, 'is a note to do something: do it, or leave it out'
    if code and len(lines) - 1 > LINES:
        yield LINES + 1, f'has {len(lines) - 1} lines, at most {LINES}: split the file'


def main():
    wrong = 0
    for name in tree_files():
        with open(os.path.join(TREE, name), 'rb') as file:
            data = file.read()
        if b'\0' in data:
            print(f'{name}: is binary; the tree holds text only')
            wrong += 1
            continue
        for line, problem in complaints(name, data):
            print(f'{name}:{line}: {problem}')
            wrong += 1
    return wrong != 0


if __name__ == '__main__':
    sys.exit(main())
