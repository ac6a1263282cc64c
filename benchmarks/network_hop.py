# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright (c) 2026, the virtpools.kubevirt authors

"""A network hop on one machine: a TCP forwarder that keeps what it gets, in each direction, for half of a round trip.

It runs in a process of its own, so that the measuring process does not wait for it. Timers and copies take time as well: what a
round trip really takes is measured through the same forwarder.
"""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUND_TRIPS = 1000


@contextmanager
def hop(port: int, round_trip: float) -> Iterator[int]:
    """Forward connections to a port of this machine, with a round trip of so many seconds; yields the port to connect to."""
    command = [sys.executable, __file__, str(port), str(round_trip)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def setting_for(round_trip: float) -> float:
    """Return what to ask ``hop`` for, so that a round trip really takes about so many seconds on this machine."""
    return max(0.0, 2 * round_trip - measured_round_trip(round_trip))


def measured_round_trip(round_trip: float) -> float:
    """Return how many seconds a byte really takes through such a hop and back: the median, less that of a direct connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        port = server.getsockname()[1]
        direct = _median(port)
        with hop(port, round_trip) as delayed:
            return _median(delayed) - direct


def _median(port: int) -> float:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        taken = []
        for _number in range(ROUND_TRIPS):
            start = time.perf_counter()
            connection.sendall(b"x")
            connection.recv(1)
            taken.append(time.perf_counter() - start)
        return statistics.median(taken)


def _echo(server: socket.socket) -> None:
    for _connection in range(2):
        client, _address = server.accept()
        threading.Thread(target=_pump, args=(client, client, 0.0), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, delay: float) -> None:
    sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := source.recv(1 << 20):
        if delay:
            time.sleep(delay)
        sink.sendall(data)
    sink.shutdown(socket.SHUT_WR)


def _forward(port: int, round_trip: float) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            client, _address = server.accept()
            target = socket.create_connection(("127.0.0.1", port))
            for source, sink in ((client, target), (target, client)):
                threading.Thread(target=_pump, args=(source, sink, round_trip / 2), daemon=True).start()


if __name__ == "__main__":
    _forward(int(sys.argv[1]), float(sys.argv[2]))
