"""Bodies: how large, in which coding, in how many pieces."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import math
import random
import threading
import time
import zlib
from typing import Any

import numpy as np
import pytest
from aexec_server.clients.callers import CLIENT
from aexec_server.http import bodies, json_text
from hypothesis import given
from hypothesis import strategies as st

from aexec import errors
from aexec.hosting import NeedsThreadError, run_in_thread
from tests.server.conftest import Api, Start, small_graph
from tests.support.turns import polite_threads, turns_during

RUN = json.dumps({"feeds": {"x": [2]}, "fetches": ["y"]}).encode()


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("gzip", gzip.compress(RUN)),
        ("deflate", zlib.compress(RUN)),
        ("GZip", gzip.compress(RUN)),
        ("identity", RUN),
    ],
    ids=["gzip", "deflate", "capitals", "identity"],  # the data has the time in it
)
async def test_codings(api: Api, small: str, coding: str, data: bytes) -> None:
    response, body = await api.raw("POST", f"/v1/sessions/{small}:run", data, Content_Encoding=coding)
    assert response.status == 200 and json.loads(body)["outputs"] == {"y": [4.0]}


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, gzip"])
async def test_unknown_codings_are_refused(api: Api, small: str, coding: str) -> None:
    response, body = await api.raw("POST", f"/v1/sessions/{small}:run", RUN, Content_Encoding=coding)
    assert response.status == 415 and response.headers["Accept-Encoding"] == "gzip, deflate"
    assert json.loads(body)["code"] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "data", [RUN, b"", gzip.compress(RUN)[:-9], gzip.compress(RUN) + b"x", gzip.compress(RUN) * 2], ids=range(5)
)
async def test_broken_codings_are_refused(api: Api, small: str, data: bytes) -> None:
    response, _ = await api.raw("POST", f"/v1/sessions/{small}:run", data, Content_Encoding="gzip")
    assert response.status == 400
    assert (await api.run(small, feeds={"x": [2]}, fetches=["y"]))[0] == 200


async def test_body_that_grows_too_large_is_refused(start: Start) -> None:
    api = await start(max_body_bytes=100_000)
    handle = await api.create(small_graph())
    bomb = gzip.compress(b" " * 10_000_000)
    assert len(bomb) < 20_000
    response, body = await api.raw("POST", f"/v1/sessions/{handle}:run", bomb, Content_Encoding="gzip")
    assert response.status == 413 and "100000" in json.loads(body)["error"]


async def test_body_that_is_too_large_is_refused(start: Start) -> None:
    api = await start(max_body_bytes=2000)
    handle = await api.create(small_graph())
    path = f"/v1/sessions/{handle}:run"
    for size, status in ((2000, 200), (2001, 413)):
        response, _ = await api.raw("POST", path, RUN + b" " * (size - len(RUN)))
        assert response.status == status

    async def chunks() -> Any:
        for _ in range(30):
            yield b" " * 100

    async with api.client.post(path, data=chunks()) as response:
        assert response.status == 413
    assert (await api.run(handle, feeds={"x": [2]}, fetches=["y"]))[0] == 200


async def test_chunked_bodies(api: Api, small: str) -> None:
    async def chunks() -> Any:
        for byte in RUN:
            yield bytes([byte])

    async with api.client.post(f"/v1/sessions/{small}:run", data=chunks()) as response:
        assert response.status == 200


async def test_chunks_are_bounded(api: Api, small: str) -> None:
    async with api.connection() as (reader, writer):
        head = f"POST /v1/sessions/{small}:run HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode() + b"1\r\n \r\n" * 70_000)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413 ")


async def test_body_that_does_not_come(start: Start) -> None:
    api = await start(body_seconds=0.01)
    handle = await api.create(small_graph())
    async with api.connection() as (reader, writer):
        writer.write(
            f"POST /v1/sessions/{handle}:run HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{{".encode()
        )
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 408 ")


async def test_broken_chunks(start: Start) -> None:
    api = await start(body_seconds=0.1)
    handle = await api.create(small_graph())
    async with api.connection() as (reader, writer):
        head = f"POST /v1/sessions/{handle}:run HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode() + b"5\r\n{}}}}}zzz\r\n")
        answer = await reader.readuntil(b"\r\n\r\n")
        # Where both writes arrive as one, aiohttp drops the broken chunk, and the rest of the body never comes.
        assert answer.split()[1] in (b"400", b"408")


# JSON in pieces


def random_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.random()
    if depth > 4 or kind < 0.3:
        return rng.choice([1, 2.5, -3, True, None, "a[b", 'x\\"y]', "é,\U0001f600]", float("inf"), [], {}])
    if kind < 0.6:
        return [random_value(rng, depth + 1) for _ in range(rng.randint(0, 6))]
    if kind < 0.8:
        return {str(i): random_value(rng, depth + 1) for i in range(rng.randint(0, 4))}
    if kind < 0.9:
        return {str(i): i for i in range(rng.randint(0, 30))}
    return [rng.random() for _ in range(rng.randint(0, 300))]


def outcome(parse: Any, body: bytes) -> Any:
    try:
        return repr(parse(body))
    except ValueError:
        return ValueError


@pytest.mark.parametrize("seed", range(6))
def test_pieces_mean_what_json_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random texts, and the same with one byte wrong, against the standard library."""
    monkeypatch.setattr(json_text, "_PIECE", 50)
    rng = random.Random(seed)
    for _ in range(12):
        text = json.dumps([random_value(rng), 0] * 3, indent=rng.choice([None, 1]), ensure_ascii=rng.random() < 0.5)
        body = text.encode() + b" " * 101
        assert outcome(json_text.loads, body) == outcome(json.loads, body)
        at = rng.randrange(len(body) - 101)
        wrong = body[:at] + bytes([rng.choice(b'[]{},":1 ')]) + body[at + rng.randint(0, 1) :]
        assert outcome(json_text.loads, wrong) == outcome(json.loads, wrong), wrong


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**20), 10**20).map(str),
    st.builds(
        lambda sign, digits, point, e, exponent: f"{sign}{digits}{point}{e}{exponent}",
        st.sampled_from(["", "-"]),
        st.one_of(st.integers(0, 99).map(str), st.sampled_from(["1", "17", "18"]).map(lambda head: head + "0" * 300)),
        st.sampled_from(["", ".0", ".5", "." + "9" * 300]),
        st.sampled_from(["e", "E", "e+", "e-"]),
        st.one_of(st.integers(0, 400), st.sampled_from([306, 307, 308, 309])).map(str),
    ),
)


