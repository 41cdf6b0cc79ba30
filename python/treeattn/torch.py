"""treeattn with PyTorch: groups from torch.distributed, operators that autograd and torch.compile
know, and the combine step of engines.

    group(process_group)          a Group of the ranks of a torch.distributed process group
    attention(plan, q, k, v, lengths)    Attention.forward() with gradients
    decode(plan, q, kv, …)        Plan.decode() as an operator
    combine(out, lse, group, …)   with the arguments of vLLM's and SGLang's combine step
"""
from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.distributed as dist

from ._library import objects
from .attention import Attention
from .device import Device
from .errors import InvalidError
from .group import Group
from .kv import KV
from .plan import Plan
from .sockets import SocketTransport

library = torch.library.Library('treeattn', 'DEF')


# ---- Groups ------------------------------------------------------------------------------------

def group(process_group: Any = None, timeout: float | None = None) -> Group:
    """A Group of the ranks of a process group of any back end (gloo, nccl, mpi); None: the default
    one. Its messages go over sockets of its own; the process group only tells the ranks where the
    others are. Collective."""
    if not dist.is_initialized():
        raise InvalidError('torch.distributed is not initialised: call init_process_group() first, '
                           'or use treeattn.run() for threads')

    def exchange(data: bytes) -> list[bytes]:
        found: list[Any] = [None] * dist.get_world_size(process_group)
        dist.all_gather_object(found, data, group=process_group)
        return found
    transport = SocketTransport(dist.get_rank(process_group), dist.get_world_size(process_group),
                                exchange, timeout or 60.0)
    return Group.custom(transport, timeout)


def ccl_group(device: Device, process_group: Any = None, timeout: float | None = None) -> Group:
    """A Group over the NCCL or RCCL communicator that a process group has. The process group
    keeps it. Run by nobody on a GPU yet."""
    process_group = dist.group.WORLD if process_group is None else process_group
    dist.barrier(process_group)  # the communicator is made by the first collective
    back_end = process_group._get_backend(torch.device('cuda'))
    return Group.ccl(device, communicator=back_end._comm_ptr(), timeout=timeout)


# ---- Attention over full sequences, with gradients --------------------------------------------

library.define('attention(Tensor q, Tensor k, Tensor v, int[] lengths, int plan) '
               '-> (Tensor, Tensor)')
library.define('attention_backward(Tensor q, Tensor k, Tensor v, int[] lengths, Tensor out, '
               'Tensor lse, Tensor dout, int plan) -> (Tensor, Tensor, Tensor)')


def run_attention(q, k, v, lengths, plan):
    plan = objects[plan]
    lse = torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)
    return plan.forward(q, k, v, lengths, lse=lse), lse


def run_attention_backward(q, k, v, lengths, out, lse, dout, plan):
    return objects[plan].backward(q, k, v, lengths, out, lse, dout.contiguous())


def fake_attention(q, k, v, lengths, plan):
    return q.new_empty((*q.shape[:2], v.shape[2])), \
        q.new_empty(q.shape[:2], dtype=torch.float32)


def fake_attention_backward(q, k, v, lengths, out, lse, dout, plan):
    return torch.empty_like(q, memory_format=torch.contiguous_format), \
        torch.empty_like(k, memory_format=torch.contiguous_format), \
        torch.empty_like(v, memory_format=torch.contiguous_format)


def keep_for_backward(ctx, inputs, output):
    q, k, v, ctx.lengths, ctx.plan = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.mark_non_differentiable(output[1])


def attention_gradients(ctx, dout, _dlse):
    q, k, v, out, lse = ctx.saved_tensors
    return (*torch.ops.treeattn.attention_backward(q, k, v, ctx.lengths, out, lse, dout,
                                                   ctx.plan), None, None)


for kind in ('CPU', 'CUDA'):
    library.impl('attention', run_attention, kind)
    library.impl('attention_backward', run_attention_backward, kind)
torch.library.register_fake('treeattn::attention', fake_attention, lib=library)
torch.library.register_fake('treeattn::attention_backward', fake_attention_backward, lib=library)
torch.library.register_autograd('treeattn::attention', attention_gradients,
                                setup_context=keep_for_backward, lib=library)


def attention(plan: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
              lengths: Any) -> torch.Tensor:
    """Attention.forward() of this rank's tokens, which torch can differentiate. Collective, and so
    is the backward pass."""
    return torch.ops.treeattn.attention(q, k, v, [int(n) for n in lengths], plan.number)[0]


# ---- Decode ------------------------------------------------------------------------------------

library.define('decode(Tensor q, int kv, int plan, Tensor? starts, Tensor? sinks, int tag, '
               'int window, float softcap, int heads, int dim) -> (Tensor, Tensor)')


