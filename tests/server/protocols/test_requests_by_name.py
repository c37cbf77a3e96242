"""Names are never positions: in whichever order, protocol and form a request names inputs and outputs, it gets these.

Random models and requests (`tests/support/programs/signatures.py`) go every way in (`tests/support/ways_in.py`).  What
they have to give is what a session in this process gives of the same values by the names of their tensors.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aexec_server.settings.model_source import Batching, ModelSource

import aexec
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature
from aexec.saved_model import save_saved_model
from tests.server.conftest import Api, Start
from tests.server.models.test_models import loaded
from tests.support.programs.seeds import Seeds
from tests.support.programs.signatures import Fault, NamedRequest, RandomModel, random_model, random_request
from tests.support.server_process import ServerProcess
from tests.support.ways_in import BY_SIGNATURE, BY_TENSOR, IN_PARTS, RefusedError, Way, World

WAYS = (*BY_SIGNATURE, *BY_TENSOR, *IN_PARTS)
_MODELS = 10
_AT_ONCE = 10
# A model in so many is batched.
_BATCHED = 3


def models_of(seed: int, count: int = _MODELS) -> list[RandomModel]:
    return [random_model(random.Random(f"{seed} {i}")) for i in range(count)]


@asynccontextmanager
async def world_of(models: Sequence[RandomModel], url: str, seed: int) -> AsyncIterator[World]:
    """Sessions of models that are served there."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        here = [await stack.enter_async_context(aexec.Session(model.graph)) for model in models]
        joined = [aexec.connect(url, session=f"m{i}") for i in range(len(models))]
        own = [aexec.connect(url, model.graph) for model in models]
        for session in (*joined, *own):
            await stack.enter_async_context(session)
        yield World(models, url, http, here, joined, own, random.Random(seed))


@asynccontextmanager
async def served(start: Start, seed: int) -> AsyncIterator[World]:
    """Random models in a server in this process; some are batched."""
    models = models_of(seed)
    sources = {
        f"m{i}": ModelSource(_maker(model), batching=Batching(8, 0.001) if i % _BATCHED == 0 else None)
        for i, model in enumerate(models)
    }
    api = await start(models=sources, max_runs=1000)
    await loaded(api)
    async with world_of(models, str(api.client.make_url("")).rstrip("/"), seed) as world:
        yield world


def _maker(model: RandomModel) -> Callable[[], aexec.Graph | MetaGraph]:
    return lambda: model.graph


async def expected(world: World, number: int, request: NamedRequest, way: Way) -> dict[str, Any] | str:
    """What a request has to give, or a pattern of what its refusal says."""
    if way in (*BY_TENSOR, *IN_PARTS):
        refusal = _refusal_by_tensor(world, number, request)
    else:
        refusal = _refusal_by_signature(world, number, request)
    if refusal is not None:
        return refusal
    signature = world.signature(number, request)
    feeds = {signature.inputs[name].name: value for name, value in sorted(request.inputs)}
    names = [n for n in request.outputs or signature.outputs if n in signature.outputs]
    values = await world.here[number].run({name: signature.outputs[name].name for name in names}, feeds)
    return dict(values)


def _refusal_by_signature(world: World, number: int, request: NamedRequest) -> str | None:
    signature, culprit = world.signature(number, request), re.escape(request.culprit)
    match request.fault:
        case Fault.MISSING:
            came = _all_of([name for name, _ in request.inputs])
            return rf"input '{culprit}' is not given; expected {_all_of(signature.inputs)}, got {came}$"
        case Fault.UNKNOWN:
            return rf"no input '{culprit}'; there are {_all_of(signature.inputs)}; did you mean '"
        case Fault.UNKNOWN_OUTPUT:
            return rf"no output '{culprit}'; there are {_all_of(signature.outputs)}; did you mean '"
        case Fault.TWICE:
            return rf"'{culprit}' is (named|given) twice|\"{culprit}\" fed more than once"
    return None


def _all_of(names: Iterable[str]) -> str:
    """A list of these names in any order: a file has its own, and so has each row of a request."""
    listed = "|".join(map(re.escape, names))
    return rf"(?:(?:{listed})(?:, )?){{{listed.count('|') + 1}}}" if listed else "none"


def _refusal_by_tensor(world: World, number: int, request: NamedRequest) -> str | None:
    match request.fault:
        case Fault.UNKNOWN | Fault.UNKNOWN_OUTPUT:
            return rf"node {re.escape(request.culprit)}(:0)?: not found"
        case Fault.TWICE:
            return "fed more than once|is named twice|given twice"
        case Fault.MISSING:
            signature = world.signature(number, request)
            missing = signature.inputs[request.culprit].name
            wanted = [signature.outputs[name].name for name in request.outputs or signature.outputs]
            if any(missing in world.models[number].needs[tensor] for tensor in wanted):
                return rf"You must feed a value for placeholder tensor '{missing.removesuffix(':0')}'"
    return None


async def check(world: World, number: int, request: NamedRequest, way: Way) -> None:
    if request.fault is Fault.MISSING and way in IN_PARTS:
        return  # what was not said at the set-up is waited for
    if way.__name__ in ("predict_columns", "predict_rows", "call", "call_there"):
        request = request.with_all_outputs()
    wanted = await expected(world, number, request, way)
    what = f"{way.__name__} of m{number}, {request}"
    got = await _outcome(world, number, request, way)
    if isinstance(wanted, str):
        assert isinstance(got, RefusedError), f"{what} was not refused with {wanted}: {got}"
        assert re.search(wanted, str(got)), f"{what}: expected {wanted}, got {got}"
        return
    assert not isinstance(got, RefusedError), f"{what} was refused: {got}"
    assert got.keys() == wanted.keys(), what
    for name, value in wanted.items():
        assert np.array_equal(got[name], value), f"{what}: {name} is {got[name]}, expected {value}"


