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
import os
import secrets
import select
import selectors
import socket
import struct
import threading
import time
import uuid
from typing import Any, Callable

from .errors import TimedOutError, UnsupportedError
from .transport import Transfer, Transport

FRAME = struct.Struct('<iQ')
SECRET_BYTES = 32
HELLO_BYTES = SECRET_BYTES + 4  # the secret of who is connected to, then the rank of who connects
ANYWHERE = '192.0.2.1'  # nobody's: the way there is the way to all that is far
SLICE_MS = 20  # the longest that one thread keeps the others of its process waiting


# ---- Where a rank is ---------------------------------------------------------------------------

def machine() -> str:
    """A name for the network that 127.0.0.1 is of: this machine since it was started, and in
    containers the container's. Names of hosts may be the same on several, as in copied images."""
    try:
        with open('/proc/sys/kernel/random/boot_id', encoding='ascii') as file:
            return f'{file.read().strip()} {os.readlink("/proc/self/ns/net")}'
    except OSError:
        return f'{socket.gethostname()} {uuid.getnode():x}'


def route_to(host: str) -> str:
    """This machine's own address on the way to a host; '' if there is no way, or it does not leave
    this machine. Nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            address = probe.getsockname()[0]
    except OSError:
        return ''
    return '' if address.startswith('127.') else address


def own_address(hint: str) -> str:
    """The address at which ranks on other machines find this one. `hint` is a host that all ranks
    know, such as MASTER_ADDR. '' on a machine that the hint names and that is 127.0.1.1 to itself,
    as is usual on Debian: the others go where the hint points to from them."""
    if hint in ('', 'localhost') or hint.startswith('127.'):
        return route_to(ANYWHERE)
    return '' if is_local(hint) else route_to(hint) or route_to(ANYWHERE)


def is_local(host: str) -> bool:
    """Is it an address of this machine alone?"""
    try:
        return socket.gethostbyname(host).startswith('127.')
    except OSError:
        return False


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


def accept_one(listener: socket.socket, waiting: selectors.BaseSelector) -> None:
    """Accept a connection, if it is still there, and wait for what it says."""
    try:
        connection = listener.accept()[0]
    except (BlockingIOError, ConnectionError):
        return
    connection.setblocking(False)
    waiting.register(connection, selectors.EVENT_READ, bytearray())


def has_said(connection: socket.socket, hello: bytearray) -> bool:
    """Read on what a connection begins with; is that all, or its end?"""
    try:
        data = connection.recv(HELLO_BYTES - len(hello))
    except BlockingIOError:
        return False
    except OSError:
        return True
    hello += data
    return not data or len(hello) == HELLO_BYTES


class SocketTransport(Transport):
    """`exchange(data)` gives a rank's bytes to all and returns those of all, in their order; it
    is called twice, here. timeout: seconds for connecting. hint: a host that all of them know, if
    they are on several machines; the one of rank 0, usually."""

    def __init__(self, rank: int, ranks: int, exchange: Callable[[bytes], 'list[bytes]'],
                 timeout: float = 60.0, hint: str = ''):
        self.rank, self.ranks = rank, ranks
        self._lock = threading.Lock()
        name = machine()
        names = [data.decode() for data in exchange(name.encode())]
        alone = len(set(names)) == 1
        secret = secrets.token_bytes(SECRET_BYTES)
        with socket.socket() as listener:
            listener.bind(('127.0.0.1' if alone else '', 0))
            listener.listen(max(ranks, 1))
            listener.setblocking(False)
            place = ('127.0.0.1' if alone else own_address(hint), listener.getsockname()[1],
                     secret.hex())
            places = [json.loads(data) for data in exchange(json.dumps(place).encode())]
            self._peers = self._connect(listener, places, names, timeout, hint)
        self.node = 1 + sorted(set(names)).index(name)

    def _reach(self, other: int, places: list[Any], names: list[str], timeout: float,
               hint: str) -> socket.socket:
        """A connection to another rank."""
        address, port = places[other][:2]
        if names[other] == names[self.rank]:
            address = '127.0.0.1'
        elif not address and hint and not is_local(hint):
            address = hint
        if not address:
            raise UnsupportedError(f'rank {other} is on another machine than rank {self.rank} and '
                                   'knows no address of its own: set MASTER_ADDR to an IPv4 '
                                   'address that all machines can reach')
        try:
            connection = socket.create_connection((address, port), timeout)
            connection.sendall(bytes.fromhex(places[other][2]) + struct.pack('<i', self.rank))
            return connection
        except OSError as error:
            raise UnsupportedError(f'rank {self.rank} cannot connect to rank {other} at {address}, '
                                   f'port {port}: {error}') from error

    def _accept(self, listener: socket.socket, secret: bytes, timeout: float,
                peers: dict[int, Peer]) -> None:
        """Accept the ranks above. A stranger who says something else is sent away, and one who
        says nothing keeps nobody waiting."""
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as waiting:
            waiting.register(listener, selectors.EVENT_READ)
            try:
                while len(peers) < self.ranks - 1:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        missing = min({*range(self.ranks)} - {self.rank, *peers})
                        raise TimedOutError(f'rank {missing} has not connected to rank '
                                            f'{self.rank} within {timeout:g} s')
                    for key, _ in waiting.select(left):
                        connection: Any = key.fileobj
                        if connection is listener:
                            accept_one(listener, waiting)
                        elif has_said(connection, key.data):
                            waiting.unregister(connection)
                            self._welcome(connection, key.data, secret, peers)
            finally:
                for key in list(waiting.get_map().values()):
                    if key.fileobj is not listener:
                        key.fileobj.close()

    def _welcome(self, connection: socket.socket, hello: bytes, secret: bytes,
                 peers: dict[int, Peer]) -> None:
        """A peer, or a stranger?"""
        if hmac.compare_digest(hello[:SECRET_BYTES], secret) and len(hello) == HELLO_BYTES:
            peers[struct.unpack_from('<i', hello, SECRET_BYTES)[0]] = Peer(connection)
        else:
            connection.close()

    def _connect(self, listener: socket.socket, places: list[Any], names: list[str],
                 timeout: float, hint: str) -> dict[int, Peer]:
        """Connect to the ranks below, accept those above."""
        peers: dict[int, Peer] = {}
        try:
            for other in range(self.rank):
                peers[other] = Peer(self._reach(other, places, names, timeout, hint))
            self._accept(listener, bytes.fromhex(places[self.rank][2]), timeout, peers)
            for peer in peers.values():
                peer.connection.setblocking(False)
                peer.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            for peer in peers.values():
                peer.connection.close()
            raise
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
