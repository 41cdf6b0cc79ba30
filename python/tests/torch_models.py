"""treeattn.transformers: tiny random models of each family against their eager attention, on 1, 2
and 3 ranks: logits, equal bits on all ranks, generated tokens, padding, chunks, torchrun.
"""
import os
import sys
import unittest

import torch
import torch.distributed as dist
from transformers import DynamicCache

import treeattn.torch as tt
from families import FAMILIES, cache_of, check_errors, check_near, clear_prompt, exact_logits, \
    ids, model_of
from launch import main, run, torchrun
from treeattn.transformers import register

HERE = os.path.dirname(os.path.realpath(__file__))


class Models(unittest.TestCase):
    @torch.no_grad()
    def test_logits_of_all_families(self):
        """A prompt in one call of chunks, then a chunk of 5, then single tokens, beside the same
        model in double precision: as near to it as eager attention is."""
        tokens = ids(2, 40)
        for family in FAMILIES:
            eager, model = model_of(family, 'eager'), model_of(family, 'treeattn')
            exact = exact_logits(family, tokens)
            wanted = eager(tokens, past_key_values=DynamicCache(config=eager.config)).logits

            def rank_main(group):
                with torch.no_grad():
                    cache, parts = cache_of(model, group), []
                    for begin, end in ((0, 30), (30, 35), (35, 36), (36, 37), (37, 40)):
                        parts.append(model(tokens[:, begin:end], past_key_values=cache).logits)
                    return torch.cat(parts, dim=1), cache.layers[0].keys.shape[0]
            for ranks in (1, 2, 3):
                with self.subTest(family=family, ranks=ranks):
                    results = run(ranks, rank_main)
                    check_errors(self, f'{family} on {ranks}', results[0][0], wanted, exact)
                    for logits, _ in results[1:]:
                        self.assertTrue(torch.equal(logits, results[0][0]), 'other bits')
                    if ranks == 3:  # 10 blocks of 4 tokens in 2 sequences, on 3 ranks
                        self.assertLess(max(pages for _, pages in results), 20)

    @torch.no_grad()
    def test_logits_with_weights_of_their_own(self):
        """As transformers initialises them: within 1e-5 of eager attention in f32."""
        tokens = ids(2, 40)
        for family in FAMILIES:
            eager, model = model_of(family, 'eager', own=True), \
                model_of(family, 'treeattn', own=True)
            wanted = eager(tokens).logits

            def rank_main(group):
                with torch.no_grad():
                    cache = cache_of(model, group)
                    return torch.cat([model(part, past_key_values=cache).logits
                                      for part in tokens.split((30, 5, 1, 4), dim=1)], dim=1)
            for ranks in (1, 2, 3):
                with self.subTest(family=family, ranks=ranks):
                    check_near(self, f'{family} on {ranks}', run(ranks, rank_main)[0],
                               wanted)

    def generated(self, model, tokens, group, cached=True, **options):
        torch.manual_seed(3)
        with torch.no_grad():
            if cached:
                options['past_key_values'] = cache_of(model, group)
            return model.generate(tokens, max_new_tokens=12, do_sample=False, **options)

    def test_generate(self):
        for family in FAMILIES:
            tokens, wanted = clear_prompt(family, 2, 21, 12)
            model = model_of(family, 'treeattn')
            for ranks in (1, 2, 3):
                with self.subTest(family=family, ranks=ranks):
                    for found in run(
                            ranks, lambda group: self.generated(model, tokens, group)):
                        self.assertEqual(found.tolist(), wanted.tolist())

    def test_left_padding(self):
        tokens = ids(2, 17)
        mask = torch.ones_like(tokens)
        mask[1, :6], tokens[1, :6] = 0, 0
        for family in ('llama', 'gemma2', 'gpt-oss', 'deepseek-v3'):
            wanted = self.generated(model_of(family, 'eager'), tokens, None, cached=False,
                                    attention_mask=mask)
            model = model_of(family, 'treeattn')
            for found in run(2, lambda group: self.generated(
                    model, tokens, group, attention_mask=mask)):
                self.assertEqual(found.tolist(), wanted.tolist())

    def test_chunked_prefill_by_generate(self):
        tokens = ids(1, 23)
        wanted = self.generated(model_of('llama', 'eager'), tokens, None, cached=False)
        model = model_of('llama', 'treeattn')
        for found in run(2, lambda group: self.generated(
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
        results = run(3, rank_main)
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
        with self.assertRaisesRegex(NotImplementedError, 'beam search'):
            self.generated(model, tokens, None, num_beams=2)
        model.set_attn_implementation('eager')
        with self.assertRaisesRegex(NotImplementedError, 'set_attn_implementation'):
            model(tokens, past_key_values=cache_of(model, None))

    @torch.no_grad()
    def test_latent_layers(self):
        """One vector of 576 a token is stored, V as a part of it; other layers are refused."""
        model = model_of('deepseek-v3', 'treeattn')
        cache = cache_of(model, None)
        model(ids(1, 9), past_key_values=cache)
        layer = cache.layers[1]
        self.assertEqual(tuple(layer.keys.shape[2:]), (1, 576))
        self.assertEqual(tuple(layer.values.shape[2:]), (1, 512))
        self.assertEqual(layer.values.data_ptr(), layer.keys.data_ptr())
        self.assertTrue(torch.isfinite(model_of('deepseek-v3', 'eager')(ids(1, 9)).logits).all())
        model.model.layers[0].self_attn.kv_b_proj = torch.nn.Sequential(
            model.model.layers[0].self_attn.kv_b_proj)
        with self.assertRaisesRegex(NotImplementedError, 'must be a plain Linear'):
            model(ids(1, 9), past_key_values=cache_of(model, None))
        model.config.model_type = 'unheard_of'
        with self.assertRaisesRegex(NotImplementedError, 'of type unheard_of'):
            cache_of(model, None)

    def test_torchrun(self):
        model = model_of('qwen3', 'eager')
        wanted = self.generated(model, ids(1, 20), None, cached=False)[0].tolist()
        code, said = torchrun(os.path.join(HERE, 'torch_models.py'), 'rank')
        self.assertEqual(code, 0, said)
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
        main()
