"""`treeattn-bench llama` beside transformers: tiny random models of each family that it loads, as
save_pretrained() writes them, with a prompt of token ids. The words that it chooses are those of
transformers' greedy generate(), and its logits are as near to the model in double precision as
those of transformers in float are.
"""
import copy
import json
import os
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from families import check_errors, everything_in_double

BENCH = os.path.join(os.path.dirname(os.environ['TREEATTN_LIBRARY']), os.pardir, 'bench',
                     'treeattn-bench')
TEXT = os.path.join(os.path.dirname(os.path.realpath(__file__)), os.pardir, os.pardir, 'bench',
                    'llama', 'words_text.py')
PROMPT, NEW = 45, 8
# Odd sizes, and a prompt that the scaling of Llama 3 is seen in.
COMMON = dict(vocab_size=101, hidden_size=42, intermediate_size=72, num_hidden_layers=3,
              num_attention_heads=6, num_key_value_heads=3, max_position_embeddings=256,
              pad_token_id=0, bos_token_id=1, eos_token_id=None, attention_dropout=0.0)
SCALED = dict(rope_type='llama3', rope_theta=10000.0, factor=4.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=32)
MODELS = {
    'llama': LlamaConfig(**COMMON, head_dim=16, tie_word_embeddings=False),
    'llama, scaled, tied': LlamaConfig(**COMMON, head_dim=16, tie_word_embeddings=True,
                                       rope_parameters=SCALED),
    'qwen2': Qwen2Config(**{**COMMON, 'hidden_size': 48}, tie_word_embeddings=True,
                         rope_parameters=dict(rope_type='default', rope_theta=1e6)),
    'qwen3': Qwen3Config(**COMMON, head_dim=24, tie_word_embeddings=False, rms_norm_eps=1e-5),
    'mistral': MistralConfig(**COMMON, head_dim=16, tie_word_embeddings=False,
                             sliding_window=None),
}


@torch.no_grad()
def model_of(name, dtype):
    """Random weights that `dtype` holds, in float: norms and biases too."""
    torch.manual_seed(11)
    model = AutoModelForCausalLM.from_config(copy.deepcopy(MODELS[name]), dtype=torch.float32,
                                             attn_implementation='eager')
    for where, parameter in model.named_parameters():
        if parameter.dim() > 1:
            parameter.normal_(0, 0.3)
        else:
            parameter.normal_(0.0 if where.endswith('bias') else 1.0, 0.25)
        parameter.copy_(parameter.to(dtype).float())
    return model.eval()


@torch.no_grad()
def exact_logits(model, tokens):
    with everything_in_double():
        return model.double()(tokens, use_cache=False).logits


@torch.no_grad()
def clear_prompt(name, dtype):
    """(a prompt with its greedy continuation, its logits in float and in double), where no two
    tokens are so near to each other that rounding decides."""
    for seed in range(1, 30):
        model = model_of(name, dtype)
        prompt = torch.randint(2, COMMON['vocab_size'], (1, PROMPT),
                               generator=torch.Generator().manual_seed(seed))
        # The program prints the word after the prompt, and NEW words after that one.
        whole = model.generate(prompt, max_new_tokens=NEW + 1, do_sample=False)
        single = model(whole[:, :-1], use_cache=False).logits[0, PROMPT - 1:]
        exact = exact_logits(model, whole[:, :-1])[0, PROMPT - 1:]
        best = exact.topk(2).values
        if (best[:, 0] - best[:, 1]).min() > 1e-3:
            return whole[0].tolist(), single, exact
    raise AssertionError(f'{name}: no prompt whose continuation is clear')


