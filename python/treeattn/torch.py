"""treeattn with PyTorch: groups from torch.distributed, operators that autograd and torch.compile
know, and the combine step of engines.

    group(process_group)          a Group of the ranks of a torch.distributed process group
    attention(plan, q, k, v, lengths)    Attention.forward() with gradients
    decode(plan, q, kv, …)        Plan.decode() as an operator
    append(plan, k, v, kv, …)     Plan.append() as an operator
    combine(out, lse, group, …)   with the arguments of vLLM's and SGLang's combine step

The operators are in operators.py and combine.py, the groups in process_groups.py.
"""
from .combine import combine
from .operators import append, attention, decode
from .process_groups import DTYPES, as_group, ccl_group, device_of, group, release

__all__ = ['DTYPES', 'append', 'as_group', 'attention', 'ccl_group', 'combine', 'decode',
           'device_of', 'group', 'release']
