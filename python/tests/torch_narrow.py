"""ShardedCache with K and V of 8 bits: the same as eager attention over a cache that rounds every
token and head in the same way, written out in torch."""
import unittest

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from families import cache_of, errors, ids, model_of
from launch import main, run
from treeattn.sharded_cache import NARROW
from treeattn.transformers import prefill, register


def rounded(x, dtype):
    """x [..., dim] by way of 8 bits, scaled so that its largest number is the type's."""
    scale = x.abs().amax(dim=-1, keepdim=True) / torch.finfo(dtype).max
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (x / scale).to(dtype).to(x.dtype) * scale


class RoundedLayer(DynamicLayer):
    """A layer of an ordinary cache whose new tokens are rounded."""

    stored = None

    def update(self, key_states, value_states, *args, **kwargs):
        return super().update(*(rounded(x, self.stored) for x in (key_states, value_states)),
                              *args, **kwargs)


def rounded_cache(model, dtype):
    cache = DynamicCache()
    kind = type('Rounded', (RoundedLayer,), {'stored': dtype})
    cache.layers = [kind() for _ in range(model.config.num_hidden_layers)]
    return cache


class Narrow(unittest.TestCase):
    @torch.no_grad()
    def test_logits(self):
        """All dialects. Seen: 1e-6, as between two orders of summing in f32; a number in the
        middle of two may be rounded either way where sums of the layer before differ."""
        tokens = ids(2, 40)
        for family, name in [('llama', name) for name in NARROW] + [('gpt-oss', 'e4m3')]:
            eager, model = model_of(family, 'eager'), model_of(family, 'treeattn')
            plain = eager(tokens).logits
            wanted = eager(tokens, past_key_values=rounded_cache(eager, NARROW[name])).logits \
                if family == 'llama' else None

            def rank_main(group):
                with torch.no_grad():
                    cache, parts = cache_of(model, group, kv_dtype=name), []
                    for begin, end in ((0, 30), (30, 35), (35, 36), (36, 40)):
                        parts.append(model(tokens[:, begin:end], past_key_values=cache).logits)
                    return torch.cat(parts, dim=1), cache.layers[0].keys.dtype
            for ranks in (1, 2, 3):
                with self.subTest(family=family, dtype=name, ranks=ranks):
                    results = run(ranks, rank_main)
                    lost = errors(results[0][0], plain)[1]
                    self.assertEqual(results[0][1], NARROW[name])
                    self.assertGreater(lost, 1e-3, 'nothing was rounded')
                    self.assertLess(lost, 0.5 * plain.std())
                    if wanted is not None:
                        near = errors(results[0][0], wanted)[1]
                        print(f'{name} on {ranks}: {near:.1e} from the cache written out, '
                              f'{lost:.1e} from no rounding')
                        self.assertLess(near, 1e-3 * lost)
                    for logits, _ in results[1:]:
                        self.assertTrue(torch.equal(logits, results[0][0]), 'other bits')

    @torch.no_grad()
    def test_the_same_bytes_on_any_number_of_ranks(self):
        """One KV head, so that no axis of the scales but tokens has more than one element."""
        model, tokens = model_of('llama', 'treeattn', num_key_value_heads=1), ids(1, 21)

        def rank_main(group):
            with torch.no_grad():
                cache = cache_of(model, group, kv_dtype=torch.float8_e4m3fn)
                model(tokens, past_key_values=cache)
                layer = cache.layers[0]
                count = cache.map.count(group.rank, 21)
                return cache.map.positions(group.rank, 21), \
                    layer.keys.view(torch.uint8).flatten(0, 1)[:count], \
                    layer.scales['v_scale'].flatten(0, 1)[:count]
        where, keys, scales = run(1, rank_main)[0]
        self.assertEqual(where, list(range(21)))
        self.assertTrue(bool((scales > 0).all()))
        for mine, part, own in run(3, rank_main):
            self.assertTrue(torch.equal(part, keys[mine]))
            self.assertTrue(torch.equal(own, scales[mine]))

    def test_generate_behind_a_divided_prompt(self):
        model, tokens = model_of('qwen3', 'treeattn'), ids(2, 25)

        def rank_main(group):
            with torch.no_grad():
                cache = cache_of(model, group, kv_dtype='e4m3')
                self.assertEqual(prefill(model, tokens, cache), 'grid')
                return model.generate(tokens, past_key_values=cache, max_new_tokens=8,
                                      do_sample=False)
        one = run(1, rank_main)[0]
        for ranks in (2, 3):
            for found in run(ranks, rank_main):
                self.assertEqual(found.tolist(), one.tolist())

    def test_what_is_refused(self):
        model = model_of('llama', 'treeattn')
        with self.assertRaisesRegex(ValueError, "kv_dtype is 'int4': must be one of f32"):
            cache_of(model, None, kv_dtype='int4')
        with self.assertRaisesRegex(NotImplementedError, 'latent vectors are not stored in 8'):
            cache_of(model_of('deepseek-v3', 'treeattn'), None, kv_dtype='e4m3')


if __name__ == '__main__':
    torch.set_num_threads(1)
    register()
    main()
