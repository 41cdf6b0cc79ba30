"""`python -m treeattn.generate`: the same tokens on one rank, by threads, torchrun and mpirun."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

CONFIG = {'model_type': 'qwen3', 'vocab_size': 97, 'hidden_size': 32, 'intermediate_size': 48,
          'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 2,
          'head_dim': 16, 'max_position_embeddings': 256, 'eos_token_id': None,
          'bos_token_id': 1, 'pad_token_id': 0}


class Generate(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = os.path.join(scratch.name, 'config.json')
        with open(self.path, 'w', encoding='utf-8') as file:
            json.dump(CONFIG, file)

    def tokens(self, launcher, *flags):
        ended = subprocess.run([*launcher, '-m', 'treeattn.generate', '--model', self.path,
                                '--tokens', '12', '--block', '4', *flags], check=False,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=900)
        self.assertEqual(ended.returncode, 0, ended.stderr.decode())
        return ended.stdout.decode().split()

    def test_all_ways_to_launch(self):
        one = self.tokens([sys.executable])
        self.assertEqual(len(one), 20)
        self.assertEqual(self.tokens([sys.executable], '--ranks', '3'), one)
        self.assertEqual(self.tokens([sys.executable, '-m', 'torch.distributed.run',
                                      '--standalone', '--nproc-per-node', '2']), one)

    def test_mpirun(self):
        mpi = subprocess.run([sys.executable, '-c', 'import mpi4py.MPI'], check=False,
                             stderr=subprocess.DEVNULL).returncode == 0
        if not mpi or not shutil.which('mpirun'):
            self.skipTest('no mpi4py in this environment, or no mpirun')
        self.assertEqual(self.tokens(['mpirun', '--oversubscribe', '--allow-run-as-root', '-n',
                                      '2', sys.executable]), self.tokens([sys.executable]))


if __name__ == '__main__':
    unittest.main()