@given(st.lists(NUMBERS, min_size=1, max_size=8), st.booleans())
def test_numbers_that_are_too_large_are_refused(texts: list[str], in_pieces: bool) -> None:
    """Those of which Python makes an infinity, wherever they stand; what is in strings is no number."""
    body = f'{{"e400": "1e400", "a": [[{",".join(texts)}], "{"0" * 300}"]}}'.encode()
    with pytest.MonkeyPatch.context() as patch:
        if in_pieces:
            patch.setattr(json_text, "_PIECE", 20)
        if any(math.isinf(float(text)) for text in texts):
            with pytest.raises(ValueError, match="does not fit a float64"):
                json_text.loads(body)
        else:
            assert json_text.loads(body) == json.loads(body)


def test_number_that_is_too_large_is_found_where_pieces_are_counted() -> None:
    """Which are counted one after the other: it may be in two of them."""
    for before in range(json_text._COUNTED - 8, json_text._COUNTED + 2):
        body = b"[" + b" " * before + b"1e400]"
        with pytest.raises(ValueError, match="does not fit"):
            json_text.loads(body)


@pytest.mark.parametrize("wrong", [b'"0":', b'"39999":', b'"20000":', b",", b'"x"', b'"x":1}', b"]"])
def test_large_objects(wrong: bytes) -> None:
    members = {str(i): [i] for i in range(40_000)}
    body = json.dumps(members).encode()
    assert json_text.loads(body) == members
    with pytest.raises(ValueError, match="named twice" if wrong[1:2].isdigit() else "."):
        json_text.loads(body[:-1] + b"," + wrong + b"0}")


def test_white_space_takes_no_time() -> None:
    space = b" \n\t\r" * 500_000
    body = b"[" + space + b"1," + space + b'{"a"' + space + b":2" + space + b"}" + space + b"]" + space
    began = time.thread_time()
    assert json_text.loads(body) == [1, {"a": 2}]
    assert time.thread_time() - began < 0.5  # 0.04 on an idle machine; 1 with a step of Python for each


def test_long_base64() -> None:
    data = bytes(range(256)) * 8192
    text = base64.b64encode(data + b"x").decode()
    assert len(text) > 2 * bodies._BASE64_AT_ONCE
    assert bodies.decode_base64(text, "it") == data + b"x"
    middle = bodies._BASE64_AT_ONCE
    for wrong in (text[:-3], text[: middle - 2] + "==" + text[middle:], text[:middle] + "*" + text[middle + 1 :]):
        with pytest.raises(errors.InvalidArgumentError, match="it is no base64"):
            bodies.decode_base64(wrong, "it")


