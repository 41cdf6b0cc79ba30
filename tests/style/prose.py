#!/usr/bin/env python3
"""One line length for all pages: prose of Markdown has at most 120 columns, and no line ends inside
of code. Tables, code, headings and pictures are as long as they are.

    prose.py           say which lines are longer
    prose.py --fix     wrap all paragraphs and items of lists again; words stay as they are
"""
import os
import re
import sys

from text import TREE, tree_files

COLUMNS = 120
WRITTEN = ('docs/kernels.md', 'docs/emulated.md')  # by scripts, which wrap for themselves
ITEM = re.compile(r'( *)([-*] |\d+\. )')
ALONE = re.compile(r'\||#|!\[|<|={3,}|-{3,}|    ')  # a line of its own, whatever its length
# What would become a list, a heading or a table if it came to begin a line.
STARTS = re.compile(r'([-+*>|]|#+|\d+[.)])$')
CODE = re.compile(r'(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)', re.DOTALL)
GLUE = '\0'


def blocks(lines):
    """(first line, lines, prose or not): prose is a paragraph or one item of a list."""
    number, fenced = 0, False
    while number < len(lines):
        line = lines[number]
        if line.lstrip().startswith('```'):
            fenced = not fenced
        before = lines[number - 1] if number else ''
        if fenced or line.lstrip().startswith('```') or not line.strip() or (
                ALONE.match(line) and not ITEM.match(line)) or (
                line.startswith('    ') and not before.strip() and not ITEM.match(line)):
            yield number, [line], False
            number += 1
            continue
        end = number + 1
        while end < len(lines) and lines[end].strip() and not ITEM.match(lines[end]) and not (
                ALONE.match(lines[end].lstrip()) or lines[end].lstrip().startswith('```')):
            end += 1
        yield number, lines[number:end], True
        number = end


def words_of(text):
    """Words; code and what must not begin a line stay together with what is before it."""
    text = CODE.sub(lambda m: m.group().replace(' ', GLUE), text)
    words = []
    for word in text.split():
        if words and STARTS.match(word):
            words[-1] += GLUE + word
        else:
            words.append(word)
    return words


def wrap(lines):
    """The lines of a block of prose, wrapped again; an item keeps its indentation."""
    item = ITEM.match(lines[0])
    first = item.group() if item else re.match(' *', lines[0]).group()
    rest = ' ' * len(first)
    wrapped, line = [], first
    for word in words_of(' '.join([lines[0][len(first):]] + lines[1:])):
        if line.strip() and line != first and len(line) + 1 + len(word) > COLUMNS:
            wrapped.append(line)
            line = rest
        line += word if line in (first, rest) else ' ' + word
    return [done.replace(GLUE, ' ') for done in wrapped + [line]]


def too_long(lines):
    """Numbers of lines that could have been wrapped and were not."""
    for number, block, prose in blocks(lines):
        if prose and any(len(line) > COLUMNS for line in block) and block != wrap(block):
            yield from (number + i + 1 for i, line in enumerate(block) if len(line) > COLUMNS)


def broken_code(lines):
    """Numbers of lines that end inside of code: nobody can copy a command that is in two lines."""
    for number, block, prose in blocks(lines):
        text = '\n'.join(block)
        for code in CODE.finditer(text) if prose else ():
            yield from (number + text.count('\n', 0, at) + 1
                        for at in range(code.start(), code.end()) if text[at] == '\n')


def main():
    fix, wrong = sys.argv[1:] == ['--fix'], 0
    for name in tree_files():
        if not name.endswith('.md') or name in WRITTEN:
            continue
        path = os.path.join(TREE, name)
        with open(path, encoding='utf-8') as file:
            lines = file.read().split('\n')
        if fix:
            lines = [line for _, block, prose in blocks(lines)
                     for line in (wrap(block) if prose else block)]
            with open(path, 'w', encoding='utf-8') as file:
                file.write('\n'.join(lines))
        for number in too_long(lines):
            print(f'{name}:{number}: has more than {COLUMNS} columns: prose.py --fix wraps it')
            wrong += 1
        for number in broken_code(lines):
            print(f'{name}:{number}: ends inside of code: prose.py --fix wraps it')
            wrong += 1
    return wrong != 0


if __name__ == '__main__':
    sys.exit(main())
