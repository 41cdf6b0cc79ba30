"""The calls of plans as operators of torch.library: torch.compile traces through them by their fake
versions, and autograd has the gradients of attention. Plans and caches travel as numbers.

A cache is changed in place, by append() and by whoever sets its lengths, so its tensors are
arguments too: torch then keeps reads behind writes. It may hand over copies of them in the place of
the cache's own; KV.over() is the cache with those.
"""
from __future__ import annotations

from typing import Any

import torch

from ._library import objects
from .attention import Attention
from .errors import UnsupportedError
from .kv import KV
from .plan import Plan

library = torch.library.Library('treeattn', 'DEF')


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

library.define('decode(Tensor q, Tensor?[] cache, int kv, int plan, Tensor? starts, Tensor? sinks, '
               'int tag, int window, float softcap, int heads, int dim) -> (Tensor, Tensor)')


def run_decode(q, cache, kv, plan, starts, sinks, tag, window, softcap, heads, dim):
    lse = torch.empty((*q.shape[:-2], heads), dtype=torch.float32, device=q.device)
    out = objects[plan].decode(q, objects[kv].over(cache), lse=lse, starts=starts, sinks=sinks,
                               tag=tag, window=None if window < 0 else window,
                               softcap=None if softcap < 0 else softcap)
    return out, lse


def fake_decode(q, cache, kv, plan, starts, sinks, tag, window, softcap, heads, dim):
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
    return torch.ops.treeattn.decode(q, tensors_of(kv), kv.number, plan.number, starts, sinks, tag,
                                     -1 if window is None else window,
                                     -1.0 if softcap is None else softcap, plan.out_heads,
                                     plan.v_dim)


def tensors_of(kv: KV) -> list[torch.Tensor | None]:
    """What of a cache may change, as far as it is tensors: K, V, lengths and scales."""
    return [x if isinstance(x, torch.Tensor) else None for x in kv.changing]


# ---- Append ------------------------------------------------------------------------------------

library.define('append(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, '
               'Tensor? lengths, Tensor(c!)? k_scale, Tensor(d!)? v_scale, int kv, int plan, '
               'Tensor? starts, int tokens, str source, bool make_scales, int tag) -> ()')


def run_append(k, v, k_cache, v_cache, lengths, k_scale, v_scale, kv, plan, starts, tokens, source,
               make_scales, tag):
    cache = objects[kv].over((k_cache, v_cache, lengths, k_scale, v_scale))
    objects[plan].append(k, v, cache, source=source, starts=starts,
                         tokens=None if tokens < 0 else tokens, tag=tag, make_scales=make_scales)


def fake_append(k, v, k_cache, v_cache, lengths, k_scale, v_scale, kv, plan, starts, tokens, source,
                make_scales, tag):
    return None


for kind in ('CPU', 'CUDA'):
    library.impl('append', run_append, kind)
torch.library.register_fake('treeattn::append', fake_append, lib=library)


def append(plan: Plan, k: torch.Tensor, v: torch.Tensor, kv: KV, *, source: str = 'all',
           starts: torch.Tensor | None = None, tokens: int | None = None, tag: int = 0,
           make_scales: bool = False) -> None:
    """Plan.append() as an operator that changes the tensors of a cache. Not where V is a part of
    K: torch knows no operator that changes two views of one memory."""
    k_cache, v_cache, lengths, k_scale, v_scale = tensors_of(kv)
    if k_cache is None or v_cache is None or kv.overlaps:
        raise UnsupportedError('treeattn.torch.append() needs K and V that are tensors, each with '
                               'memory of its own: use plan.append()')
    torch.ops.treeattn.append(k, v, k_cache, v_cache, lengths, k_scale, v_scale, kv.number,
                              plan.number, starts, -1 if tokens is None else tokens, source,
                              make_scales, tag)
