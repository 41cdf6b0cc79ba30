"""A transport over TCP sockets between the ranks, for processes that can tell each other where they
are: torch.distributed, MPI, files. A peer whose process ends is noticed at once.

Each pair of ranks has one connection. A message is a frame: channel, bytes, data. What arrives is
kept for its channel until the library asks for it; what is sent is copied when it begins, so that
the library's memory is used in progress() alone.
"""
from __future__ import annotations

import collections
import hmac
import json
import secrets
import select
import socket
import struct
import threading
import time
from typing import Any, Callable

from .transport import Transfer, Transport

FRAME = struct.Struct('<iQ')
SECRET_BYTES = 32
SLICE_MS = 20  # the longest that one thread keeps the others of its process waiting


class Peer:
    """The connection to another rank: what is on its way out, and what came in by channel."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self.outgoing: collections.deque[list[Any]] = collections.deque()  # [data, transfer]
        self.incoming = bytearray()
        self.arrived: dict[int, bytearray] = collections.defaultdict(bytearray)
        self.lost = False

    def send(self) -> bool:
        """Send what the socket takes; has a transfer ended?"""
        moved = False
        while self.outgoing and not self.lost:
            entry = self.outgoing[0]
            try:
                count = self.connection.send(entry[0])
            except BlockingIOError:
                break
            except OSError:
                self.lost = True
                break
            entry[0] = entry[0][count:]
            if entry[0]:
                continue
            self.outgoing.popleft()
            if entry[1] is not None:
                entry[1].moved = entry[1].bytes
                moved = True
        return moved

    def receive(self) -> None:
        """Read what is there, and sort the whole part of it by channel."""
        while not self.lost:
            try:
                data = self.connection.recv(1 << 18)
            except BlockingIOError:
                break
            except OSError:
                data = b''
            if not data:
                self.lost = True
            self.incoming += data
        while len(self.incoming) >= FRAME.size:
            channel, count = FRAME.unpack_from(self.incoming)
            if len(self.incoming) < FRAME.size + count:
                break
            self.arrived[channel] += memoryview(self.incoming)[FRAME.size:FRAME.size + count]
            del self.incoming[:FRAME.size + count]


class SocketTransport(Transport):
    """`exchange(data)` gives a rank's bytes to all and returns those of all, in their order; it
    is called twice, here. timeout: seconds for connecting."""

    def __init__(self, rank: int, ranks: int, exchange: Callable[[bytes], 'list[bytes]'],
                 timeout: float = 60.0):
        self.rank, self.ranks = rank, ranks
        self._lock = threading.Lock()
        name = socket.gethostname()
        names = [data.decode() for data in exchange(name.encode())]
        alone = len(set(names)) == 1
        secret = secrets.token_bytes(SECRET_BYTES)
        with socket.socket() as listener:
            listener.bind(('127.0.0.1' if alone else '', 0))
            listener.listen(max(ranks, 1))
            listener.settimeout(timeout)
            place = (socket.gethostbyname(name) if not alone else '127.0.0.1',
                     listener.getsockname()[1], secret.hex())
            places = [json.loads(data) for data in exchange(json.dumps(place).encode())]
            self._peers = self._connect(listener, places, names, timeout)
        self.node = 1 + sorted(set(names)).index(name)

    def _connect(self, listener: socket.socket, places: list[Any], names: list[str],
                 timeout: float) -> dict[int, Peer]:
        """Connect to the ranks below, accept those above."""
        peers: dict[int, Peer] = {}
        for other in range(self.rank):
            address, port, secret = places[other]
            if names[other] == names[self.rank]:
                address = '127.0.0.1'
            connection = socket.create_connection((address, port), timeout)
            connection.sendall(bytes.fromhex(secret) + struct.pack('<i', self.rank))
            peers[other] = Peer(connection)
        while len(peers) < self.ranks - 1:
            connection, _ = listener.accept()
            connection.settimeout(timeout)
            hello = b''
            while len(hello) < SECRET_BYTES + 4:
                data = connection.recv(SECRET_BYTES + 4 - len(hello))
                if not data:
                    break
                hello += data
            if hmac.compare_digest(hello[:SECRET_BYTES].hex(), places[self.rank][2]) and \
                    len(hello) == SECRET_BYTES + 4:
                peers[struct.unpack('<i', hello[SECRET_BYTES:])[0]] = Peer(connection)
            else:
                connection.close()
        for peer in peers.values():
            peer.connection.setblocking(False)
            peer.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return peers

    def _advance(self, transfers: list[Transfer]) -> bool:
        """Begin what is new, move what can be moved; has anything?"""
        moved = False
        for transfer in transfers:
            peer = self._peers[transfer.peer]
            if transfer.sends and transfer.request is None:
                transfer.request = True
                peer.outgoing.append([FRAME.pack(transfer.channel, transfer.bytes), None])
                peer.outgoing.append([memoryview(bytes(transfer.data)), transfer])
        for peer in self._peers.values():
            moved = peer.send() or moved
            peer.receive()
        for transfer in transfers:  # in order: the first of a channel takes what came first
            peer = self._peers[transfer.peer]
            left = transfer.bytes - transfer.moved
            kept = peer.arrived[transfer.channel]
            if not transfer.sends and left and kept:
                count = min(left, len(kept))
                transfer.data[transfer.moved:transfer.moved + count] = kept[:count]
                del kept[:count]
                transfer.moved += count
                moved = True
                left -= count
            if left and peer.lost:
                transfer.fail()
                moved = True
        return moved

    def _wait(self, milliseconds: int) -> None:
        poll = select.poll()
        for peer in self._peers.values():
            if not peer.lost:
                poll.register(peer.connection,
                              select.POLLIN | (select.POLLOUT if peer.outgoing else 0))
        poll.poll(milliseconds)

    def progress(self, transfers: list[Transfer], timeout_ms: int) -> None:
        end = time.monotonic() + timeout_ms / 1000
        while True:
            with self._lock:
                if self._advance(transfers) or time.monotonic() >= end:
                    return
                self._wait(min(SLICE_MS, max(1, round(1000 * (end - time.monotonic())))))

    def cancel(self, transfer: Transfer) -> None:
        with self._lock:
            for entry in self._peers[transfer.peer].outgoing:
                if entry[1] is transfer:
                    entry[1] = None

    def close(self) -> None:
        for peer in self._peers.values():
            peer.connection.close()
