"""Generate text, or tokens, with a model whose KV cache is sharded over ranks:

    python -m treeattn.generate --model PATH --prompt 'Once upon' --ranks 3
    torchrun --nproc-per-node 4 -m treeattn.generate --model PATH --prompt '…'
    mpirun -n 4 python -m treeattn.generate --model PATH --prompt '…'

PATH is a directory with a model of transformers, or its config.json: then the weights are random
and the prompt is numbers of tokens. Ranks are threads, unless torchrun or mpirun started several
processes. Greedy, so that all ranks agree; rank 0 prints.
"""
from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import treeattn

from .group import Group, run
from .transformers import NAME, ShardedCache, register


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m treeattn.generate',
                                     description='Generate with a cache sharded over ranks.')
    parser.add_argument('--model', required=True, help='a directory, or a config.json')
    parser.add_argument('--prompt', default='1 2 3 4 5 6 7 8',
                        help='text; for a config numbers of tokens')
    parser.add_argument('--tokens', type=int, default=32, help='how many to generate')
    parser.add_argument('--ranks', type=int, default=1, help='threads, in one process')
    parser.add_argument('--block', type=int, default=64, help='tokens of a block of the shard map')
    parser.add_argument('--dtype', default='float32', help='float32, float16 or bfloat16')
    return parser.parse_args()


def load(options: argparse.Namespace) -> tuple[Any, Any]:
    """(model, tokenizer); without weights a random model and no tokenizer."""
    dtype = getattr(torch, options.dtype)
    if os.path.isfile(options.model):
        torch.manual_seed(0)
        config = AutoConfig.from_pretrained(options.model)
        model, tokenizer = AutoModelForCausalLM.from_config(config, dtype=dtype), None
    else:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype)
        tokenizer = AutoTokenizer.from_pretrained(options.model)
    register()
    model.set_attn_implementation(NAME)
    return model.eval(), tokenizer


def encode(prompt: str, tokenizer: Any) -> torch.Tensor:
    if tokenizer is not None:
        return tokenizer(prompt, return_tensors='pt').input_ids
    return torch.tensor([[int(word) for word in prompt.split()]])


def process_group() -> Group | None:
    """The group of the processes that torchrun or mpirun started; None if there is one alone."""
    if int(os.environ.get('WORLD_SIZE', '1')) > 1:
        import torch.distributed as dist

        from .torch import group
        dist.init_process_group('gloo')
        return group()
    if int(os.environ.get('OMPI_COMM_WORLD_SIZE', os.environ.get('PMI_SIZE', '1'))) > 1:
        return Group.mpi()
    return None


def main() -> int:
    options = arguments()
    model, tokenizer = load(options)
    ids = encode(options.prompt, tokenizer)

    @torch.no_grad()
    def rank_main(group: Group) -> torch.Tensor:
        cache = ShardedCache(model.config, group, max_length=ids.shape[1] + options.tokens,
                             block=options.block)
        return model.generate(ids, past_key_values=cache, do_sample=False,
                              max_new_tokens=options.tokens)
    group = process_group()
    try:
        tokens = rank_main(group) if group else run(options.ranks, rank_main)[0]
    except treeattn.TreeattnError as error:
        print(f'{error.name}: {error}', file=sys.stderr)
        return 1
    if group is None or group.rank == 0:
        print(tokenizer.decode(tokens[0]) if tokenizer else ' '.join(map(str, tokens[0].tolist())))
    return 0


if __name__ == '__main__':
    sys.exit(main())
