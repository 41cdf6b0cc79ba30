"""Transports of the caller's own: how bytes get from one rank to another, in Python."""
from __future__ import annotations

import ctypes as c
from typing import Any

from ._bindings import Status, ta_transfer, ta_transport, ta_transport_cancel, \
    ta_transport_progress
from ._library import raised
from .options import whole


class Transfer:
    """Bytes to move: `data` is a memoryview of them, `peer` the other rank, `sends` whether they
    go to it; transfers of different channels have nothing to do with each other. The transport
    counts in `moved` what it has moved, and sets `failed` if the peer is lost. It may keep what it
    likes in `request`."""

    def __init__(self, struct: ta_transfer):
        self._struct = struct
        self.address = c.addressof(struct)
        self.peer: int = struct.peer
        self.channel: int = struct.channel
        self.sends = bool(struct.sends)
        self.bytes: int = struct.bytes
        self.request: Any = None
        self.data = memoryview((c.c_char * self.bytes).from_address(struct.data)).cast('B')

    @property
    def moved(self) -> int:
        """How many bytes have been moved; complete when all are."""
        return self._struct.moved

    @moved.setter
    def moved(self, count: int) -> None:
        self._struct.moved = count

    def fail(self, number: int = 1) -> None:
        """The peer is lost."""
        self._struct.failed = number


class Transport:
    """Base of transports: implement progress(). An object serves one rank.

    progress() moves what can be moved now. A transfer that is seen for the first time begins.
    Those of one channel and one peer are in order. They are given again until they are complete,
    failed or cancelled. It returns when one has moved on, or after timeout_ms, which may be 0.
    An exception breaks the group, and is the cause of the error that the call ends with."""

    rank = 0
    ranks = 1
    node = 0
    holds_memory = False

    def progress(self, transfers: list[Transfer], timeout_ms: int) -> None:
        """Move what can be moved now; see above."""
        raise NotImplementedError

    def cancel(self, transfer: Transfer) -> None:
        """Stop a transfer that was begun: afterwards its memory is not used any more."""

    def close(self) -> None:
        """The group has ended."""


class Adapter:
    """A Transport as the struct that C takes. It lives as long as the group and its parts."""

    def __init__(self, transport: Transport):
        self.transport = transport
        self.users = 0  # groups over it
        self._known: dict[int, Transfer] = {}
        self.struct = ta_transport()
        for name in ('rank', 'ranks', 'node'):
            setattr(self.struct, name, whole(getattr(transport, name), c.c_int32, name))
        self.struct.holds_memory = int(transport.holds_memory)
        self._progress = ta_transport_progress(self._on_progress)
        self.struct.progress = self._progress
        if not transport.holds_memory:
            self._cancel = ta_transport_cancel(self._on_cancel)
            self.struct.cancel = self._cancel

    def release(self) -> None:
        """A group, or a part of one, has ended; the last one ends the transport."""
        self.users -= 1
        if self.users == 0:
            self.transport.close()

    def _transfer(self, pointer: Any) -> Transfer:
        struct = pointer.contents
        address = c.addressof(struct)
        if not struct.request:  # new; the number tells it from a later one at the same address
            self._known[address] = Transfer(struct)
            struct.request = 1
        return self._known[address]

    def _on_progress(self, _context: Any, pointers: Any, count: int, timeout_ms: int) -> int:
        try:
            transfers = [self._transfer(pointers[i]) for i in range(count)]
            self.transport.progress(transfers, timeout_ms)
            for transfer in transfers:
                if transfer.moved >= transfer.bytes:
                    self._known.pop(transfer.address, None)
            return 0
        except BaseException as error:  # C cannot carry it
            raised.error = error
            return int(Status.ERR_SYSTEM)

    def _on_cancel(self, _context: Any, pointer: Any) -> None:
        transfer = self._known.pop(c.addressof(pointer.contents), None)
        if transfer is not None:
            try:
                self.transport.cancel(transfer)
            except BaseException as error:
                raised.error = error
