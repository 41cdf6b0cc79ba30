#!/usr/bin/env python3
"""One decode step of this library beside what pip brings, on the same CPU, K and V: what a doubtful
reader runs first.

    bench/peers.py [--tokens 16384] [--heads 32] [--kv-heads 8] [--dim 128] [--batch 1]
                   [--dtype bfloat16] [--steps 15] [--threads N] [--peers SDPA,flex,JAX,OpenVINO]

Needs the package treeattn (pip install .) and torch; JAX and OpenVINO take part if they are here.
"Folded" are the query heads that share a KV head as rows of one, which reads K and V once; "plain"
leaves them heads. Each peer takes turns with treeattn in this process, one step each and who comes
first changing every time; the ratio is that of the two steps, so it holds on a machine that is busy
with other things too. Printed are medians, and of the ratios the quartiles. Every result is held
against attention in double. Memory is what torch gives: ordinary pages, of the size printed.
"""
import argparse
import os
import statistics
import sys
import time

os.environ.setdefault('TORCHINDUCTOR_COMPILE_THREADS', '1')  # no forks of a process that has JAX

MISSING = ''
try:
    import torch
    import torch.nn.functional as F

    import treeattn
except ImportError as problem:  # --help works without them
    MISSING = f'{problem}: pip install . torch'

PEERS = 'SDPA,flex,JAX,OpenVINO'


class Missing(Exception):
    """A peer that cannot take part, and why."""


def at_least(least):
    """An argument that is a whole number, so large or larger."""
    def number(text):
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f'is {text!r}: must be a whole number, {least} or '
                                             'more')
        return int(text)
    return number


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in (('tokens', 16384), ('heads', 32), ('kv-heads', 8), ('dim', 128),
                         ('batch', 1), ('threads', len(os.sched_getaffinity(0)))):
        parser.add_argument('--' + name, type=at_least(1), default=number)
    parser.add_argument('--steps', type=at_least(2), default=15)  # quartiles need two
    parser.add_argument('--dtype', default='bfloat16',
                        choices=('bfloat16', 'float16', 'float32'))
    parser.add_argument('--peers', default=PEERS, help='which of them, separated by commas')
    options = parser.parse_args()
    if options.heads % options.kv_heads:
        parser.error(f'argument --heads: is {options.heads}: must be a multiple of --kv-heads, '
                     f'{options.kv_heads}')
    for name in options.peers.split(','):
        if name not in PEERS.split(','):
            parser.error(f'argument --peers: has {name!r}: must be of {PEERS}')
    return options


# ---- Peers: functions that return {name: function that returns [batch, heads, dim]} --------------
# K and V are [batch, tokens, kv_heads, dim], and nobody may have them in another order.

def ours(a, q, k, v):
    plan = treeattn.Plan(device=treeattn.Device('host', threads=a.threads), batch=a.batch,
                         query_heads=a.heads, kv_heads=a.kv_heads, k_dim=a.dim, kv_dtype=q.dtype,
                         max_tokens=a.tokens)
    kv = treeattn.KV(k, v, [a.tokens] * a.batch)
    out = torch.empty_like(q)
    return lambda: plan.decode(q, kv, out)