@given(st.binary(max_size=40), st.integers(1, 80), st.sampled_from(["\n", "\r\n", " "]), st.booleans())
def test_base64_of_other_encoders_is_decoded(data: bytes, width: int, end: str, padded: bool) -> None:
    text = base64.b64encode(data).decode()
    text = text if padded else text.rstrip("=")
    lines = [text[start : start + width] for start in range(0, len(text), width)]
    assert bodies.decode_base64("".join(line + end for line in lines), "it") == data


@pytest.mark.parametrize("text", ["A", "AA=", "=", "====", "A===", "AAA=A", "AA==AA==", "AA=A", "AAAA=", "AA-_", "ä"])
def test_text_that_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="it is no base64"):
        bodies.decode_base64(text, "it")


@pytest.mark.parametrize("element", [b"[]", b"{}", b'""', b"0"])
def test_json_that_would_take_too_much_memory_is_refused_unread(element: bytes) -> None:
    body = b"[" + (element + b",") * (60_000_000 // (len(element) + 1)) + element + b"]"
    with pytest.raises(errors.ResourceExhaustedError, match="would take more than 536870912 bytes of memory"):
        json_text.loads(body)


async def test_short_strings_are_read_in_pieces() -> None:
    values = ["a,]", "[b", "", 'q"', "c"] * 3_000
    with polite_threads():
        turns, decoded = await turns_during(asyncio.to_thread(json_text.loads, json.dumps(values).encode()))
    assert turns > 5 and decoded == values


@pytest.mark.parametrize("shape", [(), (0,), (3,), (20_000,), (5, 9000), (9000, 5), (2, 0), (100, 3, 70)])
def test_array_text(shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    assert json.loads(json_text.array_text(array)) == array.tolist()


async def test_long_json_gives_other_threads_their_turn() -> None:
    values = np.arange(200_000, dtype=np.float32)
    with polite_threads():
        turns, text = await turns_during(asyncio.to_thread(json_text.array_text, values))
        assert turns > 5
        turns, decoded = await turns_during(asyncio.to_thread(json_text.loads, text.encode()))
        assert turns > 5
    assert decoded == values.tolist()


@pytest.mark.parametrize(("size", "in_thread"), [(20_000, False), (300_000, True)])
async def test_large_body_is_inflated_in_a_thread(
    api: Api, small: str, monkeypatch: pytest.MonkeyPatch, size: int, in_thread: bool
) -> None:
    """However small it is compressed."""
    calls: list[str] = []

    async def noted(call: Any, *args: Any, **options: Any) -> Any:
        calls.append(call.__name__)
        return await run_in_thread(call, *args, **options)

    monkeypatch.setattr(bodies, "run_in_thread", noted)
    compressed = gzip.compress(RUN[:-1] + b" " * size + RUN[-1:])
    assert len(compressed) < 1000
    response, _ = await api.raw("POST", f"/v1/sessions/{small}:run", compressed, Content_Encoding="gzip")
    assert response.status == 200
    assert ("decompress" in calls) is in_thread


@pytest.mark.parametrize("nanoseconds", [1e9, 1e7, 0.0], ids=["long", "short", "unknown"])
async def test_long_calls_of_one_client_leave_threads_to_another(nanoseconds: float) -> None:
    may_end = threading.Event()

    def answer() -> int:
        if threading.current_thread() is threading.main_thread():
            raise NeedsThreadError
        return 7

    CLIENT.set("one")
    calls = [asyncio.create_task(bodies.beside(1e9, may_end.wait, 60)) for _ in range(40)]
    try:
        await asyncio.sleep(0)
        CLIENT.set("other")
        assert await asyncio.wait_for(bodies.beside(nanoseconds, answer), 10) == 7
        assert not any(call.done() for call in calls)
    finally:
        may_end.set()
    assert await asyncio.gather(*calls) == [True] * 40


async def test_long_call_that_waits_for_its_turn_may_be_cancelled() -> None:
    may_end, made = threading.Event(), []
    calls = [asyncio.create_task(bodies.beside(1e9, may_end.wait, 60)) for _ in range(20)]
    await asyncio.sleep(0)
    late = asyncio.create_task(bodies.beside(1e9, made.append, 1))
    await asyncio.sleep(0)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    may_end.set()
    await asyncio.gather(*calls)
    assert await bodies.beside(1e9, lambda: 7) == 7 and not made
