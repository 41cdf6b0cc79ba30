"""The package as users get it: a source distribution, a wheel made from that one, installed with
pip in a fresh environment outside the tree, and used there: `python -m treeattn info`, and the
Python of README.md. The library is that of a build that is here: test_wheel.py BUILD_DIR; without
one it is built from the source distribution.
"""
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

from launch import main

HERE = os.path.dirname(os.path.realpath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
NEEDS = ['ensurepip', 'numpy', 'venv']
SETTINGS = {'build-dir': os.path.realpath(sys.argv[1])} if sys.argv[1:] else \
    {'setup-args': '-Dcuda=disabled -Drocm=disabled'}


def output(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, **options).stdout.decode()


def python_of_readme():
    """(the program, what it prints)."""
    with open(os.path.join(TREE, 'README.md'), encoding='utf-8') as file:
        text = file.read()
    found = re.search(r'^```python\n(.*?)^```\n.*?^prints `([^`]*)`', text, re.M | re.S)
    return found.group(1), found.group(2)


class Wheel(unittest.TestCase):
    def test_a_wheel_in_a_fresh_environment(self):
        environment = {name: value for name, value in os.environ.items()
                       if name not in ('TREEATTN_LIBRARY', 'PYTHONPATH', 'TREEATTN_MODULE_PATH')}
        with tempfile.TemporaryDirectory() as scratch:
            build = ('import sys; sys.path.insert(0, "python"); import backend; '
                     f'print(backend.build_sdist({scratch!r}))')
            sdist = output(sys.executable, '-c', build, cwd=TREE, env=environment).split()[-1]
            with tarfile.open(os.path.join(scratch, sdist)) as archive:
                archive.extractall(scratch)
            source = os.path.join(scratch, sdist[:-len('.tar.gz')])
            self.assertTrue(os.path.exists(os.path.join(source, 'PKG-INFO')))
            build = ('import sys; sys.path.insert(0, "python"); import backend; '
                     f'print(backend.build_wheel({scratch!r}, {SETTINGS!r}))')
            wheel = output(sys.executable, '-c', build, cwd=source, env=environment).split()[-1]
            self.assertRegex(wheel, r'^treeattn-[\d.]+-py3-none-linux_\w+\.whl$')
            with zipfile.ZipFile(os.path.join(scratch, wheel)) as archive:
                names = archive.namelist()
            for name in ('py.typed', '_bindings.py', 'lib/libtreeattn.so.0'):
                self.assertIn('treeattn/' + name, names)
            self.check_installed(os.path.join(scratch, wheel), scratch, environment)

    def check_installed(self, wheel, scratch, environment):
        venv = os.path.join(scratch, 'venv')
        subprocess.run([sys.executable, '-m', 'venv', '--system-site-packages', venv], check=True)
        python = os.path.join(venv, 'bin', 'python')
        subprocess.run([python, '-m', 'pip', 'install', '-q', '--no-index', '--no-deps', wheel],
                       check=True, env=environment)
        said = output(python, '-m', 'treeattn', 'info', cwd=scratch, env=environment)
        self.assertIn(os.path.join('site-packages', 'treeattn', 'lib', 'libtreeattn.so.0'), said)
        self.assertIn('host simd', said)
        # Help needs nothing else; neither do the words for what is mistyped or missing.
        for module in ('treeattn', 'treeattn.generate'):
            said = output(python, '-m', module, '--help', cwd=scratch, env=environment)
            self.assertTrue(said.startswith(f'usage: python -m {module}'), said)
        said = subprocess.run([python, '-m', 'treeattn', 'inof'], cwd=scratch, env=environment,
                              stderr=subprocess.PIPE, check=False)
        self.assertEqual(said.returncode, 2)
        self.assertIn(b"no command 'inof'", said.stderr)
        program, wanted = python_of_readme()
        self.assertEqual(output(python, '-c', program, cwd=scratch, env=environment).strip(),
                         wanted)


if __name__ == '__main__':
    main(sys.argv[:1])
