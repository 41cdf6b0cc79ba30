"""How tests are started, and how they start other processes."""
import subprocess
import sys
import unittest


def main(argv=None):
    """unittest.main() that says what was skipped and why, and ends with 77 if that was all."""
    result = unittest.main(argv=argv, exit=False).result
    for test, reason in result.skipped:
        print(f'skipped: {test}: {reason}', flush=True)
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.skipped and len(result.skipped) >= result.testsRun else 0)


def torchrun(*program):
    """(exit code, output) of a program on 3 processes."""
    ended = subprocess.run(
        [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', '3',
         *program], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
    return ended.returncode, ended.stdout.decode()
