#!/usr/bin/env python3
"""Run one of the tests: run.py LIBRARY TEST [ARGUMENT...], TEST a file of this folder.

The interpreter is the first of these that has what the test imports: TREEATTN_PYTHON if it is set,
the one that runs this file, the system's. Status 77 where none has. What follows `--launch`, up to
`--`, starts it (mpirun and its flags).
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))


def has(python, modules):
    code = ''.join(f'import {module}\n' for module in modules)
    return subprocess.run([python, '-c', code], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


def main():
    arguments, launch = sys.argv[1:], []
    if arguments[0] == '--launch':
        end = arguments.index('--')
        launch, arguments = arguments[1:end], arguments[end + 1:]
    library, test, *rest = arguments
    path = os.path.join(HERE, test)
    with open(path, encoding='utf-8') as file:
        needs = re.search(r'^NEEDS = (.*)$', file.read(), re.M)
    modules = re.findall(r"'(\w+)'", needs.group(1)) if needs else []
    asked = os.environ.get('TREEATTN_PYTHON')
    pythons = [asked] if asked else [sys.executable, '/usr/bin/python3']
    python = next((python for python in pythons if has(python, modules)), None)
    if python is None:
        print(f'skipped: none of {", ".join(pythons)} has {" and ".join(modules)}')
        sys.exit(77)
    print(f'with {python}', flush=True)
    environment = dict(os.environ, TREEATTN_LIBRARY=os.path.realpath(library),
                       PYTHONPATH=os.path.dirname(HERE), PYTHONDONTWRITEBYTECODE='1')
    sys.exit(subprocess.run([*launch, python, path, *rest], env=environment,
                            check=False).returncode)


if __name__ == '__main__':
    main()
