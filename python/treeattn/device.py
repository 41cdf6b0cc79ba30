"""Devices: where a cache lives and the arithmetic runs."""
from __future__ import annotations

import ctypes as c
import sys
from typing import Any

from ._bindings import ta_device_config
from ._library import Handle, check, lib
from .options import fill


class Device(Handle):
    """A device by name: "host", "cuda:0", "rocm:1", "auto" for the best one here.

    Options: threads (of the host; 0: all CPUs), simd (the most of it that is used).
    Plans keep their device: it may be closed before them."""

    def __init__(self, name: str = 'host', **options: Any):
        config = ta_device_config()
        if isinstance(options.get('simd'), str):
            options['simd'] = options['simd'].encode()
        keep = fill(config, options, 'Device')
        handle = c.c_void_p()
        check(lib.ta_device_open(name.encode(), config, c.byref(handle)))
        del keep
        self._handle = handle.value
        self.name: str = lib.ta_device_name(self._handle).decode()

    def _destroy(self, handle: int) -> None:
        lib.ta_device_close(handle)

    def synchronize(self, stream: int | None = None) -> None:
        """Wait until the work on a stream is done; on the host it always is."""
        check(lib.ta_device_synchronize(self.handle, stream))

    def __repr__(self) -> str:
        return f'<treeattn.Device {self.name}>'


def as_device(device: Any) -> Device:
    """A Device as it is, or one opened by its name; None: the host."""
    if isinstance(device, Device):
        return device
    return Device('host' if device is None else device)


def stream_of(array: Any, stream: int | None) -> int | None:
    """The stream of a call: the one given, or the current one of torch or cupy for their arrays
    of a GPU. Other libraries do not say on which one theirs are written."""
    if stream is not None:
        return stream
    torch, cupy = sys.modules.get('torch'), sys.modules.get('cupy')
    if torch is not None and isinstance(array, torch.Tensor):
        return torch.cuda.current_stream(array.device).cuda_stream if array.is_cuda else None
    if cupy is not None and isinstance(array, cupy.ndarray):
        with array.device:
            return cupy.cuda.get_current_stream().ptr
    return None
