"""The C interface for ctypes, written by python/generate.py from the headers."""
import ctypes as c
import enum

from ._sized import Sized

TA_VERSION_MAJOR = 0
TA_VERSION_MINOR = 2
TA_VERSION_PATCH = 0
TA_CCL_ID_BYTES = 128


class Status(enum.IntEnum):
    """ta_status"""

    OK = 0
    ERR_INVALID = -1
    ERR_UNSUPPORTED = -2
    ERR_NO_MEMORY = -3
    ERR_TIMEOUT = -4
    ERR_MISMATCH = -5
    ERR_ABORTED = -6
    ERR_NOT_FOUND = -7
    ERR_DEVICE = -8
    ERR_SYSTEM = -9


class LogLevel(enum.IntEnum):
    """ta_log_level"""

    ERROR = 1
    INFO = 2


class Dtype(enum.IntEnum):
    """ta_dtype"""

    DTYPE_NONE = 0
    F32 = 1
    F16 = 2
    BF16 = 3
    E4M3 = 4
    E5M2 = 5
    E4M3_FNUZ = 6
    E5M2_FNUZ = 7


class ShardKind(enum.IntEnum):
    """ta_shard_kind"""

    CONTIGUOUS = 0
    BLOCK_CYCLIC = 1
    ZIGZAG = 2
    WEIGHTED = 3


class Mask(enum.IntEnum):
    """ta_mask"""

    CAUSAL = 0
    FULL = 1


class Placement(enum.IntEnum):
    """ta_placement"""

    ALL = 0
    ROOT = 1
    HEADS = 2


class Algorithm(enum.IntEnum):
    """ta_algorithm"""

    AUTO = 0
    TREE = 1
    RING_KV = 2
    RING_Q = 3
    ONE_DEVICE = 4


class Exchange(enum.IntEnum):
    """ta_exchange"""

    AUTO = 0
    DOUBLING = 1
    BINOMIAL = 2
    SCATTER = 3
    TWO_LEVEL = 4
    ALL_GATHER = 5
    ALL_REDUCE = 6
    DIRECT = 7
    MULTI_LEVEL = 8


class Weights(enum.IntEnum):
    """ta_weights"""

    EXACT = 0
    ROUNDED = 1


class AppendSource(enum.IntEnum):
    """ta_append_source"""

    ALL = 0
    HEADS = 1
    LOCAL = 2


class LseBase(enum.IntEnum):
    """ta_lse_base"""

    E = 0
    BASE_2 = 1


class ElementKind(enum.IntEnum):
    """ta_element_kind"""

    BYTE = 0
    F32 = 1
    F16 = 2
    BF16 = 3
    I32 = 4
    I64 = 5


class Reduction(enum.IntEnum):
    """ta_reduction"""

    SUM = 0
    MAX = 1


class AttentionAlgorithm(enum.IntEnum):
    """ta_attention_algorithm"""

    AUTO = 0
    GRID = 1
    RING = 2
    GRID_OVERLAP = 3


class ta_device_config(Sized):
    """ta_device_config"""

    _fields_ = [('size', c.c_size_t), ('threads', c.c_int), ('reserved', c.c_int),
        ('simd', c.c_char_p)]
    enums = {}


class ta_group_config(Sized):
    """ta_group_config"""

    _fields_ = [('size', c.c_size_t), ('timeout_ms', c.c_int), ('reserved', c.c_int)]
    enums = {}


class ta_ccl_config(Sized):
    """ta_ccl_config"""

    _fields_ = [('size', c.c_size_t), ('id', c.c_void_p), ('rank', c.c_int), ('ranks', c.c_int),
        ('communicator', c.c_void_p), ('bootstrap', c.c_void_p)]
    enums = {}


class ta_group_stats(Sized):
    """ta_group_stats"""

    _fields_ = [('size', c.c_size_t), ('messages_sent', c.c_uint64),
        ('messages_received', c.c_uint64), ('bytes_sent', c.c_uint64),
        ('bytes_received', c.c_uint64)]
    enums = {}


class ta_shard_map(Sized):
    """ta_shard_map"""

    _fields_ = [('size', c.c_size_t), ('kind', c.c_int), ('ranks', c.c_int), ('block', c.c_int32),
        ('reserved', c.c_int32), ('bounds', c.c_void_p)]
    enums = {'kind': ShardKind}