async def _outcome(world: World, number: int, request: NamedRequest, way: Way) -> Mapping[str, Any] | RefusedError:
    try:
        return await way(world, number, request)
    except RefusedError as refusal:
        return refusal


def requests_of(world: World, seed: int, ways: Sequence[Way] = WAYS) -> list[tuple[int, NamedRequest, Way]]:
    """Requests that are sent at once, half of them to one model."""
    rng = random.Random(seed)
    favourite = rng.randrange(len(world.models))
    drawn = []
    for _ in range(_AT_ONCE):
        number = favourite if rng.random() < 0.5 else rng.randrange(len(world.models))
        drawn.append((number, random_request(rng, world.models[number]), rng.choice(ways)))
    return drawn


async def check_at_once(world: World, seed: int, ways: Sequence[Way] = WAYS) -> None:
    tried = [check(world, *request) for request in requests_of(world, seed, ways)]
    for result in await asyncio.gather(*tried, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


async def test_requests_get_by_name_what_they_name(start: Start) -> None:
    async with served(start, 0) as world:
        for seed in range(30):
            await check_at_once(world, seed)


async def test_requests_to_session_hosts_get_by_name_what_they_name(tmp_path: Path) -> None:
    models = models_of(1, 6)
    folders = [f"m{i}={await saved(model, tmp_path / f'm{i}')}" for i, model in enumerate(models)]
    server = await asyncio.to_thread(
        ServerProcess, tmp_path, watch=False, hosts=1, model=folders, batch=["m0=8,1ms", "m1=8,1ms"]
    )
    try:
        await asyncio.to_thread(server.until, lambda: server.call("GET", "/readyz").status == 200, 30.0)
        async with world_of(models, f"http://127.0.0.1:{server.port}", 1) as world:
            for seed in range(5):
                await check_at_once(world, seed)
    finally:
        await asyncio.to_thread(server.stop)


async def saved(model: RandomModel, path: Path) -> Path:
    """A file of a graph, or a SavedModel's folder where there are signatures."""
    if isinstance(model.graph, aexec.Graph):
        file = path.with_suffix(".pb")
        file.write_bytes(model.graph.to_bytes())
        return file
    async with aexec.Session(model.graph) as session:
        return await save_saved_model(session, path, model.graph.signatures)


def examples_model() -> MetaGraph:
    """Scores and classes of three features of three types."""
    with aexec.Graph() as graph:
        serialized = aexec.placeholder("string", [None], name="examples")
        *_, dense = aexec.ops.parse_example(
            serialized,
            aexec.constant(np.zeros(0, object)),
            [],
            [aexec.constant(name) for name in ("weight", "count", "word")],
            [aexec.constant([0.5]), aexec.constant([7], "int64"), aexec.constant(np.array([b"none"], object))],
            sparse_types=[],
            dense_shapes=[[1], [1], [1]],
        )
        weight, count, word = dense
        scores = aexec.ops.concat_v2([weight, aexec.ops.cast(count, "float32")], 1, name="scores")
        classes = aexec.ops.concat_v2([word, aexec.ops.as_string(count)], 1, name="classes")
        value = aexec.ops.sub(weight, aexec.ops.cast(count, "float32"), name="value")
    given = {"inputs": serialized}
    signatures = {
        "classify": Signature.of(given, {"classes": classes, "scores": scores}, "tensorflow/serving/classify"),
        "reversed": Signature.of(given, {"scores": scores, "classes": classes}, "tensorflow/serving/classify"),
        "regress": Signature.of(given, {"outputs": value}, "tensorflow/serving/regress"),
    }
    return MetaGraph(graph, signatures=signatures)


async def test_features_of_examples_go_by_their_names(start: Start) -> None:
    api = await start(graphs={"m": examples_model})
    rng = random.Random(0)
    for _ in range(30):
        context, *examples = [_features(rng) for _ in range(rng.randint(2, 4))]
        whole: list[dict[str, Any]] = [
            {"weight": 0.5, "count": 7, "word": "none"} | context | example for example in examples
        ]
        fields = {"context": context, "examples": examples}
        scored = [[[e["word"], e["weight"]], [str(e["count"]), e["count"]]] for e in whole]
        for name in ("classify", "reversed"):
            assert await _post(api, "classify", fields | {"signature_name": name}) == {"results": scored}
        values = [e["weight"] - e["count"] for e in whole]
        assert await _post(api, "regress", fields | {"signature_name": "regress"}) == {"results": values}


def _features(rng: random.Random) -> dict[str, Any]:
    """Some, in a random order."""
    features = {"weight": rng.randint(0, 99) + 0.25, "count": rng.randint(0, 99), "word": rng.choice("abc")}
    return {name: features[name] for name in rng.sample(list(features), rng.randint(0, 3))}


async def _post(api: Api, verb: str, fields: dict[str, Any]) -> Any:
    status, answer = await api.call("POST", f"/v1/models/m:{verb}", fields)
    assert status == 200, answer
    return answer


@pytest.mark.soak
async def test_many_requests_get_by_name_what_they_name(start: Start) -> None:
    seeds, of_one = Seeds(1000), 50
    stack = AsyncExitStack()
    for seed in seeds:
        if seed % of_one == 0 or not seed:
            await stack.aclose()
            world = await stack.enter_async_context(served(start, seed))
        with seeds.trying(seed):
            await check_at_once(world, seed)
    await stack.aclose()
    seeds.check()
