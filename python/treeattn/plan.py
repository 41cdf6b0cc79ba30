"""Plans: the work of a decode step, described once; and its calls."""
from __future__ import annotations

import ctypes as c
import math
from typing import Any, NamedTuple

from . import _bindings as b
from ._library import check, lib, text_of
from .arrays import NARROW, View, check_dense, check_device, check_dtype, check_shape, \
    check_strides, check_writable, new_array, view, with_axis
from .device import stream_of
from .errors import InvalidError
from .group import Group
from .kv import KV, table
from .options import enum_of, whole
from .planned import NAMES, Planned
from .shard import head_range


class PlanStats(NamedTuple):
    """What the steps of a plan cost on this rank, counted since it was made."""

    steps: int
    step_ns: int
    attend_ns: int
    workspace_bytes: int
    device_bytes: int
    device_bytes_most: int
    device_attend_ns: int


class Plan(Planned):
    """The work of a decode step. Collective: every rank of the group makes it, with the same
    options, which have the names of the fields of ta_plan_config: batch, query_tokens,
    query_heads, kv_heads, k_dim, v_dim, kv_dtype, query_dtype, out_dtype, max_tokens, mask,
    window, scale, softcap, alibi_slopes, sinks, query_placement, query_root, out_placement,
    out_root, algorithm, exchange, cluster, replay, reproducible_tile, check, max_call_tokens,
    combine_only, append_scattered, shared_prefixes, weights; and shard_map, a ShardMap. treeattn.h
    says what each means. workspace, an address, and workspace_bytes are memory of the caller's.

    group None: one rank. device: a Device or its name; None: the host.

    A wrong argument of a call on one rank is an error on that rank that says what is wrong, and
    an error on the others that names it; the group stays usable."""

    def __init__(self, group: Group | None = None, device: Any = None, **options: Any):
        config = b.ta_plan_config()
        self._make(lib.ta_plan_create, config, group, device, options)
        self._describe(config)
        self._q, self._out, self._call = b.ta_tensor(), b.ta_tensor(), b.ta_call()
        self._append = b.ta_append_input()
        self._on_host = self.device.name == 'host'

    def _describe(self, config: b.ta_plan_config) -> None:
        """What checks need of the config, with the defaults of the library."""
        self.batch, self.query_tokens = config.batch, config.query_tokens or 1
        self.query_heads = config.query_heads
        self.kv_heads = config.kv_heads or config.query_heads
        self.k_dim, self.v_dim = config.k_dim, config.v_dim or config.k_dim
        self.max_tokens = config.max_tokens
        self.combine_only = bool(config.combine_only)
        query = config.query_dtype or config.kv_dtype
        self.kv_dtype, self.query_dtype = NAMES.get(config.kv_dtype, ''), NAMES.get(query, '')
        self.out_dtype = NAMES.get(config.out_dtype or query, '')
        rank, ranks = (self.group.rank, self.group.size) if self.group else (0, 1)

        def heads_at(placement: int, root: int) -> int:
            if placement == b.Placement.HEADS:
                return len(head_range(self.query_heads, ranks, rank))
            return self.query_heads if placement == b.Placement.ALL or root == rank else 0

        self.q_heads = heads_at(config.query_placement, config.query_root)
        self.out_heads = heads_at(config.out_placement, config.out_root)

    def _destroy(self, handle: int) -> None:
        lib.ta_plan_destroy(handle)

    # ---- Arguments --------------------------------------------------------------------------

    def _tensor(self, struct: b.ta_tensor, array: Any, lead: tuple[int, ...], heads: int,
                dim: int, dtype: str, name: str, written: bool = False) -> None:
        """Fill a ta_tensor; `lead` is (batch, tokens), or (tokens,) of a ragged call."""
        if array is None:
            if heads:
                raise InvalidError(f'{name} is missing: this rank has {heads} heads of it')
            struct.data = None
            return
        found = view(array, name)
        if found.shape != lead + (heads, dim):
            axes = 'batch query_tokens heads dim' if len(lead) == 2 else 'tokens heads dim'
            if len(lead) == 2 and lead[1] == 1 and len(found.shape) == 3:
                check_shape(found, (lead[0], heads, dim), 'batch heads dim', name)
                found = with_axis(found)
            else:
                check_shape(found, lead + (heads, dim), axes, name)
        if found.dtype != dtype or found.device != 'cpu' or not self._on_host:
            self._memory(found, dtype, name)
        if written and not found.writable:
            check_writable(found, name)
        struct.data = found.address
        strides = found.strides
        if strides is None:
            struct.batch_stride = struct.token_stride = struct.head_stride = 0
            return
        check_strides(found, name)
        struct.batch_stride = strides[0] if len(lead) == 2 else 0
        struct.token_stride, struct.head_stride = strides[-3], strides[-2]

    def _memory(self, found: View, dtype: str, name: str) -> None:
        if found.dtype != dtype:
            check_dtype(found, dtype, name)
        if found.device != 'cpu' or not self._on_host:
            check_device(found, self.device.name, name)

    def _made(self, like: Any, lead: tuple[int, ...]) -> Any:
        """A new output; None on a rank that gets none."""
        if not self.out_heads:
            return None
        if like is None:
            raise InvalidError('out is missing: this rank has no query to make one like')
        if len(lead) == 2 and lead[1] == 1 and len(like.shape) == 3:
            lead = lead[:1]
        return new_array(like, (*lead, self.out_heads, self.v_dim), self.out_dtype)

    def _rows(self, array: Any, lead: tuple[int, ...], heads: int, name: str,
              written: bool) -> int | None:
        """The address of an lse, dense f32 [batch, query_tokens, heads]."""
        if array is None:
            return None
        found = view(array, name)
        axes = 'batch query_tokens heads' if len(lead) == 2 else 'tokens heads'
        if len(lead) == 2 and lead[1] == 1 and len(found.shape) == 2:
            check_shape(found, (lead[0], heads), 'batch heads', name)
        else:
            check_shape(found, (*lead, heads), axes, name)
        self._memory(found, 'f32', name)
        check_dense(found, name)
        if written:
            check_writable(found, name)
        return found.address

    def _heads_table(self, array: Any, name: str, keep: list[Any]) -> int | None:
        """The address of sinks or slopes of one call, f32 [query_heads]."""
        if array is None:
            return None
        found = view(array, name)
        check_shape(found, (self.query_heads,), 'query_heads', name)
        self._memory(found, 'f32', name)
        check_dense(found, name)
        keep.append(found)
        return found.address

    def _ragged(self, starts: Any, tokens: int, keep: list[Any]) -> tuple[int, ...]:
        """Set what a ragged call has; returns the leading axes of its tensors."""
        call = self._call
        values, found = table(starts, 'starts')
        keep.append(values)
        if len(found.shape) != 1 or found.shape[0] < 2:
            raise InvalidError(f'starts has shape {list(found.shape)}: must be [batch + 1]')
        if found.device != 'cpu' or not self._on_host:
            check_device(found, self.device.name, 'starts')
        call.batch, call.tokens, call.starts = found.shape[0] - 1, tokens, found.address
        return (tokens,)

    def _list(self, array: Any, name: str, keep: list[Any]) -> Any:
        """A dense table of int32 that one call points to."""
        values, found = table(array, name)
        keep.append(values)
        check_dense(found, name)
        if found.device != 'cpu' or not self._on_host:
            check_device(found, self.device.name, name)
        return found

    def _set_lists(self, lead: tuple[int, ...], selected: Any, prefix_starts: Any,
                   prefix_lengths: Any, keep: list[Any]) -> None:
        """Set selected positions and shared prefixes of a call."""
        call = self._call
        if selected is not None:
            found = self._list(selected, 'selected', keep)
            rows, shape = math.prod(lead), tuple(found.shape)
            count = shape[-1] if shape else 0
            lists = math.prod(shape[:-1]) // rows if rows else 0
            if not count or math.prod(shape[:-1]) != rows * lists or \
                    lists not in (1, self.kv_heads):
                raise InvalidError(f'selected has shape {list(shape)}: must be {list(lead)} and '
                                   f'[count], or and [kv_heads, count] = [{self.kv_heads}, count]')
            call.selected, call.selected_count, call.selected_lists = found.address, count, lists
        if prefix_starts is None and prefix_lengths is None:
            return
        if prefix_starts is None or prefix_lengths is None:
            raise InvalidError('prefix_starts and prefix_lengths must be given together')
        starts = self._list(prefix_starts, 'prefix_starts', keep)
        lengths = self._list(prefix_lengths, 'prefix_lengths', keep)
        if len(lengths.shape) != 1 or starts.shape != (lengths.shape[0] + 1,):
            raise InvalidError(f'prefix_starts has shape {list(starts.shape)} and prefix_lengths '
                               f'{list(lengths.shape)}: must be [groups + 1] and [groups]')
        call.prefix_groups = lengths.shape[0]
        call.prefix_starts, call.prefix_lengths = starts.address, lengths.address

    def _set_call(self, array: Any, batch: int, starts: Any, tokens: int | None, tag: int,
                  keep: list[Any]) -> tuple[int, ...]:
        """Set batch, tokens, starts and tag of a call; returns the leading axes of its tensors."""
        call = self._call
        call.tag = tag and whole(tag, c.c_uint64, 'tag')
        call.sinks = call.alibi_slopes = None
        call.window, call.softcap = 0, 0.0
        call.selected = call.prefix_starts = call.prefix_lengths = None
        call.selected_count = call.selected_lists = call.prefix_groups = 0
        if starts is not None:
            if tokens is None:
                if array is None:
                    raise InvalidError('tokens is missing: the token total of a ragged call, '
                                       'which this rank has no query to take from')
                tokens = view(array, 'q').shape[0]
            return self._ragged(starts, whole(tokens, c.c_int32, 'tokens'), keep)
        call.batch, call.tokens, call.starts = batch, 0, None
        return (batch, self.query_tokens)

    def _check_kv(self, kv: KV) -> None:
        """Shapes, dtypes and devices of a cache, once for each plan."""
        if not isinstance(kv, KV):
            raise TypeError(f'kv is of type {type(kv).__name__}: must be a treeattn.KV')
        for name, found, dim in (('k', kv.k, self.k_dim), ('v', kv.v, self.v_dim)):
            if found.shape[2:] != (self.kv_heads, dim):
                raise InvalidError(f'{name} has shape {list(found.shape)}: its last axes must be '
                                   f'[kv_heads, dim] = {[self.kv_heads, dim]}')
            self._memory(found, self.kv_dtype, name)
        if not kv.paged and kv.k.shape[1] < self.max_tokens:
            raise InvalidError(f'k has room for {kv.k.shape[1]} tokens: the plan has a max_tokens '
                               f'of {self.max_tokens}')
        for name, found in kv.tables:
            if found.device != 'cpu' or not self._on_host:
                check_device(found, self.device.name, name)
        kv.checked_for = self.number

    # ---- Calls ------------------------------------------------------------------------------

    def decode(self, q: Any, kv: KV, out: Any = None, lse: Any = None, *, starts: Any = None,
               tokens: int | None = None, tag: int = 0, window: int | None = None,
               softcap: float | None = None, sinks: Any = None, alibi_slopes: Any = None,
               selected: Any = None, prefix_starts: Any = None, prefix_lengths: Any = None,
               stream: int | None = None) -> Any:
        """Attend over the whole sequences; returns the output, which is made if it is not given.
        Collective.

        q [batch, query_tokens, heads, k_dim], with one query token also [batch, heads, k_dim];
        with `starts` (int32 [batch + 1]) packed, [tokens, heads, k_dim]. None on a rank that has
        none. out likewise with v_dim. lse: f32, written, the natural log-sum-exp of each row.
        window and softcap: None for the plan's, 0 for none. tag: says which call this is.
        selected: int32 positions that each row may see, -1 for none, [batch, query_tokens, count]
        or [batch, query_tokens, kv_heads, count], with `starts` [tokens, ...]. prefix_starts and
        prefix_lengths, int32 [groups + 1] and [groups]: sequences that share their first tokens,
        for plans with shared_prefixes."""
        keep: list[Any] = [q, out, lse]
        try:
            if kv.__class__ is not KV or kv.checked_for != self.number:
                self._check_kv(kv)
            lead = self._set_call(q, kv.batch, starts, tokens, tag, keep)
            call = self._call
            if window is not None:
                call.window = whole(window, c.c_int32, 'window') or -1
            if softcap is not None:
                call.softcap = softcap or -1.0
            if sinks is not None:
                call.sinks = self._heads_table(sinks, 'sinks', keep)
            if alibi_slopes is not None:
                call.alibi_slopes = self._heads_table(alibi_slopes, 'alibi_slopes', keep)
            if selected is not None or prefix_starts is not None or prefix_lengths is not None:
                self._set_lists(lead, selected, prefix_starts, prefix_lengths, keep)
            self._tensor(self._q, q, lead, self.q_heads, self.k_dim, self.query_dtype, 'q')
            result = self._made(q, lead) if out is None else out
            self._tensor(self._out, result, lead, self.out_heads, self.v_dim, self.out_dtype,
                         'out', True)
            rows = None if lse is None else self._rows(lse, lead, self.out_heads, 'lse', True)
            where = stream_of(q, stream)
        except BaseException:
            self._fail_decode(stream)
            raise
        status = lib.ta_decode(self._handle, self._q, kv.struct, self._out, rows, call, where)
        if status:
            check(status)
        return result

    def _fail_decode(self, stream: int | None) -> None:
        """Take part in a step with an argument that is refused, so that no other rank waits."""
        if not self.combine_only:
            lib.ta_decode(self._handle, None, None, None, None, None, stream)

    def combine(self, part: Any, part_lse: Any, out: Any = None, lse: Any = None, *,
                base: Any = 'e', starts: Any = None, tag: int = 0, sinks: Any = None,
                stream: int | None = None) -> Any:
        """Combine what each rank has of its own keys, by any kernel: `part` [batch, query_tokens,
        query_heads, v_dim], divided by the sum of its weights, and `part_lse`, its log-sum-exp to
        the base "e" or 2, -inf for a row without keys. For plans with combine_only. Collective."""
        keep: list[Any] = [part, part_lse, out, lse]
        try:
            base = b.LseBase.BASE_2 if base == 2 else enum_of(b.LseBase, base, 'base')
            batch = view(part, 'part').shape[0] if starts is None else 0
            lead = self._set_call(part, batch, starts, None, tag, keep)
            self._call.sinks = self._heads_table(sinks, 'sinks', keep)
            self._tensor(self._q, part, lead, self.query_heads, self.v_dim, self.query_dtype,
                         'part')
            rows = self._rows(part_lse, lead, self.query_heads, 'part_lse', False)
            if rows is None:
                raise InvalidError('part_lse is missing')
            result = self._made(part, lead) if out is None else out
            self._tensor(self._out, result, lead, self.out_heads, self.v_dim, self.out_dtype,
                         'out', True)
            written = self._rows(lse, lead, self.out_heads, 'lse', True)
            where = stream_of(part, stream)
        except BaseException:
            lib.ta_combine(self._handle, None, None, 0, None, None, None, stream)
            raise
        check(lib.ta_combine(self._handle, self._q, rows, base, self._out, written, self._call,
                             where))
        return result

    def append(self, k: Any, v: Any, kv: KV, *, source: Any = 'all', starts: Any = None,
               tokens: int | None = None, tag: int = 0, stream: int | None = None,
               make_scales: bool = False) -> None:
        """Store new tokens where the shard map wants them. kv.lengths are those after appending.

        k [batch, query_tokens, heads, k_dim], or packed with `starts`; v likewise; of any dtype.
        source: "all" (every rank has all of them), "heads" (each rank has its head_range() of
        the KV heads; collective), "local" (each has those that it will hold). Into a cache of 8
        bits they are divided by kv's scales, rounded and clamped; with make_scales the scales of
        the new tokens are made and written first."""
        keep: list[Any] = [k, v]
        struct = self._append
        try:
            self._check_kv(kv)
            struct.source = enum_of(b.AppendSource, source, 'source')
            lead = self._set_call(k, kv.batch, starts, tokens, tag, keep)
            heads = self.kv_heads
            if struct.source == b.AppendSource.HEADS and self.group:
                heads = len(head_range(heads, self.group.size, self.group.rank))
            dtype = self.kv_dtype
            if k is not None:
                dtype = view(k, 'k').dtype
                dtype = 'bf16' if dtype in ('u16', 'i16') else dtype
                if dtype in ('u8', 'i8') and self.kv_dtype in NARROW:
                    dtype = self.kv_dtype
                if dtype not in NAMES.values():
                    raise InvalidError(f'k has elements of {dtype}: must be f32, f16 or bf16, or '
                                       'the 8 bits of the cache')
            struct.make_scales = int(make_scales)
            struct.dtype = {name: number for number, name in NAMES.items()}[dtype]
            if struct.source == b.AppendSource.LOCAL and starts is not None and k is not None:
                lead = view(k, 'k').shape[:1]
            self._tensor(struct.k, k, lead, heads, self.k_dim, dtype, 'k')
            self._tensor(struct.v, v, lead, heads, self.v_dim, dtype, 'v')
            where = stream_of(k, stream)
        except BaseException:
            # With no input at all C takes part where the plan may be given scattered heads.
            lib.ta_append(self._handle, None, None, None, stream)
            raise
        check(lib.ta_append(self._handle, struct, kv.struct, self._call, where))

    def check(self) -> None:
        """Raise the error of a step that failed after its call returned, once."""
        check(lib.ta_plan_check(self.handle))

    def stats(self) -> PlanStats:
        """What the steps cost on this rank."""
        struct = b.ta_plan_stats()
        check(lib.ta_plan_get_stats(self.handle, struct))
        return PlanStats(*(getattr(struct, name) for name in PlanStats._fields))

    def explain(self, json: bool = False) -> str:
        """What was asked, what will run and why, what it needs; or the choice alone as JSON."""
        return text_of(lib.ta_explain_json if json else lib.ta_explain, self.handle)
