"""The structs, enums and initializers of treeattn/_bindings.py are those of the C headers, as the C
compiler has them: test_layout.py INCLUDE_DIR CC [FLAG...]. A field that C has and Python lacks is
seen by the size and by the text of the file, which is written again from the headers and compared.
"""
import ctypes
import enum
import os
import re
import subprocess
import sys
import tempfile
import unittest

import treeattn
import treeattn._bindings as b
from treeattn.options import option_names

NEEDS = []
INCLUDE, COMPILER = sys.argv[1], sys.argv[2:]
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), '..'))
import generate  # noqa: E402
from launch import main

STRUCTS = {name: kind for name, kind in vars(b).items()
           if name.startswith('ta_') and isinstance(kind, type) and
           issubclass(kind, ctypes.Structure)}
ENUMS = {kind.__doc__: kind for kind in vars(b).values()
         if isinstance(kind, type) and issubclass(kind, enum.IntEnum) and
         kind is not enum.IntEnum}


def c_program():
    """Prints what C says of every struct, field and initializer that Python has."""
    lines = ['#include <stdio.h>', '#include <stddef.h>', '#include <treeattn/cluster.h>',
             '#include <treeattn/collectives.h>', 'int main(void)', '{']
    for name, kind in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, _ in kind._fields_:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                         f'sizeof((({name} *)0)->{field}));')
        if issubclass(kind, b.Sized):
            lines.append(f'{{ {name} x = {name.upper()}_INIT; printf("{name}= "); '
                         f'for (size_t i = 0; i < sizeof x; ++i) '
                         f'printf("%02x", ((unsigned char *)&x)[i]); puts(""); }}')
    return '\n'.join([*lines, 'return 0;', '}', ''])


def python_lines():
    """The same from ctypes."""
    for name, kind in STRUCTS.items():
        yield f'{name} {ctypes.sizeof(kind)}'
        for field, _ in kind._fields_:
            place = getattr(kind, field)
            yield f'{name}.{field} {place.offset} {place.size}'
        if issubclass(kind, b.Sized):
            yield f'{name}= {bytes(kind()).hex()}'


class Layout(unittest.TestCase):
    def test_the_file_is_what_the_headers_say(self):
        with open(generate.TARGET, encoding='utf-8') as file:
            self.assertEqual(file.read(), generate.generated(),
                             'run python/generate.py --write')

    def test_the_compiler_says_the_same(self):
        with tempfile.TemporaryDirectory() as scratch:
            source, program = os.path.join(scratch, 'a.c'), os.path.join(scratch, 'a')
            with open(source, 'w', encoding='utf-8') as file:
                file.write(c_program())
            subprocess.run([*COMPILER, '-std=c11', '-I', INCLUDE, '-o', program, source],
                           check=True)
            said = subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout.decode()
        self.assertEqual(said.splitlines(), list(python_lines()))
        self.assertGreater(len(STRUCTS), 20)

    def test_enums(self):
        """Each member by its C name, with all that C calls by the enum's name."""
        checks = []
        for name, kind in ENUMS.items():
            values = generate.Headers(self.headers()).enums[name]
            self.assertEqual([int(member) for member in kind], [int(v) for _, v in values], name)
            checks += [f'_Static_assert({member} == {value}, "{name}");'
                       for member, value in values]
        self.assertGreater(len(checks), 40)
        source = ('#include <treeattn/cluster.h>\n#include <treeattn/collectives.h>\n' +
                  '\n'.join(checks) + '\n')
        subprocess.run([*COMPILER, '-std=c11', '-I', INCLUDE, '-fsyntax-only', '-x', 'c', '-'],
                       input=source.encode(), check=True)

    def test_what_is_public(self):
        """Enums that arguments may have are names of the package, which docs/python.md has; every
        field of a config is in the sentence on options."""
        with open(os.path.join(INCLUDE, '..', 'docs', 'python.md'), encoding='utf-8') as file:
            page = file.read()
        names = {kind.__name__ for kind in ENUMS.values()} - {'LogLevel', 'ElementKind'}
        self.assertLessEqual(names, set(treeattn.__all__))
        self.assertLessEqual(names, set(re.findall(r'`(\w+)`', page)))
        for name in names:
            self.assertIs(getattr(treeattn, name), getattr(b, name))
        for user in (treeattn.Plan, treeattn.Attention, treeattn.Device):
            struct = getattr(b, f'ta_{user.__name__.lower()}_config')
            self.assertLessEqual(set(option_names(struct)), set(re.findall(r'\w+', user.__doc__)))

    def headers(self):
        text = ''
        for name in generate.FILES:
            with open(os.path.join(INCLUDE, 'treeattn', name), encoding='utf-8') as file:
                text += file.read()
        return text

    def test_a_new_field_is_noticed(self):
        """The check above can fail: a header with one more field gives another text."""
        text = self.headers().replace('int64_t head_stride;', 'int64_t head_stride, new_one;')
        fields = generate.Headers(text).structs['ta_tensor']
        self.assertIn(('new_one', 'int64_t'), fields)


if __name__ == '__main__':
    main(sys.argv[:1])
