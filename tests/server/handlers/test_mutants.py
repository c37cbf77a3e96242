"""Runs spoilt at random, in JSON and in protobuf: each is answered, soon, and never as a fault of ours."""

from __future__ import annotations

import copy
import json
import random
import time
from typing import Any

import numpy as np
import pytest
from aiohttp import ClientResponse

from aexec import proto
from aexec.framework import dtypes
from aexec.framework.wire import tensor_codec
from tests.server.conftest import Api, small_graph
from tests.support.foreign_errors import foreign_words
from tests.support.programs.mutations import mutate_bytes
from tests.support.programs.seeds import Seeds

# Processor's time in seconds for which the loop may be held by a request and its answer.
_HELD = 0.1

SEEDS: list[dict[str, Any]] = [
    {"feeds": {"x": [1.0, 2.0]}, "fetches": ["y"]},
    {"feeds": {"s": ["a", {"b64": "/w=="}]}, "fetches": ["s_out"], "options": {"timeout_in_ms": 500, "trace_level": 3}},
    {"feeds": {"i": [[1, 2], [3, 4]], "b": [True]}, "fetches": ["i_out", "b_out"], "targets": ["nothing"]},
    {
        "run_id": "r1",
        "feeds": [{"name": "m:0", "datatype": "FP32", "shape": [2], "data": [1, 2]}],
        "fetches": [{"name": "m_out:0", "parameters": {"binary_data": True}}],
        "parameters": {"binary_data_output": False, "timeout": 500000, "priority": 0},
    },
]
ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, 2**31, 2**63, 2**64, 10**40, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", "x", "y:0", "y:1", "^y", "\ud800", "\0", "é", "a" * 5000, "NaN", "DT_FLOAT", "FULL_TRACE", "fails"),
    *([], [[]], [[[]]], {}, {"b64": "!"}, {"name": "m"}, [None, 1, "a"], [[1], [1, 2]]),
]
MAX_DEPTH = 6


def spoilt(value: Any, rng: random.Random, depth: int = 0) -> Any:
    """Something in it replaced, dropped, repeated, renamed or nested."""
    if depth > MAX_DEPTH or not isinstance(value, dict | list) or not value or rng.random() < 0.25:
        kind = rng.randrange(4)
        if kind == 0 and isinstance(value, str):
            return value[: rng.randrange(len(value) + 1)] + rng.choice(["", ":", "0", "\n", "\x1b[31m", "\ud800"])
        if kind == 1:
            return [value] * rng.choice([1, 2, 100])
        return copy.deepcopy(rng.choice(ODD))
    changed = copy.copy(value)
    if isinstance(changed, list):
        at = rng.randrange(len(changed))
        if rng.random() < 0.15:
            del changed[at]
        else:
            changed[at] = spoilt(changed[at], rng, depth + 1)
        return changed
    name = rng.choice(sorted(changed))
    kind = rng.random()
    if kind < 0.1:
        del changed[name]
    elif kind < 0.2:
        changed[rng.choice(["", "x", "feeds", "timeout", name + "s", "\ud800"])] = changed.pop(name)
    else:
        changed[name] = spoilt(changed[name], rng, depth + 1)
    return changed


def json_mutant(rng: random.Random) -> bytes:
    request = copy.deepcopy(rng.choice(SEEDS))
    for _ in range(rng.choice([1, 1, 2, 3])):
        request = spoilt(request, rng)
    text = json.dumps(request).encode()
    return mutate_bytes(text, rng) if rng.random() < 0.2 else text


def seed_message(rng: random.Random) -> proto.RunStepRequest:
    message = proto.RunStepRequest(fetch=["y:0", "s_out:0"], target=["nothing"])
    for name, array, dtype in (
        ("x:0", np.array([1.0, 2.0], np.float32), dtypes.float32),
        ("s:0", np.array([b"a", b"\xff"], object), dtypes.string),
        ("i:0", np.array([1, 2], np.int32), dtypes.int32),
    ):
        message.feed.add(name=name).tensor.CopyFrom(tensor_codec.to_proto(array, dtype))
    message.options.timeout_in_ms = 500
    message.store_errors_in_response_body = rng.random() < 0.3
    return message


