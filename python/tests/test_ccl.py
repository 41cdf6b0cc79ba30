"""Groups of GPUs in Python: by an id, over another group, and by adopting a communicator, on the
module that runs GPU kernels on the CPU, with its own NCCL (tests/simt/). Ranks are threads."""
import ctypes
import os
import unittest

import numpy as np

import treeattn
from launch import main
from treeattn._library import check, lib
from truth import attend, shard

NEEDS = ['numpy']
HEADS, KV_HEADS, DIM, TOKENS, BLOCK = 4, 2, 16, 30, 4


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


Q, K, V = numbers(1, 1, HEADS, DIM), numbers(2, TOKENS, KV_HEADS, DIM), \
    numbers(3, TOKENS, KV_HEADS, DIM)


class DeviceArray:
    """Memory of a device with the contents of an array."""

    def __init__(self, device, array):
        memory = ctypes.c_void_p()
        check(lib.ta_device_alloc(device.handle, array.nbytes, ctypes.byref(memory)))
        self.device, self.array, self.memory = device, np.ascontiguousarray(array), memory.value
        check(lib.ta_device_copy(device.handle, self.memory, self.array.ctypes.data,
                                 array.nbytes, None))
        self.__array_interface__ = {**self.array.__array_interface__,
                                    'data': (self.memory, False)}
        self.shape, self.dtype = array.shape, array.dtype

    def read(self):
        found = np.empty_like(self.array)
        check(lib.ta_device_copy(self.device.handle, found.ctypes.data, self.memory, found.nbytes,
                                 None))
        self.device.synchronize()
        return found


class Simt:
    """What a caller's program would do with NCCL itself: make communicators."""

    def __init__(self):
        self.lib = ctypes.CDLL('libsimt.so', mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        self.Id = type('Id', (ctypes.Structure,), {'_fields_': [('bytes', ctypes.c_char * 128)]})

    def new_id(self):
        made = self.Id()
        assert self.lib.ncclGetUniqueId(ctypes.byref(made)) == 0
        return made

    def communicator(self, unique, rank, ranks):
        comm = ctypes.c_void_p()
        assert self.lib.hipSetDevice(rank) == 0
        assert self.lib.ncclCommInitRank(ctypes.byref(comm), ranks, unique, rank) == 0
        return comm.value

    def destroy(self, comm):
        assert self.lib.ncclCommDestroy(ctypes.c_void_p(comm)) == 0


class Ccl(unittest.TestCase):
    def setUp(self):
        try:
            self.device = treeattn.Device('simt:0')
        except treeattn.NotFoundError as error:
            self.skipTest(f'the module simt is not built: {error}')
        self.addCleanup(self.device.close)

    def check_group(self, group, device, rank, ranks):
        """A sum, and a decode step whose partials never leave the memory of the devices."""
        self.assertEqual((group.rank, group.size), (rank, ranks))
        total = DeviceArray(device, np.arange(1000, dtype=np.float32))
        group.all_reduce(total, device=device)
        np.testing.assert_array_equal(total.read(), ranks * np.arange(1000))
        where = treeattn.ShardMap('block_cyclic', ranks, BLOCK)
        k, v = (DeviceArray(device, shard(x, where, rank, TOKENS)[None]) for x in (K, V))
        plan = treeattn.Plan(group, device, batch=1, query_heads=HEADS, kv_heads=KV_HEADS,
                             k_dim=DIM, kv_dtype='f32', max_tokens=TOKENS,
                             shard_map=treeattn.ShardMap('block_cyclic', block=BLOCK))
        out = DeviceArray(device, np.full((1, HEADS, DIM), np.nan, np.float32))
        kv = treeattn.KV(k, v, DeviceArray(device, np.array([TOKENS], np.int32)))
        plan.decode(DeviceArray(device, Q), kv, out)
        found = out.read()
        plan.check()
        np.testing.assert_allclose(found, attend(Q, K, V)[0], atol=2e-6, rtol=0)
        # By name it is the group's own device, and no second one of that name.
        with treeattn.Attention(group, device.name, query_heads=HEADS, k_dim=DIM, dtype='f32',
                                max_tokens=8, shard_map=treeattn.ShardMap('zigzag')) as whole:
            self.assertIs(whole.device, device)
        return found.tobytes()

    def test_by_an_id(self):
        def rank_main(threads):
            rank, ranks = threads.rank, threads.size
            device = treeattn.Device(f'simt:{rank}')
            name = treeattn.ccl_id(device) if rank == 0 else bytes(128)
            name = threads.broadcast(np.frombuffer(name, np.uint8).copy()).tobytes()
            with treeattn.Group.ccl(device, id=name, rank=rank, ranks=ranks, timeout=120) as group:
                return self.check_group(group, device, rank, ranks)
        for ranks in (1, 2, 3):
            self.assertEqual(len(set(treeattn.run(ranks, rank_main, timeout=200))), 1)

    def test_over_another_group(self):
        def rank_main(threads):
            device = treeattn.Device(f'simt:{threads.rank}')
            with treeattn.Group.ccl(device, bootstrap=threads, timeout=120) as group:
                return self.check_group(group, device, threads.rank, threads.size)
        self.assertEqual(len(set(treeattn.run(2, rank_main, timeout=200))), 1)

    def test_adopting_a_communicator(self):
        """The caller keeps it: it works on when the group is closed."""
        simt = Simt()
        unique = simt.new_id()

        def rank_main(threads):
            rank = threads.rank
            comm = simt.communicator(unique, rank, 2)
            device = treeattn.Device(f'simt:{rank}')
            found = []
            for _ in range(2):
                with treeattn.Group.ccl(device, communicator=comm, timeout=120) as group:
                    found.append(self.check_group(group, device, rank, 2))
                threads.barrier()
            simt.destroy(comm)
            return tuple(found)
        self.assertEqual(len(set(treeattn.run(2, rank_main, timeout=200))), 1)

    def test_what_is_refused(self):
        with self.assertRaisesRegex(ValueError, 'id has 5 bytes: must have 128'):
            treeattn.Group.ccl(self.device, id=b'short', ranks=1)
        with self.assertRaisesRegex(ValueError, 'ccl'):
            treeattn.Group.ccl(self.device)
        with self.assertRaises(NotImplementedError):
            treeattn.ccl_id(treeattn.Device('host'))
        simt = Simt()
        comm = simt.communicator(simt.new_id(), 0, 1)
        with self.assertRaisesRegex(ValueError, 'ccl.communicator is on device 0'):
            treeattn.Group.ccl(treeattn.Device('simt:1'), communicator=comm)
        simt.destroy(comm)


if __name__ == '__main__':
    main()
