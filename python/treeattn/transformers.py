"""Models of transformers with a KV cache that is sharded over ranks.

    import treeattn.transformers as tt
    tt.register()
    model.set_attn_implementation('treeattn')
    model.generate(ids, past_key_values=tt.ShardedCache(model.config, group))

Every rank runs the model on the same input and keeps only its part of every layer's K and V; all
get the same output, bit by bit, and so the same tokens (with sampling: if all have the same seed).

What goes on in a layer: the model hands new K and V to the cache, which returns a handle in place
of tensors; the model hands that to attend(), with the query and the mask; there the new tokens are
appended and attended to. Padding is left out, on either side: the tokens of a sequence that the
mask hides are not stored, and their outputs are 0.
"""
from __future__ import annotations

from typing import Any

import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import flash_attention_mask

from .errors import InvalidError, UnsupportedError
from .group import Group
from .kv import KV
from .plan import Plan
from .shard import ShardMap
from .torch import DTYPES, device_of

NAME = 'treeattn'
KNOWN = {'sliding_window', 'softcap', 's_aux', 'position_ids', 'use_cache', 'cache_position',
         'output_attentions', 'output_hidden_states', 'is_causal', 'position_embeddings',
         'num_items_in_batch', 'return_dict', 'cu_seq_lens_q', 'cu_seq_lens_k', 'max_length_q',
         'max_length_k', 'past_key_values', 'output_router_logits', 'logits_to_keep', 'labels'}
# What a model may hand on with no meaning here, as long as it has no value.
REFUSED = {'cu_seq_lens_q', 'cu_seq_lens_k'}


class Handle:
    """What a layer's update() returns in place of K and V: the layer and the new tokens."""

    def __init__(self, layer: 'ShardedLayer', keys: torch.Tensor, values: torch.Tensor):
        self.layer, self.keys, self.values = layer, keys, values


