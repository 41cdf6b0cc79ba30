"""Latent attention (MLA) without expanding the cache: what a model like DeepSeek-V3 caches of a
token is one latent vector and one rotary key, shared by all heads. K and V of a head are products
of the latent with a weight, so the weight can be multiplied into the query and the output instead:

    q·(W_k c) = (W_kᵀ q)·c          Σ p (W_v c) = W_v Σ p c

All heads then attend to one KV head: K is the latent with the rotary key behind it (576 elements
of DeepSeek-V3), V a view of its front. sharded_cache.py stores it so; transformers.py calls this.
"""
from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
import transformers

from .errors import UnsupportedError

MODELS = ('deepseek_v2', 'deepseek_v3', 'glm4_moe_lite')


def latent_dim(config: Any) -> int:
    """The elements of a latent vector; 0 for a model whose cache has K and V. Makes the model's
    layers hand on what a sharded cache returns."""
    dim = getattr(config, 'kv_lora_rank', None) or 0
    if dim:
        kind = config.model_type
        if kind not in MODELS:
            raise UnsupportedError(f'a model of type {kind} has latent attention (kv_lora_rank), '
                                   f'which is known of {", ".join(MODELS)}')
        module = importlib.import_module(f'transformers.models.{kind}.modeling_{kind}')
        layers = [cls for cls in vars(module).values()
                  if isinstance(cls, type) and 'expand_kv' in vars(cls)]
        if not layers:
            raise UnsupportedError(f'{kind} of transformers {transformers.__version__} has no '
                                   'layer with expand_kv(): needs a version that caches the '
                                   'latent vector')
        for cls in layers:
            hand_on(cls)
    return dim


def hand_on(cls: type) -> None:
    """Let expand_kv() of a layer expand tensors as ever, and hand on anything else."""
    original = cls.expand_kv
    if hasattr(original, 'expands'):
        return

    @functools.wraps(original)
    def expand_kv(self, kv_nope, k_rot):
        if isinstance(kv_nope, torch.Tensor):
            return original(self, kv_nope, k_rot)
        return kv_nope, k_rot
    expand_kv.expands = original
    cls.expand_kv = expand_kv


def expanded(module: Any, latent: torch.Tensor,
             rotary: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """K and V of all heads [B, H, T, dim], as the model itself makes them."""
    return type(module).expand_kv.expands(module, latent, rotary)


def weights(module: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """W_k [H, dim, latent] and W_v [H, v_dim, latent] of a layer."""
    projection = module.kv_b_proj
    if type(projection) is not torch.nn.Linear or projection.bias is not None:
        raise UnsupportedError(f'kv_b_proj is {projection}: must be a plain Linear without a bias '
                               'to be multiplied into query and output')
    both = projection.weight.unflatten(0, (-1, module.qk_nope_head_dim + module.v_head_dim))
    return both[:, :module.qk_nope_head_dim], both[:, module.qk_nope_head_dim:]


def absorbed_query(module: Any, query: torch.Tensor) -> torch.Tensor:
    """The query [B, H, T, dim + rotary] as one over latent vectors, [B, H, T, latent + rotary]."""
    front, rotary = query.split([module.qk_nope_head_dim, module.qk_rope_head_dim], dim=-1)
    return torch.cat((front @ weights(module)[0], rotary), dim=-1)


def expanded_output(module: Any, out: torch.Tensor) -> torch.Tensor:
    """Sums of latent vectors [B, T, H, latent] as sums of values, [B, T, H, v_dim]."""
    return torch.einsum('bthl,hvl->bthv', out, weights(module)[1])
