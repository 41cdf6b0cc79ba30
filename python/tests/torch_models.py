"""treeattn.transformers: tiny random models of each family against their eager attention, on 1, 2
and 3 ranks: logits, equal bits on all ranks, generated tokens, padding, chunks, torchrun.
"""
import copy
import os
import subprocess
import sys
import unittest

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, DynamicCache, Gemma2Config, Gemma3TextConfig, \
    GptOssConfig, LlamaConfig, MistralConfig, Qwen3Config

import treeattn
import treeattn.torch as tt
from treeattn.transformers import ShardedCache, register

HERE = os.path.dirname(os.path.realpath(__file__))
COMMON = dict(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              max_position_embeddings=256, tie_word_embeddings=False, pad_token_id=0,
              bos_token_id=1, eos_token_id=None, attention_dropout=0.0)
FAMILIES = {
    'llama': LlamaConfig(**COMMON),
    'qwen3': Qwen3Config(**COMMON),
    'mistral': MistralConfig(**COMMON, sliding_window=9),
    'gemma2': Gemma2Config(**COMMON, sliding_window=9, query_pre_attn_scalar=16,
                           attn_logit_softcapping=3.0, final_logit_softcapping=20.0),
    'gemma3': Gemma3TextConfig(**{**COMMON, 'num_hidden_layers': 3}, sliding_window=9,
                               query_pre_attn_scalar=16, layer_types=[
                                   'sliding_attention', 'full_attention', 'sliding_attention']),
    'gpt-oss': GptOssConfig(**COMMON, sliding_window=9, num_local_experts=4,
                            num_experts_per_tok=2),
}


