"""Generate text, or tokens, with a model whose KV cache is sharded over ranks:

    python -m treeattn.generate --model PATH --prompt 'Once upon' --ranks 3
    torchrun --nproc-per-node 4 -m treeattn.generate --model PATH --prompt '…'
    mpirun -n 4 python -m treeattn.generate --model PATH --prompt '…'

PATH is a directory with a model of transformers, or its config.json: then the weights are random
and the prompt is numbers of tokens. Ranks are threads, unless torchrun or mpirun started several
processes. Greedy, so that all ranks agree; rank 0 prints. With --device cuda each process has the
GPU of its number on its node, and torchrun's are connected by NCCL or RCCL.
"""
from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import treeattn

from .group import Group, run

MISSING = ''
try:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from .process_groups import device_of
    from .transformers import NAME, ShardedCache, prefill, register
except ImportError as problem:  # --help works without them
    MISSING = f'{problem}: pip install torch transformers'


def count(text: str) -> int:
    """An argument that is a whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f'is {text!r}: must be a whole number, 1 or more')
    return int(text)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m treeattn.generate',
                                     description='Generate with a cache sharded over ranks.')
    parser.add_argument('--model', required=True, help='a directory, or a config.json')
    parser.add_argument('--prompt', default='1 2 3 4 5 6 7 8',
                        help='text; for a config numbers of tokens')
    parser.add_argument('--tokens', type=count, default=32, help='how many to generate')
    parser.add_argument('--ranks', type=count, default=1, help='threads, in one process')
    parser.add_argument('--block', type=count, default=64,
                        help='tokens of a block of the shard map')
    parser.add_argument('--prefill', default='grid', choices=('grid', 'chunks'),
                        help='divide the prompt over the ranks, or give all of it to each')
    parser.add_argument('--kv-dtype', help='what the cache is stored as, such as e4m3')
    parser.add_argument('--dtype', default='float32', choices=('float32', 'float16', 'bfloat16'),
                        help='of the weights, and of what is computed')
    parser.add_argument('--device', default='cpu',
                        help='cpu; cuda for a GPU of either vendor, cuda:1 for a certain one')
    return parser.parse_args()


def place(name: str) -> torch.device:
    """The device of this process; "cuda" is the GPU of its number on this node."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise treeattn.InvalidError(f'--device is {name!r}: {error}') from None
    if device.type not in ('cpu', 'cuda'):
        raise treeattn.InvalidError(f'--device is {name!r}: must be cpu or cuda')
    if device.type == 'cpu':
        return device
    if not torch.cuda.is_available():
        raise treeattn.NotFoundError(f'--device is {name!r}: torch {torch.__version__} sees no GPU')
    local = os.environ.get('LOCAL_RANK', os.environ.get('OMPI_COMM_WORLD_LOCAL_RANK', '0'))
    device = torch.device('cuda', int(local) if device.index is None else device.index)
    torch.cuda.set_device(device)
    return device


def load(options: argparse.Namespace) -> tuple[Any, Any]:
    """(model, tokenizer); without weights a random model and no tokenizer."""
    dtype = getattr(torch, options.dtype)
    try:
        if os.path.isfile(options.model):
            torch.manual_seed(0)
            config = AutoConfig.from_pretrained(options.model)
            model, tokenizer = AutoModelForCausalLM.from_config(config, dtype=dtype), None
        else:
            model = AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype)
            tokenizer = AutoTokenizer.from_pretrained(options.model)
    except (OSError, ValueError) as error:  # with a sentence of transformers
        raise treeattn.NotFoundError(f'--model is {options.model!r}: must be a directory with a '
                                     f'model of transformers, or its config.json: {error}') \
            from None
    register()
    model.set_attn_implementation(NAME)
    return model.eval(), tokenizer


def encode(prompt: str, tokenizer: Any, vocabulary: int) -> torch.Tensor:
    """The tokens of a prompt, [1, tokens]; without a tokenizer it is their numbers."""
    if tokenizer is not None:
        ids = tokenizer(prompt, return_tensors='pt').input_ids
    elif all(word.isdecimal() and int(word) < vocabulary for word in prompt.split()):
        ids = torch.tensor([[int(word) for word in prompt.split()]])
    else:
        raise treeattn.InvalidError(f'--prompt is {prompt!r}: must be numbers of tokens from 0 to '
                                    f'{vocabulary - 1} for a model that is a config alone')
    if not ids.numel():
        raise treeattn.InvalidError(f'--prompt is {prompt!r}: must have at least one token')
    return ids


def process_group(device: torch.device) -> Group | None:
    """The group of the processes that torchrun or mpirun started; None if there is one alone."""
    if int(os.environ.get('WORLD_SIZE', '1')) > 1:
        import torch.distributed as dist

        from .process_groups import ccl_group, group
        dist.init_process_group('gloo' if device.type == 'cpu' else 'nccl')
        if device.type == 'cpu':
            return group()
        return ccl_group(treeattn.Device(device_of(torch.empty(0, device=device))))
    if int(os.environ.get('OMPI_COMM_WORLD_SIZE', os.environ.get('PMI_SIZE', '1'))) > 1:
        return Group.mpi()
    return None


def main() -> int:
    options = arguments()
    if MISSING:
        print(f'treeattn.generate: {MISSING}', file=sys.stderr)
        return 1
    try:
        return generate(options)
    except treeattn.TreeattnError as error:
        print(f'{error.name}: {error}', file=sys.stderr)
        return 1


def generate(options: argparse.Namespace) -> int:
    device = place(options.device)
    model, tokenizer = load(options)
    model = model.to(device)
    vocabulary = model.get_input_embeddings().num_embeddings
    ids = encode(options.prompt, tokenizer, vocabulary).to(device)

    @torch.no_grad()
    def rank_main(group: Group) -> torch.Tensor:
        cache = ShardedCache(model.config, group, max_length=ids.shape[1] + options.tokens,
                             block=options.block, kv_dtype=options.kv_dtype)
        if options.prefill == 'grid':
            prefill(model, ids, cache)
        return model.generate(ids, past_key_values=cache, do_sample=False,
                              max_new_tokens=options.tokens)
    group = process_group(device)
    tokens = rank_main(group) if group else run(options.ranks, rank_main)[0]
    if group is None or group.rank == 0:
        print(tokenizer.decode(tokens[0]) if tokenizer else ' '.join(map(str, tokens[0].tolist())))
    return 0


if __name__ == '__main__':
    sys.exit(main())
