"""Arrays of any library, without copies: where their memory is, and its shape, strides and dtype.

torch tensors are asked directly, numpy's arrays (and what is like them) by __array_interface__,
all others (jax, cupy) by DLPack. What the library could not use is an error that names the
argument: another dtype, shape or device, a last axis with gaps, an axis of stride 0.
"""
from __future__ import annotations

import ctypes as c
import sys
from typing import Any, NamedTuple

from .errors import InvalidError

DLPACK_CPU = (1, 3, 11)  # host memory, and that which is pinned for CUDA or ROCm
DLPACK_GPU = {2: 'cuda', 10: 'rocm'}
DLPACK_CODES = {0: 'i', 1: 'u', 2: 'f', 4: 'bf'}
DLPACK_NARROW = {10: 'e4m3', 11: 'e4m3_fnuz', 12: 'e5m2', 13: 'e5m2_fnuz'}
NAMES = {'float32': 'f32', 'float16': 'f16', 'bfloat16': 'bf16', 'int32': 'i32', 'int64': 'i64',
         'uint16': 'u16', 'int16': 'i16', 'uint8': 'u8', 'int8': 'i8', 'float64': 'f64',
         'half': 'f16', 'float': 'f32', 'float8_e4m3fn': 'e4m3', 'float8_e5m2': 'e5m2',
         'float8_e4m3fnuz': 'e4m3_fnuz', 'float8_e5m2fnuz': 'e5m2_fnuz'}
NARROW = ('e4m3', 'e5m2', 'e4m3_fnuz', 'e5m2_fnuz')  # of 8 bits
TYPESTR = {'f4': 'f32', 'f2': 'f16', 'f8': 'f64', 'i4': 'i32', 'i8': 'i64', 'u2': 'u16',
           'i2': 'i16', 'u1': 'u8', 'i1': 'i8'}
BYTES = {'f32': 4, 'f16': 2, 'bf16': 2, 'i32': 4, 'i64': 8, 'u16': 2, 'i16': 2, 'u8': 1,
         'i8': 1, 'f64': 8, 'e4m3': 1, 'e5m2': 1, 'e4m3_fnuz': 1, 'e5m2_fnuz': 1}


class View(NamedTuple):
    """An array: address, shape, strides in elements (None: no gaps), the name of its dtype, the
    kind of device ("cpu", "cuda" …) with its number, may it be written, and what keeps its
    memory."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    device: str
    index: int
    writable: bool
    keep: Any


class DLTensor(c.Structure):
    """What a DLPack capsule begins with."""

    _fields_ = [('data', c.c_void_p), ('device_type', c.c_int32), ('device_id', c.c_int32),
                ('ndim', c.c_int32), ('code', c.c_uint8), ('bits', c.c_uint8),
                ('lanes', c.c_uint16), ('shape', c.POINTER(c.c_int64)),
                ('strides', c.POINTER(c.c_int64)), ('byte_offset', c.c_uint64)]


new_view = tuple.__new__  # twice as fast as View()
capsule_pointer = c.pythonapi.PyCapsule_GetPointer
capsule_pointer.restype, capsule_pointer.argtypes = c.c_void_p, [c.py_object, c.c_char_p]


def dtype_name(dtype: Any) -> str:
    """The short name of a dtype of numpy, torch or ml_dtypes, or of a string; else its text."""
    text = getattr(dtype, 'name', None) or getattr(dtype, '__name__', None) or str(dtype)
    text = text.rpartition('.')[2]
    return NAMES.get(text, text)


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a row-major array without gaps."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def strides_of(found: View) -> tuple[int, ...]:
    """The strides of an array."""
    return dense_strides(found.shape) if found.strides is None else found.strides


def with_axis(found: View) -> View:
    """The array with an axis of extent 1 behind its first."""
    strides = found.strides
    return found._replace(shape=(found.shape[0], 1) + found.shape[1:],
                          strides=None if strides is None else strides[:1] + strides)


def torch_view(x: Any, name: str) -> View:
    """Of a torch.Tensor."""
    device = x.device
    kind = device.type
    if kind == 'cuda' and sys.modules['torch'].version.hip:
        kind = 'rocm'
    if x.layout is not sys.modules['torch'].strided:
        raise InvalidError(f'{name} is a tensor of layout {x.layout}: must be strided')
    return View(x.data_ptr(), tuple(x.shape), x.stride(), dtype_name(x.dtype), kind,
                device.index or 0, True, x)


def numpy_view(x: Any, name: str) -> View:
    """Of an array with __array_interface__."""
    fields = x.__array_interface__
    kind = TYPESTR.get(fields['typestr'][1:])
    if kind is None:  # numpy has no bfloat16 of its own: that of ml_dtypes is two bytes of void
        kind = dtype_name(getattr(x, 'dtype', fields['typestr']))
    shape, strides = fields['shape'], fields.get('strides')
    if fields['typestr'][0] == '>':
        raise InvalidError(f'{name} has big-endian elements ({fields["typestr"]})')
    if strides is not None:
        size = BYTES.get(kind, 1)
        if any(step % size for step in strides):
            raise InvalidError(f'{name} has strides {strides} in bytes: must be multiples of its '
                               f'{size} bytes per element')
        strides = tuple([step // size for step in strides])
    address, read_only = fields['data']
    return new_view(View, (address, shape, strides, kind, 'cpu', 0, not read_only, x))


def dlpack_view(x: Any, name: str) -> View:
    """Of anything else that speaks DLPack. Its memory lives as long as the capsule."""
    device_type = x.__dlpack_device__()[0]
    gpu = DLPACK_GPU.get(device_type)
    capsule = x.__dlpack__(stream=-1) if gpu else x.__dlpack__()
    t = DLTensor.from_address(capsule_pointer(capsule, b'dltensor'))
    shape = tuple(t.shape[:t.ndim])
    strides = tuple(t.strides[:t.ndim]) if t.strides else None
    if gpu is None and t.device_type not in DLPACK_CPU:
        raise InvalidError(f'{name} is on a device of DLPack kind {t.device_type}: must be a CPU, '
                           'CUDA or ROCm')
    kind = DLPACK_NARROW.get(t.code) or \
        f'{DLPACK_CODES.get(t.code, "code " + str(t.code) + " ")}{t.bits}'
    writable = type(x).__module__.split('.')[0] not in ('jax', 'jaxlib')  # theirs never change
    return View((t.data or 0) + t.byte_offset, shape, strides, kind, gpu or 'cpu', t.device_id,
                writable, (x, capsule))


def view(x: Any, name: str) -> View:
    """Any array. `name` is what error messages call it."""
    if type(x) is View:
        return x
    torch = sys.modules.get('torch')
    if torch is not None and isinstance(x, torch.Tensor):
        return torch_view(x, name)
    if hasattr(x, '__array_interface__'):
        return numpy_view(x, name)
    if hasattr(x, '__dlpack__'):
        return dlpack_view(x, name)
    raise TypeError(f'{name} is of type {type(x).__name__}: must be an array with '
                    '__array_interface__ or __dlpack__ (numpy, torch, jax, cupy)')


def check_dtype(found: View, wanted: str, name: str) -> None:
    """Bytes without a meaning of their own stand for the bf16, or the 8 bits, that the plan was
    told."""
    if found.dtype != wanted and not (wanted == 'bf16' and found.dtype in ('u16', 'i16')) \
            and not (wanted in NARROW and found.dtype in ('u8', 'i8')):
        raise InvalidError(f'{name} has elements of {found.dtype}: must be {wanted}')


def check_device(found: View, device: str, name: str) -> None:
    """`device` is a device's name: host memory for "host", for "cuda:1" that of the second GPU."""
    kind, _, number = device.partition(':')
    if kind in ('host', 'simt'):
        if found.device != 'cpu':
            raise InvalidError(f'{name} is on {found.device}:{found.index}: the plan is on '
                               f'{device}')
    elif found.device != kind or found.index != int(number or 0):
        raise InvalidError(f'{name} is on {found.device}:{found.index}: must be on {device}')


