"""The KV cache of a transformers model that is sharded over ranks: ShardedCache, whose layers keep
this rank's tokens in pages. A layer returns a handle in place of K and V, which the attention
function of transformers.py takes; prefill.py fills it with a prompt that is divided over the ranks.
"""
from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from .arrays import dtype_name
from .errors import InvalidError, UnsupportedError
from .group import Group
from .kv import KV
from .latent import latent_dim
from .masks import Mark, check_config, check_stored
from .plan import Plan
from .process_groups import DTYPES, device_of
from .shard import ShardMap


# What a cache may be stored as. Elements of 8 bits have a scale for each token and head.
NARROW = {'e4m3': torch.float8_e4m3fn, 'e5m2': torch.float8_e5m2,
          'e4m3_fnuz': torch.float8_e4m3fnuz, 'e5m2_fnuz': torch.float8_e5m2fnuz}
STORED = {**{name: dtype for dtype, name in DTYPES.items()}, **NARROW}


class Handle:
    """What a layer's update() returns in place of K and V: the layer and the new tokens."""

    def __init__(self, layer: 'ShardedLayer', keys: torch.Tensor, values: torch.Tensor):
        self.layer, self.keys, self.values = layer, keys, values

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedError(f'the model reads {name!r} of what its cache returns, as if that '
                               'were a tensor: a ShardedCache works with models that hand it to '
                               'their attention function, and needs model.'
                               'set_attn_implementation("treeattn")')


class ShardedLayer(CacheLayerMixin):
    """The part of one layer's K and V that this rank holds, in pages that are taken as it grows:
    page i of sequence b is number i * batch + b. With latent attention V is the front of K."""

    is_sliding = False

    def __init__(self, owner: 'ShardedCache'):
        super().__init__()
        self.owner = owner
        self.seen = 0  # tokens, with padding
        self.kv: KV | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.batch = key_states.shape[0]
        block, stored = self.owner.block, STORED.get(self.owner.kv_dtype, self.dtype)
        self.keys = key_states.new_empty((0, block, *key_states.shape[1::2]), dtype=stored)
        self.values = value_states.new_empty((0, block, *value_states.shape[1::2]), dtype=stored)
        self.scales = {name: key_states.new_empty((0, block, key_states.shape[1]),
                                                  dtype=torch.float32)
                       for name in ('k_scale', 'v_scale') if self.owner.narrow}
        self.lengths = torch.zeros(self.batch, dtype=torch.int32, device=self.device)
        entries = -(-self.owner.max_tokens // block)
        self.pages = torch.arange(entries * self.batch, dtype=torch.int32, device=self.device) \
            .reshape(entries, self.batch).t().contiguous()
        self.held = torch.zeros(self.batch, dtype=torch.int32)  # the lengths, on the host
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any,
               **kwargs: Any) -> tuple[Any, Any]:
        if self.owner.latent:  # what is given are latent vectors and rotary keys
            key_states = torch.cat((key_states, value_states), dim=-1)
            value_states = key_states[..., :self.owner.latent]
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
            self.keys = enlarged(self.keys, room)
            self.values = self.keys[..., :owner.latent] if owner.latent else \
                enlarged(self.values, room)
            self.scales = {name: enlarged(x, room) for name, x in self.scales.items()}
            self.kv = KV(self.keys, self.values, self.lengths, page_table=self.pages,
                         **self.scales)

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

    config      of the model; None: layers are made as they come (not with latent attention)
    group       None: one rank
    max_length  the most tokens of a sequence; 0: the model's max_position_embeddings
    block       tokens of a block, and of a page
    chunk       the most query tokens of one call, at most 1024: a longer prompt goes in several
    kv_dtype    what K and V are stored as: f32, f16 or bf16, or in 8 bits, e4m3, e5m2, e4m3_fnuz or
                e5m2_fnuz, with a scale for each token and head; None: as the model has them
    options     more options of the plans, such as exchange or reproducible_tile
    """

    def __init__(self, config: Any = None, group: Group | None = None, *, max_length: int = 0,
                 block: int = 64, chunk: int = 256, kv_dtype: Any = None, **options: Any):
        text = config.get_text_config(decoder=True) if config is not None else None
        self.length = max_length or (getattr(text, 'max_position_embeddings', 0) or 0)
        if self.length < 1:
            raise InvalidError('max_length is missing: the most tokens of a sequence')
        if text is not None:
            check_config(text)
        self.group = group
        self.rank, self.ranks = (group.rank, group.size) if group else (0, 1)
        self.map = ShardMap('block_cyclic', self.ranks, block)
        self.block, self.chunk, self.options = block, chunk, options
        self.max_tokens = -(-self.length // (block * self.ranks)) * block
        self.latent = latent_dim(text) if text else 0
        self.kv_dtype = None if kv_dtype is None else dtype_name(kv_dtype)
        self.narrow = self.kv_dtype in NARROW
        if self.kv_dtype is not None and self.kv_dtype not in STORED:
            raise InvalidError(f'kv_dtype is {kv_dtype!r}: must be one of {", ".join(STORED)}')
        if self.narrow and self.latent:
            raise UnsupportedError(f'kv_dtype is {self.kv_dtype}: latent vectors are not stored in '
                                   '8 bits, for K and V, which is a part of K, share their scales')
        self.plans: dict[Any, Plan] = {}
        self.share: Any = None  # of a prompt, while prefill() runs
        self.kept: torch.Tensor | None = None  # [batch, seen]: what is no padding; None: all
        layers = [ShardedLayer(self) for _ in range(text.num_hidden_layers if text else 0)]
        super().__init__(layers=layers)

    def update(self, key_states: Any, value_states: Any, layer_idx: int, *args: Any,
               **kwargs: Any) -> tuple[Any, Any]:
        while len(self.layers) <= layer_idx:
            self.layers.append(ShardedLayer(self))
        return self.layers[layer_idx].update(key_states, value_states)

    def new_tokens(self, mark: Mark, before: int) -> torch.Tensor | None:
        """Which of the tokens behind the first `before` ones are no padding; None: all. What the
        mask says of those is compared with what is stored, once for each mask."""
        if mark.agreed is not self:
            mask, kept = mark.real, self.kept
            if kept is not None and kept.shape[1] > before:  # another layer has added the new ones
                check_stored(mask, kept)
            else:
                check_stored(None if mask is None else mask[:, :before], kept)
                self.kept = mask
            mark.agreed = self
        return None if mark.real is None else mark.real[:, before:]

    def reset(self) -> None:
        super().reset()
        self.kept = None

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
                kv_dtype=self.kv_dtype or DTYPES[layer.dtype], query_dtype=DTYPES[query.dtype],
                max_tokens=self.max_tokens, scale=scale,
                shard_map=ShardMap('block_cyclic', block=self.block), **self.options)
        return self.plans[key]