class ta_plan_config(Sized):
    """ta_plan_config"""

    _fields_ = [('size', c.c_size_t), ('batch', c.c_int32), ('query_tokens', c.c_int32),
        ('query_heads', c.c_int32), ('kv_heads', c.c_int32), ('k_dim', c.c_int32),
        ('v_dim', c.c_int32), ('kv_dtype', c.c_int), ('query_dtype', c.c_int),
        ('out_dtype', c.c_int), ('max_tokens', c.c_int32), ('map', ta_shard_map),
        ('mask', c.c_int), ('window', c.c_int32), ('scale', c.c_float), ('softcap', c.c_float),
        ('alibi_slopes', c.c_void_p), ('sinks', c.c_void_p), ('query_placement', c.c_int),
        ('query_root', c.c_int), ('out_placement', c.c_int), ('out_root', c.c_int),
        ('algorithm', c.c_int), ('exchange', c.c_int), ('workspace', c.c_void_p),
        ('workspace_bytes', c.c_size_t), ('cluster', c.c_void_p), ('replay', c.c_int),
        ('reproducible_tile', c.c_int32), ('check', c.c_int32), ('max_call_tokens', c.c_int32),
        ('combine_only', c.c_int32), ('append_scattered', c.c_int32),
        ('shared_prefixes', c.c_int32), ('weights', c.c_int)]
    enums = {'kv_dtype': Dtype, 'query_dtype': Dtype, 'out_dtype': Dtype, 'mask': Mask,
        'query_placement': Placement, 'out_placement': Placement, 'algorithm': Algorithm,
        'exchange': Exchange, 'weights': Weights}


class ta_plan_stats(Sized):
    """ta_plan_stats"""

    _fields_ = [('size', c.c_size_t), ('steps', c.c_uint64), ('step_ns', c.c_uint64),
        ('attend_ns', c.c_uint64), ('workspace_bytes', c.c_uint64), ('device_bytes', c.c_uint64),
        ('device_bytes_most', c.c_uint64), ('device_attend_ns', c.c_uint64)]
    enums = {}


class ta_tensor(c.Structure):
    """ta_tensor"""

    _fields_ = [('data', c.c_void_p), ('batch_stride', c.c_int64), ('token_stride', c.c_int64),
        ('head_stride', c.c_int64)]
    enums = {}


class ta_scales(c.Structure):
    """ta_scales"""

    _fields_ = [('data', c.c_void_p), ('batch_stride', c.c_int64), ('token_stride', c.c_int64),
        ('head_stride', c.c_int64)]
    enums = {}


class ta_kv(Sized):
    """ta_kv"""

    _fields_ = [('size', c.c_size_t), ('k', ta_tensor), ('v', ta_tensor), ('lengths', c.c_void_p),
        ('bounds', c.c_void_p), ('bounds_stride', c.c_int64), ('page_table', c.c_void_p),
        ('page_table_stride', c.c_int64), ('page_tokens', c.c_int32), ('page_count', c.c_int32),
        ('k_bytes', c.c_size_t), ('v_bytes', c.c_size_t), ('k_scale', ta_scales),
        ('v_scale', ta_scales)]
    enums = {}


class ta_call(Sized):
    """ta_call"""

    _fields_ = [('size', c.c_size_t), ('tag', c.c_uint64), ('batch', c.c_int32),
        ('tokens', c.c_int32), ('starts', c.c_void_p), ('sinks', c.c_void_p),
        ('alibi_slopes', c.c_void_p), ('window', c.c_int32), ('softcap', c.c_float),
        ('selected', c.c_void_p), ('selected_count', c.c_int32), ('selected_lists', c.c_int32),
        ('prefix_starts', c.c_void_p), ('prefix_lengths', c.c_void_p),
        ('prefix_groups', c.c_int32), ('reserved', c.c_int32)]
    enums = {}


class ta_append_input(Sized):
    """ta_append_input"""

    _fields_ = [('size', c.c_size_t), ('k', ta_tensor), ('v', ta_tensor), ('dtype', c.c_int),
        ('source', c.c_int), ('make_scales', c.c_int32), ('reserved', c.c_int32)]
    enums = {'dtype': Dtype, 'source': AppendSource}


class ta_transfer(c.Structure):
    """ta_transfer"""

    _fields_ = [('data', c.c_void_p), ('bytes', c.c_size_t), ('moved', c.c_size_t),
        ('channel', c.c_int32), ('peer', c.c_int32), ('sends', c.c_int32), ('failed', c.c_int32),
        ('request', c.c_void_p)]
    enums = {}


