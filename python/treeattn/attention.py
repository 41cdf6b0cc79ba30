"""Attention over full sequences, on a grid of ranks: prefill, and a layer of training."""
from __future__ import annotations

import ctypes as c
from typing import Any, NamedTuple

from . import _bindings as b
from ._library import check, lib, text_of
from .arrays import check_dense, check_device, check_dtype, check_shape, check_strides, \
    check_writable, new_array, strides_of, view
from .device import stream_of
from .errors import InvalidError
from .group import Group
from .options import numbers
from .planned import NAMES, Planned


class AttentionStats(NamedTuple):
    """What a plan runs, and what its calls cost on this rank."""

    algorithm: str
    grid_rows: int
    grid_columns: int
    forward_calls: int
    backward_calls: int
    forward_ns: int
    backward_ns: int
    forward_attend_ns: int
    backward_attend_ns: int
    workspace_bytes: int
    device_bytes: int
    device_bytes_most: int


class Attention(Planned):
    """A plan for attention over full sequences. Collective. Options have the names of the fields
    of ta_attention_config: query_heads, kv_heads, k_dim, v_dim, dtype, max_tokens, mask, window,
    scale, softcap, grid_rows, grid_columns, forward_only, algorithm, cluster; and shard_map.
    workspace, an address, and workspace_bytes are memory of the caller's.

    Every rank has the tokens that the shard map gives it, packed: those of the first sequence,
    then those of the next. shard_map.positions(rank, length) says which."""

    def __init__(self, group: Group | None = None, device: Any = None, **options: Any):
        config = b.ta_attention_config()
        self._make(lib.ta_attention_create, config, group, device, options)
        self.query_heads = config.query_heads
        self.kv_heads = config.kv_heads or config.query_heads
        self.k_dim, self.v_dim = config.k_dim, config.v_dim or config.k_dim
        self.dtype = NAMES.get(config.dtype, '')
        self._input, self._gradient = b.ta_attention_input(), b.ta_attention_gradient()
        self._out = b.ta_tensor()

    def _destroy(self, handle: int) -> None:
        lib.ta_attention_destroy(handle)

    def _tensor(self, struct: b.ta_tensor, array: Any, tokens: int, heads: int, dim: int,
                name: str, written: bool = False) -> None:
        found = view(array, name)
        check_shape(found, (tokens, heads, dim), 'tokens heads dim', name)
        check_dtype(found, self.dtype, name)
        check_device(found, self.device.name, name)
        check_strides(found, name)
        if written:
            check_writable(found, name)
        struct.data = found.address
        struct.batch_stride, struct.token_stride, struct.head_stride = 0, *strides_of(found)[:2]

    def _lse(self, array: Any, tokens: int) -> int | None:
        if array is None:
            return None
        found = view(array, 'lse')
        check_shape(found, (tokens, self.query_heads), 'tokens query_heads', 'lse')
        check_dtype(found, 'f32', 'lse')
        check_device(found, self.device.name, 'lse')
        check_dense(found, 'lse')
        check_writable(found, 'lse')
        return found.address

    def _set_input(self, q: Any, k: Any, v: Any, lengths: Any) -> tuple[int, Any]:
        """Fill the input; (tokens of this rank, what keeps the lengths)."""
        if lengths is None:
            raise InvalidError('lengths is missing: tokens of each whole sequence')
        values = numbers(c.c_int32, lengths, 'lengths')
        struct = self._input
        struct.sequences, struct.lengths = len(values), c.addressof(values)
        shape = view(q, 'q').shape
        tokens = shape[0] if shape else 0
        self._tensor(struct.q, q, tokens, self.query_heads, self.k_dim, 'q')
        self._tensor(struct.k, k, tokens, self.kv_heads, self.k_dim, 'k')
        self._tensor(struct.v, v, tokens, self.kv_heads, self.v_dim, 'v')
        return tokens, values

    def forward(self, q: Any, k: Any, v: Any, lengths: Any, out: Any = None, lse: Any = None, *,
                stream: int | None = None) -> Any:
        """The output [tokens, query_heads, v_dim] of this rank's tokens. Collective. lengths are
        those of the whole sequences; lse f32 [tokens, query_heads] is written if it is given."""
        try:
            tokens, keep = self._set_input(q, k, v, lengths)
            if out is None:
                out = new_array(q, (tokens, self.query_heads, self.v_dim), self.dtype)
            self._tensor(self._out, out, tokens, self.query_heads, self.v_dim, 'out', True)
            rows = self._lse(lse, tokens)
            where = stream_of(q, stream)
        except BaseException:  # so that no other rank waits
            lib.ta_attention_forward(self._handle, None, None, None, stream)
            raise
        check(lib.ta_attention_forward(self._handle, self._input, self._out, rows, where))
        del keep
        return out

    def backward(self, q: Any, k: Any, v: Any, lengths: Any, out: Any, lse: Any, dout: Any, *,
                 dq: Any = None, dk: Any = None, dv: Any = None,
                 stream: int | None = None) -> tuple[Any, Any, Any]:
        """(dq, dk, dv), from what forward() read and wrote, and the gradient of the output."""
        try:
            tokens, keep = self._set_input(q, k, v, lengths)
            heads = (self.query_heads, self.kv_heads, self.kv_heads)
            dims = (self.k_dim, self.k_dim, self.v_dim)
            gradients = [new_array(q, (tokens, h, d), self.dtype) if given is None else given
                         for given, h, d in zip((dq, dk, dv), heads, dims)]
            struct = self._gradient
            for name, array in (('out', out), ('dout', dout)):
                self._tensor(getattr(struct, name), array, tokens, heads[0], dims[2], name)
            for name, array, h, d in zip(('dq', 'dk', 'dv'), gradients, heads, dims):
                self._tensor(getattr(struct, name), array, tokens, h, d, name, True)
            struct.lse = self._lse(lse, tokens)
            if struct.lse is None:
                raise InvalidError('lse is missing: what forward() wrote')
            where = stream_of(q, stream)
        except BaseException:
            lib.ta_attention_backward(self._handle, None, None, stream)
            raise
        check(lib.ta_attention_backward(self._handle, self._input, struct, where))
        del keep
        return gradients[0], gradients[1], gradients[2]

    def stats(self) -> AttentionStats:
        """What it runs, and what its calls cost on this rank."""
        struct = b.ta_attention_stats()
        check(lib.ta_attention_get_stats(self.handle, struct))
        return AttentionStats(lib.ta_attention_algorithm_name(struct.algorithm).decode(),
                              *(getattr(struct, name) for name in AttentionStats._fields[1:]))

    def explain(self, json: bool = False) -> str:
        """What was asked, what will run and why; or the choice alone as JSON."""
        function = lib.ta_attention_explain_json if json else lib.ta_attention_explain
        return text_of(function, self.handle)
