"""A prompt divided over the ranks: each runs the model on its own tokens alone, those that the
cache's shard map gives it, and attention goes over the grid of ranks (attention.py). K and V are
stored where they were made. So all of a prompt's work is shared out, not its attention alone. In a
cache of 8 bits, the prompt attends to K and V as they are before they are rounded.

prefill() is called by programs and generate.py; attend() of transformers.py comes to Share.attend()
for every layer of such a run. Where the grid lacks what a model needs, the prompt goes in chunks
through decode, with all tokens on every rank.
"""
from __future__ import annotations

from typing import Any

import torch

from .attention import Attention
from .errors import InvalidError
from .latent import expanded
from .masks import check_holes, span_with_holes
from .plan import Plan
from .process_groups import DTYPES, device_of
from .shard import ShardMap
from .sharded_cache import Handle, ShardedCache, ShardedLayer

GRID_DIM = 256  # the largest head dimension of attention over full sequences


class GridLacks(Exception):
    """The grid lacks something that this model needs; the same on all ranks."""


class Share:
    """This rank's tokens of a prompt, in `real` [B, T] where they are no filling, with their
    `positions` in their sequences and their `columns` in the prompt; and their attention."""

    def __init__(self, cache: ShardedCache, real: torch.Tensor):
        self.cache = cache
        self.span = span_with_holes(real)
        self.lengths = [int(n) for n in real.sum(dim=1)]
        held = [own_positions(cache, n) for n in self.lengths]
        shape = (len(held), max(1, *map(len, held)))  # no model wants an input of no tokens
        self.real = torch.zeros(shape, dtype=torch.bool, device=real.device)
        self.positions = torch.zeros(shape, dtype=torch.long, device=real.device)
        self.columns = torch.zeros_like(self.positions)
        for b, mine in enumerate(held):
            self.real[b, :len(mine)] = True
            self.positions[b, :len(mine)] = mine
            self.columns[b, :len(mine)] = real[b].nonzero()[:, 0][mine.to(real.device)]
        self.room = max(1, *(sum(cache.map.count(rank, n) for n in self.lengths)
                             for rank in range(cache.ranks)))
        self.plans: dict[Any, Attention] = {}

    def close(self) -> None:
        """Give the memory of the grid's plans back."""
        for plan in self.plans.values():
            plan.close()

    def plan(self, tensors: list[torch.Tensor], **scores: Any) -> Attention:
        """The plan for q, k and v [tokens, heads, dim]; one serves all layers of the same kind."""
        q, k, v = tensors
        if q.dtype not in DTYPES or max(q.shape[2], v.shape[2]) > GRID_DIM:
            raise GridLacks
        key = (*(x.shape[1:] for x in tensors), q.dtype, *scores.values())
        if key not in self.plans:
            self.plans[key] = Attention(
                self.cache.group, device_of(q), query_heads=q.shape[1], kv_heads=k.shape[1],
                k_dim=q.shape[2], v_dim=v.shape[2], dtype=DTYPES[q.dtype], max_tokens=self.room,
                forward_only=1, shard_map=ShardMap('block_cyclic', block=self.cache.block),
                **scores)
        return self.plans[key]

    def attend(self, module: Any, query: torch.Tensor, handle: Handle, scale: float,
               extra: dict[str, Any]) -> torch.Tensor:
        """The attention of one layer: query [B, H, T, D] to output [B, T, H, Dv]."""
        check_holes(self.span, extra['window'])
        latent = self.cache.latent
        keys, values = (handle.keys, handle.values) if not latent else expanded(
            module, handle.keys[..., :latent], handle.keys[..., latent:])
        tensors = [x.transpose(1, 2)[self.real] for x in (query, keys, values)]
        plan = self.plan(tensors, scale=scale, window=extra['window'], softcap=extra['softcap'])
        sinks, lse = extra['sinks'], None
        if sinks is not None:
            lse = torch.empty(tensors[0].shape[:2], dtype=torch.float32, device=query.device)
        out = plan.forward(*tensors, self.lengths, lse=lse)
        if sinks is not None:  # a sink adds exp(sink) to the sum of the weights, which is exp(lse)
            out = (out.float() * torch.sigmoid(lse - sinks)[..., None]).to(out.dtype)
        self.store(handle, self.cache.plan(query, handle.layer, scale))
        whole = out.new_zeros((*self.real.shape, *out.shape[1:]))
        whole[self.real] = out
        return whole

    def store(self, handle: Handle, plan: Plan) -> None:
        """Append this rank's new K and V, as many tokens of a sequence at once as the plan has."""
        layer, ends = handle.layer, torch.tensor(self.lengths, dtype=torch.int32)
        for begin in range(0, int(ends.max()), plan.query_tokens):
            before, after = ends.clamp(max=begin), ends.clamp(max=begin + plan.query_tokens)
            parts = [range(*(self.cache.map.count(self.cache.rank, int(n)) for n in pair))
                     for pair in zip(before, after)]
            new = [torch.cat([x[b, :, part.start:part.stop].transpose(0, 1)
                              for b, part in enumerate(parts)])
                   for x in (handle.keys, handle.values)]
            append(plan, layer, after - before, new, source='local')