ta_transport_progress = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(c.POINTER(ta_transfer)),
        c.c_int, c.c_int)


ta_transport_cancel = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(ta_transfer))


class ta_transport(Sized):
    """ta_transport"""

    _fields_ = [('size', c.c_size_t), ('context', c.c_void_p), ('rank', c.c_int32),
        ('ranks', c.c_int32), ('node', c.c_int32), ('holds_memory', c.c_int32),
        ('progress', ta_transport_progress), ('cancel', ta_transport_cancel)]
    enums = {}


class ta_move(c.Structure):
    """ta_move"""

    _fields_ = [('from_rank', c.c_int32), ('from_local', c.c_int32), ('to_rank', c.c_int32),
        ('to_local', c.c_int32), ('position', c.c_int32), ('tokens', c.c_int32)]
    enums = {}


class ta_reshard_config(Sized):
    """ta_reshard_config"""

    _fields_ = [('size', c.c_size_t), ('from', ta_shard_map), ('to', ta_shard_map),
        ('batch', c.c_int32), ('kv_heads', c.c_int32), ('k_dim', c.c_int32), ('v_dim', c.c_int32),
        ('kv_dtype', c.c_int), ('from_tokens', c.c_int32), ('to_tokens', c.c_int32),
        ('reserved', c.c_int32), ('lengths', c.c_void_p)]
    enums = {'kv_dtype': Dtype}


class ta_attention_config(Sized):
    """ta_attention_config"""

    _fields_ = [('size', c.c_size_t), ('query_heads', c.c_int32), ('kv_heads', c.c_int32),
        ('k_dim', c.c_int32), ('v_dim', c.c_int32), ('dtype', c.c_int), ('max_tokens', c.c_int32),
        ('map', ta_shard_map), ('mask', c.c_int), ('window', c.c_int32), ('scale', c.c_float),
        ('softcap', c.c_float), ('grid_rows', c.c_int), ('grid_columns', c.c_int),
        ('forward_only', c.c_int), ('algorithm', c.c_int), ('cluster', c.c_void_p),
        ('workspace', c.c_void_p), ('workspace_bytes', c.c_size_t)]
    enums = {'dtype': Dtype, 'mask': Mask, 'algorithm': AttentionAlgorithm}


class ta_attention_input(Sized):
    """ta_attention_input"""

    _fields_ = [('size', c.c_size_t), ('sequences', c.c_int32), ('reserved', c.c_int32),
        ('lengths', c.c_void_p), ('q', ta_tensor), ('k', ta_tensor), ('v', ta_tensor)]
    enums = {}


class ta_attention_gradient(Sized):
    """ta_attention_gradient"""

    _fields_ = [('size', c.c_size_t), ('out', ta_tensor), ('dout', ta_tensor),
        ('lse', c.c_void_p), ('dq', ta_tensor), ('dk', ta_tensor), ('dv', ta_tensor)]
    enums = {}


class ta_attention_stats(Sized):
    """ta_attention_stats"""

    _fields_ = [('size', c.c_size_t), ('algorithm', c.c_int), ('grid_rows', c.c_int),
        ('grid_columns', c.c_int), ('reserved', c.c_int), ('forward_calls', c.c_uint64),
        ('backward_calls', c.c_uint64), ('forward_ns', c.c_uint64), ('backward_ns', c.c_uint64),
        ('forward_attend_ns', c.c_uint64), ('backward_attend_ns', c.c_uint64),
        ('workspace_bytes', c.c_uint64), ('device_bytes', c.c_uint64),
        ('device_bytes_most', c.c_uint64)]
    enums = {'algorithm': AttentionAlgorithm}


class ta_predicted_call(c.Structure):
    """ta_predicted_call"""

    _fields_ = [('seconds', c.c_double), ('attend_seconds', c.c_double),
        ('messages_sent', c.c_uint64), ('messages_received', c.c_uint64),
        ('bytes_sent', c.c_uint64), ('bytes_received', c.c_uint64),
        ('total_bytes_sent', c.c_uint64)]
    enums = {}


class ta_prediction(Sized):
    """ta_prediction"""

    _fields_ = [('size', c.c_size_t), ('algorithm', c.c_int), ('exchange', c.c_int),
        ('possible', c.c_int), ('chosen', c.c_int), ('fits', c.c_int), ('reserved', c.c_int),
        ('step', ta_predicted_call), ('memory_bytes', c.c_double)]
    enums = {'algorithm': Algorithm, 'exchange': Exchange}


