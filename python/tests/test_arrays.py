"""What is no array that the library can use is an error that names the argument, before C sees it;
and the other ranks hear of it."""
import ctypes
import sys
import types
import unittest
import unittest.mock

import numpy as np

import treeattn
from launch import main, run
from treeattn.arrays import DLTensor, capsule_pointer, dlpack_view, view
from treeattn.device import stream_of

NEEDS = ['numpy']


class OnlyDLPack:
    """Numpy's array as one of a library that has DLPack alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Recoded(OnlyDLPack):
    """The same with another code for the type of its elements: numpy has none of 8 bits."""

    def __init__(self, array, code):
        super().__init__(array)
        self.code = code

    def __dlpack__(self):
        capsule = self.array.__dlpack__()
        DLTensor.from_address(capsule_pointer(capsule, b'dltensor')).code = self.code
        return capsule


def small_plan(group=None, **options):
    merged = dict(batch=2, query_heads=2, k_dim=8, kv_dtype='f32', max_tokens=4)
    merged.update(options)
    return treeattn.Plan(group, **merged)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def small_kv():
    return treeattn.KV(zeros(2, 4, 2, 8), zeros(2, 4, 2, 8), np.array([4, 3], np.int32))


class Arrays(unittest.TestCase):
    def refused(self, sentence, function, *arguments, **options):
        with self.assertRaises(ValueError) as caught:
            function(*arguments, **options)
        self.assertIn(sentence, str(caught.exception))
        self.assertEqual(caught.exception.name, 'TA_ERR_INVALID')
        self.assertEqual(caught.exception.status, treeattn.Status.ERR_INVALID)

    def test_queries_and_outputs(self):
        plan, kv, q = small_plan(), small_kv(), zeros(2, 2, 8)
        read_only = zeros(2, 2, 8)
        read_only.flags.writeable = False
        self.refused('q has elements of f64: must be f32', plan.decode, q.astype(np.float64), kv)
        self.refused('q has shape [2, 1, 8]', plan.decode, zeros(2, 1, 8), kv)
        self.refused('q has shape [8]', plan.decode, zeros(8), kv)
        self.refused('a stride of 2 on its last axis', plan.decode, zeros(2, 2, 16)[:, :, ::2], kv)
        self.refused('a stride of 0 on axis 0', plan.decode,
                     np.broadcast_to(zeros(2, 8), (2, 2, 8)), kv)
        self.refused('a stride of -16 on axis 0', plan.decode, q[::-1], kv)
        self.refused('q is missing: this rank has 2 heads', plan.decode, None, kv)
        self.refused('out is read-only', plan.decode, q, kv, read_only)
        self.refused('out has shape [2, 2, 16]', plan.decode, q, kv, zeros(2, 2, 16))
        self.refused('lse has elements of f16: must be f32', plan.decode, q, kv, None,
                     zeros(2, 2, dtype=np.float16))
        self.refused('lse has strides', plan.decode, q, kv, None, zeros(2, 4)[:, ::2])
        self.refused('sinks has shape [3]', plan.decode, q, kv, sinks=zeros(3))
        self.refused('starts has elements of i64: must be i32', plan.decode, q, kv,
                     starts=np.zeros(3, np.int64))
        self.refused('big-endian', plan.decode, q.astype('>f4'), kv)
        with self.assertRaisesRegex(TypeError, 'q is of type list'):
            plan.decode([[1.0]], kv)
        with self.assertRaisesRegex(TypeError, 'must be a treeattn.KV'):
            plan.decode(q, zeros(1))
        self.assertEqual(plan.decode(q, kv).shape, (2, 2, 8))

    def test_caches(self):
        plan, q = small_plan(), zeros(2, 2, 8)
        self.refused('k has shape [2, 4, 8]: must have 4 axes', treeattn.KV, zeros(2, 4, 8),
                     zeros(2, 4, 2, 8), [1, 2])
        self.refused('k has 1 sequences: lengths has 2', treeattn.KV, zeros(1, 4, 2, 8),
                     zeros(1, 4, 2, 8), [1, 2])
        self.refused('lengths has elements of i64', treeattn.KV, zeros(1, 4, 2, 8),
                     zeros(1, 4, 2, 8), np.array([1]))
        self.refused('page_table has shape [4]', treeattn.KV, zeros(4, 4, 2, 8),
                     zeros(4, 4, 2, 8), [1, 2], page_table=np.zeros(4, np.int32))
        other = treeattn.KV(zeros(2, 3, 2, 8), zeros(2, 3, 2, 8), [1, 2])
        self.refused('k has room for 3 tokens: the plan has a max_tokens of 4', plan.decode, q,
                     other)
        other = treeattn.KV(zeros(2, 4, 1, 8), zeros(2, 4, 1, 8), [1, 2])
        self.refused('[kv_heads, dim] = [2, 8]', plan.decode, q, other)
        other = treeattn.KV(zeros(2, 4, 2, 8, dtype=np.float16), zeros(2, 4, 2, 8), [1, 2])
        self.refused('k has elements of f16: must be f32', plan.decode, q, other)

    def test_options(self):
        self.refused("Plan has no option 'heads'; it has batch", treeattn.Plan, heads=3)
        self.refused("Plan has no option 'size'", treeattn.Plan, size=3)
        self.refused("mask is 'causl': must be one of causal, full", small_plan, mask='causl')
        self.refused("kv_dtype is 'f8'", small_plan, kv_dtype='f8')
        self.refused('batch is', small_plan, batch='two')
        self.refused('sinks has 3 elements: must have 2', small_plan, sinks=[1, 2, 3])
        self.refused('config.k_dim is 9', small_plan, k_dim=9)  # the library's own sentence
        self.refused('timeout is 0', treeattn.Group.threads, 2, timeout=0)
        with self.assertRaises(LookupError):
            treeattn.Device('no such device')
        for dtype in ('f16', 'float16', np.float16, np.dtype('float16'), treeattn.Dtype.F16):
            self.assertEqual(small_plan(kv_dtype=dtype).kv_dtype, 'f16')

    def test_numbers_that_c_cannot_hold(self):
        """ctypes would take their low bits: 2 ** 32 + 4 were 4."""
        of32, far = 'must be from -2147483648 to 2147483647', 2 ** 32 + 4
        self.refused(f'max_tokens is {far}: {of32}', small_plan, max_tokens=far)
        self.refused(f'window is {-far}: {of32}', small_plan, window=-far)
        self.refused('workspace_bytes is -1: must be from 0 to 18446744073709551615', small_plan,
                     workspace_bytes=-1)
        self.refused('batch is 2.0, of type float: must be a whole number', small_plan, batch=2.0)
        self.refused('scale is', small_plan, scale=2 ** 2000)
        self.refused('sinks: int too large', small_plan, sinks=[1, 2 ** 2000])
        self.refused(f'threads is {far}: {of32}', treeattn.Device, 'host', threads=far)
        self.refused(f'lengths[1] is {far}: {of32}', treeattn.KV, zeros(2, 4, 2, 8),
                     zeros(2, 4, 2, 8), [1, far])
        self.refused(f'bounds[2] is {far}: {of32}', treeattn.ShardMap, 'contiguous', 2,
                     bounds=[0, 1, far])
        self.refused(f'block is {far}: {of32}', treeattn.ShardMap, block=far)
        where = treeattn.ShardMap(ranks=2, block=4)
        for call, name in ((where.locate, 'position'), (where.next, 'length'),
                           (lambda x: where.position(x, 0), 'rank'),
                           (lambda x: where.position(0, x), 'local'),
                           (lambda x: where.count(0, x), 'length'),
                           (lambda x: where.count(x, 4), 'rank'),
                           (lambda x: treeattn.head_range(8, x, 0), 'ranks'),
                           (lambda x: treeattn.reshard_list(where, where, x), 'length'),
                           (lambda x: treeattn.Cluster('h100:1x8').predict(x), 'ranks'),
                           (treeattn.Group.threads, 'ranks')):
            self.refused(f'{name} is {far}: {of32}', call, far)
        plan, kv, q = small_plan(), small_kv(), zeros(2, 2, 8)
        self.refused('tag is 18446744073709551616', plan.decode, q, kv, tag=2 ** 64)
        self.refused(f'window is {far}: {of32}', plan.decode, q, kv, window=far)
        self.refused(f'tokens is {far}: {of32}', plan.decode, q, kv, starts=[0, 1, 2], tokens=far)
        with treeattn.Group.threads(1)[0] as group:
            self.refused(f'color is {far}: {of32}', group.split, far)
            self.refused(f'root is {far}: {of32}', group.broadcast, q, far)
        full = treeattn.Attention(query_heads=2, k_dim=8, dtype='f32', max_tokens=4)
        self.refused(f'lengths[0] is {far}: {of32}', full.forward, *[zeros(4, 2, 8)] * 3, [far])
        self.assertEqual(plan.decode(q, kv, tag=2 ** 64 - 1, window=np.int64(2)).shape, (2, 2, 8))
        self.assertEqual(small_plan(batch=np.int64(2)).batch, 2)

    def test_other_ranks_hear_of_it_and_the_group_lives(self):
        def rank_main(group):
            plan, kv, q = small_plan(group, shard_map=treeattn.ShardMap('block_cyclic')), \
                small_kv(), zeros(2, 2, 8)
            plan.decode(q, kv)
            try:
                plan.decode(q.astype(np.float64) if group.rank == 1 else q, kv)
                sentence = 'no error'
            except treeattn.TreeattnError as error:
                sentence = str(error)
            return sentence, plan.decode(q, kv).sum()
        found = run(3, rank_main)
        self.assertEqual([total for _, total in found], [0, 0, 0])
        self.assertEqual(found[1][0], 'q has elements of f64: must be f32')
        for sentence, _ in (found[0], found[2]):
            self.assertIn('rank 1', sentence)

    def test_options_that_one_rank_alone_has_wrong(self):
        """Refused before C sees them: the others hear of it at once, and the group lives."""
        wrong = [(small_plan, dict(heads=3), "no option 'heads'"),
                 (small_plan, dict(mask='causl'), "mask is 'causl'"),
                 (small_plan, dict(device='no such device'), 'no such device'),
                 (treeattn.Attention, dict(dtype='f7'), "dtype is 'f7'")]

        def rank_main(group):
            heard = []
            for make, options, _ in wrong:
                usual = {} if make is small_plan else \
                    dict(query_heads=2, k_dim=8, dtype='f32', max_tokens=4)
                try:
                    make(group, **{**usual, **(options if group.rank == 1 else {})})
                    heard.append('no error')
                except treeattn.TreeattnError as error:
                    heard.append(str(error))
            with small_plan(group, shard_map=treeattn.ShardMap('block_cyclic')) as plan:
                plan.decode(zeros(2, 2, 8), small_kv())
            return heard
        found = run(3, rank_main)
        for (_, _, sentence), said in zip(wrong, found[1]):
            self.assertIn(sentence, said)
        for said in found[0] + found[2]:
            self.assertIn('rank 1', said)

    def test_dlpack(self):
        array = np.arange(12, dtype=np.float32).reshape(3, 4)[:, 1:]
        found = view(OnlyDLPack(array), 'x')
        self.assertEqual(found.address, array.ctypes.data)
        self.assertEqual((found.shape, found.strides, found.dtype, found.device),
                         ((3, 3), (4, 1), 'f32', 'cpu'))
        self.assertEqual(ctypes.sizeof(DLTensor), 48)
        plan, q = small_plan(), np.ones((2, 2, 8), np.float32)
        k = zeros(2, 4, 2, 8)
        kv = treeattn.KV(OnlyDLPack(k), OnlyDLPack(k + 3), OnlyDLPack(np.array([4, 3], np.int32)))
        out = zeros(2, 2, 8)
        plan.decode(OnlyDLPack(q), kv, OnlyDLPack(out))
        self.assertEqual(out.min(), 3)
        self.assertEqual(dlpack_view(q, 'q').shape, (2, 2, 8))

    def test_dlpack_of_8_bits(self):
        """By the codes that DLPack has for them: float8_e4m3fn, e4m3fnuz, e5m2 and e5m2fnuz."""
        names = {10: 'e4m3', 11: 'e4m3_fnuz', 12: 'e5m2', 13: 'e5m2_fnuz', 14: 'code 14 8'}
        for code, name in names.items():
            found = view(Recoded(np.zeros((2, 4, 2, 8), np.uint8), code), 'k')
            self.assertEqual((found.dtype, found.shape), (name, (2, 4, 2, 8)))
        one = Recoded(np.full((2, 4, 2, 8), 0x38, np.uint8), 10)  # 1 in e4m3
        plan = small_plan(kv_dtype='e4m3', query_dtype='f32')
        self.assertEqual(plan.decode(zeros(2, 2, 8), treeattn.KV(one, one, [4, 3])).min(), 1)
        self.refused('k has elements of e4m3: must be e5m2', small_plan(
            kv_dtype='e5m2', query_dtype='f32').decode, zeros(2, 2, 8),
            treeattn.KV(one, one, [4, 3]))

    def test_streams(self):
        """What is asked of cupy is written down here, where there is no GPU."""
        current, entered = {0: 70, 1: 71}, [0]

        class FakeDevice:
            def __init__(self, number):
                self.number = number

            def __enter__(self):
                entered.append(self.number)

            def __exit__(self, *unused):
                entered.pop()
        cupy = types.ModuleType('cupy')
        cupy.ndarray = type('ndarray', (), {'device': FakeDevice(1)})
        cupy.cuda = types.SimpleNamespace(
            get_current_stream=lambda: types.SimpleNamespace(ptr=current[entered[-1]]))
        with unittest.mock.patch.dict(sys.modules, cupy=cupy):
            self.assertEqual(stream_of(cupy.ndarray(), None), 71)
            self.assertEqual(stream_of(cupy.ndarray(), 5), 5)
            self.assertIsNone(stream_of(zeros(1), None))
        self.assertIsNone(stream_of(cupy.ndarray(), None))
        self.assertEqual(entered, [0])

    def test_uint16_is_bf16_where_the_plan_says_so(self):
        one = np.full((2, 4, 2, 8), 0x3f80, np.uint16)
        kv = treeattn.KV(one, one, [4, 3])
        out = small_plan(kv_dtype='bf16').decode(one[:, 0], kv)
        self.assertEqual((out.dtype, int(out.min()), int(out.max())), (np.uint16, 0x3f80, 0x3f80))
        self.refused('k has elements of u16: must be f16', small_plan(kv_dtype='f16').decode,
                     one[:, 0], kv)


if __name__ == '__main__':
    main()
