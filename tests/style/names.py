#!/usr/bin/env python3
"""Files and folders that comments and pages name are in the tree, and it is clear which is meant: a
path such as src/base/shard.c, base/shard.c or shard.c is seen from the folder of the file that
names it, or from one above, or is the end of one path alone. In code, comments and docstrings are
read; of pages everything but addresses. A name with capitals in it, kernels_NAME.c, stands for
many.
"""
import fnmatch
import os
import re
import sys

from text import TREE, tree_files

# Files of other projects and of the system, what a build makes, and what a reader writes.
OUTSIDE = re.compile(r'(std\w+|math|string|mpi|nccl)\.h|(rccl/)?rccl\.h|build(-\w+)?(/.*)?'
                     r'|example\.py')
MANY = re.compile(r'[A-Z]{2,}')

NAME = re.compile(r'(?<![\w./*$}>-])((?:[\w.-]+/)*\w[\w-]*(?:\.\w+)*'
                  r'\.(?:c|h|hip|cpp|py|sh|md|txt|build|svg|wrap|in))(?![\w/])')
FOLDER = re.compile(r'(?<![\w./*$}>-])((?:[a-z][a-z_-]+/)+)(?![\w.$<{(…-])')
GLOB = re.compile(r'(?<![\w./*$}>-])((?:[\w.-]+/)+[\w.-]*\*[\w.*-]*)')
ADDRESS = re.compile(r'\w+://\S+')
C_COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*', re.S)
HASH_COMMENT = re.compile(r'(?:^|(?<=\s))#(?!include|define|if|endif)[^\n]*|"""(?s:.*?)"""'
                          r"|'''(?s:.*?)'''", re.M)


def comments(name, text):
    """The text with all else blanked out, so that line numbers stay."""
    if name.endswith('.md'):
        return ADDRESS.sub('', text)
    if re.search(r'\.(c|h|hip|cpp|map|in)$', name):
        pattern = C_COMMENT
    elif re.search(r'\.(py|sh|txt)$|(^|/)(quickstart|run|full|meson\.build)$', name):
        pattern = HASH_COMMENT
    else:
        return ''
    kept, end = [], 0
    for match in pattern.finditer(text):
        kept.append(re.sub(r'[^\n]', ' ', text[end:match.start()]))
        kept.append(match.group())
        end = match.end()
    return ADDRESS.sub('', ''.join(kept))


def ends_of(paths):
    """Which paths of the tree end so: {end: [path]}."""
    found = {}
    for path in paths:
        parts = path.split('/')
        for i in range(len(parts)):
            found.setdefault('/'.join(parts[i:]), []).append(path)
    return found


def is_near(name, found, candidates):
    """Is it one of the candidates as seen from the folder of `name`, or from one above it?"""
    while name:
        name = os.path.dirname(name)
        if os.path.join(name, found) in candidates:
            return True
    return False


def unmatched(text, paths):
    """(line, what is wrong) for patterns such as hip/ccl/*.c that no file matches."""
    for match in GLOB.finditer(text):
        glob = match.group(1)
        if not OUTSIDE.fullmatch(glob) and not fnmatch.filter(paths, '*/' + glob):
            yield text.count('\n', 0, match.start()) + 1, f'names {glob}: no file is so called'


def complaints(name, text, files, folders):
    """(line, what is wrong) for the comments of one file."""
    for pattern, known in ((NAME, files), (FOLDER, folders)):
        for match in pattern.finditer(text):
            said = match.group(1)
            found = said.rstrip('/')
            if found.startswith('.'):
                found = os.path.normpath(os.path.join(os.path.dirname(name), found))
            if OUTSIDE.fullmatch(found) or MANY.search(found):
                continue
            line = text.count('\n', 0, match.start()) + 1
            candidates = known.get(found, [])
            if not candidates:
                yield line, f'names {said}, which is not in the tree'
            elif len(candidates) > 1 and not is_near(name, found, candidates) and known is files:
                yield line, f'names {said}: which of ' + ', '.join(sorted(candidates)) + '?'


def main():
    names = tree_files()
    folders = {name[:i] for name in names for i, letter in enumerate(name) if letter == '/'}
    files, folders = ends_of(names), ends_of(folders)
    rooted = ['/' + name for name in names]
    wrong = 0
    for name in names:
        with open(os.path.join(TREE, name), encoding='utf-8') as file:
            text = comments(name, file.read())
        for line, problem in [*complaints(name, text, files, folders), *unmatched(text, rooted)]:
            print(f'{name}:{line}: {problem}')
            wrong += 1
    return wrong != 0


if __name__ == '__main__':
    sys.exit(main())