class ShardedLayer(CacheLayerMixin):
    """The part of one layer's K and V that this rank holds, in pages that are taken as it grows:
    page i of sequence b is number i * batch + b."""

    is_sliding = False

    def __init__(self, owner: 'ShardedCache'):
        super().__init__()
        self.owner = owner
        self.seen = 0  # tokens, with padding
        self.kv: KV | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.batch = key_states.shape[0]
        block = self.owner.block
        self.keys = key_states.new_empty((0, block, *key_states.shape[1::2]))
        self.values = value_states.new_empty((0, block, *value_states.shape[1::2]))
        self.lengths = torch.zeros(self.batch, dtype=torch.int32, device=self.device)
        entries = -(-self.owner.max_tokens // block)
        self.pages = torch.arange(entries * self.batch, dtype=torch.int32, device=self.device) \
            .reshape(entries, self.batch).t().contiguous()
        self.held = torch.zeros(self.batch, dtype=torch.int32)  # the lengths, on the host
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any,
               **kwargs: Any) -> tuple[Any, Any]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if key_states.shape[0] != self.batch or key_states.dtype != self.dtype:
            raise InvalidError(f'the cache is for a batch of {self.batch} and {self.dtype}: got '
                               f'{key_states.shape[0]} and {key_states.dtype}')
        self.seen += key_states.shape[2]
        handle = Handle(self, key_states, value_states)
        return handle, handle

    def grow(self, counts: torch.Tensor) -> None:
        """The sequences get so many more tokens: have room for them."""
        owner, longest = self.owner, int((self.held + counts).max())
        if longest > owner.length:
            raise InvalidError(f'a sequence would have {longest} tokens: the cache was made for '
                               f'{owner.length} (max_length)')
        self.held += counts
        self.lengths += counts.to(self.device)
        wanted = -(-owner.map.count(owner.rank, longest) // owner.block) * self.batch
        if wanted > len(self.keys) or self.kv is None:
            room = min(max(wanted, 2 * len(self.keys), self.batch), self.pages.numel())
            self.keys, self.values = (enlarged(x, room) for x in (self.keys, self.values))
            self.kv = KV(self.keys, self.values, self.lengths, page_table=self.pages)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seen + query_length, 0

    def get_seq_length(self) -> int:
        return self.seen

    def get_max_length(self) -> int:
        return self.owner.length

    def get_max_cache_shape(self) -> int:
        return self.owner.length

    def reset(self) -> None:
        if self.is_initialized:
            self.lengths.zero_()
            self.held.zero_()
            self.seen = 0

    def refuse(self, what: str) -> None:
        raise UnsupportedError(f'a ShardedCache has no {what}')

    def reorder_cache(self, beam_idx: Any) -> None:
        self.refuse('beam search (reorder_cache)')

    def crop(self, *args: Any) -> None:
        self.refuse('crop')

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.refuse('batch_repeat_interleave')

    def batch_select_indices(self, indices: Any) -> None:
        self.refuse('batch_select_indices')

    def offload(self) -> None:
        self.refuse('offloading')


def enlarged(pool: torch.Tensor, pages: int) -> torch.Tensor:
    """The pool with more pages, those that it has in front."""
    new = pool.new_empty((pages, *pool.shape[1:]))
    new[:len(pool)] = pool
    return new


class ShardedCache(Cache):
    """A cache whose layers keep this rank's tokens alone, dealt to the ranks in blocks.

    config      of the model; None: layers are made as they come
    group       None: one rank
    max_length  the most tokens of a sequence; 0: the model's max_position_embeddings
    block       tokens of a block, and of a page
    chunk       the most query tokens of one call, at most 1024: a longer prompt goes in several
    options     more options of the plans, such as exchange or reproducible_tile
    """

    def __init__(self, config: Any = None, group: Group | None = None, *, max_length: int = 0,
                 block: int = 64, chunk: int = 256, **options: Any):
        text = config.get_text_config(decoder=True) if config is not None else None
        self.length = max_length or (getattr(text, 'max_position_embeddings', 0) or 0)
        if self.length < 1:
            raise InvalidError('max_length is missing: the most tokens of a sequence')
        self.group = group
        self.rank, ranks = (group.rank, group.size) if group else (0, 1)
        self.map = ShardMap('block_cyclic', ranks, block)
        self.block, self.chunk, self.options = block, chunk, options
        self.max_tokens = -(-self.length // (block * ranks)) * block
        self.plans: dict[Any, Plan] = {}
        layers = [ShardedLayer(self) for _ in range(text.num_hidden_layers if text else 0)]
        super().__init__(layers=layers)

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *args: Any,
               **kwargs: Any) -> tuple[Any, Any]:
        while len(self.layers) <= layer_idx:
            self.layers.append(ShardedLayer(self))
        return self.layers[layer_idx].update(key_states, value_states)

    def plan(self, query: torch.Tensor, layer: ShardedLayer, scale: float) -> Plan:
        """The plan for a query [B, H, T, D]: one serves all layers of the same shape."""
        batch, heads = query.shape[:2]
        key = (batch, heads, layer.keys.shape[2:], layer.values.shape[2:], query.dtype,
               device_of(query), scale)
        if key not in self.plans:
            if query.dtype not in DTYPES:
                raise UnsupportedError(f'the query is {query.dtype}: must be float32, float16 or '
                                       'bfloat16')
            self.plans[key] = Plan(
                self.group, key[5], batch=batch, query_tokens=self.chunk, query_heads=heads,
                kv_heads=key[2][0], k_dim=key[2][1], v_dim=key[3][1],
                kv_dtype=DTYPES[layer.dtype], query_dtype=DTYPES[query.dtype],
                max_tokens=self.max_tokens, scale=scale,
                shard_map=ShardMap('block_cyclic', block=self.block), **self.options)
        return self.plans[key]


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
    if attention_mask is not None and attention_mask.dim() != 2:
        raise UnsupportedError(f'the attention mask has shape {list(attention_mask.shape)}: must '
                               'be of padding alone, [batch, tokens]')
    layer = key.layer
    plan = layer.owner.plan(query, layer, scaling or query.shape[-1] ** -0.5)
    sinks = options.get('s_aux')
    extra = {'window': options.get('sliding_window') or 0,
             'softcap': options.get('softcap') or 0.0,
             'sinks': None if sinks is None else sinks.detach().float().contiguous()}
    tensors = [x.transpose(1, 2) for x in (query, key.keys, key.values)]
    tokens = query.shape[2]
    real = None if attention_mask is None else attention_mask[:, -tokens:].bool()
    parts = [step(plan, layer, [x[:, at:at + plan.query_tokens] for x in tensors],
                  None if real is None else real[:, at:at + plan.query_tokens], extra)
             for at in range(0, tokens, plan.query_tokens)]
    return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)), None


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
    starts = torch.zeros(batch + 1, dtype=torch.int32)
    torch.cumsum(counts, 0, out=starts[1:], dtype=torch.int32)
    starts = starts.to(layer.device)
    layer.grow(counts)
    plan.append(packed[1].contiguous(), packed[2].contiguous(), layer.kv, starts=starts)
    out = plan.decode(packed[0].contiguous(), layer.kv, starts=starts, **extra)
    if real is None:
        return out.reshape(shape)
    whole = out.new_zeros(shape)
    whole[real] = out
    return whole


def register() -> None:
    """Make the attention implementation "treeattn" known to transformers."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, flash_attention_mask)


def check_version() -> str:
    """The version of transformers; the classes used here came with 5.0."""
    version = transformers.__version__
    if int(version.split('.', maxsplit=1)[0]) < 5:
        raise ImportError(f'treeattn.transformers needs transformers 5 or later: this is {version}')
    return version


check_version()
