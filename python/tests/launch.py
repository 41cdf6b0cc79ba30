"""How tests are started, and how they start ranks and other processes."""
import subprocess
import sys
import unittest

LONG_WAIT = 120  # seconds, for ranks that all come: as LONG_WAIT_MS of tests/lib/patience.h


def main(argv=None):
    """unittest.main() that says what was skipped and why, and ends with 77 if that was all."""
    result = unittest.main(argv=argv, exit=False).result
    for test, reason in result.skipped:
        print(f'skipped: {test}: {reason}', flush=True)
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.skipped and len(result.skipped) >= result.testsRun else 0)


def run(ranks, fn):
    """treeattn.run() that waits so long."""
    import treeattn  # which not every test can load
    return treeattn.run(ranks, fn, LONG_WAIT)


def torchrun(*program):
    """(exit code, output) of a program on 3 processes."""
    ended = subprocess.run(
        [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', '3',
         *program], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
    return ended.returncode, ended.stdout.decode()
