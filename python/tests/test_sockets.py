"""The transport over sockets between machines: which address a rank gives to the others, and two
networks that are connected by a cable alone, with one name for both hosts. The second needs root
and the program ip; ranks of one process are in test_group.py."""
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import numpy as np

import treeattn
from launch import main
from treeattn import sockets

NEEDS = ['numpy']
LIMIT = 240  # seconds


class Addresses(unittest.TestCase):
    """As seen from a machine 10.0.0.5, which is 127.0.1.1 to itself, as Debian has it."""

    names = {'localhost': '127.0.0.1', 'here': '127.0.1.1', 'there': '10.0.0.9'}
    routes = {'10.0.0.9': '10.0.0.5', 'there': '10.0.0.5', sockets.ANYWHERE: '10.9.9.9',
              '10.0.0.5': '10.0.0.5'}

    def resolve(self, name):
        if name not in self.names and not name[0].isdigit():
            raise socket.gaierror('no such name')
        return self.names.get(name, name)

    def address(self, hint):
        with mock.patch.object(sockets.socket, 'gethostbyname', self.resolve), \
                mock.patch.object(sockets, 'route_to', lambda host: self.routes.get(host, '')):
            return sockets.own_address(hint)

    def test_what_is_said_of_this_machine(self):
        for hint, wanted in (('there', '10.0.0.5'), ('10.0.0.9', '10.0.0.5'),
                             ('10.0.0.5', '10.0.0.5'), ('here', ''), ('', '10.9.9.9'),
                             ('localhost', '10.9.9.9'), ('127.0.0.1', '10.9.9.9'),
                             ('unheard-of', '10.9.9.9')):
            self.assertEqual(self.address(hint), wanted, hint)

    def test_routes(self):
        self.assertEqual(sockets.route_to('127.0.0.1'), '')
        self.assertEqual(sockets.route_to('a name that there is not'), '')
        self.assertEqual(sockets.machine(), sockets.machine())

    def test_where_ranks_connect_to(self):
        """One of the same machine by 127.0.0.1; one without an address where the hint is."""
        transport = sockets.SocketTransport.__new__(sockets.SocketTransport)
        transport.rank = 1
        for names, address, hint, wanted in (
                (['a', 'a'], '10.0.0.5', 'there', '127.0.0.1'),
                (['a', 'b'], '10.0.0.5', 'there', '10.0.0.5'), (['a', 'b'], '', 'there', 'there')):
            with mock.patch.object(sockets.socket, 'create_connection') as connect, \
                    mock.patch.object(sockets.socket, 'gethostbyname', self.resolve):
                transport._reach(0, [[address, 7, '']], names, 1.0, hint)
            self.assertEqual(connect.call_args[0][0], (wanted, 7))
        for hint in ('', 'here'):
            with mock.patch.object(sockets.socket, 'gethostbyname', self.resolve), \
                    self.assertRaisesRegex(NotImplementedError, 'set MASTER_ADDR'):
                transport._reach(0, [['', 7, '']], ['a', 'b'], 1.0, hint)


def ip(*arguments):
    return subprocess.run(['ip', *arguments], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)


class Networks(unittest.TestCase):
    """Two network namespaces with a cable between them: two machines, as far as sockets go."""

    def setUp(self):
        if os.geteuid() != 0 or not shutil.which('ip'):
            self.skipTest('networks of their own need root and the program ip')
        mark = f'ta{os.getpid()}'
        self.spaces = [f'{mark}a', f'{mark}b']
        for space in self.spaces:
            made = ip('netns', 'add', space)
            if made.returncode:
                self.skipTest(f'no network of its own: {made.stdout.decode().strip()}')
            self.addCleanup(ip, 'netns', 'delete', space)
        steps = [['link', 'add', f'{mark}0', 'netns', self.spaces[0], 'type', 'veth', 'peer',
                  'name', f'{mark}1', 'netns', self.spaces[1]]]
        for i, space in enumerate(self.spaces):
            steps += [['-n', space, 'address', 'add', f'10.77.0.{i + 1}/24', 'dev', f'{mark}{i}'],
                      ['-n', space, 'link', 'set', f'{mark}{i}', 'up'],
                      ['-n', space, 'link', 'set', 'lo', 'up']]
        for step in steps:
            done = ip(*step)
            if done.returncode:
                self.skipTest(f'ip {" ".join(step)}: {done.stdout.decode().strip()}')

    def test_ranks_of_two_machines(self):
        """Ranks 0 and 1 on one machine, rank 2 on the other, whose host has the same name."""
        with tempfile.TemporaryDirectory() as scratch:
            running = [subprocess.Popen(
                ['ip', 'netns', 'exec', space, sys.executable, __file__, 'rank', str(rank),
                 scratch, '10.77.0.1'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                for rank, space in enumerate((self.spaces[0], self.spaces[0], self.spaces[1]))]
            said = [process.communicate(timeout=LIMIT)[0].decode() for process in running]
        self.assertEqual([process.returncode for process in running], [0, 0, 0], said)


def exchange_in(scratch, rank, ranks):
    """Bytes to all by files, which the namespaces share."""
    turn = [0]

    def exchange(data):
        turn[0] += 1
        path = os.path.join(scratch, f'{turn[0]}.')
        with open(path + f'{rank}.new', 'wb') as file:
            file.write(data)
        os.rename(path + f'{rank}.new', path + str(rank))
        end, found = time.monotonic() + LIMIT, []
        while len(found) < ranks:
            try:
                with open(path + str(len(found)), 'rb') as file:
                    found.append(file.read())
            except FileNotFoundError:
                assert time.monotonic() < end, 'the others did not come'
                time.sleep(0.01)
        return found
    return exchange


def rank_main(rank, scratch, hint):
    transport = sockets.SocketTransport(rank, 3, exchange_in(scratch, rank, 3), 120, hint)
    with treeattn.Group.custom(transport, timeout=120) as group:
        nodes = group.all_gather(np.array([transport.node], np.int32), np.empty(3, np.int32))
        assert nodes[0] == nodes[1] != nodes[2], nodes
        total = group.all_reduce(np.arange(100000, dtype=np.int32))
        assert (total == 3 * np.arange(100000)).all()


if __name__ == '__main__':
    if sys.argv[1:2] == ['rank']:
        rank_main(int(sys.argv[2]), *sys.argv[3:])
    else:
        main()
