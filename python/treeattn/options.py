"""Options by name: keyword arguments become the fields of a config struct, which have the same
names as in C. Enums may be given as members, names or numbers, dtypes also as those of numpy,
torch or ml_dtypes.
"""
from __future__ import annotations

import ctypes as c
import functools
import operator
from typing import Any

from ._bindings import Dtype, ta_shard_map
from .arrays import dtype_name
from .errors import InvalidError

HIDDEN = {'size', 'reserved'}
WHOLE = (c.c_int, c.c_int32, c.c_int64, c.c_size_t, c.c_uint64)


def enum_of(kind: type, value: Any, name: str) -> int:
    """A member of an enum from a member, its name in any case, or its number."""
    if isinstance(value, kind):
        return int(value)
    if value is None:
        return 0
    if isinstance(value, str):
        wanted = value.upper().replace('-', '_').replace(' ', '_')
        if wanted in kind.__members__:
            return int(kind[wanted])
    elif isinstance(value, int) and not isinstance(value, bool) and value in list(kind):
        return int(value)
    names = ', '.join(member.lower() for member in kind.__members__)
    raise InvalidError(f'{name} is {value!r}: must be one of {names}')


def dtype_of(value: Any, name: str) -> int:
    """A Dtype from a Dtype, its name, or a dtype of numpy, torch or ml_dtypes."""
    if value is None:
        return 0
    if isinstance(value, (Dtype, int)):
        return enum_of(Dtype, value, name)
    known = dtype_name(value)
    if known.upper() in Dtype.__members__:
        return int(Dtype[known.upper()])
    raise InvalidError(f'{name} is {value!r}: must be one of f32, f16, bf16, of K and V also '
                       'e4m3, e5m2, e4m3_fnuz, e5m2_fnuz, or such a dtype of numpy, torch or '
                       'ml_dtypes')


@functools.lru_cache(maxsize=None)
def limits(kind: type) -> tuple[int, int]:
    """The least and the largest number of an integer type of C."""
    bits = 8 * c.sizeof(kind)
    return (0, 2 ** bits - 1) if kind(-1).value > 0 else (-2 ** (bits - 1), 2 ** (bits - 1) - 1)


def whole(value: Any, kind: type, name: str) -> int:
    """A number for an integer of C: ctypes itself would take the low bits of one that is too
    large."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidError(f'{name} is {value!r}, of type {type(value).__name__}: must be a whole '
                           'number') from None
    low, high = limits(kind)
    if not low <= number <= high:
        raise InvalidError(f'{name} is {number}: must be from {low} to {high}')
    return number


def numbers(kind: type, values: Any, name: str, count: int | None = None) -> c.Array:
    """A C array of what a sequence or an array has."""
    values = list(values.tolist() if hasattr(values, 'tolist') else values)
    if count is not None and len(values) != count:
        raise InvalidError(f'{name} has {len(values)} elements: must have {count}')
    try:
        made = (kind * len(values))(*values)
    except (TypeError, OverflowError) as error:
        raise InvalidError(f'{name}: {error}') from None
    if kind in WHOLE and list(made) != values:
        for i, value in enumerate(values):
            whole(value, kind, f'{name}[{i}]')
    return made


def option_names(struct: type) -> list[str]:
    """The names that fill() takes for a struct."""
    return ['shard_map' if name == 'map' else name for name, _ in struct._fields_
            if name not in HIDDEN]


def fill(struct: c.Structure, options: dict[str, Any], what: str) -> list[Any]:
    """Set the fields of a config struct; returns what must live as long as the struct is read."""
    keep: list[Any] = []
    fields = dict(struct._fields_)
    for option, value in options.items():
        name = 'map' if option == 'shard_map' else option
        if name not in fields or name in HIDDEN:
            raise InvalidError(f'{what} has no option {option!r}; it has '
                               f'{", ".join(option_names(type(struct)))}')
        if value is None:
            continue
        keep.append(value)
        kind = struct.enums.get(name)
        if kind is Dtype:
            value = dtype_of(value, name)
        elif kind is not None:
            value = enum_of(kind, value, name)
        elif fields[name] is ta_shard_map:
            value = value.struct
        elif name in ('sinks', 'alibi_slopes'):
            heads = whole(options.get('query_heads') or 0, c.c_int32, 'query_heads')
            value = numbers(c.c_float, value, name, heads)
            keep.append(value)
            value = c.addressof(value)
        elif name == 'cluster':
            value = value.handle
        elif fields[name] in WHOLE:
            value = whole(value, fields[name], option)
        try:
            setattr(struct, name, value)
        except (TypeError, OverflowError):
            raise InvalidError(f'{option} is {value!r}, of type {type(value).__name__}: must be '
                               f'a number') from None
    return keep
