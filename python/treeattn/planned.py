"""What Plan and Attention share: the library makes them from a config, for a group and a device."""
from __future__ import annotations

import ctypes as c
from typing import Any

from ._bindings import Dtype
from ._library import Handle, check, numbered
from .device import as_device
from .group import Group
from .options import fill

NAMES = {int(dtype): dtype.name.lower() for dtype in Dtype}


class Planned(Handle):
    """A handle that belongs to a group and a device."""

    def _make(self, create: Any, config: Any, group: Group | None, device: Any,
              options: dict[str, Any]) -> None:
        """Fill the config from the options and create it, on every rank of the group."""
        handle = c.c_void_p()
        try:
            own = group and group.device  # of a group of GPUs: plans must be on that very one
            self.group = group
            self.device = own if own and own.name == device else as_device(device)
            keep = fill(config, options, type(self).__name__)
        except BaseException:
            if group:  # take part with nothing, so that no other rank waits
                create(group.handle, None, None, c.byref(handle))
            raise
        check(create(group.handle if group else None, self.device.handle, config,
                     c.byref(handle)))
        del keep
        self._handle = handle.value
        if group:
            group._users.add(self)
        self.number = numbered(self)
