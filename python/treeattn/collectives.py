"""Sums and copies over the ranks of a group."""
from __future__ import annotations

import ctypes as c
from typing import Any

from ._bindings import ElementKind, Reduction
from ._library import check, lib
from .arrays import View, check_dense, check_writable, view
from .device import Device, stream_of
from .errors import InvalidError
from .options import enum_of, whole

ELEMENTS = {'f32': ElementKind.F32, 'f16': ElementKind.F16, 'bf16': ElementKind.BF16,
            'i32': ElementKind.I32, 'i64': ElementKind.I64}
MOVED = {'f64': 8, 'u16': 2, 'i16': 2, 'u8': 1, 'i8': 1}  # as bytes: moved, never added up


def count_of(found: View) -> int:
    count = 1
    for extent in found.shape:
        count *= extent
    return count


def dense(array: Any, name: str, written: bool) -> View:
    found = view(array, name)
    check_dense(found, name)
    if written:
        check_writable(found, name)
    return found


def element_of(found: View, name: str, adds: bool) -> tuple[int, int]:
    """(element, count) of an array."""
    count = count_of(found)
    if found.dtype in ELEMENTS:
        return int(ELEMENTS[found.dtype]), count
    if adds or found.dtype not in MOVED:
        raise InvalidError(f'{name} has elements of {found.dtype}: must be one of '
                           f'{", ".join(ELEMENTS if adds else [*ELEMENTS, *MOVED])}')
    return int(ElementKind.BYTE), count * MOVED[found.dtype]


class Collectives:
    """The calls of a Group that every rank makes in the same order. Arrays are contiguous."""

    handle: int
    size: int

    def all_reduce(self, array: Any, reduction: Any = 'sum', *, device: Device | None = None,
                   stream: int | None = None) -> Any:
        """In place: the sum, or the largest ("max"), of all ranks' arrays."""
        found = dense(array, 'array', True)
        element, count = element_of(found, 'array', True)
        check(lib.ta_all_reduce(self.handle, device and device.handle, found.address,
                                found.address, count, element,
                                enum_of(Reduction, reduction, 'reduction'),
                                stream_of(array, stream)))
        return array

    def all_gather(self, array: Any, out: Any, *, device: Device | None = None,
                   stream: int | None = None) -> Any:
        """out[r] = the array of rank r."""
        found, target = dense(array, 'array', False), dense(out, 'out', True)
        element, count = element_of(found, 'array', False)
        if target.dtype != found.dtype or count_of(target) != self.size * count_of(found):
            raise InvalidError(f'out is {target.dtype} {list(target.shape)}: must have the '
                               f'elements of {self.size} arrays of {found.dtype} '
                               f'{list(found.shape)}')
        check(lib.ta_all_gather(self.handle, device and device.handle, found.address,
                                target.address, count, element, stream_of(array, stream)))
        return out

    def reduce_scatter(self, array: Any, out: Any, reduction: Any = 'sum', *,
                       device: Device | None = None, stream: int | None = None) -> Any:
        """out = the sum, or the largest, of all ranks' array[rank]."""
        found, target = dense(array, 'array', False), dense(out, 'out', True)
        element, count = element_of(target, 'out', True)
        if target.dtype != found.dtype or count_of(found) != self.size * count:
            raise InvalidError(f'array is {found.dtype} {list(found.shape)}: must have '
                               f'the elements of {self.size} of out, {target.dtype} '
                               f'{list(target.shape)}')
        check(lib.ta_reduce_scatter(self.handle, device and device.handle, found.address,
                                    target.address, count, element,
                                    enum_of(Reduction, reduction, 'reduction'),
                                    stream_of(array, stream)))
        return out

    def broadcast(self, array: Any, root: int = 0, *, device: Device | None = None,
                  stream: int | None = None) -> Any:
        """In place: the array of rank `root`, on all ranks."""
        found = dense(array, 'array', True)
        element, count = element_of(found, 'array', False)
        check(lib.ta_broadcast(self.handle, device and device.handle, found.address, count,
                               element, whole(root, c.c_int, 'root'),
                               stream_of(array, stream)))
        return array

    def barrier(self, *, device: Device | None = None, stream: int | None = None) -> None:
        """No rank returns before all have come."""
        check(lib.ta_barrier(self.handle, device and device.handle, stream))