def protobuf_mutant(rng: random.Random) -> bytes:
    message = seed_message(rng)
    for _ in range(rng.choice([1, 1, 2, 3])):
        kind = rng.randrange(7)
        feed = rng.choice(message.feed)
        if kind == 0:
            feed.tensor.dtype = rng.choice([0, 1, 3, 7, 20, 21, 22, 101, 103, 10**6])
        elif kind == 1:
            del feed.tensor.tensor_shape.dim[:]
            for _ in range(rng.randrange(4)):
                feed.tensor.tensor_shape.dim.add(size=rng.choice([-1, 0, 1, 2, 3, 2**31, 2**62]))
        elif kind == 2:
            feed.tensor.tensor_content = mutate_bytes(feed.tensor.tensor_content or b"abcd", rng)
        elif kind == 3:
            feed.name = rng.choice(["x", "y:0", "", "nope:0", "x:7", "^x", "s:0"])
        elif kind == 4:
            message.fetch.append(rng.choice(["y", "nope", "fails:0", "", "y:9", "m_out:0", "y:0"]))
        elif kind == 5:
            message.target.append(rng.choice(["", "nope", "fails", "y:0"]))
        else:
            message.options.trace_level = rng.choice([0, 1, 2, 3])
            message.options.timeout_in_ms = rng.choice([0, 1, -1, 2**62])
            message.options.inter_op_thread_pool = rng.choice([0, -1, 5, 2**31 - 1])
            message.options.output_partition_graphs = rng.random() < 0.5
    data = message.SerializeToString()
    return mutate_bytes(data, rng) if rng.random() < 0.5 else data


async def send(api: Api, handle: str, media: str, body: bytes) -> tuple[ClientResponse, bytes, float]:
    """The response, its bytes, and for how long it held the loop."""
    began = time.thread_time()
    response, answer = await api.raw("POST", f"/v1/sessions/{handle}:run", body, Content_Type=media)
    return response, answer, time.thread_time() - began


async def check(api: Api, handle: str, media: str, body: bytes, what: str) -> None:
    response, answer, held = await send(api, handle, media, body)
    if held >= _HELD:  # was it the request, or the garbage of those before it?
        held = (await send(api, handle, media, body))[2]
    assert response.status not in (500, 501) or b"UNIMPLEMENTED" in answer, (what, body[:300], answer[:500])
    if response.status != 200:
        text = json.loads(answer)["error"]
    elif media == "application/x-protobuf":
        text = proto.RunStepResponse.FromString(answer).status_error_message
    else:
        return
    assert foreign_words(text) is None, (what, body[:300], text)
    assert held < _HELD, (what, held)


MAKERS = {"application/json": json_mutant, "application/x-protobuf": protobuf_mutant}


async def mutable_graph(api: Api) -> str:
    """A session of a graph of many types."""
    g = small_graph()
    kept = [node for node in g.graph_def.node if node.op != "TestFail"]  # it fails as no kernel of aexec's may
    del g.graph_def.node[:]
    g.graph_def.node.extend(kept)
    handle = await api.create(g)
    await api.run(handle, feeds={"x": [1.0]}, fetches=["y"])  # what a first run imports is no request's
    return handle


async def check_seed(api: Api, handle: str, media: str, seed: int) -> None:
    await check(api, handle, media, MAKERS[media](random.Random(seed)), f"{media} {seed}")


async def check_usable(api: Api, handle: str) -> None:
    status, answer = await api.run(handle, feeds={"x": [2.0]}, fetches=["y"])
    assert (status, answer["outputs"]) == (200, {"y": [4.0]}) and not api.hosted(handle).runs.live


@pytest.mark.parametrize("media", MAKERS)
async def test_runs(api: Api, media: str) -> None:
    handle = await mutable_graph(api)
    for seed in range(1000):
        await check_seed(api, handle, media, seed)
    await check_usable(api, handle)


@pytest.mark.soak
@pytest.mark.parametrize("media", MAKERS)
async def test_further_mutated_requests_are_handled(api: Api, media: str) -> None:
    handle = await mutable_graph(api)
    seeds = Seeds(100_000)
    for seed in seeds:
        with seeds.trying(seed):
            await check_seed(api, handle, media, seed)
    seeds.check()
    await check_usable(api, handle)
