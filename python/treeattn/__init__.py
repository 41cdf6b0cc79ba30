"""Exact attention over KV caches too long for one device.

    import numpy, treeattn

    def rank_main(group):
        plan = treeattn.Plan(group, batch=1, query_heads=8, k_dim=64, kv_dtype='f32',
                             max_tokens=1000, shard_map=treeattn.ShardMap('block_cyclic'))
        ...
        return plan.decode(q, treeattn.KV(k, v, lengths))

    outputs = treeattn.run(3, rank_main)

The names are those of the C interface without its prefix, so that the comments in treeattn.h hold
here too. treeattn.torch and treeattn.transformers are for PyTorch.
"""
from ._bindings import AttentionAlgorithm, Algorithm, AppendSource, Dtype, Exchange, LseBase, \
    Mask, Placement, Reduction, ShardKind, Status, Weights, TA_VERSION_MAJOR, TA_VERSION_MINOR, \
    TA_VERSION_PATCH
from ._library import info, path as library_path
from .attention import Attention, AttentionStats
from .cluster import AttentionPrediction, Cluster, PredictedCall, Prediction
from .device import Device
from .errors import AbortedError, InvalidError, MismatchError, NoMemoryError, NotFoundError, \
    TimedOutError, TreeattnError, UnsupportedError
from .group import Group, GroupStats, ccl_id, run
from .kv import KV
from .plan import Plan, PlanStats
from .shard import Move, ShardMap, head_range, reshard_list
from .transport import Transfer, Transport

__version__ = f'{TA_VERSION_MAJOR}.{TA_VERSION_MINOR}.{TA_VERSION_PATCH}'

__all__ = [
    'AbortedError', 'Algorithm', 'AppendSource', 'Attention', 'AttentionAlgorithm',
    'AttentionPrediction', 'AttentionStats', 'Cluster', 'Device', 'Dtype', 'Exchange', 'Group',
    'GroupStats', 'InvalidError', 'KV', 'LseBase', 'Mask', 'MismatchError', 'Move',
    'NoMemoryError', 'NotFoundError', 'Placement', 'Plan', 'PlanStats', 'PredictedCall',
    'Prediction', 'Reduction', 'ShardKind', 'ShardMap', 'Status', 'TimedOutError', 'Transfer',
    'Transport', 'TreeattnError', 'UnsupportedError', 'Weights', 'ccl_id', 'head_range', 'info',
    'library_path', 'reshard_list', 'run',
]