def run_decode(q, kv, plan, starts, sinks, tag, window, softcap, heads, dim):
    lse = torch.empty((*q.shape[:-2], heads), dtype=torch.float32, device=q.device)
    out = objects[plan].decode(q, objects[kv], lse=lse, starts=starts, sinks=sinks, tag=tag,
                               window=None if window < 0 else window,
                               softcap=None if softcap < 0 else softcap)
    return out, lse


def fake_decode(q, kv, plan, starts, sinks, tag, window, softcap, heads, dim):
    return q.new_empty((*q.shape[:-2], heads, dim)), \
        q.new_empty((*q.shape[:-2], heads), dtype=torch.float32)


for kind in ('CPU', 'CUDA'):
    library.impl('decode', run_decode, kind)
torch.library.register_fake('treeattn::decode', fake_decode, lib=library)


def decode(plan: Plan, q: torch.Tensor, kv: KV, *, starts: torch.Tensor | None = None,
           sinks: torch.Tensor | None = None, tag: int = 0, window: int | None = None,
           softcap: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, lse) of Plan.decode(), as an operator that torch.compile calls and does not look
    into. For plans whose output has the query's dtype and is on this rank."""
    return torch.ops.treeattn.decode(q, kv.number, plan.number, starts, sinks, tag,
                                     -1 if window is None else window,
                                     -1.0 if softcap is None else softcap, plan.out_heads,
                                     plan.v_dim)


# ---- Combine, as engines call it ---------------------------------------------------------------

combine_plans: 'weakref.WeakKeyDictionary[Group, dict[Any, Plan]]' = weakref.WeakKeyDictionary()
groups_of: dict[Any, Group] = {}
LOG2_E = 1.4426950408889634
DTYPES = {torch.float32: 'f32', torch.float16: 'f16', torch.bfloat16: 'bf16'}


def as_group(cp_group: Any) -> Group:
    """A Group as it is; or the one of a process group, or of a coordinator that has one, made by
    the first call."""
    if isinstance(cp_group, Group):
        return cp_group
    process_group = getattr(cp_group, 'cpu_group', cp_group)
    if process_group not in groups_of:
        groups_of[process_group] = group(process_group)
    return groups_of[process_group]


def device_of(tensor: torch.Tensor) -> str:
    """The name of a tensor's device in this library."""
    if not tensor.is_cuda:
        return 'host'
    return f'{"rocm" if torch.version.hip else "cuda"}:{tensor.device.index or 0}'


def combine_plan(ranks: Group, out: torch.Tensor, scatter_heads: bool) -> Plan:
    """A plan for so many rows or more: all ranks ask for the same, so all make it together."""
    rows, heads, dim = out.shape
    room = 1 << max(0, rows - 1).bit_length()
    plans = combine_plans.setdefault(ranks, {})
    key = (heads, dim, out.dtype, device_of(out), scatter_heads)
    if key not in plans or plans[key].batch < room:
        plans[key] = Plan(ranks, key[3], combine_only=True, batch=room, query_heads=heads,
                          v_dim=dim, query_dtype=DTYPES[out.dtype],
                          out_placement='heads' if scatter_heads else 'all')
    return plans[key]


def combine(cp_attn_out: torch.Tensor, cp_attn_lse: torch.Tensor, cp_group: Any, ctx: Any = None,
            return_lse: bool = False, is_lse_base_on_e: bool = True, *,
            scatter_heads: bool = True, sinks: torch.Tensor | None = None) -> Any:
    """The attention of all keys from that of each rank's own: cp_attn_out [B, H, D], divided by
    the sum of its weights, and cp_attn_lse [B, H], -inf for a row without keys on this rank.

    The first six arguments are those of dcp_a2a_lse_reduce() in vLLM and SGLang. Returns [B, h, D]
    with this rank's heads, H * rank // N to H * (rank + 1) // N (so any H will do), or with all
    heads if scatter_heads is False; with return_lse also the lse, to the base of the input. ctx is
    not used: plans are kept for each group. Collective."""
    if cp_attn_out.dim() != 3 or cp_attn_out.dtype not in DTYPES:
        raise InvalidError(f'cp_attn_out is {cp_attn_out.dtype} of shape '
                           f'{list(cp_attn_out.shape)}: must be [B, H, D] of float32, float16 or '
                           'bfloat16')
    rows = cp_attn_out.shape[0]
    plan = combine_plan(as_group(cp_group), cp_attn_out, scatter_heads)
    lse = cp_attn_lse.to(torch.float32).contiguous()
    shape = (rows, plan.out_heads)
    out = cp_attn_out.new_empty((*shape, plan.v_dim))
    out_lse = torch.empty(shape, dtype=torch.float32, device=out.device)
    if rows:
        empty = plan.out_heads == 0
        plan.combine(cp_attn_out, lse, None if empty else out, None if empty else out_lse,
                     base='e' if is_lse_base_on_e else 2, sinks=sinks)
    if not return_lse:
        return out
    return out, out_lse if is_lse_base_on_e else out_lse * LOG2_E
