#!/usr/bin/env python3
"""Write treeattn/_bindings.py from the public C headers: structs, enums and functions for ctypes.

    generate.py           print it
    generate.py --write   write the file
    generate.py --check   does the file say what the headers say? (a test runs this)

The headers are plain C11 of one style, so a few patterns read all of it; what they do not
understand is an error. test_layout.py compares the result with what a C compiler says.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
HEADERS = os.path.join(HERE, '..', 'include', 'treeattn')
TARGET = os.path.join(HERE, 'treeattn', '_bindings.py')
FILES = ['version.h', 'treeattn.h', 'collectives.h', 'attention.h', 'cluster.h', 'extension.h']
HEAD = '''"""The C interface for ctypes, written by python/generate.py from the headers."""
import ctypes as c
import enum

from ._sized import Sized

'''
SCALARS = {'size_t': 'c.c_size_t', 'int': 'c.c_int', 'int32_t': 'c.c_int32',
           'int64_t': 'c.c_int64', 'uint64_t': 'c.c_uint64', 'float': 'c.c_float',
           'double': 'c.c_double', 'void': 'None', 'char': 'c.c_char'}


class Headers:
    """What the headers declare, in their order."""

    def __init__(self, text):
        text = re.sub(r'/\*.*?\*/', ' ', text, flags=re.S).replace('\\\n', ' ')
        self.constants = re.findall(r'^#define (TA_[A-Z_]+) +(\d+)$', text, re.M)
        self.statuses = re.findall(r'X\((TA_\w+), *(-?\d+), *"([^"]*)"\)', text)
        text = re.sub(r'^#.*$', '', text, flags=re.M)
        self.enums, self.structs, self.callbacks = {}, {}, {}
        for name, body in re.findall(r'typedef enum (\w+) \{(.*?)\} \1;', text, re.S):
            self.enums[name] = re.findall(r'(TA_\w+) *= *(-?\d+)', body)
        self.enums['ta_status'] = [status[:2] for status in self.statuses]
        for result, name, arguments in re.findall(
                r'typedef (\w+) \(\*(\w+)\)\(([^;]*)\);', text):
            self.callbacks[name] = (result, arguments)
        for name, body in re.findall(r'typedef struct (\w+) \{(.*?)\} \1;', text, re.S):
            self.structs[name] = self.fields(name, body)
        self.functions = [(name, result.strip(), ' '.join(arguments.split()))
                          for result, name, arguments in
                          re.findall(r'TA_API ([\w ]+?[ *]+)(\w+)\(([^;]*)\);', text)]

    def fields(self, struct, body):
        """[(name, C type)] of a struct; a pointer to a function becomes a callback."""
        found = []
        for declaration in (' '.join(part.split()) for part in body.split(';')):
            function = re.fullmatch(r'(\w+) \(\*(\w+)\)\((.*)\)', declaration)
            if function:
                callback = f'{struct}_{function.group(2)}'
                self.callbacks[callback] = (function.group(1), function.group(3))
                found.append((function.group(2), callback))
                continue
            match = re.fullmatch(r'((?:const )?\w+) ([\w *,]+)', declaration)
            if not match:
                if declaration:
                    raise SystemExit(f'{struct}: cannot read "{declaration}"')
                continue
            for name in match.group(2).split(','):
                stars = name.count('*')
                found.append((name.replace('*', '').strip(),
                              match.group(1).replace('const ', '') + '*' * stars))
        return found

    def ctype(self, kind):
        """The ctypes expression for a C type such as "int32_t" or "ta_kv*"."""
        kind = kind.replace('const', '').replace(' ', '')
        base, stars = kind.rstrip('*'), kind.count('*')
        if base in self.callbacks:
            return base
        if base in self.enums and not stars:
            return 'c.c_int'
        if base == 'char' and stars == 1:
            return 'c.c_char_p'
        known = SCALARS.get(base) or (base if base in self.structs else None)
        if stars and base not in self.structs:  # handles and arrays: an address
            known, stars = 'c.c_void_p', stars - 1
        if known is None:
            raise SystemExit(f'no such type: {kind}')
        for _ in range(stars):
            known = f'c.POINTER({known})'
        return known

    def arguments(self, text):
        """The ctypes of "const ta_kv *kv, void *stream"."""
        if text.strip() == 'void':
            return []
        return [self.ctype(re.sub(r'\w+$', '', part.strip())) for part in text.split(',')]


def class_name(name):
    """ta_shard_kind: ShardKind."""
    return ''.join(part.capitalize() for part in name[3:].split('_'))


def member_prefix(names):
    """What the names of an enum begin with: TA_SHARD_, say."""
    if len(names) < 2:
        return 'TA_'
    return os.path.commonprefix(names).rpartition('_')[0] + '_'


def enum_lines(name, values):
    """A class for the enum, its members without what all their names begin with."""
    prefix = 'TA_' if name == 'ta_status' else member_prefix([value for value, _ in values])
    yield f'class {class_name(name)}(enum.IntEnum):\n    """{name}"""\n'
    for value, number in values:
        short = value[len(prefix):]
        yield f'    {"BASE_2" if short == "2" else short} = {number}'
    yield '\n'


def wrapped(first, items, last):
    """`first`, the items, `last`, in lines of at most 100 columns."""
    line = first
    for item in items:
        if len(line) + len(item) + 2 > 99:
            yield line.rstrip()
            line = '        '
        line += item + ', '
    yield (line.rstrip().rstrip(',') if items else line) + last


def generated():
    """The text of the file."""
    text = ''
    for name in FILES:
        with open(os.path.join(HEADERS, name), encoding='utf-8') as file:
            text += file.read()
    headers = Headers(text)
    lines = [HEAD.rstrip('\n'), '']
    lines += [f'{name} = {value}' for name, value in headers.constants]
    lines += ['', '']
    for name, values in headers.enums.items():
        lines += enum_lines(name, values)
    callbacks = dict(headers.callbacks)
    for name, fields in headers.structs.items():
        for kind in [kind for _, kind in fields if kind in callbacks]:
            lines += callback_lines(headers, kind, callbacks.pop(kind))
        base = 'Sized' if fields[0] == ('size', 'size_t') else 'c.Structure'
        lines += [f'class {name}({base}):', f'    """{name}"""', '']
        lines += wrapped('    _fields_ = [',
                         [f"('{field}', {headers.ctype(kind)})" for field, kind in fields], ']')
        enums = [f"'{field}': {class_name(kind)}" for field, kind in fields
                 if kind in headers.enums]
        lines += wrapped('    enums = {', enums, '}')
        lines += ['', '']
    for name, callback in callbacks.items():
        lines += callback_lines(headers, name, callback)
    lines += ['# What functions return and take.', 'FUNCTIONS = {']
    for name, result, arguments in headers.functions:
        lines += wrapped(f"    '{name}': ({headers.ctype(result)}, [",
                         headers.arguments(arguments), ']),')
    lines += ['}']
    return '\n'.join(lines) + '\n'


def callback_lines(headers, name, callback):
    """The type of a pointer to a function."""
    result, arguments = callback
    yield from wrapped(f'{name} = c.CFUNCTYPE(', [headers.ctype(result)] +
                       headers.arguments(arguments), ')')
    yield from ('', '')


def main():
    if sys.argv[1:] == ['--write']:
        with open(TARGET, 'w', encoding='utf-8') as file:
            file.write(generated())
    elif sys.argv[1:] == ['--check']:
        with open(TARGET, encoding='utf-8') as file:
            if file.read() != generated():
                sys.exit('treeattn/_bindings.py is not what the headers say: '
                         'run python/generate.py --write')
    else:
        sys.stdout.write(generated())


if __name__ == '__main__':
    main()
