"""Attention in double precision by its definition, with numpy, and cases for it."""
import numpy as np


def attend(q, k, v, *, scale=None, first=None, causal=True, window=0, softcap=0.0, sinks=None):
    """q [T, H, D], k [N, G, D], v [N, G, E] of one sequence: (out [T, H, E], lse [T, H]). The
    queries are the last tokens, or begin at position `first`."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    tokens, heads, dim = q.shape
    count, groups = k.shape[:2]
    k, v = (np.repeat(x, heads // groups, axis=1) for x in (k, v))
    scores = np.einsum('thd,nhd->htn', q, k) * (scale or dim ** -0.5)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    x = (count - tokens if first is None else first) + np.arange(tokens)[:, None]
    y = np.arange(count)[None, :]
    hidden = (y > x) if causal else np.zeros((tokens, count), bool)
    if window:
        hidden = hidden | (x - y >= window)
    scores = np.where(hidden[None], -np.inf, scores)
    if sinks is not None:
        scores = np.concatenate([scores, np.broadcast_to(
            np.asarray(sinks, np.float64)[:, None, None], (heads, tokens, 1))], axis=2)
        v = np.concatenate([v, np.zeros((1,) + v.shape[1:])])
    most = scores.max(axis=2, initial=-np.inf)
    base = np.where(np.isfinite(most), most, 0)
    weights = np.exp(scores - base[..., None])
    total = weights.sum(axis=2)
    with np.errstate(divide='ignore'):
        lse = base + np.log(total)
    out = np.einsum('htn,nhe->the', weights, v) / np.where(total, total, 1).T[..., None]
    return out, lse.T


def bf16(x):
    """To the nearest bf16, as numbers of 16 bits."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(x):
    """The numbers that 16 bits stand for."""
    return (x.astype(np.uint32) << 16).view(np.float32)


def narrow_numbers(dtype):
    """What the 256 bytes of a dialect stand for."""
    fraction_bits = 3 if 'e4m3' in dtype else 2
    bias = (7 if 'e4m3' in dtype else 15) + ('fnuz' in dtype)
    code = np.arange(256) & 0x7f
    exponent, fraction = code >> fraction_bits, code % (1 << fraction_bits)
    number = np.where(exponent > 0, (fraction + (1 << fraction_bits)) * 2.0 ** (exponent - 1),
                      fraction * 1.0) * 2.0 ** (1 - bias - fraction_bits)
    number[128:] *= -1
    if 'fnuz' in dtype:
        number[128] = np.nan
    else:
        number[code > (0x7e if dtype == 'e4m3' else 0x7c)] = np.nan
        number[(code == 0x7c) & (dtype == 'e5m2')] *= np.inf
    return number


def shard(x, shard_map, rank, room):
    """This rank's tokens of x [N, ...], in an array for `room` of them, the rest NaN."""
    positions = shard_map.positions(rank, len(x))
    kept = np.full((room,) + x.shape[1:], np.nan, x.dtype)
    kept[:len(positions)] = x[positions]
    return kept
