"""Groups from process groups of torch.distributed: over sockets of their own, or over the NCCL or
RCCL communicator that the process group has. combine.py keeps one for each process group, which
ends with it.
"""
from __future__ import annotations

import os
import weakref
from typing import Any

import torch
import torch.distributed as dist

from .device import Device
from .errors import InvalidError, MismatchError
from .group import Group
from .sockets import SocketTransport

DTYPES = {torch.float32: 'f32', torch.float16: 'f16', torch.bfloat16: 'bf16'}
# By process group, then by device: those that as_group() made.
groups_of: 'weakref.WeakKeyDictionary[Any, dict[str, Group]]' = weakref.WeakKeyDictionary()


def device_of(tensor: torch.Tensor) -> str:
    """The name of a tensor's device in this library."""
    if not tensor.is_cuda:
        return 'host'
    return f'{"rocm" if torch.version.hip else "cuda"}:{tensor.device.index or 0}'


def group(process_group: Any = None, timeout: float | None = None) -> Group:
    """A Group of the ranks of a process group of any back end (gloo, nccl, mpi); None: the default
    one. Its messages go over sockets of its own; the process group only tells the ranks where the
    others are. Collective."""
    if not dist.is_initialized():
        raise InvalidError('torch.distributed is not initialised: call init_process_group() first, '
                           'or use treeattn.run() for threads')

    def exchange(data: bytes) -> list[bytes]:
        found: list[Any] = [None] * dist.get_world_size(process_group)
        dist.all_gather_object(found, data, group=process_group)
        return found
    transport = SocketTransport(dist.get_rank(process_group), dist.get_world_size(process_group),
                                exchange, timeout or 60.0, meeting_place())
    return Group.custom(transport, timeout)


def meeting_place() -> str:
    """The host of the store at which the ranks have met, or what MASTER_ADDR says; '' if they have
    met in a file."""
    try:
        store = dist.distributed_c10d._get_default_store()
        while hasattr(store, 'underlying_store'):
            store = store.underlying_store
        host = getattr(store, 'host', '')
    except (AttributeError, RuntimeError, ValueError):  # names of its own that torch may change
        host = ''
    return host or os.environ.get('MASTER_ADDR', '')


def back_end_of(process_group: Any) -> Any:
    """What a process group has for GPUs, if that has a communicator of NCCL or RCCL; else None."""
    try:
        back_end = process_group._get_backend(torch.device('cuda'))
    except (AttributeError, RuntimeError):
        return None
    return back_end if hasattr(back_end, '_comm_ptr') else None


def first_collective(process_group: Any, device: Device) -> None:
    """A communicator is made by the first collective."""
    where = torch.device('cuda', int(device.name.partition(':')[2] or 0))
    dist.all_reduce(torch.zeros(1, device=where), group=process_group)


def ccl_group(device: Device, process_group: Any = None, timeout: float | None = None) -> Group:
    """A Group over the NCCL or RCCL communicator that a process group has, which keeps it: close
    the Group first. Collective. Run by nobody on a GPU yet."""
    process_group = dist.group.WORLD if process_group is None else process_group
    back_end = back_end_of(process_group)
    if back_end is None:
        raise InvalidError('the process group has no communicator of NCCL or RCCL: make it with '
                           'the back end "nccl", or use treeattn.torch.group()')
    first_collective(process_group, device)
    made = Group.ccl(device, communicator=back_end._comm_ptr(), timeout=timeout)
    found = made.rank, made.size
    wanted = dist.get_rank(process_group), dist.get_world_size(process_group)
    if found != wanted:
        made.close()
        raise MismatchError(f'the communicator is that of rank {found[0]} of {found[1]}: the '
                            f'process group has rank {wanted[0]} of {wanted[1]}')
    return made


def as_group(cp_group: Any, device: str = 'host') -> Group:
    """A Group as it is; or the one of a process group, or of an engine's coordinator that has a
    device_group and a cpu_group, made by the first call. For the memory of a GPU it is over the
    communicator of the device group if that has one, else over sockets."""
    if isinstance(cp_group, Group):
        return cp_group
    process_group = getattr(cp_group, 'device_group', cp_group)
    native = device != 'host' and back_end_of(process_group) is not None
    if not native:
        process_group, device = getattr(cp_group, 'cpu_group', cp_group), 'host'
    known = groups_of.setdefault(process_group, {})
    if device not in known:
        known[device] = ccl_group(Device(device), process_group) if native else \
            group(process_group)
    return known[device]


def release(cp_group: Any) -> None:
    """Close the Groups that combine() made for a process group or a coordinator: to be called
    before destroy_process_group() where they use its communicator."""
    for process_group in {getattr(cp_group, name, cp_group) for name in
                          ('device_group', 'cpu_group')}:
        for made in groups_of.pop(process_group, {}).values():
            made.close()
