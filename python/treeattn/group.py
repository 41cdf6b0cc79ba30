"""Groups: the ranks that share a cache, as threads, MPI processes, GPUs or over any transport."""
from __future__ import annotations

import atexit
import ctypes as c
import sys
import threading
import weakref
from typing import Any, Callable, NamedTuple, TypeVar

from . import _bindings as b
from ._library import Handle, check, lib, numbered
from .collectives import Collectives
from .device import Device
from .errors import AbortedError, InvalidError
from .options import whole
from .transport import Adapter, Transport

Result = TypeVar('Result')
open_groups: 'weakref.WeakSet[Group]' = weakref.WeakSet()


class GroupStats(NamedTuple):
    """What has gone through one rank's handle since it was made."""

    messages_sent: int
    messages_received: int
    bytes_sent: int
    bytes_received: int


def config_of(timeout: float | None) -> b.ta_group_config:
    """`timeout` is in seconds; None: 60."""
    config = b.ta_group_config()
    if timeout is not None:
        if not timeout > 0 or timeout > 2e6:
            raise InvalidError(f'timeout is {timeout!r}: must be seconds, above 0')
        config.timeout_ms = max(1, round(timeout * 1000))
    return config


class Group(Handle, Collectives):
    """One rank's handle on its group. Make it with Group.threads(), Group.mpi(), Group.ccl() or
    Group.custom(); run() makes one for each of its threads. Closing it closes the plans that use
    it. It belongs to its rank's thread; abort() may be called from any. An exception that leaves
    `with`, or ends the process, aborts it, so that the others do not wait in vain."""

    def __init__(self, handle: int, keep: Any = None):
        self._handle = handle
        self._keep = keep
        if isinstance(keep, Adapter):
            keep.users += 1
        self.device = keep if isinstance(keep, Device) else None  # whose memory it moves
        self._users: 'weakref.WeakSet[Handle]' = weakref.WeakSet()
        self.kept: dict[Any, Handle] = {}  # what was made for the group and ends with it
        self.number = numbered(self)
        self.rank: int = lib.ta_group_rank(handle)
        self.size: int = lib.ta_group_size(handle)
        open_groups.add(self)

    @classmethod
    def threads(cls, ranks: int, timeout: float | None = None) -> 'list[Group]':
        """A group whose ranks are threads of this process: one handle for each rank."""
        ranks = whole(ranks, c.c_int, 'ranks')
        handles = (c.c_void_p * max(ranks, 1))()
        check(lib.ta_group_create_threads(ranks, config_of(timeout), handles))
        return [cls(handle) for handle in handles]

    @classmethod
    def mpi(cls, comm: Any = None, timeout: float | None = None) -> 'Group':
        """A group of the processes of an mpi4py communicator; None: MPI.COMM_WORLD. Collective.
        Needs the module treeattn-mpi, built with the MPI that mpi4py uses."""
        from mpi4py import MPI
        comm = MPI.COMM_WORLD if comm is None else comm
        if not isinstance(comm, MPI.Comm):
            raise TypeError(f'comm is of type {type(comm).__name__}: must be an mpi4py '
                            'communicator')
        handle = c.c_void_p()
        check(lib.ta_group_create_mpi(MPI._addressof(comm), config_of(timeout), c.byref(handle)))
        return cls(handle.value, comm)

    @classmethod
    def ccl(cls, device: Device, *, id: bytes | None = None, rank: int = 0, ranks: int = 0,
            communicator: int | None = None, bootstrap: 'Group | None' = None,
            timeout: float | None = None) -> 'Group':
        """A group of GPUs that NCCL or RCCL connects: from the bytes of ccl_id() with rank and
        ranks, from an ncclComm_t as a number that the caller keeps, or over a group of the same
        ranks. Collective."""
        struct = b.ta_ccl_config()
        keep = None
        if id is not None:
            if len(id) != b.TA_CCL_ID_BYTES:
                raise InvalidError(f'id has {len(id)} bytes: must have {b.TA_CCL_ID_BYTES}')
            keep = c.create_string_buffer(id, len(id))
            struct.id, struct.rank = c.addressof(keep), whole(rank, c.c_int, 'rank')
            struct.ranks = whole(ranks, c.c_int, 'ranks')
        struct.communicator = communicator
        struct.bootstrap = None if bootstrap is None else bootstrap.handle
        handle = c.c_void_p()
        check(lib.ta_group_create_ccl(device.handle, struct, config_of(timeout),
                                      c.byref(handle)))
        return cls(handle.value, device)

    @classmethod
    def custom(cls, transport: Transport, timeout: float | None = None) -> 'Group':
        """A group over a transport of the caller's own. Collective."""
        adapter = Adapter(transport)
        handle = c.c_void_p()
        check(lib.ta_group_create_custom(adapter.struct, config_of(timeout), c.byref(handle)))
        return cls(handle.value, adapter)

    def split(self, color: int, key: int = 0) -> 'Group | None':
        """The ranks of the same color form a part, numbered by key. A color below 0: no part.
        Collective."""
        handle = c.c_void_p()
        check(lib.ta_group_split(self.handle, whole(color, c.c_int, 'color'),
                                 whole(key, c.c_int, 'key'), c.byref(handle)))
        return None if handle.value is None else Group(handle.value, self._keep)

    def stats(self) -> GroupStats:
        """Messages and bytes of this rank so far."""
        struct = b.ta_group_stats()
        check(lib.ta_group_get_stats(self.handle, struct))
        return GroupStats(*(getattr(struct, name) for name in GroupStats._fields))

    def abort(self, reason: str) -> None:
        """Make every present and future call on the group fail on all ranks. From any thread."""
        lib.ta_group_abort(self.handle, reason.encode())

    def _abort_for(self, error: BaseException) -> None:
        """This rank has raised: tell the others what."""
        if self._handle is not None:
            self.abort(f'rank {self.rank}: {type(error).__name__}: {error}')

    def __exit__(self, kind: Any = None, error: BaseException | None = None,
                 trace: Any = None) -> None:
        if error is not None and not (isinstance(error, SystemExit) and not error.code):
            self._abort_for(error)
        self.close()

    def _destroy(self, handle: int) -> None:
        for user in [*self.kept.values(), *self._users]:
            user.close()
        self.kept.clear()
        lib.ta_group_destroy(handle)
        if isinstance(self._keep, Adapter):
            self._keep.release()
        self._keep = None

    def __repr__(self) -> str:
        return f'<treeattn.Group rank {self.rank} of {self.size}>'


