"""treeattn.torch: combine against the formula of vLLM and SGLang written out in torch, gradients
against those of SDPA, torch.compile, and process groups (also one that loses a process)."""
import os
import signal
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist
import torch.nn.functional as F

import treeattn
import treeattn.torch as tt

HERE = os.path.dirname(os.path.realpath(__file__))


def formula(outs, lses, base_e):
    """(out, lse) of all ranks: what dcp_a2a_lse_reduce() computes, in double."""
    lses = torch.stack(lses).double()
    outs = torch.stack(outs).double()
    exp, log = (torch.exp, torch.log) if base_e else (torch.exp2, torch.log2)
    most = lses.max(dim=0).values
    most = torch.where(most == -torch.inf, torch.zeros_like(most), most)
    weights = exp(lses - most)
    total = weights.sum(dim=0)
    lse = most + log(total)
    share = torch.nan_to_num(weights / total, nan=0.0)
    outs = torch.where((lses == -torch.inf)[..., None], torch.zeros_like(outs), outs)
    return (share[..., None] * outs).sum(dim=0), lse


class Combine(unittest.TestCase):
    def test_against_the_formula(self):
        torch.manual_seed(1)
        cases = [(ranks, heads, rows, base_e, dtype) for ranks in (1, 2, 3)
                 for heads, rows in ((8, 5), (16, 1), (7, 3), (2, 4))
                 for base_e in (True, False) for dtype in (torch.float32, torch.bfloat16)]
        for ranks, heads, rows, base_e, dtype in cases:
            outs = [torch.randn(rows, heads, 32).to(dtype) for _ in range(ranks)]
            lses = [torch.randn(rows, heads) * 5 for _ in range(ranks)]
            for rank in range(ranks):  # rows that a rank has no key of, and one that none has
                lses[rank][rank % rows] = -torch.inf
                lses[rank][-1, 0] = -torch.inf
                outs[rank][-1, 0] = torch.nan
            want, want_lse = formula(outs, lses, base_e)

            def rank_main(group):
                part = outs[group.rank], lses[group.rank], group
                mine = tt.combine(*part, return_lse=True, is_lse_base_on_e=base_e)
                whole = tt.combine(*part, is_lse_base_on_e=base_e, scatter_heads=False)
                return mine, whole
            results = treeattn.run(ranks, rank_main)
            out = torch.cat([mine[0] for mine, _ in results], dim=1)
            lse = torch.cat([mine[1] for mine, _ in results], dim=1)
            close = 2e-6 if dtype is torch.float32 else 1e-2
            torch.testing.assert_close(out.double(), want, atol=close, rtol=close)
            torch.testing.assert_close(lse.double(), want_lse, atol=1e-5, rtol=1e-6)
            for _, whole in results:
                self.assertTrue(torch.equal(whole, out))

    def test_wrong_shapes(self):
        def rank_main(group):
            with self.assertRaisesRegex(ValueError, r'must be \[B, H, D\]'):
                tt.combine(torch.zeros(2, 3), torch.zeros(2, 3), group)
            with self.assertRaisesRegex(ValueError, 'part_lse has shape'):
                tt.combine(torch.zeros(2, 3, 8), torch.zeros(2, 4), group)
        treeattn.run(1, rank_main)


