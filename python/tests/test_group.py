"""Groups: threads and what happens when one raises, parts, collectives, transports in Python."""
import collections
import json
import socket
import threading
import time
import traceback
import unittest

import numpy as np

import treeattn
from launch import LONG_WAIT, main, run
from treeattn.sockets import SECRET_BYTES, SocketTransport

NEEDS = ['numpy']


class Box:
    """What ranks of one process send each other: bytes in queues; and who is lost."""

    def __init__(self):
        self.lost = set()
        self.queues = collections.defaultdict(collections.deque)
        self.change = threading.Condition()


class BoxTransport(treeattn.Transport):
    """A transport over such queues."""

    def __init__(self, box, rank, ranks, fails_after=None):
        self.box, self.rank, self.ranks = box, rank, ranks
        self.fails_after, self.calls = fails_after, 0

    def move(self, transfer):
        ends = (self.rank, transfer.peer) if transfer.sends else (transfer.peer, self.rank)
        queue = self.box.queues[(*ends, transfer.channel)]
        if transfer.sends:
            queue.append(bytes(transfer.data))
            transfer.moved = transfer.bytes
            return True
        if not queue:
            return False
        data = queue.popleft()
        transfer.data[:] = data
        transfer.moved = len(data)
        return True

    def progress(self, transfers, timeout_ms):
        self.calls += 1
        if self.fails_after is not None and self.calls > self.fails_after:
            with self.box.change:
                self.box.lost.add(self.rank)
                self.box.change.notify_all()
            raise RuntimeError('the cable was cut')
        with self.box.change:
            for last in (timeout_ms == 0, True):
                stuck, moved = set(), False
                for transfer in transfers:
                    if transfer.peer in self.box.lost:
                        transfer.fail()
                        moved = True
                        continue
                    way = (transfer.peer, transfer.channel, transfer.sends)
                    if transfer.moved < transfer.bytes and way not in stuck:
                        if self.move(transfer):
                            moved = True
                        else:
                            stuck.add(way)
                if moved:
                    self.box.change.notify_all()
                if moved or last:
                    return
                self.box.change.wait(timeout_ms / 1000)


class Groups(unittest.TestCase):
    def test_results_in_order(self):
        self.assertEqual(run(5, lambda group: (group.rank, group.size)),
                         [(rank, 5) for rank in range(5)])

    def test_an_exception_ends_all_at_once_with_its_traceback(self):
        def rank_main(group):
            if group.rank == 2:
                time.sleep(0.2)
                raise KeyError('what rank 2 lacks')
            group.barrier()  # the others wait for rank 2
        begin, text = time.monotonic(), 'no error'
        try:
            treeattn.run(4, rank_main, timeout=240)
        except KeyError:
            text = traceback.format_exc()
        self.assertLess(time.monotonic() - begin, 120)
        self.assertIn("raise KeyError('what rank 2 lacks')", text)
        if hasattr(KeyError, 'add_note'):
            self.assertIn('on rank 2 of 4', text)

    def test_who_waits_hears_why(self):
        heard = {}

        def rank_main(group):
            if group.rank == 1:
                raise ArithmeticError('divided by zero')
            try:
                group.barrier()
            except treeattn.AbortedError as error:
                heard[group.rank] = str(error)
                raise
        with self.assertRaises(ArithmeticError):
            run(3, rank_main)
        self.assertEqual(sorted(heard), [0, 2])
        for sentence in heard.values():
            self.assertIn('rank 1: ArithmeticError: divided by zero', sentence)

    def test_a_rank_that_never_comes_is_a_timeout(self):
        gave_up = threading.Event()

        def rank_main(group):
            if group.rank == 0:
                try:
                    group.barrier()
                finally:
                    gave_up.set()
            gave_up.wait()
        with self.assertRaisesRegex(TimeoutError, 'rank 1') as caught:
            treeattn.run(2, rank_main, timeout=0.3)
        self.assertEqual(caught.exception.name, 'TA_ERR_TIMEOUT')

    def test_threads_run_side_by_side(self):
        """While one rank is inside the library, the others run Python: else it never came out."""
        counted, about_to_wait = [], threading.Event()

        def rank_main(group):
            if group.rank == 0:
                about_to_wait.set()
                group.barrier()
                return
            about_to_wait.wait()
            for _ in range(200000):
                counted.append(1)
            group.barrier()
        run(2, rank_main)
        self.assertEqual(len(counted), 200000)

    def test_parts(self):
        def rank_main(group):
            part = group.split(group.rank % 2, -group.rank)
            total = part.all_reduce(np.array([group.rank], np.int32))
            self.assertIsNone(group.split(-1))
            return part.rank, part.size, int(total[0])
        self.assertEqual(run(5, rank_main),
                         [(2, 3, 6), (1, 2, 4), (1, 3, 6), (0, 2, 4), (0, 3, 6)])

    def test_collectives(self):
        def rank_main(group):
            mine = np.arange(6, dtype=np.float32) + group.rank
            gathered = group.all_gather(mine, np.empty((3, 6), np.float32))
            self.assertEqual(gathered.tolist(), [[i + r for i in range(6)] for r in range(3)])
            part = group.reduce_scatter(mine, np.empty(2, np.float32), 'max')
            self.assertEqual(part.tolist(), [2 * group.rank + 2, 2 * group.rank + 3])
            self.assertEqual(group.all_reduce(mine.astype(np.float16)).tolist(),
                             [3 * i + 3 for i in range(6)])
            text = np.frombuffer(b'root' if group.rank == 1 else b'none', np.uint8).copy()
            self.assertEqual(bytes(group.broadcast(text, 1)), b'root')
            self.assertGreater(group.stats().bytes_sent, 0)
            with self.assertRaisesRegex(ValueError, 'elements of f64'):
                group.all_reduce(np.zeros(2))
            with self.assertRaisesRegex(ValueError, 'out is f32'):
                group.all_gather(mine, np.empty(6, np.float32))
        run(3, rank_main)

    def test_closing_a_group_closes_its_plans(self):
        group = treeattn.Group.threads(1)[0]
        plan = treeattn.Plan(group, batch=1, query_heads=1, k_dim=8, kv_dtype='f32', max_tokens=1)
        group.close()
        group.close()
        with self.assertRaisesRegex(ValueError, 'closed'):
            plan.explain()


