"""Programs of the package: an argument that is wrong is a usage error that names it, says what was
given and what would be right. What needs torch to be seen is in torch_generate.py."""
import os
import subprocess
import sys
import unittest

from launch import main

HERE = os.path.dirname(os.path.realpath(__file__))
GENERATE = ['-m', 'treeattn.generate', '--model', 'absent']
PEERS = [os.path.join(HERE, '..', '..', 'bench', 'peers.py')]


class Usage(unittest.TestCase):
    def refused(self, program, flags, *words):
        ended = subprocess.run([sys.executable, *program, *flags], check=False,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said = ended.stderr.decode()
        self.assertEqual((ended.returncode, ended.stdout), (2, b''), said)
        self.assertIn('usage: ', said)
        self.assertNotIn('Traceback', said)
        for word in words:
            self.assertIn(word, said)

    def test_generate(self):
        self.refused(GENERATE, ['--dtype', 'foo'], '--dtype', "'foo'", 'float32', 'bfloat16')
        for name in ('tokens', 'ranks', 'block'):
            for value in ('0', 'two'):
                self.refused(GENERATE, [f'--{name}', value],
                             f"argument --{name}: is '{value}': must be a whole number, 1 or more")

    def test_peers(self):
        for value in ('0', '1', '-3', 'two'):
            self.refused(PEERS, [f'--steps={value}'],
                         f"argument --steps: is '{value}': must be a whole number, 2 or more")
        self.refused(PEERS, ['--threads', '0'], "argument --threads: is '0'", '1 or more')
        self.refused(PEERS, ['--heads', '6', '--kv-heads', '4'],
                     'argument --heads: is 6: must be a multiple of --kv-heads, 4')
        self.refused(PEERS, ['--peers', 'SDPA,flux'], "argument --peers: has 'flux'", 'OpenVINO')

    def test_info(self):
        ended = subprocess.run([sys.executable, '-m', 'treeattn', 'inof'], check=False,
                               stderr=subprocess.PIPE)
        self.assertEqual(ended.returncode, 2)
        self.assertIn(b"there is no command 'inof'", ended.stderr)


if __name__ == '__main__':
    main()
