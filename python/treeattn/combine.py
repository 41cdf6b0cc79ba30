"""The combine step of engines: each rank's attention over its own keys in, that over all keys out,
with the arguments that vLLM and SGLang give theirs; as an operator of torch."""
from __future__ import annotations

from typing import Any

import torch

from ._library import objects
from .errors import InvalidError
from .group import Group
from .operators import library
from .plan import Plan
from .process_groups import DTYPES, as_group, device_of

LOG2_E = 1.4426950408889634

library.define('combine(Tensor out, Tensor lse, int group, int heads, bool scatter_heads, '
               'bool base_e, Tensor? sinks) -> (Tensor, Tensor)')


def combine_plan(ranks: Group, out: torch.Tensor, scatter_heads: bool) -> Plan:
    """A plan for so many rows or more: all ranks ask for the same, so all make it together. The
    group keeps it."""
    rows, heads, dim = out.shape
    room = 1 << max(0, rows - 1).bit_length()
    # One for each power of two: graphs that were captured with a smaller one use its workspace as
    # long as they live. All of them together have at most about twice the memory of the largest.
    key = ('combine', heads, dim, out.dtype, device_of(out), scatter_heads, room)
    if key not in ranks.kept:
        ranks.kept[key] = Plan(ranks, key[4], combine_only=True, batch=room, query_heads=heads,
                               v_dim=dim, query_dtype=DTYPES[out.dtype],
                               out_placement='heads' if scatter_heads else 'all')
    return ranks.kept[key]


def run_combine(out, lse, group, heads, scatter_heads, base_e, sinks):
    plan = combine_plan(objects[group], out, scatter_heads)
    whole, whole_lse = fake_combine(out, lse, group, heads, scatter_heads, base_e, sinks)
    if out.shape[0]:
        plan.combine(out, lse.to(torch.float32).contiguous(), whole if heads else None,
                     whole_lse if heads else None, base='e' if base_e else 2, sinks=sinks)
    return whole, whole_lse if base_e else whole_lse * LOG2_E


def fake_combine(out, lse, group, heads, scatter_heads, base_e, sinks):
    return out.new_empty((out.shape[0], heads, out.shape[2])), \
        out.new_empty((out.shape[0], heads), dtype=torch.float32)


for kind in ('CPU', 'CUDA'):
    library.impl('combine', run_combine, kind)
torch.library.register_fake('treeattn::combine', fake_combine, lib=library)


def combine(cp_attn_out: torch.Tensor, cp_attn_lse: torch.Tensor, cp_group: Any, ctx: Any = None,
            return_lse: bool = False, is_lse_base_on_e: bool = True, *,
            scatter_heads: bool = True, sinks: torch.Tensor | None = None) -> Any:
    """The attention of all keys from that of each rank's own: cp_attn_out [B, H, D], divided by
    the sum of its weights, and cp_attn_lse [B, H], -inf for a row without keys on this rank.

    The first six arguments are those of dcp_a2a_lse_reduce() in vLLM and SGLang. Returns [B, h, D]
    with this rank's heads, H * rank // N to H * (rank + 1) // N (so any H will do), or with all
    heads if scatter_heads is False; with return_lse also the lse, to the base of the input. ctx is
    not used: plans are kept for each group. cp_group is a Group, a process group, or a coordinator
    with a device_group and a cpu_group; where torch.compile traces, a Group. Collective."""
    if cp_attn_out.dim() != 3 or cp_attn_out.dtype not in DTYPES:
        raise InvalidError(f'cp_attn_out is {cp_attn_out.dtype} of shape '
                           f'{list(cp_attn_out.shape)}: must be [B, H, D] of float32, float16 or '
                           'bfloat16')
    ranks = cp_group if isinstance(cp_group, Group) else as_group(cp_group, device_of(cp_attn_out))
    heads, rank, size = cp_attn_out.shape[1], ranks.rank, ranks.size
    if scatter_heads:
        heads = heads * (rank + 1) // size - heads * rank // size
    out, lse = torch.ops.treeattn.combine(cp_attn_out, cp_attn_lse, ranks.number, heads,
                                          scatter_heads, is_lse_base_on_e, sinks)
    return (out, lse) if return_lse else out