def append(plan: Plan, layer: ShardedLayer, counts: torch.Tensor, new: list[torch.Tensor],
           source: str = 'all') -> torch.Tensor:
    """Store so many new tokens of each sequence, packed K and V; returns their starts."""
    starts = torch.zeros(len(counts) + 1, dtype=torch.int32)
    torch.cumsum(counts, 0, out=starts[1:], dtype=torch.int32)
    total, starts = int(starts[-1]), starts.to(layer.device)
    layer.grow(counts)
    scales = {'make_scales': True} if layer.owner.narrow else {}
    plan.append(*(x.contiguous() for x in new), layer.kv, starts=starts, tokens=total,
                source=source, **scales)
    return starts


def own_positions(cache: ShardedCache, length: int) -> torch.Tensor:
    """The positions that this rank holds of a sequence of so many tokens."""
    first = [cache.map.position(cache.rank, local)
             for local in range(0, cache.map.count(cache.rank, length), cache.block)]
    return torch.cat([torch.arange(0), *(torch.arange(at, min(at + cache.block, length))
                                         for at in first)])


def rope_changes(config: Any) -> bool:
    """Does the model's rotary embedding depend on the longest position of a call? Then ranks
    with other tokens would turn theirs in other ways."""
    def kinds(value: Any) -> Any:
        if isinstance(value, dict):
            yield value.get('rope_type')
            for inner in value.values():
                yield from kinds(inner)
    return not {'dynamic', 'longrope'}.isdisjoint(kinds(getattr(config, 'rope_parameters', None)))


@torch.no_grad()
def prefill(model: Any, input_ids: torch.Tensor, cache: ShardedCache,
            attention_mask: torch.Tensor | None = None) -> str:
    """Fill an empty cache with all but the last token of a prompt [batch, tokens]; the model goes
    on with that one: model.generate(input_ids, past_key_values=cache). Collective; every rank
    gives the same prompt. attention_mask as generate() has it: 0 for padding.

    Returns "grid" where each rank ran the model on its own tokens, or "chunks" where the grid has
    not what the model needs (head dimensions above 256, rotary embeddings that depend on the
    length of a call) and every rank ran it on all of them. An error leaves the cache empty."""
    if cache.get_seq_length():
        raise InvalidError(f'the cache has {cache.get_seq_length()} tokens: must be empty')
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    if input_ids.dim() != 2 or mask.shape != input_ids.shape:
        raise InvalidError(f'input_ids has shape {list(input_ids.shape)} and attention_mask '
                           f'{list(mask.shape)}: must both be [batch, tokens]')
    ids, real = input_ids[:, :-1], mask[:, :-1].bool()
    if not real.any():
        return 'grid'
    try:
        done = not rope_changes(model.config.get_text_config(decoder=True)) and \
            run_divided(model, ids, real, cache)
        if not done:
            cache.reset()
            positions = (real.long().cumsum(dim=1) - 1).clamp(min=0)
            model.get_decoder()(input_ids=ids, attention_mask=real.long(),
                                position_ids=positions, past_key_values=cache, use_cache=True)
    except BaseException:
        cache.reset()
        raise
    for layer in cache.layers:
        layer.seen = ids.shape[1]
    cache.kept = None if bool(real.all()) else real
    return 'grid' if done else 'chunks'


def run_divided(model: Any, ids: torch.Tensor, real: torch.Tensor, cache: ShardedCache) -> bool:
    """Run the model on this rank's tokens; False if the grid lacks something."""
    share = cache.share = Share(cache, real)
    try:
        model.get_decoder()(input_ids=ids.gather(1, share.columns), position_ids=share.positions,
                            past_key_values=cache, use_cache=True)
        return True
    except GridLacks:
        return False
    finally:
        cache.share = None
        share.close()