class Llama(unittest.TestCase):
    def run_bench(self, folder, words, *flags):
        """(the report, logits after the prompt and each word)."""
        paths = {name: os.path.join(folder, name) for name in ('words', 'json', 'logits')}
        with open(paths['words'], 'w', encoding='utf-8') as file:
            file.write(' '.join(map(str, words)))
        command = [BENCH, 'llama', '--model', folder, '--words', paths['words'], '--new', str(NEW),
                   '--kv-dtype', 'f32', '--block', '4', '--page-tokens', '2', '--chunk', '7',
                   '--threads', '1', '--read', '0', '--warmup', '0', '--json', paths['json'],
                   '--logits', paths['logits'], *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, f'{" ".join(command)}\n{done.stdout}{done.stderr}')
        with open(paths['json'], encoding='utf-8') as file:
            report = json.load(file)
        logits = numpy.fromfile(paths['logits'], dtype=numpy.float32)
        return report, torch.from_numpy(logits.reshape(NEW + 1, -1))

    def check_model(self, name, dtype, **saved):
        words, single, exact = clear_prompt(name, dtype)
        with tempfile.TemporaryDirectory() as folder:
            model_of(name, dtype).to(dtype).save_pretrained(folder, **saved)
            for flags in ('--ranks 1', '--ranks 3', '--ranks 3 --weights tensor',
                          '--ranks 2 --reproducible 16 --block 16 --algo tree'):
                with self.subTest(model=name, flags=flags):
                    report, logits = self.run_bench(folder, words[:PROMPT], *flags.split())
                    self.assertEqual(report['model']['weights'], folder)
                    for row in report['rows']:
                        self.assertEqual(row['words'], words[PROMPT:], row['algorithm'])
                        self.assertLess(row['logits_differ'], 1e-4)
                    check_errors(self, f'{name}, {dtype}, {flags}', logits, single, exact)
            return sorted(os.listdir(folder))

    def test_float_weights(self):
        for name in MODELS:
            self.check_model(name, torch.float32)

    def test_weights_of_16_bits_in_several_files(self):
        for name, dtype in (('llama', torch.bfloat16), ('qwen2', torch.float16)):
            files = self.check_model(name, dtype, max_shard_size='20KB')
            self.assertIn('model.safetensors.index.json', files)

    def test_another_model_has_other_logits(self):
        """That the comparison sees a difference: weights of one model, the config of another."""
        words, single, exact = clear_prompt('llama', torch.float32)
        with tempfile.TemporaryDirectory() as folder:
            model = model_of('llama', torch.float32)
            model.config.rms_norm_eps = 1e-3
            model.save_pretrained(folder)
            _, logits = self.run_bench(folder, words[:PROMPT], '--algo', 'tree')
        with self.assertRaises(AssertionError):
            check_errors(self, 'another epsilon', logits, single, exact)

    def text(self, *arguments, given=''):
        """What bench/llama/words_text.py prints, and its status."""
        done = subprocess.run([sys.executable, TEXT, *arguments], input=given, capture_output=True,
                              text=True, check=False)
        return done.stdout, done.stderr, done.returncode

    def test_text(self):
        """There and back by a tokenizer.json, whose words are w2, w3, …"""
        tokenizer = Tokenizer(WordLevel({f'w{i}': i for i in range(101)}, unk_token='w0'))
        tokenizer.pre_tokenizer = Whitespace()
        with tempfile.TemporaryDirectory() as folder:
            model_of('llama', torch.float32).save_pretrained(folder)
            said = self.text('encode', folder, given='w5')
            self.assertIn('tokenizer.json is not there', said[1])
            self.assertEqual(said[2], 1)
            tokenizer.save(os.path.join(folder, 'tokenizer.json'))
            words, _, code = self.text('encode', folder, given='w5 w17 what\nw100')
            self.assertEqual((words, code), ('5 17 0 100\n', 0))
            report, _ = self.run_bench(folder, words.split(), '--ranks', '2', '--algo', 'tree')
            said = self.text('decode', folder, os.path.join(folder, 'json'))
            chosen = ' '.join(f'w{word}' for word in report['rows'][0]['words'])
            self.assertEqual(said[0], f'4 tokens, 2 ranks, tree: {chosen}\n')
            self.assertIn('encode FOLDER', self.text()[1])


if __name__ == '__main__':
    unittest.main()