@atexit.register
def close_groups() -> None:
    """Groups of MPI processes end before MPI does; by an abort, if an exception that nobody
    caught ends this one. (At a prompt that was just some error before.)"""
    error = None if hasattr(sys, 'ps1') else getattr(sys, 'last_value', None)
    for group in list(open_groups):
        if error is not None:
            group._abort_for(error)
        group.close()


def ccl_id(device: Device) -> bytes:
    """A name for a group of GPUs: one rank makes it and gives it to the others."""
    buffer = c.create_string_buffer(b.TA_CCL_ID_BYTES)
    check(lib.ta_ccl_id(device.handle, buffer))
    return buffer.raw


def run(ranks: int, fn: Callable[[Group], Result], timeout: float | None = None) -> list[Result]:
    """Run fn(group) on each of `ranks` threads and return what each gave, in their order.

    If one raises, the group is aborted, so that no other waits for it, and when all have ended
    its exception comes out, with its traceback and which rank it was."""
    groups = Group.threads(ranks, timeout)
    results: list[Any] = [None] * ranks
    failures: list[tuple[int, BaseException]] = []  # in the order of time

    def rank_main(group: Group) -> None:
        try:
            results[group.rank] = fn(group)
        except BaseException as error:
            failures.append((group.rank, error))
            group._abort_for(error)

    threads = [threading.Thread(target=rank_main, args=(group,), name=f'rank {group.rank}',
                                daemon=True) for group in groups]
    try:
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException as error:  # such as KeyboardInterrupt
            groups[0].abort(f'{type(error).__name__} in the main thread')
            for thread in threads:
                thread.join()
            raise
    finally:
        for group in groups:
            group.close()
    if failures:
        rank, error = next((failure for failure in failures
                            if not isinstance(failure[1], AbortedError)), failures[0])
        if hasattr(error, 'add_note'):
            error.add_note(f'on rank {rank} of {ranks}')
        raise error
    return results
