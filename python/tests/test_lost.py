"""Processes of MPI that are lost: one that raises is named to the others with what it raised; one
that is killed ends the job. test_lost.py LAUNCHER... starts the ranks.
"""
import os
import signal
import subprocess
import sys
import time
import unittest

from mpi4py import rc

from launch import main

NEEDS = ['numpy', 'mpi4py']
LIMIT = 150  # seconds; the group itself would wait for longer


class Lost(unittest.TestCase):
    launcher: list[str] = []

    def start(self, how):
        begin = time.monotonic()
        ended = subprocess.run([*self.launcher, '-n', '3', sys.executable, __file__, how],
                               check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               timeout=400)
        said = ended.stdout.decode()
        if 'skipped:' in said:
            self.skipTest(said.partition('skipped: ')[2].splitlines()[0])
        self.assertNotEqual(ended.returncode, 0, said)
        self.assertLess(time.monotonic() - begin, LIMIT, said)
        return said

    def test_a_rank_that_raises(self):
        for how in ('raises', 'leaves'):
            said = self.start(how)
            for rank in (0, 2):
                self.assertIn(f'rank {rank} heard: ', said)
            self.assertEqual(said.count('rank 1: ArithmeticError: divided by zero'), 2, said)

    def test_a_rank_that_is_killed(self):
        self.assertNotIn('no error', self.start('killed'))


def rank_main(how):
    import treeattn
    try:
        group = treeattn.Group.mpi(timeout=300)
    except treeattn.UnsupportedError as error:  # mpi4py has another MPI than the module
        print(f'skipped: {error}', flush=True)
        return
    try:
        group.barrier()  # rank 1 may be lost before others are out of it
        if group.rank == 1:
            if how == 'killed':
                os.kill(os.getpid(), signal.SIGKILL)
            if how == 'leaves':
                with group:
                    raise ArithmeticError('divided by zero')
            raise ArithmeticError('divided by zero')
        while True:
            group.barrier()
    except treeattn.AbortedError as error:
        print(f'rank {group.rank} heard: {error}', flush=True)


if __name__ == '__main__':
    if sys.argv[1:] in (['raises'], ['leaves'], ['killed']):
        rank_main(sys.argv[1])
    else:
        rc.initialize = False  # this process starts the ranks and is none
        Lost.launcher = sys.argv[1:]
        main(sys.argv[:1])
