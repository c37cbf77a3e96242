"""`LostConnections`: many requests end in turns of the loop, none is left out."""

from __future__ import annotations

import asyncio

from aexec_server.connections.lost_connections import LostConnections

from tests.server.conftest import Start, gate_graph
from tests.support import gates
from tests.support.waiting import until


async def test_few_end_at_once() -> None:
    lost, ended = LostConnections(), []
    for number in range(50):
        lost.end(lambda number=number: ended.append(number))
    assert ended == list(range(50)) and not len(lost)


async def test_many_end_in_order_over_several_turns() -> None:
    lost, ended = LostConnections(), list[int]()
    for number in range(1000):
        lost.end(lambda number=number: ended.append(number))
    most = len(ended)
    while len(ended) < 1000:
        before = len(ended)
        await asyncio.sleep(0)
        most = max(most, len(ended) - before)
    assert ended == list(range(1000)) and most <= 100
    # Later ones end at once again.
    await until(lambda: lost._left == 50)
    lost.end(lambda: ended.append(1000))
    assert ended[-1] == 1000


async def test_error_of_one_leaves_out_no_other() -> None:
    lost, ended, seen = LostConnections(), list[int](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))

    def fail() -> None:
        raise ValueError

    for number in range(100):
        lost.end(lambda number=number: ended.append(number))
        if number == 75:
            lost.end(fail)
    await until(lambda: len(ended) == 100)
    assert len(seen) == 1


async def test_runs_of_clients_that_vanish_at_once_are_all_cancelled(start: Start) -> None:
    api = await start(max_runs=400, run_slots=200)
    gate = gates.Gate()
    handle = await api.create(gate_graph(gate))
    head = f"POST /v1/sessions/{handle}:run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18\r\n\r\n"
    writers = [(await asyncio.open_connection(api.client.host, api.client.port))[1] for _ in range(120)]
    for writer in writers:
        writer.write(head.encode() + b'{"fetches": ["y"]}')
    await until(lambda: gate.count == 120)
    for writer in writers:
        writer.transport.abort()
    await until(lambda: gate.cancelled == 120 and not api.hosted(handle).runs.live)
    assert api.server.admission.shares.in_use == 0
