"""Decode over MPI processes by mpi4py, started by mpirun: as on one rank; and what the others hear
when one raises."""
import sys

import numpy as np
from mpi4py import MPI

import treeattn
from truth import attend, shard

NEEDS = ['numpy', 'mpi4py']


def numbers(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def main():
    comm = MPI.COMM_WORLD
    try:
        group = treeattn.Group.mpi(comm, timeout=120)
    except treeattn.UnsupportedError as error:  # mpi4py has another MPI than the module
        print(f'skipped: {error}')
        return 77
    assert (group.rank, group.size) == (comm.rank, comm.size)
    q, k, v = numbers(1, 1, 4, 16), numbers(2, 50, 2, 16), numbers(3, 50, 2, 16)
    where = treeattn.ShardMap('block_cyclic', ranks=group.size, block=4)
    plan = treeattn.Plan(group, treeattn.Device('host', threads=1), batch=1, query_heads=4,
                         kv_heads=2, k_dim=16, kv_dtype='f32', max_tokens=50,
                         shard_map=treeattn.ShardMap('block_cyclic', block=4))
    kv = treeattn.KV(shard(k, where, group.rank, 50)[None], shard(v, where, group.rank, 50)[None],
                     np.array([50], np.int32))
    out = plan.decode(q, kv)
    np.testing.assert_allclose(out, attend(q, k, v)[0], atol=2e-6, rtol=0)
    assert len(set(comm.allgather(out.tobytes()))) == 1, 'ranks have other bits'
    try:
        plan.decode(q[:, :3] if group.rank == group.size - 1 else q, kv)
        raise AssertionError('no error')
    except treeattn.TreeattnError as error:
        wanted = 'q has shape [1, 3, 16]' if group.rank == group.size - 1 else \
            f'rank {group.size - 1}'
        assert wanted in str(error), error
    np.testing.assert_array_equal(plan.decode(q, kv), out)
    print(f'rank {group.rank} of {group.size}: ok')
    return 0


if __name__ == '__main__':
    sys.exit(main())
