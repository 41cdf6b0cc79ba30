"""Clusters and predictions: what a plan would cost on machines that need not be here."""
from __future__ import annotations

import ctypes as c
from typing import Any, NamedTuple

from . import _bindings as b
from ._library import Handle, check, lib, text_of
from .device import Device
from .errors import NotFoundError
from .options import fill, whole


class PredictedCall(NamedTuple):
    """What one call would cost: seconds, and messages and bytes of the busiest rank."""

    seconds: float
    attend_seconds: float
    messages_sent: int
    messages_received: int
    bytes_sent: int
    bytes_received: int
    total_bytes_sent: int


class Prediction(NamedTuple):
    """A decode step in one of the ways of doing it."""

    algorithm: str
    exchange: str
    possible: bool
    chosen: bool
    fits: bool
    step: PredictedCall
    memory_bytes: float


class AttentionPrediction(NamedTuple):
    """Attention over full sequences in one of the ways of doing it."""

    algorithm: str
    grid_rows: int
    grid_columns: int
    possible: bool
    chosen: bool
    fits: bool
    forward: PredictedCall
    backward: PredictedCall
    memory_bytes: float


class Cluster(Handle):
    """A cluster from a description ("h100:16x8", the path of a file), or measured: probe()."""

    def __init__(self, description: str):
        handle = c.c_void_p()
        check(lib.ta_cluster_create(description.encode(), c.byref(handle)))
        self._handle = handle.value

    @classmethod
    def probe(cls, group: Any, device: Device) -> 'Cluster':
        """Measure the cluster that a group runs on. Collective."""
        handle = c.c_void_p()
        check(lib.ta_cluster_probe(group.handle, device.handle, c.byref(handle)))
        made = cls.__new__(cls)
        made._handle = handle.value
        return made

    def text(self) -> str:
        """The cluster as the text of a file that describes it."""
        return text_of(lib.ta_cluster_text, self.handle)

    def _destroy(self, handle: int) -> None:
        lib.ta_cluster_destroy(handle)

    def predict(self, ranks: int, **options: Any) -> list[Prediction]:
        """What a decode step of a plan with these options would cost, in each way of doing it."""
        config = b.ta_plan_config()
        keep = fill(config, options, 'predict')
        found = [Prediction(lib.ta_algorithm_name(p.algorithm).decode(),
                            lib.ta_exchange_name(p.exchange).decode(), bool(p.possible),
                            bool(p.chosen), bool(p.fits), predicted_call(p.step), p.memory_bytes)
                 for p in candidates(lib.ta_predict, b.ta_prediction, self.handle, config, ranks)]
        del keep
        return found

    def predict_attention(self, ranks: int, **options: Any) -> list[AttentionPrediction]:
        """The same for attention over full sequences."""
        config = b.ta_attention_config()
        keep = fill(config, options, 'predict_attention')
        found = [AttentionPrediction(lib.ta_attention_algorithm_name(p.algorithm).decode(),
                                     p.grid_rows, p.grid_columns, bool(p.possible),
                                     bool(p.chosen), bool(p.fits), predicted_call(p.forward),
                                     predicted_call(p.backward), p.memory_bytes)
                 for p in candidates(lib.ta_attention_predict, b.ta_attention_prediction,
                                     self.handle, config, ranks)]
        del keep
        return found


def predicted_call(struct: b.ta_predicted_call) -> PredictedCall:
    """Its fields by name."""
    return PredictedCall(*(getattr(struct, name) for name in PredictedCall._fields))


def candidates(function: Any, kind: type, cluster: int, config: Any, ranks: int) -> list[Any]:
    """All predictions that a function numbers."""
    found = []
    ranks = whole(ranks, c.c_int, 'ranks')
    while True:
        struct = kind()
        try:
            check(function(cluster, config, ranks, len(found), struct))
        except NotFoundError:
            return found
        found.append(struct)
