"""Tiny random models of each family, and the same in double precision, for the tests of
treeattn.transformers."""
import contextlib
import copy
import unittest.mock

import torch
from transformers import AutoModelForCausalLM, DeepseekV2Config, DeepseekV3Config, Gemma2Config, \
    Gemma3TextConfig, Glm4MoeLiteConfig, GptOssConfig, LlamaConfig, MistralConfig, Qwen3Config

from treeattn.transformers import ShardedCache

COMMON = dict(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, head_dim=16,
              max_position_embeddings=256, tie_word_embeddings=False, pad_token_id=0,
              bos_token_id=1, eos_token_id=None, attention_dropout=0.0)
# The latent vector and the rotary key are as large as those of the real models: 576 elements.
LATENT = dict({name: x for name, x in COMMON.items() if name != 'head_dim'},
              num_key_value_heads=4, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=16,
              v_head_dim=24, q_lora_rank=24, moe_intermediate_size=16, n_routed_experts=4,
              n_shared_experts=1, num_experts_per_tok=2)
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
    'deepseek-v3': DeepseekV3Config(**LATENT, first_k_dense_replace=1, n_group=2, topk_group=1),
    'deepseek-v2': DeepseekV2Config(**LATENT, first_k_dense_replace=1, n_group=2, topk_group=1,
                                    topk_method='greedy'),
    'glm4-moe-lite': Glm4MoeLiteConfig(**LATENT),
}


def model_of(family, attention, own=False, **changes):
    """`own`: with the weights that the model's own initialisation gives it."""
    config = copy.deepcopy(FAMILIES[family])
    config._experts_implementation = 'eager'  # the others know no double
    for name, value in changes.items():
        setattr(config, name, value)
    torch.manual_seed(5)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in [] if own else model.named_parameters():
            if parameter.dim() > 1 or 'sinks' in name:
                parameter.normal_(0, 0.3)  # so that attention matters
    model.set_attn_implementation(attention)
    return model.eval()


def ids(batch, tokens, seed=1):
    return torch.randint(2, 97, (batch, tokens), generator=torch.Generator().manual_seed(seed))


def cache_of(model, group, **options):
    return ShardedCache(model.config, group, **{'block': 4, 'chunk': 8, **options})


@contextlib.contextmanager
def everything_in_double():
    """Models compute norms and softmax in torch.float32, whatever their own type: make that
    double too. Integers, masks and frequencies stay as they are."""
    with unittest.mock.patch.object(torch, 'float32', torch.float64), \
            unittest.mock.patch.object(torch, 'float', torch.float64), \
            unittest.mock.patch.object(torch.Tensor, 'float', torch.Tensor.double):
        yield


@torch.no_grad()
def exact_logits(family, tokens, **inputs):
    """What the model would say without rounding."""
    model = model_of(family, 'eager').double()
    with everything_in_double():
        logits = model(tokens, use_cache=False, **inputs).logits
    assert logits.dtype == torch.float64
    return logits


def errors(logits, exact):
    """(largest, root of the mean square) of the difference."""
    difference = logits.double() - exact
    return difference.abs().max().item(), difference.square().mean().sqrt().item()


def check_errors(test, what, logits, eager, exact):
    """Another order of summing has other errors. How much larger than those of eager attention
    may the largest one and the mean of the squares be? Seen: 1.8 and 1.3 times."""
    worst, mean = errors(logits, exact)
    allowed = errors(eager, exact)
    print(f'{what}: errors of {worst:.1e} and {mean:.1e}, eager {allowed[0]:.1e} and '
          f'{allowed[1]:.1e}')
    test.assertLess(worst, 3 * allowed[0])
    test.assertLess(mean, 1.5 * allowed[1])


def check_near(test, what, logits, eager):
    """Within 1e-5 of eager attention."""
    far = (logits - eager).abs().max().item()
    print(f'{what}: {far:.1e} from eager, logits of up to {eager.abs().max().item():.1f}')
    test.assertLessEqual(far, 1e-5)


@torch.no_grad()
def clear_prompt(family, batch, tokens, new):
    """(a prompt, the greedy continuation by eager attention), where double precision has no two
    best tokens so near to each other that rounding decides."""
    model = model_of(family, 'eager')
    for seed in range(1, 20):
        prompt = ids(batch, tokens, seed)
        whole = model.generate(prompt, max_new_tokens=new, do_sample=False)
        best = exact_logits(family, whole)[:, tokens - 1:-1].topk(2).values
        if (best[..., 0] - best[..., 1]).min() > 1e-3:
            return prompt, whole
    raise AssertionError(f'{family}: no prompt has a clear continuation')
