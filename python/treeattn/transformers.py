"""Models of transformers with a KV cache that is sharded over ranks.

    import treeattn.transformers as tt
    tt.register()
    model.set_attn_implementation('treeattn')
    cache = tt.ShardedCache(model.config, group)
    tt.prefill(model, ids, cache)      # may be left out: it divides the prompt over the ranks
    model.generate(ids, past_key_values=cache)

Every rank runs the model on the same input and keeps only its part of every layer's K and V; all
get the same output, bit by bit, and so the same tokens (with sampling: if all have the same seed).

What goes on in a layer: the model hands new K and V to the cache (sharded_cache.py), which returns
a handle in place of tensors; the model hands that to attend(), with the query and the mask; there
the new tokens are appended and attended to. Padding is left out, wherever it is: the tokens of a
sequence that the mask hides are not stored, and their outputs are 0. masks.py says which masks can
be honoured, and refuses the others. Where a model caches latent vectors, latent.py changes query
and output.
"""
from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface

from .errors import UnsupportedError
from .latent import absorbed_query, expanded_output
from .masks import mark_of, padding_mask
from .plan import Plan
from .prefill import append, prefill
from .sharded_cache import Handle, ShardedCache, ShardedLayer

__all__ = ['NAME', 'ShardedCache', 'attend', 'prefill', 'register']
NAME = 'treeattn'
KNOWN = {'sliding_window', 'softcap', 's_aux', 'position_ids', 'use_cache', 'cache_position',
         'output_attentions', 'output_hidden_states', 'is_causal', 'position_embeddings',
         'num_items_in_batch', 'return_dict', 'cu_seq_lens_q', 'cu_seq_lens_k', 'max_length_q',
         'max_length_k', 'past_key_values', 'output_router_logits', 'logits_to_keep', 'labels'}
# What a model may hand on with no meaning here, as long as it has no value.
REFUSED = {'cu_seq_lens_q', 'cu_seq_lens_k'}


def attend(module: Any, query: torch.Tensor, key: Any, value: Any,
           attention_mask: torch.Tensor | None, dropout: float = 0.0,
           scaling: float | None = None, **options: Any) -> tuple[torch.Tensor, None]:
    """The attention function that models call: query [B, H, T, D] to output [B, T, H, D]."""
    if not isinstance(key, Handle):
        raise UnsupportedError('the attention "treeattn" works on a sharded cache: give the model '
                               'past_key_values=treeattn.transformers.ShardedCache(...)')
    unknown = [name for name, x in options.items()
               if x is not None and (name not in KNOWN or name in REFUSED)]
    if unknown or dropout:
        raise UnsupportedError(f'the attention "treeattn" has no {", ".join(unknown) or "dropout"}')
    if options.get('is_causal') is False or getattr(module, 'is_causal', True) is False:
        raise UnsupportedError('the attention "treeattn" is for causal models')
    mark = mark_of(attention_mask, options.get('sliding_window') or 0)
    layer, cache = key.layer, key.layer.owner
    scale = scaling or query.shape[-1] ** -0.5
    sinks = options.get('s_aux')
    extra = {'window': options.get('sliding_window') or 0,
             'softcap': options.get('softcap') or 0.0,
             'sinks': None if sinks is None else sinks.detach().float().contiguous()}
    if cache.share is not None:
        return cache.share.attend(module, query, key, scale, extra), None
    if cache.latent:
        query = absorbed_query(module, query)
    plan = cache.plan(query, layer, scale)
    tensors = [x.transpose(1, 2) for x in (query, key.keys, key.values)]
    tokens = query.shape[2]
    real = cache.new_tokens(mark, layer.seen - tokens)
    parts = [step(plan, layer, [x[:, at:at + plan.query_tokens] for x in tensors],
                  None if real is None else real[:, at:at + plan.query_tokens], extra)
             for at in range(0, tokens, plan.query_tokens)]
    out = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    return (expanded_output(module, out) if cache.latent else out), None


def step(plan: Plan, layer: ShardedLayer, tensors: list[torch.Tensor],
         real: torch.Tensor | None, extra: dict[str, Any]) -> torch.Tensor:
    """Append some tokens [B, T, heads, dim] and attend with them; `real` [B, T]: those that are
    no padding."""
    batch, tokens = tensors[0].shape[:2]
    if real is None:
        counts = torch.full((batch,), tokens, dtype=torch.int32)
        packed = [x.reshape(batch * tokens, *x.shape[2:]) for x in tensors]
    else:
        counts = real.sum(dim=1, dtype=torch.int32).cpu()
        packed = [x[real] for x in tensors]
    shape = (batch, tokens, plan.query_heads, plan.v_dim)
    if int(counts.sum()) == 0:
        return tensors[0].new_zeros(shape)
    starts = append(plan, layer, counts, packed[1:])
    out = plan.decode(packed[0].contiguous(), layer.kv, starts=starts, **extra)
    if real is None:
        return out.reshape(shape)
    whole = out.new_zeros(shape)
    whole[real] = out
    return whole


def register() -> None:
    """Make the attention implementation "treeattn" known to transformers."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, padding_mask)


def check_version() -> str:
    """The version of transformers; the classes used here came with 5.0."""
    version = transformers.__version__
    if int(version.split('.', maxsplit=1)[0]) < 5:
        raise ImportError(f'treeattn.transformers needs transformers 5 or later: this is {version}')
    return version


check_version()