def model_of(family, attention):
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(copy.deepcopy(FAMILIES[family]),
                                             dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 or 'sinks' in name:
                parameter.normal_(0, 0.2)  # so that attention matters
    model.set_attn_implementation(attention)
    return model.eval()


def ids(batch, tokens, seed=1):
    return torch.randint(2, 97, (batch, tokens), generator=torch.Generator().manual_seed(seed))


def cache_of(model, group, **options):
    return ShardedCache(model.config, group, **{'block': 4, 'chunk': 8, **options})


class Models(unittest.TestCase):
    @torch.no_grad()
    def test_logits_of_all_families(self):
        """A prompt in one call of chunks, then a chunk of 5, then single tokens."""
        tokens = ids(2, 40)
        for family in FAMILIES:
            eager, model = model_of(family, 'eager'), model_of(family, 'treeattn')
            wanted = eager(tokens, past_key_values=DynamicCache(config=eager.config)).logits

            def rank_main(group):
                with torch.no_grad():
                    cache, parts = cache_of(model, group), []
                    for begin, end in ((0, 30), (30, 35), (35, 36), (36, 37), (37, 40)):
                        parts.append(model(tokens[:, begin:end], past_key_values=cache).logits)
                    return torch.cat(parts, dim=1), cache.layers[0].keys.shape[0]
            for ranks in (1, 2, 3):
                with self.subTest(family=family, ranks=ranks):
                    results = treeattn.run(ranks, rank_main)
                    worst = (results[0][0] - wanted).abs().max().item()
                    print(f'{family} on {ranks}: {worst:.1e}, largest {wanted.abs().max():.1f}')
                    self.assertLess(worst, 1e-5)
                    for logits, _ in results[1:]:
                        self.assertTrue(torch.equal(logits, results[0][0]), 'other bits')
                    if ranks == 3:  # 10 blocks of 4 tokens in 2 sequences, on 3 ranks
                        self.assertLess(max(pages for _, pages in results), 20)

    def generated(self, model, tokens, group, cached=True, **options):
        torch.manual_seed(3)
        with torch.no_grad():
            if cached:
                options['past_key_values'] = cache_of(model, group)
            return model.generate(tokens, max_new_tokens=12, do_sample=False, **options)

    def test_generate(self):
        tokens = ids(2, 21)
        for family in FAMILIES:
            wanted = self.generated(model_of(family, 'eager'), tokens, None, cached=False)
            model = model_of(family, 'treeattn')
            for ranks in (1, 2, 3):
                with self.subTest(family=family, ranks=ranks):
                    for found in treeattn.run(
                            ranks, lambda group: self.generated(model, tokens, group)):
                        self.assertEqual(found.tolist(), wanted.tolist())

    def test_left_padding(self):
        tokens = ids(2, 17)
        mask = torch.ones_like(tokens)
        mask[1, :6], tokens[1, :6] = 0, 0
        for family in ('llama', 'gemma2', 'gpt-oss'):
            wanted = self.generated(model_of(family, 'eager'), tokens, None, cached=False,
                                    attention_mask=mask)
            model = model_of(family, 'treeattn')
            for found in treeattn.run(2, lambda group: self.generated(
                    model, tokens, group, attention_mask=mask)):
                self.assertEqual(found.tolist(), wanted.tolist())

    def test_chunked_prefill_by_generate(self):
        tokens = ids(1, 23)
        wanted = self.generated(model_of('llama', 'eager'), tokens, None, cached=False)
        model = model_of('llama', 'treeattn')
        for found in treeattn.run(2, lambda group: self.generated(
                model, tokens, group, prefill_chunk_size=7)):
            self.assertEqual(found.tolist(), wanted.tolist())

    @torch.no_grad()
    def test_bf16(self):
        """Elements of 16 bits: near eager attention, and the same bits on all ranks."""
        tokens = ids(2, 30)
        eager, model = (model_of('llama', name).to(torch.bfloat16)
                        for name in ('eager', 'treeattn'))
        wanted = eager(tokens).logits

        def rank_main(group):
            with torch.no_grad():
                return model(tokens, past_key_values=cache_of(model, group)).logits
        results = treeattn.run(3, rank_main)
        self.assertEqual(results[0].dtype, torch.bfloat16)
        spread = wanted.float().std()
        self.assertLess((results[0] - wanted).float().abs().mean(), 0.02 * spread)
        for logits in results[1:]:
            self.assertTrue(torch.equal(logits, results[0]))

    @torch.no_grad()
    def test_what_is_refused(self):
        model, tokens = model_of('llama', 'treeattn'), ids(1, 5)
        with self.assertRaisesRegex(NotImplementedError, 'ShardedCache'):
            model(tokens)
        with self.assertRaisesRegex(ValueError, 'the cache was made for 4'):
            model(tokens, past_key_values=cache_of(model, None, max_length=4))
        mask = torch.ones(1, 1, 5, 5, dtype=torch.bool)
        with self.assertRaisesRegex(NotImplementedError, 'of padding alone'):
            model(tokens, attention_mask=mask, past_key_values=cache_of(model, None))
        with self.assertRaisesRegex(NotImplementedError, 'beam search'):
            self.generated(model, tokens, None, num_beams=2)

    def test_torchrun(self):
        model = model_of('qwen3', 'eager')
        wanted = self.generated(model, ids(1, 20), None, cached=False)[0].tolist()
        ended = subprocess.run(
            [sys.executable, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node',
             '3', os.path.join(HERE, 'torch_models.py'), 'rank'], check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
        said = ended.stdout.decode()
        self.assertEqual(ended.returncode, 0, said)
        for rank in range(3):
            self.assertIn(f'rank {rank}: {wanted}', said)


def main_of_a_process():
    dist.init_process_group('gloo')
    group = tt.group()
    found = Models().generated(model_of('qwen3', 'treeattn'), ids(1, 20), group)
    print(f'rank {group.rank}: {found[0].tolist()}', flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    torch.set_num_threads(1)
    register()
    if sys.argv[1:] == ['rank']:
        main_of_a_process()
    else:
        unittest.main()
