"""`python -m treeattn.generate`: the same tokens on one rank, by threads, torchrun and mpirun."""
import contextlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import torch

from launch import main
from treeattn import generate

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

    def test_devices(self):
        self.assertEqual(self.tokens([sys.executable], '--device', 'cpu'),
                         self.tokens([sys.executable]))
        wrong = {'meta': b'must be cpu or cuda', 'gpu0': b"--device is 'gpu0'"}
        if not torch.cuda.is_available():
            wrong['cuda:1'] = b'sees no GPU'
        for name, words in wrong.items():
            ended = subprocess.run([sys.executable, '-m', 'treeattn.generate', '--model', self.path,
                                    '--device', name], check=False, stderr=subprocess.PIPE)
            self.assertEqual(ended.returncode, 1)
            self.assertIn(words, ended.stderr)
            self.assertNotIn(b'Traceback', ended.stderr)

    def test_prompts_and_models_that_cannot_be(self):
        empty = os.path.dirname(self.path)
        unknown = os.path.join(empty, 'unknown.json')
        with open(unknown, 'w', encoding='utf-8') as file:
            json.dump({'model_type': 'nobody'}, file)
        for flags, words in (
                (['--prompt', 'abc'], "--prompt is 'abc': must be numbers of tokens from 0 to 96"),
                (['--prompt', '3 97'], "--prompt is '3 97': must be numbers of tokens from 0 to"),
                (['--prompt', ' '], "--prompt is ' ': must have at least one token"),
                (['--kv-dtype', 'f7'], "kv_dtype is 'f7': must be one of f32"),
                (['--model', os.path.join(empty, 'absent')], 'absent\': must be a directory'),
                (['--model', unknown], "unknown.json': must be a directory with a model"),
                (['--model', empty], "': must be a directory with a model")):
            arguments = ['generate', '--model', self.path, *flags]
            with unittest.mock.patch.object(sys, 'argv', arguments), \
                    contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(generate.main(), 1)
            self.assertIn(words, said.getvalue())

    def test_mpirun(self):
        """Where there is an Open MPI, mpi4py and the module, nothing else is a reason to skip."""
        module = os.path.join(os.path.dirname(os.environ['TREEATTN_LIBRARY']), 'treeattn-mpi.so')
        for what, there in (('mpirun', shutil.which('mpirun')),
                            ('mpi4py', importlib.util.find_spec('mpi4py')),
                            (module, os.path.exists(module))):
            if not there:
                self.skipTest(f'no {what}')
        version = subprocess.run(['mpirun', '--version'], check=True, stdout=subprocess.PIPE).stdout
        if b'Open MPI' not in version and b'OpenRTE' not in version:
            self.skipTest(f'mpirun is none of Open MPI: {version.decode().splitlines()[0]}')
        one = self.tokens([sys.executable])
        for ranks in ('2', '3'):
            self.assertEqual(self.tokens(['mpirun', '--oversubscribe', '--allow-run-as-root', '-n',
                                          ranks, sys.executable]), one, ranks)


if __name__ == '__main__':
    main()
