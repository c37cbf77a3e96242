"""Direct runs of durable sessions: they end where their requests are read, and their answers wait for the disk."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aexec_server.durable import group_commit
from aexec_server.handlers import direct_runs
from aexec_server.handlers.direct_runs import DirectRuns, Fate
from aexec_server.handlers.runs import RunHandlers

from aexec.framework import dtypes
from tests.server.conftest import RELAYED, SEES_ALL, Api, Start
from tests.server.durable.graphs import counter_graph
from tests.server.durable.stores import HeldDisk
from tests.server.handlers.test_direct_runs import Client, connected, request
from tests.support.waiting import until

ANSWERED, ORDINARY, SETTLING = Fate.ANSWERED, Fate.ORDINARY, Fate.SETTLING

pytestmark = pytest.mark.skipif(RELAYED, reason="looks at bytes that a relay changes")


@pytest.fixture
def fates(monkeypatch: pytest.MonkeyPatch) -> list[Fate]:
    """What became of each request, in their order, once its turn had come."""
    seen: list[Fate] = []
    answer = DirectRuns.answer

    def noted(*args: Any, **kwargs: Any) -> Fate:
        fate = answer(*args, **kwargs)
        if fate is not Fate.LATER:
            seen.append(fate)
        return fate

    monkeypatch.setattr(DirectRuns, "answer", noted)
    return seen


@pytest.fixture
async def api(start: Start, tmp_path: Path) -> Api:
    return await start(state_path=tmp_path / "state")


def graph() -> Any:
    g = counter_graph()
    g("checked", "TestNotNegative", "x")
    g("checked_add", "AssignAddVariableOp", "v", "checked", "^add", dtype=dtypes.float32)
    return g


def add(handle: str, x: float = 1.0, **headers: str) -> bytes:
    asked = {"feeds": {"x": [x]}, "targets": ["add"]}
    return request(f"/v1/sessions/{handle}:run", json.dumps(asked).encode(), **headers)


def read(handle: str) -> bytes:
    return request(f"/v1/sessions/{handle}:run", b'{"fetches": ["read"]}')


def twice(handle: str) -> bytes:
    return request(f"/v1/sessions/{handle}:run", b'{"feeds": {"x": [3]}, "fetches": ["twice"]}')


def value(answer: tuple[int, dict[str, str], bytes]) -> Any:
    status, _, body = answer
    assert status == 200, body
    return json.loads(body)["outputs"]["read"]


async def counter(api: Api, client: Client, **fields: Any) -> str:
    """A durable session whose `v` is 0, and whose requests for `add`, `read` and `twice` are direct."""
    handle = await api.create(graph(), durable=True, **fields)
    assert (await api.run(handle, feeds={"x": [0]}, targets=["set"]))[0] == 200
    await client.warm_up(read(handle))
    await client.warm_up(twice(handle))
    await client.warm_up(add(handle, 0.0))
    return handle


def disk_of(api: Api) -> HeldDisk:
    assert api.server.durable is not None
    return HeldDisk(api.server.durable.store)


async def stored(api: Api, start: Start, handle: str) -> Any:
    """The value of `v` at the next server."""
    await api.client.close()
    other = await start(state_path=api.server.config.state_path)
    return (await other.run(handle, fetches=["read"]))[1]["outputs"]["read"]


async def test_change_is_made_at_once_and_answered_when_it_is_written(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client:
        handle = await counter(api, client)
        disk = disk_of(api)
        fates.clear()
        client.writer.write(add(handle))
        await disk.writing.wait()
        hosted = api.hosted(handle)
        assert fates == [SETTLING] and not hosted.runs.live and hosted.requests == 1
        answer = asyncio.create_task(client.answer())
        other = api.hosted(handle).durable
        assert other is not None and not other.settled and not answer.done()
        disk.open.set()
        status, headers, body = await answer
        assert status == 200 and json.loads(body)["run_id"] == headers["aexec-run-id"]
        assert not hosted.requests and other.settled
        assert value(await client.ask(read(handle))) == [1]
        assert fates == [SETTLING, ANSWERED]


async def test_answer_equals_the_ordinary_one(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client:
        handle = await counter(api, client)
        answers = [await client.ask(add(handle)), await client.ask(add(handle, X_Request_Id="1"))]
        assert fates[-2:] == [SETTLING, ORDINARY]

        def told(answer: tuple[int, dict[str, str], bytes]) -> Any:
            status, headers, body = answer
            text = json.loads(body)
            assert text.pop("run_id") == headers.pop("aexec-run-id")
            for name in ("date", "x-request-id", "content-length"):
                headers.pop(name, None)
            return status, headers, text

        assert told(answers[0]) == told(answers[1])


async def test_read_of_a_change_waits_and_one_of_nothing_does_not(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client, connected(api) as other:
        handle = await counter(api, client)
        unchanged = await counter(api, other)
        disk = disk_of(api)
        fates.clear()
        client.writer.write(add(handle))
        await disk.writing.wait()
        async with connected(api) as third:
            assert (await third.ask(twice(unchanged)))[0] == 200
        other.writer.write(read(handle))
        await until(lambda: len(fates) == 3)
        assert fates == [SETTLING, ANSWERED, SETTLING]
        reading = asyncio.create_task(other.answer())
        disk.open.set()
        assert value(await reading) == [1]
        assert (await client.answer())[0] == 200


async def test_runs_that_wait_share_a_commit_which_has_what_each_changed(
    api: Api, start: Start, fates: list[Fate]
) -> None:
    """The value that is being written stays as it was, although runs change the variable meanwhile."""
    async with AsyncExitStack() as stack:
        first, *clients = [await stack.enter_async_context(connected(api)) for _ in range(21)]
        handle = await counter(api, first)
        disk = disk_of(api)
        stack.callback(disk.open.set)
        first.writer.write(add(handle))
        await disk.writing.wait()
        fates.clear()
        for client in clients:
            client.writer.write(add(handle))
        await until(lambda: len(fates) == 20)
        # On a busy machine some take the ordinary way, and may come to the commit after the next.
        late = fates.count(ORDINARY)
        assert fates.count(SETTLING) == 20 - late > 10 and disk.writes == 1
        disk.open.set()
        assert {(await client.answer())[0] for client in (first, *clients)} == {200}
        assert 2 <= disk.writes <= 2 + late
    assert await stored(api, start, handle) == [21]


async def test_relaxed_change_is_answered_at_once_and_written_soon(
    api: Api, start: Start, fates: list[Fate], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(api) as client:
        handle = await counter(api, client, durability="relaxed")
        durable = api.hosted(handle).durable
        assert durable is not None
        await until(lambda: durable.settled)
        disk = disk_of(api)
        monkeypatch.setattr(group_commit, "_LATER_SECONDS", 0.0)
        fates.clear()
        assert (await client.ask(add(handle)))[0] == 200
        await disk.writing.wait()
        assert fates == [ANSWERED]
        disk.open.set()
        await until(lambda: durable.settled)
    assert await stored(api, start, handle) == [1]


async def test_full_disk_is_an_error_and_nothing_more_is_done(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client:
        handle = await counter(api, client)
        disk = disk_of(api)
        disk.full = True
        disk.open.set()
        fates.clear()
        for number in range(3):  # the run is made once, and further ones are refused before they begin
            status, headers, body = await client.ask(add(handle))
            answer = json.loads(body)
            assert (status, answer["code"], answer["reason"]) == (507, "DATA_LOSS", "not_durable")
            assert number or headers["aexec-run-id"]
        assert fates == [SETTLING, ORDINARY, ORDINARY]
        assert (await client.ask(read(handle)))[0] == 507  # would tell of what is not durable
        disk.full = False
        assert value(await client.ask(read(handle))) == [1]
        assert (await client.ask(add(handle)))[0] == 200
        assert fates[-1] is SETTLING
    assert not api.hosted(handle).requests and not api.hosted(handle).runs.live


async def test_commit_that_fails_once_is_tried_again(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client:
        handle = await counter(api, client)
        disk = disk_of(api)
        disk.full = True
        client.writer.write(add(handle))
        await disk.writing.wait()
        runs = api.server.metrics.snapshot()["aexec_runs"]["", "OK"]
        begin_early = RunHandlers.begin_early

        def begin(*args: Any, **kwargs: Any) -> None:
            disk.full = False
            begin_early(*args, **kwargs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RunHandlers, "begin_early", begin)
            disk.open.set()
            assert (await client.answer())[0] == 200
        assert value(await client.ask(read(handle))) == [1]
    assert api.server.metrics.snapshot()["aexec_runs"] == {("", "OK"): runs + 2}  # type: ignore[operator]
    assert api.server.admission.statistics().in_flight == 0


async def test_change_of_a_client_that_left_is_written(api: Api, start: Start) -> None:
    async with connected(api) as client:
        handle = await counter(api, client)
        disk, hosted = disk_of(api), api.hosted(handle)
        client.writer.write(add(handle))
        await disk.writing.wait()
        client.writer.close()
        await until(lambda: not hosted.requests)
        disk.open.set()
        durable = hosted.durable
        assert durable is not None
        await until(lambda: durable.settled)
    assert await stored(api, start, handle) == [1]


async def test_requests_sent_before_the_answer_are_answered_in_order(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client:
        handle = await counter(api, client)
        disk, hosted = disk_of(api), api.hosted(handle)
        fates.clear()
        client.writer.write(add(handle))
        await disk.writing.wait()
        more = read(handle)
        client.writer.write(more[:30])
        await until(lambda: not api.server.sessions.live_runs and hosted.requests == 1)
        client.writer.write(more[30:] + add(handle) + read(handle))
        disk.open.set()
        answers = [await client.answer() for _ in range(4)]
        assert [answer[0] for answer in answers] == [200] * 4
        assert (value(answers[1]), value(answers[3])) == ([1], [2])
        assert fates == [SETTLING]
    assert not hosted.requests and api.server.admission.statistics().in_flight == 0


async def test_run_that_cannot_end_at_once_is_gone_on_with(api: Api, start: Start, fates: list[Fate]) -> None:
    """It fails after it has changed a variable: the change is written, as that of any run."""
    async with connected(api) as client:
        handle = await counter(api, client)

        def both(x: float) -> bytes:
            asked = {"feeds": {"x": [x]}, "targets": ["checked_add"]}
            return request(f"/v1/sessions/{handle}:run", json.dumps(asked).encode())

        await client.warm_up(both(0.0))
        fates.clear()
        status, _, body = await client.ask(both(-1.0))
        assert (status, json.loads(body)["code"], fates) == (400, "OUT_OF_RANGE", [ORDINARY])
        durable = api.hosted(handle).durable
        assert durable is not None and durable.settled
        expected = value(await client.ask(read(handle)))
    assert await stored(api, start, handle) == expected


@pytest.mark.parametrize("ends", ["drain", "hand over"])
async def test_server_that_stops_answers_what_waits(api: Api, start: Start, fates: list[Fate], ends: str) -> None:
    async with connected(api) as client:
        handle = await counter(api, client)
        disk, durable = disk_of(api), api.server.durable
        assert durable is not None
        client.writer.write(add(handle))
        await disk.writing.wait()
        api.server.leaving = True
        if ends == "drain":
            api.server.draining = True
            assert api.server.sessions.in_use
            disk.open.set()
        else:
            giving_up = asyncio.create_task(durable.give_up())
            async with connected(api) as other:
                assert (await other.ask(add(handle)))[0] == 503
            assert not giving_up.done()
            disk.open.set()
            await giving_up
        status, headers, _ = await client.answer()
        assert (status, headers["connection"], await client.reader.read()) == (200, "close", b"")
    assert await stored(api, start, handle) == [1]


async def test_begun_run_is_not_refused_by_a_server_that_stops(
    api: Api, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client would send it again, and it would be done twice."""
    async with connected(api) as client:
        handle = await counter(api, client)
        disk, durable = disk_of(api), api.server.durable
        assert durable is not None
        client.writer.write(add(handle))
        await disk.writing.wait()
        giving_up = asyncio.create_task(durable.give_up())
        await until(lambda: durable.is_handed_over(handle, SEES_ALL))
        api.server.leaving = api.server.draining = True
        passed_on = asyncio.Event()
        begin_early = RunHandlers.begin_early

        def begin(*args: Any, **kwargs: Any) -> None:
            passed_on.set()
            begin_early(*args, **kwargs)

        monkeypatch.setattr(RunHandlers, "begin_early", begin)
        client.writer.write(b"POST ")  # so that the ordinary handler gets what waits
        await passed_on.wait()
        disk.open.set()
        assert (await client.answer())[0] == 200
        await giving_up
    assert await stored(api, start, handle) == [1]


