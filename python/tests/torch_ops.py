"""treeattn.torch: combine against the formula of vLLM and SGLang written out in torch, gradients
against those of SDPA, torch.compile, and process groups (also one that loses a process)."""
import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import weakref

import torch
import torch.distributed as dist
import torch.nn.functional as F

import treeattn
import treeattn.process_groups as pg
import treeattn.torch as tt
from launch import main, run, torchrun

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
            results = run(ranks, rank_main)
            out = torch.cat([mine[0] for mine, _ in results], dim=1)
            lse = torch.cat([mine[1] for mine, _ in results], dim=1)
            close = 2e-6 if dtype is torch.float32 else 1e-2
            torch.testing.assert_close(out.double(), want, atol=close, rtol=close)
            torch.testing.assert_close(lse.double(), want_lse, atol=1e-5, rtol=1e-6)
            for _, whole in results:
                self.assertTrue(torch.equal(whole, out))

    def test_the_shape_of_latent_attention(self):
        """128 heads of 512 elements in 16 bits, as DeepSeek-V3 has them absorbed."""
        torch.manual_seed(3)
        outs = [torch.randn(4, 128, 512).to(torch.float16) for _ in range(3)]
        lses = [torch.randn(4, 128) * 5 for _ in range(3)]
        lses[1][2] = -torch.inf
        want, want_lse = formula(outs, lses, True)

        def rank_main(group):
            return tt.combine(outs[group.rank], lses[group.rank], group, return_lse=True)
        results = run(3, rank_main)
        out = torch.cat([mine for mine, _ in results], dim=1)
        self.assertEqual([mine.shape[1] for mine, _ in results], [42, 43, 43])
        # Half a unit in the last place of the result, and the rounding of f32 before it.
        unit = torch.finfo(torch.float16).eps
        self.assertTrue(((out.double() - want).abs() <= 0.5 * unit * want.abs() + 2e-6).all())
        torch.testing.assert_close(torch.cat([lse for _, lse in results], dim=1).double(),
                                   want_lse, atol=1e-5, rtol=1e-6)

    def test_as_an_operator(self):
        group = treeattn.Group.threads(1)[0]
        out, lse = torch.randn(3, 4, 8), torch.randn(3, 4)
        for base_e, sinks in ((True, None), (False, torch.randn(4))):
            torch.library.opcheck(torch.ops.treeattn.combine.default,
                                  (out, lse, group.number, 4, True, base_e, sinks))

        def step(out, lse):
            whole, whole_lse = tt.combine(out * 2, lse + 1, group, return_lse=True)
            return whole + 1, whole_lse
        compiled = torch.compile(step, backend='aot_eager', fullgraph=True)
        for found, wanted in zip(compiled(out, lse), step(out, lse)):
            self.assertTrue(torch.equal(found, wanted))
        group.close()

    def test_a_larger_call_leaves_the_plan_of_a_smaller_one(self):
        """A captured graph uses the workspace of the plan that it was captured with."""
        def call(rows, group):
            before = set(group.kept)
            tt.combine(torch.zeros(rows, 3, 8), torch.zeros(rows, 3), group)
            return [group.kept[key] for key in group.kept if key not in before]
        with treeattn.Group.threads(1)[0] as group:
            (small,), (large,) = call(200, group), call(1000, group)
            self.assertEqual((small.batch, large.batch), (256, 1024))
            self.assertIn(small, group.kept.values())
            self.assertTrue(small.explain(), 'it is not closed')
            self.assertEqual(call(256, group) + call(129, group) + call(513, group), [])
            self.assertEqual([plan.batch for plan in call(128, group) + call(1, group)], [128, 1])

    def test_wrong_shapes(self):
        def rank_main(group):
            with self.assertRaisesRegex(ValueError, r'must be \[B, H, D\]'):
                tt.combine(torch.zeros(2, 3), torch.zeros(2, 3), group)
            with self.assertRaisesRegex(ValueError, 'part_lse has shape'):
                tt.combine(torch.zeros(2, 3, 8), torch.zeros(2, 4), group)
        run(1, rank_main)


