#!/usr/bin/env python3
"""One decode step of this library beside PyTorch's SDPA on the same CPU, K and V: what a doubtful
reader runs first.

    bench/peers.py [--tokens 16384] [--heads 32] [--kv-heads 8] [--dim 128] [--batch 1]
                   [--dtype bfloat16] [--steps 15] [--threads N]

Needs the package treeattn (pip install .) and torch. SDPA runs in two ways: plain, with the query
heads of a group as heads (enable_gqa), and folded, where the query heads that share a KV head are
rows of one, which reads K and V once. All take turns step by step in this process, so the ratios
hold on a machine that is busy with other things too; medians of all steps. Every result is compared
with SDPA in double. Memory is what torch gives: ordinary pages, of the size that is printed.
"""
import argparse
import os
import statistics
import time

import torch
import torch.nn.functional as F

import treeattn


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in (('tokens', 16384), ('heads', 32), ('kv-heads', 8), ('dim', 128),
                         ('batch', 1), ('steps', 15), ('threads', len(os.sched_getaffinity(0)))):
        parser.add_argument('--' + name, type=int, default=number)
    parser.add_argument('--dtype', default='bfloat16',
                        choices=('bfloat16', 'float16', 'float32'))
    return parser.parse_args()


def contenders(a, q, k, v):
    """{name: function that returns [batch, heads, dim]}; K and V [batch, tokens, kv_heads, dim]."""
    plan = treeattn.Plan(device=treeattn.Device('host', threads=a.threads), batch=a.batch,
                         query_heads=a.heads, kv_heads=a.kv_heads, k_dim=a.dim, kv_dtype=q.dtype,
                         max_tokens=a.tokens)
    kv = treeattn.KV(k, v, [a.tokens] * a.batch)
    out = torch.empty_like(q)
    keys, values = k.transpose(1, 2), v.transpose(1, 2)
    rows = q.reshape(a.batch, a.kv_heads, a.heads // a.kv_heads, a.dim)
    return {
        'treeattn': lambda: plan.decode(q, kv, out),
        'SDPA, plain': lambda: F.scaled_dot_product_attention(
            q[:, :, None], keys, values, enable_gqa=a.heads != a.kv_heads)[:, :, 0],
        'SDPA, folded': lambda: F.scaled_dot_product_attention(
            rows, keys, values).reshape(a.batch, a.heads, a.dim),
    }


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    dtype = getattr(torch, a.dtype)
    q = torch.randn(a.batch, a.heads, a.dim).to(dtype)
    k, v = (torch.randn(a.batch, a.tokens, a.kv_heads, a.dim).to(dtype) for _ in range(2))
    running = contenders(a, q, k, v)
    truth = F.scaled_dot_product_attention(
        q.double()[:, :, None], k.double().transpose(1, 2), v.double().transpose(1, 2),
        enable_gqa=a.heads != a.kv_heads)[:, :, 0]
    worst, times = {}, {name: [] for name in running}
    for name, step in running.items():  # also warms up
        worst[name] = (step().double() - truth).abs().max().item()
    for _ in range(a.steps):
        for name, step in running.items():
            begin = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - begin)
    size = 2 * k.numel() * k.element_size()
    print(f'# {a.batch} x {a.tokens} tokens, {a.heads} heads on {a.kv_heads}, dim {a.dim}, '
          f'{a.dtype}: {size / 1e6:.1f} MB of K and V')
    print(f'# torch {torch.__version__}, treeattn {treeattn.__version__}, {a.threads} threads, '
          f'pages of {os.sysconf("SC_PAGE_SIZE")} bytes, {a.steps} steps in turn')
    print(f'{"":14} {"ms, median":>11} {"GB/s":>7} {"times treeattn":>15} {"largest error":>14}')
    base = statistics.median(times['treeattn'])
    for name, measured in times.items():
        median = statistics.median(measured)
        print(f'{name:14} {1e3 * median:11.3f} {size / median / 1e9:7.1f} '
              f'{median / base:15.2f} {worst[name]:14.1e}')


if __name__ == '__main__':
    main()