async def test_keys_and_operations_go_the_ordinary_way(api: Api, fates: list[Fate]) -> None:
    async with connected(api) as client:
        handle = await counter(api, client)
        fates.clear()
        for _ in range(2):
            assert (await client.ask(add(handle, Idempotency_Key='"k"')))[0] == 200
        status, headers, _ = await client.ask(add(handle, Prefer="respond-async"))
        assert status == 202
        while not (await api.call("GET", f"{headers['location']}?wait_s=10"))[1]["done"]:
            pass
        assert set(fates) == {ORDINARY}
        assert value(await client.ask(read(handle))) == [2]


async def test_answer_that_waited_is_logged(start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    api = await start(state_path=tmp_path / "state", step_log=True, access_log=True)
    async with connected(api) as client:
        handle = await counter(api, client)
        caplog.clear()
        _, headers, _ = await client.ask(add(handle))
    run_id = headers["aexec-run-id"]
    step, access = [r.getMessage() for r in caplog.records if r.name.startswith("aexec_server")]
    assert access.startswith(f"POST /v1/sessions/{handle[:6]}") and access.endswith(f" run={run_id}")
    assert step.startswith(f"run {run_id} of session ")


async def test_answer_waits_behind_its_turn(api: Api, fates: list[Fate], monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(api) as client:
        handle = await counter(api, client)
        fates.clear()
        monkeypatch.setattr(direct_runs, "perf_counter", lambda: 1e12)  # every slice is over
        client.writer.write(add(handle))
        await until(lambda: len(api.server.backlog) == 1)
        monkeypatch.undo()
        assert (await client.answer())[0] == 200
        assert len(api.server.backlog) == 0
        assert (await client.ask(add(handle)))[0] == 200
        assert value(await client.ask(read(handle))) == [2]