class Stub:
    """A process group, or a back end of one, with the attributes given."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class ProcessGroups(unittest.TestCase):
    """Which Group stands for a process group. There is no GPU here: what torch and NCCL would do
    is written down, and what is asked of them."""

    def setUp(self):
        self.adopted, self.collectives, self.rank, self.size = [], [], 1, 2
        fake = Stub(rank=1, size=2, close=lambda: self.adopted.append('closed'))

        def ccl(device, *, communicator, timeout):
            self.adopted.append((device, communicator))
            return fake
        fake_group = Stub(rank=0, size=1, close=lambda: self.adopted.append('closed'))
        for where, name, what in (
                (pg.Group, 'ccl', ccl), (pg, 'Device', lambda name: Stub(name=name)),
                (pg, 'group', lambda process_group: fake_group),
                (pg, 'first_collective', lambda *both: self.collectives.append(both[0])),
                (pg.dist, 'get_rank', lambda _: self.rank),
                (pg.dist, 'get_world_size', lambda _: self.size)):
            patch = unittest.mock.patch.object(where, name, what)
            patch.start()
            self.addCleanup(patch.stop)
        nccl = Stub(_comm_ptr=lambda: 0xabc)
        self.nccl = Stub(_get_backend=lambda device: nccl)
        self.gloo = Stub(_get_backend=lambda device: Stub())
        self.fake, self.fake_group = fake, fake_group

    def test_memory_of_a_gpu_goes_by_the_communicator(self):
        both = Stub(device_group=self.nccl, cpu_group=self.gloo)
        self.assertIs(tt.as_group(both, 'cuda:1'), self.fake)
        self.assertIs(tt.as_group(both, 'cuda:1'), self.fake)
        self.assertEqual(len(self.adopted), 1)
        self.assertEqual((self.adopted[0][0].name, self.adopted[0][1]), ('cuda:1', 0xabc))
        self.assertEqual(self.collectives, [self.nccl])
        self.assertIs(tt.as_group(self.nccl, 'cuda:1'), self.fake)
        self.assertIs(tt.as_group(both, 'host'), self.fake_group)
        self.assertIs(tt.as_group(Stub(device_group=self.gloo, cpu_group=self.gloo), 'cuda:0'),
                      self.fake_group)
        tt.release(both)
        self.assertEqual(self.adopted[1:], ['closed', 'closed'])
        tt.release(both)

    def test_what_the_communicator_says_is_compared(self):
        self.size = 3
        with self.assertRaisesRegex(treeattn.MismatchError, 'that of rank 1 of 2: the process '
                                                            'group has rank 1 of 3'):
            tt.as_group(self.nccl, 'cuda:0')
        self.assertEqual(self.adopted[-1], 'closed')
        with self.assertRaisesRegex(ValueError, 'no communicator of NCCL or RCCL'):
            tt.ccl_group(Stub(name='cuda:0'), self.gloo)

    def test_groups_end_with_their_process_group(self):
        before = len(pg.groups_of)
        process_group = Stub(_get_backend=lambda device: Stub())
        tt.as_group(process_group)
        self.assertEqual(len(pg.groups_of), before + 1)
        del process_group
        gc.collect()
        self.assertEqual(len(pg.groups_of), before)

    def test_plans_of_combine_end_with_their_group(self):
        group = treeattn.Group.threads(1)[0]
        tt.combine(torch.zeros(2, 3, 8), torch.zeros(2, 3), group)
        plan, known = next(iter(group.kept.values())), weakref.ref(group)
        del group
        gc.collect()
        self.assertIsNotNone(known(), 'the plan is in use')
        known().close()
        with self.assertRaisesRegex(ValueError, 'closed'):
            plan.explain()
        del plan
        gc.collect()
        self.assertIsNone(known())


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
        for mine, found in run(2, rank_main):
            for a, b in zip(found, wanted):
                torch.testing.assert_close(a, b[mine], atol=1e-5, rtol=1e-5)

    def test_operators_are_what_torch_expects(self):
        plan = self.plan()
        tensors = [torch.randn(8, heads, 16, requires_grad=True) for heads in (4, 2, 2)]
        torch.library.opcheck(torch.ops.treeattn.attention.default,
                              (*tensors, [8], plan.number))

    def test_decode_and_append_are_what_torch_expects(self):
        plan = treeattn.Plan(batch=2, query_heads=4, kv_heads=2, k_dim=16, kv_dtype='f32',
                             max_tokens=8)
        cache = [torch.randn(2, 8, 2, 16), torch.randn(2, 8, 2, 16),
                 torch.tensor([8, 5], dtype=torch.int32)]
        kv = treeattn.KV(*cache)
        torch.library.opcheck(torch.ops.treeattn.decode.default, (
            torch.randn(2, 1, 4, 16), [*cache, None, None], kv.number, plan.number, None,
            torch.randn(4), 0, -1, -1.0, plan.out_heads, plan.v_dim))
        torch.library.opcheck(torch.ops.treeattn.append.default, (
            torch.randn(2, 1, 2, 16), torch.randn(2, 1, 2, 16), *cache, None, None, kv.number,
            plan.number, None, -1, 'all', False, 0))

    def test_compiled_steps_append_and_attend(self):
        """What is appended in a compiled step is seen by its decode, and stays."""
        def step(k, v, q):
            lengths.add_(1)
            tt.append(plan, k, v, kv)
            return tt.decode(plan, q * 2, kv)[0] + 1
        torch.manual_seed(6)
        new = [[torch.randn(1, 1, 2, 16) for _ in range(3)] for _ in range(4)]
        back_ends = ['aot_eager'] + ['inductor'] * bool(shutil.which(os.environ.get('CXX', 'c++')))
        found = {}
        for back_end in [None, *back_ends]:
            torch._dynamo.reset()
            lengths = torch.zeros(1, dtype=torch.int32)
            pool = torch.zeros(2, 1, 8, 2, 16)
            kv = treeattn.KV(pool[0], pool[1].clone(), lengths)
            plan = treeattn.Plan(batch=1, query_heads=2, k_dim=16, kv_dtype='f32', max_tokens=8)
            run = step if back_end is None else torch.compile(step, backend=back_end,
                                                              fullgraph=True)
            outs = [run(*three) for three in new]
            found[back_end] = torch.cat(outs), pool[0].clone(), lengths.clone()
            self.assertEqual(int(lengths), 4)
        for back_end in back_ends:
            for a, b in zip(found[back_end], found[None]):
                self.assertTrue(torch.equal(a, b), back_end)
        whole = torch.zeros(1, 8, 2, 32)
        shared = treeattn.KV(whole[..., :16], whole[..., 16:], lengths)
        with self.assertRaisesRegex(NotImplementedError, 'use plan.append'):
            tt.append(plan, *new[0][:2], shared)

    def test_compile(self):
        """By tracing alone, and with the code generator where there is a C++ compiler."""
        back_ends = ['aot_eager'] + ['inductor'] * bool(shutil.which(os.environ.get('CXX', 'c++')))
        plan = treeattn.Plan(batch=1, query_heads=2, k_dim=16, kv_dtype='f32', max_tokens=8)
        kv = treeattn.KV(torch.randn(1, 8, 2, 16), torch.randn(1, 8, 2, 16), [8])

        def step(q):
            return tt.decode(plan, q * 2, kv)[0] + 1
        q = torch.randn(1, 1, 2, 16)
        for back_end in back_ends:
            compiled = torch.compile(step, backend=back_end, fullgraph=True)
            self.assertTrue(torch.equal(compiled(q), step(q)), back_end)

    def test_compile_with_gradients(self):
        """A layer of training: products by generated code, attention by the operator."""
        if not shutil.which(os.environ.get('CXX', 'c++')):
            self.skipTest('no C++ compiler for inductor')
        torch.manual_seed(4)
        plan, x = self.plan(), torch.randn(20, 32)
        weights = [torch.randn(heads * 16, 32, requires_grad=True) for heads in (4, 2, 2)]

        def layer(x, *weights):
            q, k, v = ((x @ w.t()).unflatten(1, (-1, 16)) for w in weights)
            return (torch.tanh(tt.attention(plan, q, k, v, [20])) ** 2).sum()
        wanted = torch.autograd.grad(layer(x, *weights), weights)
        compiled = torch.compile(layer, backend='inductor', fullgraph=True)
        for a, b in zip(torch.autograd.grad(compiled(x, *weights), weights), wanted):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


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

    def test_a_process_that_raises_is_named(self):
        codes, said = self.start(3, 'raises')
        self.assertEqual(codes, [0, 1, 0], said)
        for rank in (0, 2):
            self.assertIn('rank 1', said[rank])
        self.assertIn("raise ArithmeticError('divided by zero')", said[1])

    def test_torchrun_ends_when_a_process_is_killed(self):
        """The launcher ends the others; what they heard is in its output if they came to say it."""
        code, said = torchrun(os.path.join(HERE, 'torch_ops.py'), 'torchrun')
        self.assertNotEqual(code, 0, said)
        self.assertIn('SIGKILL', said)


class Peers(unittest.TestCase):
    def test_the_benchmark(self):
        """It runs, and all of its contenders are right."""
        said = subprocess.run(
            [sys.executable, os.path.join(HERE, '..', '..', 'bench', 'peers.py'), '--tokens',
             '96', '--steps', '2', '--dtype', 'float32', '--threads', '1'], check=True,
            stdout=subprocess.PIPE).stdout.decode()
        rows = [line.split() for line in said.splitlines() if not line.startswith(('#', ' '))]
        names = [row[0].strip(',') for row in rows]
        self.assertEqual(names[:3], ['treeattn', 'SDPA', 'SDPA'], said)
        for name in ('flex', 'JAX', 'OpenVINO'):
            self.assertTrue(name in names or f'left out: {name}' in said, said)
        self.assertEqual(rows[0][-5:-1], ['1.00', '1.00', 'to', '1.00'])
        for row in rows:
            self.assertLess(float(row[-1]), 1e-5)


def main_of_a_process(what, meet, rank, ranks):
    dist.init_process_group('gloo', init_method=meet, rank=int(rank), world_size=int(ranks))
    group = tt.group(timeout=300)
    try:
        work_together(group)
        if what != 'sum':
            lose_rank_1(group, what)
    except treeattn.TreeattnError as error:
        if what == 'sum':
            raise
        print(error, flush=True)
        os._exit(0)  # torch would wait for the rank that is gone
    dist.barrier()
    dist.destroy_process_group()


def work_together(group):
    rank, ranks = group.rank, group.size
    lses = [torch.full((4, 6), float(r)) for r in range(ranks)]
    outs = [torch.full((4, 6, 8), float(r)) for r in range(ranks)]
    mine = tt.combine(outs[rank], lses[rank], dist.group.WORLD, scatter_heads=False)
    torch.testing.assert_close(mine.double(), formula(outs, lses, True)[0], atol=1e-6, rtol=1e-6)
    total = group.all_reduce(torch.arange(300000, dtype=torch.int32))
    assert int(total[-1]) == ranks * 299999


def lose_rank_1(group, how):
    if group.rank == 1:
        if how == 'raises':
            raise ArithmeticError('divided by zero')
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        group.barrier()


if __name__ == '__main__':
    torch.set_num_threads(1)
    if len(sys.argv) == 5:
        main_of_a_process(*sys.argv[1:])
    elif sys.argv[1:] == ['torchrun']:
        main_of_a_process('killed', 'env://', os.environ['RANK'], os.environ['WORLD_SIZE'])
    else:
        main()