def check_shape(found: View, shape: tuple[int, ...], axes: str, name: str) -> None:
    """`axes` are the words for the shape, separated by spaces."""
    if found.shape != shape:
        raise InvalidError(f'{name} has shape {list(found.shape)}: must be '
                           f'[{", ".join(axes.split())}] = {list(shape)}')


def check_strides(found: View, name: str) -> None:
    """The last axis has no gaps; and 0, which the library reads as dense, is no stride."""
    shape, strides = found.shape, found.strides
    if strides is None:
        return
    if strides and strides[-1] != 1 and shape[-1] > 1:
        raise InvalidError(f'{name} has a stride of {strides[-1]} on its last axis: must be '
                           'contiguous there')
    for axis in range(len(shape) - 1):
        if strides[axis] <= 0 and shape[axis] > 1:
            raise InvalidError(f'{name} has a stride of {strides[axis]} on axis {axis}: must be '
                               'positive (make a copy of a broadcast or reversed array)')


def check_dense(found: View, name: str) -> None:
    """No gaps at all: for lse, lengths and tables."""
    if found.strides is not None and any(
            step != want and extent > 1 for step, want, extent in
            zip(found.strides, dense_strides(found.shape), found.shape)):
        raise InvalidError(f'{name} has strides {list(strides_of(found))}: must be contiguous')


def check_writable(found: View, name: str) -> None:
    if not found.writable:
        raise InvalidError(f'{name} is read-only: it is written to')


def extent_bytes(found: View) -> int:
    """From the address to the end of the memory that shape and strides reach."""
    if 0 in found.shape:
        return 0
    last = sum((extent - 1) * step for extent, step in zip(found.shape, strides_of(found)))
    return (last + 1) * BYTES[found.dtype]


def new_array(like: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """A new array for a result: a torch tensor where `like` is one, else numpy's."""
    torch = sys.modules.get('torch')
    if torch is not None and isinstance(like, torch.Tensor):
        kind = {'f32': torch.float32, 'f16': torch.float16, 'bf16': torch.bfloat16}[dtype]
        return torch.empty(shape, dtype=kind, device=like.device)
    try:
        import numpy
    except ImportError:
        raise InvalidError('there is no numpy to make the output with: give `out`') from None
    if view(like, 'the input').device != 'cpu':
        raise InvalidError('the output must be given where the input is on a GPU and no torch '
                           'tensor')
    if dtype == 'bf16':
        kind = getattr(like, 'dtype', None)
        return numpy.empty(shape, kind if dtype_name(kind) == 'bf16' else numpy.uint16)
    return numpy.empty(shape, {'f32': numpy.float32, 'f16': numpy.float16}[dtype])
