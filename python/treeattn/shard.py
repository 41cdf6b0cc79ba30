"""Shard maps: which rank holds which token."""
from __future__ import annotations

import ctypes as c
from typing import Any, NamedTuple

from ._bindings import ShardKind, ta_move, ta_shard_map
from ._library import check, lib
from .options import enum_of, numbers, whole


class ShardMap:
    """Which rank holds which position: "contiguous", "block_cyclic", "zigzag" or "weighted".

    ranks is how many there are (in a plan 0: the group's size), block the tokens of a block.
    bounds are ascending positions [ranks + 1] of a contiguous map (plans take them from the KV),
    or the weights [ranks] of a weighted one."""

    def __init__(self, kind: Any = 'block_cyclic', ranks: int = 0, block: int = 0,
                 bounds: Any = None):
        self.struct = ta_shard_map()
        self.struct.kind = enum_of(ShardKind, kind, 'kind')
        self.struct.ranks = whole(ranks, c.c_int, 'ranks')
        self.struct.block = whole(block, c.c_int32, 'block')
        self._bounds = None
        if bounds is not None:
            self._bounds = numbers(c.c_int32, bounds, 'bounds')
            self.struct.bounds = c.addressof(self._bounds)

    @property
    def kind(self) -> ShardKind:
        """The kind of the map."""
        return ShardKind(self.struct.kind)

    @property
    def ranks(self) -> int:
        """Ranks of the map."""
        return self.struct.ranks

    @property
    def block(self) -> int:
        """Tokens of a block; 0: the default."""
        return self.struct.block

    def locate(self, position: int) -> tuple[int, int]:
        """(rank, local position) of a position."""
        rank, local = c.c_int(), c.c_int32()
        check(lib.ta_shard_locate(self.struct, whole(position, c.c_int32, 'position'),
                                  c.byref(rank), c.byref(local)))
        return rank.value, local.value

    def position(self, rank: int, local: int) -> int:
        """The position of a rank's token at a local position."""
        found = c.c_int32()
        check(lib.ta_shard_position(self.struct, whole(rank, c.c_int, 'rank'),
                                    whole(local, c.c_int32, 'local'), c.byref(found)))
        return found.value

    def count(self, rank: int, length: int) -> int:
        """How many tokens a rank holds of a sequence of so many."""
        found = c.c_int32()
        check(lib.ta_shard_count(self.struct, whole(rank, c.c_int, 'rank'),
                                 whole(length, c.c_int32, 'length'), c.byref(found)))
        return found.value

    def next(self, length: int) -> tuple[int, int]:
        """(rank, local position) where the next token of a sequence of so many is stored."""
        rank, local = c.c_int(), c.c_int32()
        check(lib.ta_shard_next(self.struct, whole(length, c.c_int32, 'length'), c.byref(rank),
                                c.byref(local)))
        return rank.value, local.value

    def positions(self, rank: int, length: int) -> list[int]:
        """All positions that a rank holds of a sequence of so many tokens, in order."""
        return [self.position(rank, local) for local in range(self.count(rank, length))]

    def __repr__(self) -> str:
        return (f'ShardMap({self.kind.name.lower()!r}, ranks={self.ranks}, block={self.block}, '
                f'bounds={None if self._bounds is None else list(self._bounds)})')


def head_range(heads: int, ranks: int, rank: int) -> range:
    """The heads that a rank holds when something is scattered by heads."""
    first, count = c.c_int(), c.c_int()
    check(lib.ta_head_range(whole(heads, c.c_int, 'heads'), whole(ranks, c.c_int, 'ranks'),
                            whole(rank, c.c_int, 'rank'), c.byref(first), c.byref(count)))
    return range(first.value, first.value + count.value)


class Move(NamedTuple):
    """Tokens of a sequence that go from one rank's place to another's."""

    from_rank: int
    from_local: int
    to_rank: int
    to_local: int
    position: int
    tokens: int


def reshard_list(source: ShardMap, target: ShardMap, length: int) -> list[Move]:
    """What must move when a sequence of so many tokens goes from one shard map to another."""
    count, length = c.c_size_t(), whole(length, c.c_int32, 'length')
    check(lib.ta_reshard_list(source.struct, target.struct, length, None, 0, c.byref(count)))
    moves = (ta_move * count.value)()
    check(lib.ta_reshard_list(source.struct, target.struct, length, moves, count.value,
                              c.byref(count)))
    return [Move(*(getattr(move, name) for name in Move._fields)) for move in moves]
