"""The shared library: found, loaded, its functions declared. A wheel has it inside, in the folder
`lib` with its modules; TREEATTN_LIBRARY names another; otherwise the system's is taken.
"""
from __future__ import annotations

import ctypes as c
import glob
import itertools
import os
import sys
import threading
import weakref
from typing import Any

from . import _bindings as b
from .errors import error_of

SONAME = f'libtreeattn.so.{b.TA_VERSION_MAJOR}'


def find_library() -> str:
    """The path of the library, or its name where the system is to look for it."""
    asked = os.environ.get('TREEATTN_LIBRARY')
    if asked:
        return asked
    inside = os.path.join(os.path.dirname(os.path.realpath(__file__)), 'lib')
    found = sorted(glob.glob(os.path.join(inside, SONAME + '*')))
    return found[0] if found else SONAME


def load(path: str) -> c.CDLL:
    """Load the library and say what its functions take and return."""
    if sys.maxsize < 2**32:
        raise ImportError('treeattn needs a Python of 64 bits')
    try:
        library = c.CDLL(path)
    except OSError as error:
        raise ImportError(
            f'cannot load {path}: {error}. Install the package with its library (pip install .), '
            'or set TREEATTN_LIBRARY to the path of libtreeattn.so.') from error
    library.ta_version.restype = c.c_int
    wanted = 10000 * b.TA_VERSION_MAJOR + 100 * b.TA_VERSION_MINOR + b.TA_VERSION_PATCH
    if library.ta_version() < wanted:
        raise ImportError(f'{path} is version {library.ta_version()}, older than this package, '
                          f'which needs {wanted} (10000 * major + 100 * minor + patch)')
    for name, (result, arguments) in b.FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


path = find_library()
lib = load(path)
objects: 'weakref.WeakValueDictionary[int, Any]' = weakref.WeakValueDictionary()
last_number = itertools.count(1)
raised = threading.local()  # `error`: what Python code raised that the library called


def numbered(thing: Any) -> int:
    """A number of its own for an object, by which `objects` finds it while it lives."""
    number = next(last_number)
    objects[number] = thing
    return number


def check(status: int) -> None:
    """Raise what the library says of a status, unless it is 0."""
    if status:
        sentence = lib.ta_last_error().decode('utf-8', 'replace') or \
            lib.ta_status_message(status).decode()
        cause = getattr(raised, 'error', None)
        if cause is None:
            raise error_of(status, sentence)
        raised.error = None
        raise error_of(status, f'{sentence}: {type(cause).__name__}: {cause}') from cause


def text_of(function, *arguments) -> str:
    """A text from a function that writes into a buffer, as long as it is."""
    needed = c.c_size_t()
    check(function(*arguments, None, 0, c.byref(needed)))
    while True:
        buffer = c.create_string_buffer(needed.value)
        check(function(*arguments, buffer, needed.value, c.byref(needed)))
        if needed.value <= len(buffer):
            return buffer.value.decode('utf-8', 'replace')


def info() -> str:
    """The library, its devices and what they can do, as lines "key: value"."""
    return text_of(lib.ta_info)


class Handle:
    """An object of the library that is destroyed once: by close(), `with` or its end."""

    _handle: int | None = None

    def _destroy(self, handle: int) -> None:
        raise NotImplementedError

    @property
    def handle(self) -> int:
        """The C pointer, for programs that call the library themselves."""
        if self._handle is None:
            raise ValueError(f'this {type(self).__name__} is closed')
        return self._handle

    def close(self) -> None:
        """Destroy it. Doing so twice is harmless."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._destroy(handle)

    def __enter__(self):
        return self

    def __exit__(self, *unused) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # at the interpreter's end anything may be gone
            pass
