"""Builds the Python package (PEP 517): a wheel for every Python, with the library and the modules
that this machine can build inside, and a source distribution. pip calls it; it needs a C compiler,
Meson and ninja, which pip gets from PyPI if they are not here, and nothing else.

    pip install . --config-settings setup-args=-Dcuda=disabled   flags for `meson setup`
    pip install . --config-settings build-dir=build              take what is built there
"""
import base64
import csv
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile

TREE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
MOMENT = (2026, 1, 1, 0, 0, 0)  # the same files give the same wheel


def version():
    with open(os.path.join(TREE, 'include', 'treeattn', 'version.h'), encoding='utf-8') as file:
        return '.'.join(re.findall(r'^#define TA_VERSION_[MP]\w+ (\d+)$', file.read(), re.M))


def metadata():
    """What pyproject.toml says, as a wheel has it; Python 3.9 cannot read that file."""
    with open(os.path.join(TREE, 'README.md'), encoding='utf-8') as file:
        readme = file.read()
    extras = {'numpy': ['numpy'], 'torch': ['torch'], 'transformers': ['torch', 'transformers']}
    lines = ['Metadata-Version: 2.1', 'Name: treeattn', f'Version: {version()}',
             'Summary: Exact attention over KV caches too long for one device', 'License: MIT',
             'Requires-Python: >=3.9']
    for extra, names in extras.items():
        lines.append(f'Provides-Extra: {extra}')
        lines += [f'Requires-Dist: {name}; extra == "{extra}"' for name in names]
    return '\n'.join([*lines, 'Description-Content-Type: text/markdown', '', readme])


def platform():
    return re.sub(r'[^\w]', '_', sysconfig.get_platform())


# ---- What pip asks for -------------------------------------------------------------------------

def meson_is_new():
    try:
        said = subprocess.run(['meson', '--version'], check=True, stdout=subprocess.PIPE).stdout
        return int(said.split(b'.')[0]) >= 1
    except (OSError, ValueError, subprocess.CalledProcessError):
        return False


def get_requires_for_build_wheel(config_settings=None):
    return ([] if meson_is_new() else ['meson>=1']) + ([] if shutil.which('ninja') else ['ninja'])


def get_requires_for_build_sdist(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = f'treeattn-{version()}-py3-none-{platform()}.whl'
    with tempfile.TemporaryDirectory() as scratch:
        files = dict(package_files())
        files.update(library_files(scratch, config_settings or {}))
        write_wheel(os.path.join(wheel_directory, name), files)
    return name


def build_sdist(sdist_directory, config_settings=None):
    top = f'treeattn-{version()}'
    target = os.path.join(sdist_directory, top + '.tar.gz')
    with open(target, 'wb') as raw, gzip.GzipFile(fileobj=raw, mode='wb', mtime=0) as zipped, \
            tarfile.open(fileobj=zipped, mode='w', format=tarfile.PAX_FORMAT) as archive:
        for name in tree_files():
            archive.add(os.path.join(TREE, name), f'{top}/{name}', recursive=False)
        data = metadata().encode()
        entry = tarfile.TarInfo(f'{top}/PKG-INFO')
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return os.path.basename(target)


# ---- The files of a wheel ----------------------------------------------------------------------

def package_files():
    """(name in the wheel, contents) of the Python side."""
    top = os.path.join(TREE, 'python', 'treeattn')
    for folder, _, names in os.walk(top):
        for name in names:
            if name.endswith('.py') or name == 'py.typed':
                path = os.path.join(folder, name)
                with open(path, 'rb') as file:
                    yield 'treeattn/' + os.path.relpath(path, top), file.read()


def library_files(scratch, settings):
    """(name in the wheel, contents) of the library and its modules, built for this machine."""
    asked = settings.get('setup-args', [])
    flags = asked if isinstance(asked, list) else asked.split()
    build, root = settings.get('build-dir'), os.path.join(scratch, 'root')
    commands = []
    if build is None:
        build = os.path.join(scratch, 'build')
        commands = [['setup', '-Dtests=false', '-Dbench=false', '-Ddefault_library=shared', *flags,
                     TREE, build], ['compile', '-C', build]]
    for command in [*commands, ['install', '-C', build, '--no-rebuild']]:
        subprocess.run(['meson', *command], check=True, stdout=sys.stderr,
                       env=dict(os.environ, DESTDIR=root))
    for folder, _, names in os.walk(root):
        for name in names:
            soname = re.fullmatch(r'(libtreeattn\.so\.\d+)\.\d+\.\d+', name)
            if soname or re.fullmatch(r'treeattn-(?!simt)\w+\.so', name):
                with open(os.path.join(folder, name), 'rb') as file:
                    yield 'treeattn/lib/' + (soname.group(1) if soname else name), file.read()


def write_wheel(path, files):
    info = f'treeattn-{version()}.dist-info'
    with open(os.path.join(TREE, 'LICENSE'), 'rb') as file:
        files[f'{info}/LICENSE'] = file.read()
    files[f'{info}/METADATA'] = metadata().encode()
    files[f'{info}/WHEEL'] = ('Wheel-Version: 1.0\nGenerator: treeattn\nRoot-Is-Purelib: false\n'
                              f'Tag: py3-none-{platform()}\n').encode()
    record = io.StringIO()
    rows = csv.writer(record, lineterminator='\n')
    for name, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()
        rows.writerow([name, f'sha256={digest}', len(data)])
    rows.writerow([f'{info}/RECORD', '', ''])
    files[f'{info}/RECORD'] = record.getvalue().encode()
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as wheel:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, MOMENT)
            entry.external_attr = (0o755 if name.endswith('.so') or '.so.' in name else
                                   0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)


def tree_files():
    """Files of the repository; of a source distribution, all but what builds leave."""
    try:
        listed = subprocess.run(['git', '-c', 'safe.directory=*', 'ls-files', '-z',
                                 '--cached', '--others', '--exclude-standard'], cwd=TREE,
                                check=True, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL).stdout.decode()
        names = [name for name in listed.split('\0') if name]
    except (OSError, subprocess.CalledProcessError):
        names = []
    if not names:
        for folder, folders, files in os.walk(TREE):
            folders[:] = [name for name in folders if name not in ('.git', '__pycache__') and
                          not (folder == TREE and name.startswith('build'))]
            names += [os.path.relpath(os.path.join(folder, name), TREE) for name in files
                      if name != 'PKG-INFO']
    return sorted(name for name in names if os.path.isfile(os.path.join(TREE, name)))
