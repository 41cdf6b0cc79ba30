"""The masks of transformers, as far as a sharded cache can honour them: causal, with or without a
window, and padding. transformers asks padding_mask() for a mask, and what it returns comes back to
attend() of transformers.py with the query: a tensor [batch, tokens] of what is no padding, marked
with what the model's own mask function does. A mask function that is none of these is refused when
the mask is made, and so is, by attend(), a mask that was not made here: it may hide anything.
"""
from __future__ import annotations

import inspect
from typing import Any, Callable

import torch
from transformers.masking_utils import and_masks, causal_mask_function, sliding_window_overlay

from .errors import InvalidError, UnsupportedError

# What closures of transformers are known by.
AND_CODE = and_masks(causal_mask_function).__code__
WINDOW_CODE = sliding_window_overlay(1).__code__
LAYER_TYPES = ('full_attention', 'sliding_attention')


class Mark:
    """What attend() must know of a mask: its window (0: none), the columns [batch, tokens] that
    are no padding (None: all), and the cache that has compared it with what it stores."""

    def __init__(self, window: int, real: torch.Tensor | None):
        self.window, self.real = window, real
        self.agreed: Any = None
        self.span = 0 if real is None else span_with_holes(real)


def window_of(mask_function: Callable) -> int | None:
    """The window of a mask function that is causal, 0 for none; None: it is something else."""
    if mask_function is causal_mask_function:
        return 0
    if getattr(mask_function, '__code__', None) is not AND_CODE:
        return None
    parts = inspect.getclosurevars(mask_function).nonlocals['mask_functions']
    windows = [inspect.getclosurevars(part).nonlocals['sliding_window'] for part in parts
               if getattr(part, '__code__', None) is WINDOW_CODE]
    if len(parts) == 2 and len(windows) == 1 and causal_mask_function in parts:
        return int(windows[0])
    return None


def span_with_holes(real: torch.Tensor) -> int:
    """From the first token of a sequence to its last, where padding lies between them; the most
    of all sequences, 0 if none has such a hole. There a window over columns is not one over
    tokens."""
    columns = torch.arange(1, real.shape[1] + 1, device=real.device)
    last = (real * columns).amax(dim=1)
    first = torch.where(real, columns, real.shape[1] + 1).amin(dim=1)
    span = (last - first + 1).clamp(min=0)
    return int(torch.where(real.sum(dim=1) < span, span, 0).max())


def padding_mask(batch_size: int, kv_length: int, mask_function: Callable = causal_mask_function,
                 attention_mask: torch.Tensor | None = None, device: Any = None,
                 **_options: Any) -> torch.Tensor:
    """The mask function that transformers calls: what is no padding, marked."""
    window = window_of(mask_function)
    if window is None:
        name = getattr(mask_function, '__qualname__', repr(mask_function))
        raise UnsupportedError(f'the model masks its attention by {name}, which the attention '
                               '"treeattn" has not: it is causal, with or without a window '
                               '(chunks, or images that see all of themselves, are not known)')
    if attention_mask is None:
        mask = torch.ones((1, 1), dtype=torch.bool, device=device).expand(batch_size, kv_length)
        return marked(mask, Mark(window, None))
    if attention_mask.dim() != 2 or attention_mask.shape[1] != kv_length:
        raise InvalidError(f'the attention mask has shape {list(attention_mask.shape)}: must be '
                           f'[batch, tokens] with all {kv_length} tokens, those that the cache has '
                           'seen and the new ones')
    real = attention_mask.bool()
    mask = real.view(real.shape)  # an object of its own
    return marked(mask, Mark(window, None if bool(real.all()) else real))


def marked(mask: torch.Tensor, mark: Mark) -> torch.Tensor:
    mask.treeattn = mark
    return mask


def mark_of(mask: Any, window: int) -> Mark:
    """The mark of a mask that a model hands to its attention function with a window."""
    mark = getattr(mask, 'treeattn', None)
    if mark is None:
        what = 'none' if mask is None else f'one of shape {list(mask.shape)}'
        raise UnsupportedError(f'the attention mask is {what}, which transformers did not make for '
                               'the attention "treeattn": must be of padding alone, [batch, '
                               'tokens], as models give it to create_causal_mask()')
    if mark.window != window:
        raise UnsupportedError(f'the model masks a window of {mark.window} tokens and tells its '
                               f'attention function of {window} (0: none): must be the same')
    check_holes(mark.span, window)
    return mark


def check_holes(span: int, window: int) -> None:
    """Refuse a window that would count other tokens than columns."""
    if window and span > window:
        raise UnsupportedError(f'padding lies inside a sequence that is {span} columns long, '
                               f'further than the window of {window} reaches: the window of the '
                               'model counts padding, that of a sharded cache does not')


def check_config(config: Any) -> None:
    """Refuse a model whose layers attend in another way than all, or the last ones, of the tokens
    before."""
    others = sorted(set(getattr(config, 'layer_types', None) or ()) - set(LAYER_TYPES))
    if others:
        raise UnsupportedError(f'the model has layers of {", ".join(others)}: a ShardedCache is '
                               f'for {" and ".join(LAYER_TYPES)}')
    chunk = getattr(config, 'attention_chunk_size', None)
    if chunk:
        raise UnsupportedError(f'the model has an attention_chunk_size of {chunk}: a ShardedCache '
                               'has no attention in chunks')


def check_stored(mask: torch.Tensor | None, kept: torch.Tensor | None) -> None:
    """Does a mask of the tokens that were seen before hide those that were not stored, and no
    others? None: it hides, or has stored, them all."""
    if mask is None and kept is None:
        return
    mask = torch.ones_like(kept) if mask is None else mask
    kept = torch.ones_like(mask) if kept is None else kept
    if torch.equal(mask, kept):
        return
    row, column = (int(x[0]) for x in (mask != kept).nonzero(as_tuple=True))
    did, does = ('stored', 'hides') if kept[row, column] else ('left out', 'shows')
    raise UnsupportedError(f'token {column} of sequence {row} was {did} by an earlier call, and '
                           f'the attention mask {does} it now: a mask must say of earlier tokens '
                           'what it said then')
