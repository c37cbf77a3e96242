"""How long a server held an answer, by what its watcher sees: pure arithmetic, and what the kernel says of arrivals."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

import pytest

from tests.support.watcher import arrival, ask_for_arrival, held_seconds

TIMESTAMP = 35  # SO_TIMESTAMPNS


@pytest.mark.parametrize(
    ("asked", "arrived", "waited", "held"),
    [
        (10.0, 10.25, 0.0, 0.25),
        (10.0, 17.5, 3.75, 3.75),  # whatever the watcher waited at the same time
        (10.0, 10.25, 0.25, 0.0),
        (10.0, 10.25, 0.5, 0.0),  # it waited longer, after its answer
    ],
)
def test_wait_of_the_server_is_taken_off_once(asked: float, arrived: float, waited: float, held: float) -> None:
    assert held_seconds(asked, arrived, waited) == held


def test_answer_that_is_read_late_arrived_when_the_kernel_says() -> None:
    ancillary = [(socket.SOL_SOCKET, 1, b"else"), (socket.SOL_SOCKET, TIMESTAMP, struct.pack("qq", 100, 500_000_000))]
    assert arrival(ancillary, 7.0, 100.75) == 6.75
    assert arrival(ancillary, 7.0, 100.25) == 7.0  # the wall clock was set back
    assert arrival([], 7.0, 100.75) == 7.0


def test_kernel_says_when_an_answer_arrived() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        ask_for_arrival(client)
        there, _ = server.accept()
        with there:
            ancillary: list[Any] = []
            while not ancillary:  # the kernel begins to note it some time after it was asked
                began = time.time()
                there.sendall(b"answer")
                data, ancillary, _, _ = client.recvmsg(100, 1024)
        read = time.time()
        assert data == b"answer"
        assert began - 0.001 <= arrival(ancillary, read, read) <= read