class ta_attention_prediction(Sized):
    """ta_attention_prediction"""

    _fields_ = [('size', c.c_size_t), ('algorithm', c.c_int), ('grid_rows', c.c_int),
        ('grid_columns', c.c_int), ('possible', c.c_int), ('chosen', c.c_int), ('fits', c.c_int),
        ('forward', ta_predicted_call), ('backward', ta_predicted_call),
        ('memory_bytes', c.c_double)]
    enums = {'algorithm': AttentionAlgorithm}


ta_log_fn = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)


ta_rank_fn = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p)


# What functions return and take.
FUNCTIONS = {
    'ta_status_name': (c.c_char_p, [c.c_int]),
    'ta_status_message': (c.c_char_p, [c.c_int]),
    'ta_last_error': (c.c_char_p, []),
    'ta_log_set': (None, [ta_log_fn, c.c_void_p, c.c_int]),
    'ta_version': (c.c_int, []),
    'ta_info': (c.c_int, [c.c_char_p, c.c_size_t, c.c_void_p]),
    'ta_device_open': (c.c_int, [c.c_char_p, c.POINTER(ta_device_config), c.POINTER(c.c_void_p)]),
    'ta_device_close': (None, [c.c_void_p]),
    'ta_device_name': (c.c_char_p, [c.c_void_p]),
    'ta_device_alloc': (c.c_int, [c.c_void_p, c.c_size_t, c.POINTER(c.c_void_p)]),
    'ta_device_free': (None, [c.c_void_p, c.c_void_p]),
    'ta_device_copy': (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p]),
    'ta_device_synchronize': (c.c_int, [c.c_void_p, c.c_void_p]),
    'ta_device_timer_start': (c.c_int, [c.c_void_p, c.c_void_p]),
    'ta_device_timer_read': (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    'ta_group_create_threads': (c.c_int, [c.c_int, c.POINTER(ta_group_config),
        c.POINTER(c.c_void_p)]),
    'ta_group_run_threads': (c.c_int, [c.c_int, c.POINTER(ta_group_config), ta_rank_fn,
        c.c_void_p]),
    'ta_group_create_mpi': (c.c_int, [c.c_void_p, c.POINTER(ta_group_config),
        c.POINTER(c.c_void_p)]),
    'ta_group_split': (c.c_int, [c.c_void_p, c.c_int, c.c_int, c.POINTER(c.c_void_p)]),
    'ta_ccl_id': (c.c_int, [c.c_void_p, c.c_void_p]),
    'ta_group_create_ccl': (c.c_int, [c.c_void_p, c.POINTER(ta_ccl_config),
        c.POINTER(ta_group_config), c.POINTER(c.c_void_p)]),
    'ta_group_rank': (c.c_int, [c.c_void_p]),
    'ta_group_size': (c.c_int, [c.c_void_p]),
    'ta_group_get_stats': (c.c_int, [c.c_void_p, c.POINTER(ta_group_stats)]),
    'ta_group_abort': (None, [c.c_void_p, c.c_char_p]),
    'ta_group_destroy': (None, [c.c_void_p]),
    'ta_shard_locate': (c.c_int, [c.POINTER(ta_shard_map), c.c_int32, c.c_void_p, c.c_void_p]),
    'ta_shard_position': (c.c_int, [c.POINTER(ta_shard_map), c.c_int, c.c_int32, c.c_void_p]),
    'ta_shard_count': (c.c_int, [c.POINTER(ta_shard_map), c.c_int, c.c_int32, c.c_void_p]),
    'ta_shard_next': (c.c_int, [c.POINTER(ta_shard_map), c.c_int32, c.c_void_p, c.c_void_p]),
    'ta_head_range': (c.c_int, [c.c_int, c.c_int, c.c_int, c.c_void_p, c.c_void_p]),
    'ta_plan_workspace': (c.c_int, [c.c_void_p, c.c_void_p, c.POINTER(ta_plan_config), c.c_void_p]),
    'ta_plan_create': (c.c_int, [c.c_void_p, c.c_void_p, c.POINTER(ta_plan_config),
        c.POINTER(c.c_void_p)]),
    'ta_plan_destroy': (None, [c.c_void_p]),
    'ta_plan_get_stats': (c.c_int, [c.c_void_p, c.POINTER(ta_plan_stats)]),
    'ta_decode': (c.c_int, [c.c_void_p, c.POINTER(ta_tensor), c.POINTER(ta_kv),
        c.POINTER(ta_tensor), c.c_void_p, c.POINTER(ta_call), c.c_void_p]),
    'ta_plan_check': (c.c_int, [c.c_void_p]),
    'ta_append': (c.c_int, [c.c_void_p, c.POINTER(ta_append_input), c.POINTER(ta_kv),
        c.POINTER(ta_call), c.c_void_p]),
    'ta_combine': (c.c_int, [c.c_void_p, c.POINTER(ta_tensor), c.c_void_p, c.c_int,
        c.POINTER(ta_tensor), c.c_void_p, c.POINTER(ta_call), c.c_void_p]),
    'ta_all_reduce': (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t,
        c.c_int, c.c_int, c.c_void_p]),
    'ta_all_gather': (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t,
        c.c_int, c.c_void_p]),
    'ta_reduce_scatter': (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t,
        c.c_int, c.c_int, c.c_void_p]),
    'ta_broadcast': (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_int, c.c_int,
        c.c_void_p]),
    'ta_barrier': (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p]),
    'ta_group_create_custom': (c.c_int, [c.POINTER(ta_transport), c.POINTER(ta_group_config),
        c.POINTER(c.c_void_p)]),
    'ta_reshard_list': (c.c_int, [c.POINTER(ta_shard_map), c.POINTER(ta_shard_map), c.c_int32,
        c.POINTER(ta_move), c.c_size_t, c.c_void_p]),
    'ta_reshard': (c.c_int, [c.c_void_p, c.c_void_p, c.POINTER(ta_reshard_config),
        c.POINTER(ta_kv), c.POINTER(ta_kv), c.c_void_p]),
    'ta_attention_workspace': (c.c_int, [c.c_void_p, c.c_void_p, c.POINTER(ta_attention_config),
        c.c_void_p]),
    'ta_attention_create': (c.c_int, [c.c_void_p, c.c_void_p, c.POINTER(ta_attention_config),
        c.POINTER(c.c_void_p)]),
    'ta_attention_forward': (c.c_int, [c.c_void_p, c.POINTER(ta_attention_input),
        c.POINTER(ta_tensor), c.c_void_p, c.c_void_p]),
    'ta_attention_backward': (c.c_int, [c.c_void_p, c.POINTER(ta_attention_input),
        c.POINTER(ta_attention_gradient), c.c_void_p]),
    'ta_attention_get_stats': (c.c_int, [c.c_void_p, c.POINTER(ta_attention_stats)]),
    'ta_attention_destroy': (None, [c.c_void_p]),
    'ta_cluster_create': (c.c_int, [c.c_char_p, c.POINTER(c.c_void_p)]),
    'ta_cluster_probe': (c.c_int, [c.c_void_p, c.c_void_p, c.POINTER(c.c_void_p)]),
    'ta_cluster_text': (c.c_int, [c.c_void_p, c.c_char_p, c.c_size_t, c.c_void_p]),
    'ta_cluster_destroy': (None, [c.c_void_p]),
    'ta_predict': (c.c_int, [c.c_void_p, c.POINTER(ta_plan_config), c.c_int, c.c_int,
        c.POINTER(ta_prediction)]),
    'ta_predict_all': (c.c_int, [c.c_void_p, c.POINTER(ta_plan_config), c.c_int,
        c.POINTER(ta_prediction), c.c_int, c.c_void_p]),
    'ta_attention_predict': (c.c_int, [c.c_void_p, c.POINTER(ta_attention_config), c.c_int,
        c.c_int, c.POINTER(ta_attention_prediction)]),
    'ta_algorithm_name': (c.c_char_p, [c.c_int]),
    'ta_exchange_name': (c.c_char_p, [c.c_int]),
    'ta_attention_algorithm_name': (c.c_char_p, [c.c_int]),
    'ta_explain': (c.c_int, [c.c_void_p, c.c_char_p, c.c_size_t, c.c_void_p]),
    'ta_explain_json': (c.c_int, [c.c_void_p, c.c_char_p, c.c_size_t, c.c_void_p]),
    'ta_attention_explain': (c.c_int, [c.c_void_p, c.c_char_p, c.c_size_t, c.c_void_p]),
    'ta_attention_explain_json': (c.c_int, [c.c_void_p, c.c_char_p, c.c_size_t, c.c_void_p]),
    'ta_device_extension': (c.c_int, [c.c_void_p, c.c_char_p, c.c_int, c.POINTER(c.c_void_p)]),
}