class Attention(unittest.TestCase):
    def plan(self, group=None, **options):
        return treeattn.Attention(group, query_heads=4, kv_heads=2, k_dim=16, dtype='f32',
                                  max_tokens=64, shard_map=treeattn.ShardMap('zigzag', block=4),
                                  **options)

    def sdpa(self, q, k, v):
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                              enable_gqa=True)[0].transpose(0, 1)

    def test_gradients(self):
        torch.manual_seed(2)
        tensors = [torch.randn(30, heads, 16, requires_grad=True) for heads in (4, 2, 2)]
        weight = torch.randn(30, 4, 16)
        out = self.sdpa(*tensors)
        wanted = [out.detach(), *torch.autograd.grad((out * weight).sum(), tensors)]
        where = treeattn.ShardMap('zigzag', 2, 4)

        def rank_main(group):
            mine = where.positions(group.rank, 30)
            part = [x.detach()[mine].requires_grad_() for x in tensors]
            plan = self.plan(group)
            out = tt.attention(plan, *part, [30])
            torch.autograd.backward((out * weight[mine]).sum())
            return mine, [out.detach(), *(x.grad for x in part)]
        for mine, found in treeattn.run(2, rank_main):
            for a, b in zip(found, wanted):
                torch.testing.assert_close(a, b[mine], atol=1e-5, rtol=1e-5)

    def test_operators_are_what_torch_expects(self):
        plan = self.plan()
        tensors = [torch.randn(8, heads, 16, requires_grad=True) for heads in (4, 2, 2)]
        torch.library.opcheck(torch.ops.treeattn.attention.default,
                              (*tensors, [8], plan.number))

    def test_compile_traces_through(self):
        """Without the code generator, which wants a C++ compiler and time."""
        plan = treeattn.Plan(batch=1, query_heads=2, k_dim=16, kv_dtype='f32', max_tokens=8)
        kv = treeattn.KV(torch.randn(1, 8, 2, 16), torch.randn(1, 8, 2, 16), [8])

        def step(q):
            return tt.decode(plan, q * 2, kv)[0] + 1
        q = torch.randn(1, 1, 2, 16)
        compiled = torch.compile(step, backend='aot_eager', fullgraph=True)
        self.assertTrue(torch.equal(compiled(q), step(q)))


class Processes(unittest.TestCase):
    """Started here and not by torchrun, which ends all when one dies."""

    def start(self, ranks, what):
        with tempfile.TemporaryDirectory() as scratch:
            meet = 'file://' + os.path.join(scratch, 'meet')
            running = [subprocess.Popen(
                [sys.executable, os.path.join(HERE, 'torch_ops.py'), what, meet, str(rank),
                 str(ranks)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                for rank in range(ranks)]
            said = [process.communicate(timeout=900)[0].decode() for process in running]
            return [process.returncode for process in running], said

    def test_a_gloo_group(self):
        codes, said = self.start(3, 'sum')
        self.assertEqual(codes, [0, 0, 0], said)

    def test_a_killed_process_is_named(self):
        codes, said = self.start(2, 'killed')
        self.assertEqual(codes, [0, -signal.SIGKILL], said)
        self.assertIn('rank 1', said[0])


class Peers(unittest.TestCase):
    def test_the_benchmark(self):
        """It runs, and all of its contenders are right."""
        said = subprocess.run(
            [sys.executable, os.path.join(HERE, '..', '..', 'bench', 'peers.py'), '--tokens',
             '96', '--steps', '2', '--dtype', 'float32', '--threads', '1'], check=True,
            stdout=subprocess.PIPE).stdout.decode()
        rows = [line.split() for line in said.splitlines() if not line.startswith(('#', ' '))]
        self.assertEqual([row[0] for row in rows], ['treeattn', 'SDPA,', 'SDPA,'])
        self.assertEqual(rows[0][-2], '1.00')
        for row in rows:
            self.assertLess(float(row[-1]), 1e-5)


def main_of_a_process(what, meet, rank, ranks):
    dist.init_process_group('gloo', init_method=meet, rank=int(rank), world_size=int(ranks))
    group = tt.group(timeout=60)
    rank, ranks = group.rank, group.size
    lses = [torch.full((4, 6), float(r)) for r in range(ranks)]
    outs = [torch.full((4, 6, 8), float(r)) for r in range(ranks)]
    mine = tt.combine(outs[rank], lses[rank], dist.group.WORLD, scatter_heads=False)
    torch.testing.assert_close(mine.double(), formula(outs, lses, True)[0], atol=1e-6, rtol=1e-6)
    total = group.all_reduce(torch.arange(300000, dtype=torch.int32))
    assert int(total[-1]) == ranks * 299999
    if what == 'killed':
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                group.barrier()
        except treeattn.TreeattnError as error:
            print(error, flush=True)
        os._exit(0)  # torch would wait for the rank that is gone
    dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    torch.set_num_threads(1)
    if len(sys.argv) == 5:
        main_of_a_process(*sys.argv[1:])
    else:
        unittest.main()
