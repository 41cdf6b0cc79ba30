"""Masks of transformers on a sharded cache: padding, wherever it is, gives what eager attention
gives, and every mask that cannot be honoured is refused, in words, before anything is computed."""
import unittest

import torch
from transformers import DynamicCache, Llama4ForCausalLM, Llama4TextConfig
from transformers.masking_utils import create_causal_mask, create_chunked_causal_mask, \
    create_sliding_window_causal_mask

from families import cache_of, ids, model_of
from launch import main, run
from treeattn.masks import span_with_holes
from treeattn.transformers import ShardedCache, prefill, register

LLAMA4 = dict(vocab_size=97, hidden_size=32, intermediate_size=48, intermediate_size_mlp=48,
              num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              num_local_experts=2, attention_chunk_size=8, pad_token_id=0, bos_token_id=1,
              eos_token_id=None, max_position_embeddings=64)


def positions_of(mask):
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


class Masks(unittest.TestCase):
    def refused(self, sentence, function, *arguments, error=NotImplementedError, **options):
        with self.assertRaisesRegex(error, sentence):
            function(*arguments, **options)

    def close(self, found, wanted, real):
        """Where there is no padding; what eager attention makes of padding has no meaning."""
        torch.testing.assert_close(found[real], wanted[real], atol=1e-4, rtol=1e-5)

    def test_mask_functions(self):
        """Causal ones, also with a window, are known; whatever is added to them is not."""
        config = model_of('mistral', 'treeattn').config
        inputs = dict(config=config, inputs_embeds=torch.zeros(2, 5, 32), attention_mask=None,
                      past_key_values=None)
        self.assertEqual(create_causal_mask(**inputs).treeattn.window, 0)
        self.assertEqual(create_sliding_window_causal_mask(**inputs).treeattn.window, 9)
        images = torch.tensor([[-1, 0, 0, -1, -1]] * 2)  # which see each other in both directions
        for more in (dict(or_mask_function=lambda b, h, q, k: q >= 0),
                     dict(and_mask_function=lambda b, h, q, k: k > 1),
                     dict(block_sequence_ids=images)):
            for create in (create_causal_mask, create_sliding_window_causal_mask):
                self.refused('the model masks its attention by ', create, **inputs, **more)
        config.attention_chunk_size = 3
        self.refused('chunks, or images', create_chunked_causal_mask, **inputs)
        config.is_causal = False
        self.refused('bidirectional_mask_function', create_causal_mask, **inputs)

    @torch.no_grad()
    def test_chunked_attention(self):
        """Llama 4: by its config, and without one by the masks that it makes."""
        torch.manual_seed(1)
        model = Llama4ForCausalLM(Llama4TextConfig(**LLAMA4)).eval()
        self.assertTrue(torch.isfinite(model(ids(1, 20)).logits).all())
        model.set_attn_implementation('treeattn')
        self.refused('layers of chunked_attention', cache_of, model, None)
        self.refused('masks its attention by', model, ids(1, 20),
                     past_key_values=ShardedCache(max_length=64))
        llama = model_of('llama', 'treeattn', attention_chunk_size=8)
        self.refused('attention_chunk_size of 8', cache_of, llama, None)

    @torch.no_grad()
    def test_masks_that_transformers_did_not_make(self):
        model, tokens = model_of('llama', 'treeattn'), ids(1, 5)
        self.refused('one of shape .1, 1, 5, 5.*must be of padding alone', model, tokens,
                     attention_mask=torch.ones(1, 1, 5, 5, dtype=torch.bool),
                     past_key_values=cache_of(model, None))
        layer = model.model.layers[0].self_attn
        layer.forward, inner = lambda *a, **k: inner(*a, **{**k, 'attention_mask': None}), \
            layer.forward
        self.refused('the attention mask is none', model, tokens,
                     past_key_values=cache_of(model, None))

    @torch.no_grad()
    def test_a_window_that_only_the_mask_has(self):
        model = model_of('gemma2', 'treeattn')
        sliding = model.config.layer_types.index('sliding_attention')
        model.model.layers[sliding].self_attn.sliding_window = None
        self.refused('a window of 9 tokens and tells its attention function of 0', model,
                     ids(1, 5), past_key_values=cache_of(model, None))

    @torch.no_grad()
    def test_later_masks(self):
        """They must say of earlier tokens what was said when those came."""
        model, tokens = model_of('llama', 'treeattn'), ids(2, 8)
        mask = torch.ones_like(tokens)

        def refused(first, second, sentence, error=NotImplementedError, fill=False):
            cache = cache_of(model, None)
            if fill:
                prefill(model, tokens[:, :7], cache, first)
            else:
                model(tokens[:, :6], attention_mask=first, past_key_values=cache)
            self.refused(sentence, model, tokens[:, 6:7], attention_mask=second,
                         past_key_values=cache, error=error)
        hides, padded = mask[:, :7].clone(), mask[:, :6].clone()
        hides[1, 2], padded[0, :2] = 0, 0
        refused(None, hides, 'token 2 of sequence 1 was stored by an earlier call, and the '
                'attention mask hides it now')
        shown = 'token 0 of sequence 0 was left out by an earlier call, and .* shows it now'
        refused(padded, None, shown)
        refused(padded, mask[:, :7], shown)
        refused(padded, hides, 'token 0 of sequence 0')
        longer = torch.cat((padded, mask[:, :1]), dim=1)
        refused(longer, None, shown, fill=True)
        refused(None, longer, 'token 0 of sequence 0 was stored', fill=True)
        refused(None, mask[:, :1], r'\[2, 1\]: must be .* with all 7 tokens', ValueError)
        cache = cache_of(model, None)
        model(tokens[:, :6], attention_mask=padded, past_key_values=cache)
        model(tokens[:, 6:7], attention_mask=longer, past_key_values=cache)
        self.assertEqual(cache.layers[1].held.tolist(), [5, 7])
        cache.reset()
        model(tokens[:, :6], past_key_values=cache)
        self.assertEqual(cache.layers[1].held.tolist(), [6, 6])

    def logits_in_parts(self, model, cache, tokens, mask, ends):
        """Of a prompt and what follows it, in several calls."""
        parts, begin, positions = [], 0, positions_of(mask)
        with torch.no_grad():
            for end in ends:
                parts.append(model(tokens[:, begin:end], attention_mask=mask[:, :end],
                                   position_ids=positions[:, begin:end],
                                   past_key_values=cache).logits)
                begin = end
        return torch.cat(parts, dim=1)

    def test_right_padding(self):
        """A batch padded on the right, then tokens behind the padding, which is a hole then."""
        tokens, mask = ids(3, 20), torch.ones(3, 20, dtype=torch.long)
        mask[1, 6:15], mask[2, 13:15], mask[2, :2] = 0, 0, 0
        for family in ('llama', 'qwen3', 'deepseek-v3'):
            eager, model = model_of(family, 'eager'), model_of(family, 'treeattn')
            wanted = self.logits_in_parts(eager, DynamicCache(config=eager.config), tokens, mask,
                                          (15, 16, 20))
            for found in run(2, lambda group: self.logits_in_parts(
                    model, cache_of(model, group), tokens, mask, (15, 16, 20))):
                self.close(found, wanted, mask.bool())

            def divided(group):
                cache = cache_of(model, group)
                self.assertEqual(prefill(model, tokens[:, :17], cache, mask[:, :17]), 'grid')
                with torch.no_grad():
                    return model(tokens[:, 16:], attention_mask=mask, past_key_values=cache,
                                 position_ids=positions_of(mask)[:, 16:]).logits
            for found in run(3, divided):
                self.close(found, wanted[:, 16:], mask[:, 16:].bool())

    def test_holes_with_a_window(self):
        """Padding on either side does no harm. Inside a sequence it is counted by the model's
        window, so it must be nearer than that reaches."""
        tokens, mask = ids(2, 16), torch.ones(2, 16, dtype=torch.long)
        mask[1, 11:14] = 0
        for family in ('mistral', 'gemma2', 'gpt-oss'):
            eager, model = model_of(family, 'eager'), model_of(family, 'treeattn')
            wanted = self.logits_in_parts(eager, DynamicCache(config=eager.config), tokens,
                                          mask[:, :14], (14,))
            found = self.logits_in_parts(model, cache_of(model, None), tokens, mask[:, :14], (14,))
            self.close(found, wanted, mask[:, :14].bool())
            self.refused('16 columns long, further than the window of 9', self.logits_in_parts,
                         model, cache_of(model, None), tokens, mask, (14, 16))
            self.refused('15 columns long, further than the window of 9', prefill, model, tokens,
                         cache_of(model, None), mask)
            near = torch.ones(2, 16, dtype=torch.long)
            near[1, :7], near[1, 10:12] = 0, 0  # 9 columns of which 2 are padding
            wanted = self.logits_in_parts(eager, DynamicCache(config=eager.config), tokens, near,
                                          (12, 14, 16))
            found = self.logits_in_parts(model, cache_of(model, None), tokens, near, (12, 14, 16))
            self.close(found, wanted, near.bool())

    def test_spans(self):
        for row, span in (('1111', 0), ('0011', 0), ('1100', 0), ('0110', 0), ('0000', 0),
                          ('1011', 4), ('01010', 3), ('10001', 5)):
            self.assertEqual(span_with_holes(torch.tensor([[x == '1' for x in row]])), span, row)


if __name__ == '__main__':
    torch.set_num_threads(1)
    register()
    main()