def folded(a, q):
    return q.reshape(a.batch, a.kv_heads, a.heads // a.kv_heads, a.dim)


def sdpa(a, q, k, v):
    keys, values, rows = k.transpose(1, 2), v.transpose(1, 2), folded(a, q)
    return {
        'SDPA, plain': lambda: F.scaled_dot_product_attention(
            q[:, :, None], keys, values, enable_gqa=a.heads != a.kv_heads)[:, :, 0],
        'SDPA, folded': lambda: F.scaled_dot_product_attention(
            rows, keys, values).reshape(a.batch, a.heads, a.dim),
    }


def flex(a, q, k, v):
    """torch's flex_attention, compiled by inductor."""
    from torch.nn.attention.flex_attention import flex_attention
    keys, values = k.transpose(1, 2), v.transpose(1, 2)
    compiled = torch.compile(flex_attention, dynamic=False)

    def step():
        return compiled(q[:, :, None], keys, values, enable_gqa=a.heads != a.kv_heads)[:, :, 0]
    try:
        step()
    except Exception as error:  # no compiler, or a shape that it does not take
        raise Missing(f'flex ({str(error).strip().splitlines()[0][:100]})') from error
    return {'flex, compiled': step}


def jax_attention(a, q, k, v):
    os.environ.setdefault('JAX_PLATFORMS', 'cpu')
    try:
        import jax
    except ImportError as error:
        raise Missing('JAX (not installed)') from error
    arrays = [jax.dlpack.from_dlpack(x) for x in (q[:, None], k, v)]
    attend = jax.jit(jax.nn.dot_product_attention)
    return {'JAX': lambda: torch.from_dlpack(attend(*arrays).block_until_ready())[:, 0]}


def openvino(a, q, k, v):
    sys.modules.setdefault('openvino_telemetry', None)  # a benchmark tells nobody of its runs
    try:
        import openvino as ov
        from openvino import opset13 as ops
    except ImportError as error:
        raise Missing('OpenVINO (not installed)') from error
    if a.dtype != 'float32':
        raise Missing('OpenVINO (taken in float32 alone)')
    tensors = [ov.Tensor(x.numpy(), shared_memory=True) for x in (folded(a, q), k, v)]
    inputs = [ops.parameter(list(x.shape), ov.Type.f32) for x in tensors]
    keys, values = (ops.transpose(x, ops.constant([0, 2, 1, 3])) for x in inputs[1:])
    model = ov.Model([ops.scaled_dot_product_attention(inputs[0], keys, values)], inputs)
    request = ov.Core().compile_model(model, 'CPU', {
        'INFERENCE_NUM_THREADS': a.threads, 'INFERENCE_PRECISION_HINT': 'f32'}) \
        .create_infer_request()
    for number, tensor in enumerate(tensors):
        request.set_input_tensor(number, tensor)

    def step():
        request.infer()
        return torch.from_numpy(request.get_output_tensor().data).reshape(
            a.batch, a.heads, a.dim)
    return {'OpenVINO, folded': step}


def find_peers(a, q, k, v):
    """(peers that take part, sentences about those that do not)."""
    known = {'SDPA': sdpa, 'flex': flex, 'JAX': jax_attention, 'OpenVINO': openvino}
    running, missing = {}, []
    for name in a.peers.split(','):
        try:
            running.update(known[name](a, q, k, v))
        except Missing as reason:
            missing.append(str(reason))
    return running, missing


# ---- Measuring ----------------------------------------------------------------------------------

def seconds(step):
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def take_turns(steps, own, peer):
    """([seconds of treeattn], [seconds of the peer]), step by step."""
    pairs = []
    for number in range(steps):
        if number % 2:
            pairs.append((seconds(own), seconds(peer)))
        else:
            pairs.append((seconds(peer), seconds(own))[::-1])
    return tuple(zip(*pairs))


def line(name, times, ratios, size, error):
    median = statistics.median(times)
    low, middle, high = statistics.quantiles(ratios, n=4, method='inclusive')
    print(f'{name:17} {1e3 * median:11.3f} {size / median / 1e9:7.1f} {middle:15.2f} '
          f'{low:7.2f} to {high:<7.2f} {error:14.1e}')


def main():
    a = arguments()
    if MISSING:
        sys.exit(f'peers.py: {MISSING}')
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    dtype = getattr(torch, a.dtype)
    q = torch.randn(a.batch, a.heads, a.dim).to(dtype)
    k, v = (torch.randn(a.batch, a.tokens, a.kv_heads, a.dim).to(dtype) for _ in range(2))
    truth = F.scaled_dot_product_attention(
        q.double()[:, :, None], k.double().transpose(1, 2), v.double().transpose(1, 2),
        enable_gqa=a.heads != a.kv_heads)[:, :, 0]
    own, (running, missing) = ours(a, q, k, v), find_peers(a, q, k, v)
    size = 2 * k.numel() * k.element_size()
    print(f'# {a.batch} x {a.tokens} tokens, {a.heads} heads on {a.kv_heads}, dim {a.dim}, '
          f'{a.dtype}: {size / 1e6:.1f} MB of K and V')
    print(f'# torch {torch.__version__}, treeattn {treeattn.__version__}, {a.threads} threads, '
          f'pages of {os.sysconf("SC_PAGE_SIZE")} bytes, {a.steps} steps in turn')
    for reason in missing:
        print(f'# left out: {reason}')
    print(f'{"":17} {"ms, median":>11} {"GB/s":>7} {"times treeattn":>15} {"quartiles":>18} '
          f'{"largest error":>14}')
    worst = {name: (step().double() - truth).abs().max().item()  # also warms up
             for name, step in {'treeattn': own, **running}.items()}
    own_times, rows = [], []
    for name, step in running.items():
        mine, theirs = take_turns(a.steps, own, step)
        own_times += mine
        rows.append((name, theirs, [b / a for a, b in zip(mine, theirs)]))
    own_times = own_times or [seconds(own) for _ in range(a.steps)]
    line('treeattn', own_times, [1.0, 1.0], size, worst['treeattn'])
    for name, times, ratios in rows:
        line(name, times, ratios, size, worst[name])


if __name__ == '__main__':
    main()
