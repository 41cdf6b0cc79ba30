"""The shard of a KV cache that a rank holds, as the struct that the library reads each step."""
from __future__ import annotations

import ctypes as c
from typing import Any

from ._bindings import ta_kv
from ._library import numbered
from .arrays import View, check_dense, check_dtype, check_strides, extent_bytes, strides_of, \
    view
from .errors import InvalidError
from .options import numbers


def table(values: Any, name: str) -> tuple[Any, View]:
    """An array of int32, or a list of numbers as one. (what the caller changes, its view)"""
    if isinstance(values, (list, tuple)):
        values = numbers(c.c_int32, values, name)
    if isinstance(values, c.Array) and values._type_ is c.c_int32:
        return values, View(c.addressof(values), (len(values),), None, 'i32', 'cpu', 0, True,
                            values)
    found = view(values, name)
    check_dtype(found, 'i32', name)
    check_dense(found, name)
    return values, found


class KV:
    """K and V of this rank's tokens, without copies.

    k         [batch, tokens, kv_heads, k_dim], or with a page table [pages, page_tokens, kv_heads,
              k_dim]; any strides with a contiguous last axis, so that a transposed view will do
    v         the same with v_dim; may be a view into k
    lengths   int32 [batch]: tokens of the whole sequences, over all ranks, the same on all of
              them. It is read at every step, so change it in place. A list becomes an array of
              ctypes, `kv.lengths`
    bounds    of contiguous shard maps: int32 [ranks + 1], or [batch, ranks + 1]
    page_table  int32 [batch, entries]
    k_scale, v_scale  of K and V of 8 bits: an element is its byte's number times the scale. A
              number, or an array of float32 that broadcasts to the first three axes of k: one
              element, [kv_heads], or [batch or page, token, kv_heads]. They are read at every
              step, and written by Plan.append(make_scales=True). None: 1

    K and V of 8 bits are arrays of torch's or ml_dtypes' float8, or of uint8, for the plan says
    which dialect they are in.
    """

    def __init__(self, k: Any, v: Any, lengths: Any, *, bounds: Any = None,
                 page_table: Any = None, k_scale: Any = None, v_scale: Any = None):
        self.struct = ta_kv()
        self.k, self.v = view(k, 'k'), view(v, 'v')
        for name, found in (('k', self.k), ('v', self.v)):
            if len(found.shape) != 4:
                raise InvalidError(f'{name} has shape {list(found.shape)}: must have 4 axes, '
                                   '[batch or page, token, kv_heads, dim]')
            check_strides(found, name)
            tensor = getattr(self.struct, name)
            tensor.data = found.address
            tensor.batch_stride, tensor.token_stride, tensor.head_stride = strides_of(found)[:3]
        if self.k.shape[:3] != self.v.shape[:3]:
            raise InvalidError(f'v has shape {list(self.v.shape)}: all but the last axis must be '
                               f'as those of k, {list(self.k.shape)}')
        self.struct.k_bytes, self.struct.v_bytes = extent_bytes(self.k), extent_bytes(self.v)
        self.lengths, self.lengths_view = table(lengths, 'lengths')
        self.struct.lengths = self.lengths_view.address
        self.tables = [('lengths', self.lengths_view)]
        self.batch = self.lengths_view.shape[0] if self.lengths_view.shape else 0
        self.paged = page_table is not None
        self._set_bounds(bounds)
        self._set_pages(page_table)
        self.k_scale, self.v_scale = self._set_scale(k_scale, 'k_scale'), \
            self._set_scale(v_scale, 'v_scale')
        self.changing = (k, v, self.lengths, self.k_scale, self.v_scale)
        self.overlaps = self.k.address < self.v.address + self.struct.v_bytes and \
            self.v.address < self.k.address + self.struct.k_bytes
        self.number = numbered(self)
        self.checked_for = 0  # the number of the plan that has looked at shapes and dtypes

    def over(self, arrays: Any) -> 'KV':
        """This cache with others in the place of `changing`, None for its own; itself if they
        have the same memory."""
        same = True
        for own, other in zip(self.changing, arrays):
            same = same and (other is None or other is own or
                             other.data_ptr() == own.data_ptr())
        if same:
            return self
        k, v, lengths, k_scale, v_scale = (own if other is None else other
                                           for own, other in zip(self.changing, arrays))
        return KV(k, v, lengths, bounds=self.bounds, page_table=self.page_table, k_scale=k_scale,
                  v_scale=v_scale)

    def _set_bounds(self, bounds: Any) -> None:
        self.bounds = None
        if bounds is None:
            return
        self.bounds, found = table(bounds, 'bounds')
        if len(found.shape) not in (1, 2):
            raise InvalidError(f'bounds has shape {list(found.shape)}: must be [ranks + 1] or '
                               '[batch, ranks + 1]')
        self.tables.append(('bounds', found))
        self.struct.bounds = found.address
        self.struct.bounds_stride = found.shape[1] if len(found.shape) == 2 else 0

    def _set_scale(self, scale: Any, name: str) -> Any:
        """Axes that are missing, or of extent 1, have a stride of 0: the same for all."""
        if scale is None:
            return None
        if isinstance(scale, (int, float)):
            scale = (c.c_float * 1)(scale)
            found = View(c.addressof(scale), (), None, 'f32', 'cpu', 0, True, scale)
        else:
            found = view(scale, name)
        check_dtype(found, 'f32', name)
        wanted = self.k.shape[:3]
        extents = (1,) * (3 - len(found.shape)) + found.shape
        if len(extents) > 3 or any(extent not in (1, most)
                                   for extent, most in zip(extents, wanted)):
            raise InvalidError(f'{name} has shape {list(found.shape)}: must be one element, '
                               f'[kv_heads] or {list(wanted)}, as the first axes of k')
        steps = (0,) * (3 - len(found.shape)) + strides_of(found)
        steps = tuple(step if extent > 1 else 0 for step, extent in zip(steps, extents))
        if min(steps) < 0:
            raise InvalidError(f'{name} has strides {list(steps)}: must be 0 or more')
        struct = getattr(self.struct, name)
        struct.data = found.address
        struct.batch_stride, struct.token_stride, struct.head_stride = steps
        self.tables.append((name, found))
        return scale

    def _set_pages(self, page_table: Any) -> None:
        self.page_table = None
        if page_table is None:
            if self.k.shape[0] < self.batch:
                raise InvalidError(f'k has {self.k.shape[0]} sequences: lengths has {self.batch}')
            return
        self.page_table, found = table(page_table, 'page_table')
        if len(found.shape) != 2 or found.shape[0] < self.batch:
            raise InvalidError(f'page_table has shape {list(found.shape)}: must be [batch, '
                               f'entries] with a batch of {self.batch}')
        self.tables.append(('page_table', found))
        self.struct.page_table, self.struct.page_table_stride = found.address, found.shape[1]
        self.struct.page_tokens, self.struct.page_count = self.k.shape[1], self.k.shape[0]
