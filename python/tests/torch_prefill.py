"""treeattn.transformers.prefill(): a prompt divided over the ranks, each running the model on its
own tokens, gives what the whole prompt on every rank gives."""
import threading
import unittest

import torch

import treeattn
from families import FAMILIES, cache_of, check_errors, clear_prompt, exact_logits, ids, \
    model_of
from launch import main, run
from treeattn.transformers import prefill, register


def counted(model):
    """How many tokens each thread has given the model so far."""
    counts = {}

    def count(_module, inputs, _output):
        name = threading.current_thread().name
        counts[name] = counts.get(name, 0) + inputs[0].numel()
    model.get_input_embeddings().register_forward_hook(count)
    return counts


class Prefill(unittest.TestCase):
    @torch.no_grad()
    def test_all_families(self):
        """The logits of the last token, and the tokens that follow, with equal bits on ranks."""
        for family in FAMILIES:
            tokens, wanted = clear_prompt(family, 2, 40, 10)
            exact = exact_logits(family, tokens)[:, -1]
            eager, model = model_of(family, 'eager'), model_of(family, 'treeattn')
            near = eager(tokens).logits[:, -1]

            def rank_main(group):
                with torch.no_grad():
                    first, cache = cache_of(model, group), cache_of(model, group)
                    self.assertEqual(prefill(model, tokens, first), 'grid')
                    prefill(model, tokens, cache)
                    self.assertEqual(cache.get_seq_length(), 39)
                    return model(tokens[:, -1:], past_key_values=first).logits[:, -1], \
                        model.generate(tokens, max_new_tokens=10, do_sample=False,
                                       past_key_values=cache)
            for ranks in (1, 2, 3):
                with self.subTest(family=family, ranks=ranks):
                    results = run(ranks, rank_main)
                    check_errors(self, f'{family} on {ranks}', results[0][0], near, exact)
                    for logits, generated in results:
                        self.assertTrue(torch.equal(logits, results[0][0]), 'other bits')
                        self.assertEqual(generated.tolist(), wanted.tolist())

    def test_the_work_is_divided(self):
        model, tokens = model_of('llama', 'treeattn'), ids(1, 49)
        counts = counted(model)
        run(3, lambda group: prefill(model, tokens, cache_of(model, group)))
        self.assertEqual(counts, {f'rank {rank}': 16 for rank in range(3)})

    def test_ragged_batches_and_ranks_without_tokens(self):
        """Left padding: sequences of 1, 22, 3 and 9 tokens, of which one leaves nothing to fill
        in, and in blocks of 16 the last ranks have none."""
        tokens, mask = ids(4, 22), torch.ones(4, 22, dtype=torch.long)
        for row, padding in ((0, 21), (2, 19), (3, 13)):
            tokens[row, :padding], mask[row, :padding] = 0, 0
        for family in ('llama', 'gemma3', 'gpt-oss', 'deepseek-v3'):
            wanted = model_of(family, 'eager').generate(tokens, attention_mask=mask,
                                                        max_new_tokens=9, do_sample=False)
            model = model_of(family, 'treeattn')
            for ranks, block in ((2, 4), (3, 16)):
                def rank_main(group):
                    cache = cache_of(model, group, block=block)
                    self.assertEqual(prefill(model, tokens, cache, mask), 'grid')
                    return model.generate(tokens, attention_mask=mask, past_key_values=cache,
                                          max_new_tokens=9, do_sample=False)
                with self.subTest(family=family, ranks=ranks):
                    for found in run(ranks, rank_main):
                        self.assertEqual(found.tolist(), wanted.tolist())

    @torch.no_grad()
    def test_what_the_grid_lacks_goes_in_chunks(self):
        tokens = ids(2, 25)
        rope = dict(rope_type='dynamic', factor=2.0, rope_theta=10000.0)
        for changes in (dict(head_dim=264), dict(rope_parameters=rope)):
            wanted = model_of('llama', 'eager', **changes)(tokens).logits[:, -1]
            model = model_of('llama', 'treeattn', **changes)

            def rank_main(group):
                with torch.no_grad():
                    cache = cache_of(model, group)
                    self.assertEqual(prefill(model, tokens, cache), 'chunks')
                    return model(tokens[:, -1:], past_key_values=cache).logits[:, -1]
            for found in run(2, rank_main):
                torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-5)

    def test_what_is_refused(self):
        model, tokens = model_of('llama', 'treeattn'), ids(1, 12)
        cache = cache_of(model, None)
        with self.assertRaisesRegex(ValueError, r'attention_mask \[1, 3\]'):
            prefill(model, tokens, cache, torch.ones(1, 3))
        small = cache_of(model, None, max_length=4)
        with self.assertRaisesRegex(ValueError, 'the cache was made for 4'):
            prefill(model, tokens, small)
        self.assertEqual(small.get_seq_length(), 0)
        prefill(model, tokens, cache)
        with self.assertRaisesRegex(ValueError, 'has 11 tokens: must be empty'):
            prefill(model, tokens, cache)
        cache.reset()
        self.assertEqual(prefill(model, tokens, cache), 'grid')

    def test_a_rank_that_raises_is_named(self):
        """In the middle of the model, where the others wait for it in the grid."""
        model, heard = model_of('llama', 'treeattn'), {}

        def raise_on_rank_1(_module, _inputs, _output):
            if threading.current_thread().name == 'rank 1':
                raise ArithmeticError('divided by zero')
        model.model.layers[1].input_layernorm.register_forward_hook(raise_on_rank_1)

        def rank_main(group):
            cache = cache_of(model, group)
            try:
                prefill(model, ids(1, 30), cache)
            except treeattn.TreeattnError as error:
                heard[group.rank] = str(error), cache.get_seq_length()
                raise
        with self.assertRaises(ArithmeticError):
            treeattn.run(3, rank_main, timeout=300)
        self.assertEqual(sorted(heard), [0, 2])
        for sentence, tokens in heard.values():
            self.assertIn('rank 1: ArithmeticError: divided by zero', sentence)
            self.assertEqual(tokens, 0)


if __name__ == '__main__':
    torch.set_num_threads(1)
    register()
    main()