class Transports(unittest.TestCase):
    def run_ranks(self, ranks, work, fails_after=None):
        box, results, threads = Box(), {}, []

        def rank_main(rank):
            try:
                transport = BoxTransport(box, rank, ranks, fails_after if rank == 1 else None)
                with treeattn.Group.custom(transport, timeout=LONG_WAIT) as group:
                    results[rank] = work(group)
            except Exception as error:
                results[rank] = error
        for rank in range(ranks):
            threads.append(threading.Thread(target=rank_main, args=(rank,)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        return [results[rank] for rank in range(ranks)]

    def test_decode_over_a_transport_in_python(self):
        def work(group):
            value = np.full((1, 4, 1, 8), group.rank, np.float32)
            plan = treeattn.Plan(group, batch=1, query_heads=1, k_dim=8, kv_dtype='f32',
                                 max_tokens=4, shard_map=treeattn.ShardMap('contiguous', block=4))
            kv = treeattn.KV(np.zeros_like(value), value, [4 * group.size])
            part = group.split(0, 0)
            total = part.all_reduce(np.ones(70000, np.float32))
            return float(plan.decode(np.zeros((1, 1, 8), np.float32), kv)[0, 0, 0]), \
                float(total.min())
        for result in self.run_ranks(3, work):
            self.assertEqual(result, (1.0, 3.0))

    def test_a_transport_that_raises_breaks_the_group(self):
        def work(group):
            for _ in range(1000):
                group.barrier()
        begin = time.monotonic()
        results = self.run_ranks(2, work, fails_after=20)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertIsInstance(results[1], Exception)
        self.assertIn('the cable was cut', str(results[1]))
        self.assertIsInstance(results[1].__cause__, RuntimeError)
        self.assertIsInstance(results[0], treeattn.TreeattnError)
        self.assertIn('rank 1', str(results[0]))


class Sockets(unittest.TestCase):
    """The transport over sockets, whose ranks are threads here."""

    def run_ranks(self, ranks, work, meet=None):
        """`meet` sees each rank's place before the others connect to it."""
        barrier, box, results = threading.Barrier(ranks), [None] * ranks, [None] * ranks

        def rank_main(rank):
            def exchange(data):
                if meet and data.startswith(b'['):
                    meet(rank, json.loads(data))
                box[rank] = data
                barrier.wait()
                found = list(box)
                barrier.wait()
                return found
            try:
                transport = SocketTransport(rank, ranks, exchange, LONG_WAIT)
                with treeattn.Group.custom(transport, timeout=LONG_WAIT) as group:
                    results[rank] = work(group, transport)
            except Exception as error:
                results[rank] = error
        threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results

    def test_large_and_small_messages_and_parts(self):
        def work(group, _):
            for _ in range(20):
                group.barrier()
            part = group.split(0, -group.rank)
            total = part.all_reduce(np.arange(300000, dtype=np.int32))
            return part.rank, bool((total == 3 * np.arange(300000)).all())
        self.assertEqual(self.run_ranks(3, work), [(2, True), (1, True), (0, True)])

    def test_strangers_keep_nobody_waiting(self):
        """Who says nothing, something else or only half, and who is gone at once."""
        strangers = []

        def meet(rank, place):
            if rank == 0:
                for said in (b'', b'GET / HTTP/1.0\r\n\r\n' + bytes(99), bytes.fromhex(place[2]),
                             bytes(SECRET_BYTES)):
                    strangers.append(socket.create_connection(place[:2]))
                    strangers[-1].sendall(said)
                strangers[-1].close()

        def work(group, _):
            return int(group.all_reduce(np.ones(1, np.int32))[0])
        begin = time.monotonic()
        self.assertEqual(self.run_ranks(3, work, meet), [3, 3, 3])
        self.assertLess(time.monotonic() - begin, 60)
        for stranger in strangers:
            stranger.close()

    def test_a_rank_that_never_connects_is_named(self):
        transport = SocketTransport.__new__(SocketTransport)
        transport.rank, transport.ranks = 0, 2
        with socket.create_server(('127.0.0.1', 0)) as listener, \
                socket.create_connection(listener.getsockname()[:2]), \
                self.assertRaisesRegex(treeattn.TimedOutError,
                                       'rank 1 has not connected to rank 0 within 0.3 s'):
            transport._connect(listener, [['127.0.0.1', 0, '00']], ['a', 'a'], 0.3, '')

    def test_a_rank_that_is_lost_is_named_at_once(self):
        def work(group, transport):
            group.barrier()
            if group.rank == 1:
                transport.close()  # as the system does when a process ends
                return 'gone'
            begin = time.monotonic()
            try:
                while True:
                    group.barrier()
            except treeattn.TreeattnError as error:
                return str(error), time.monotonic() - begin
        found = self.run_ranks(2, work)
        self.assertEqual(found[1], 'gone')
        self.assertIn('rank 1', found[0][0])
        self.assertLess(found[0][1], 60)


if __name__ == '__main__':
    main()
