"""Names are never positions over gRPC either: in whichever order they come, a request gets what it names.

`tests/server/protocols/test_requests_by_name.py` has the models, the requests, and what they have to give.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, cast

import grpc
import numpy as np
from aexec_server.settings.model_source import Batching, ModelSource

import aexec
from aexec.framework import dtypes
from aexec.framework.datatypes import DATATYPES, datatype_of
from aexec.framework.wire.tensor_codec import from_proto, to_proto
from aexec.proto import inference, serving
from tests.server.protocols.test_requests_by_name import check, models_of
from tests.server.rpc.conftest import RpcClient
from tests.support.programs.signatures import Fault, NamedRequest, random_request
from tests.support.waiting import until
from tests.support.ways_in import RefusedError, World

PREDICT, INFER = "/tensorflow.serving.PredictionService/Predict", "/inference.GRPCInferenceService/ModelInfer"


async def answer_to(rpc: RpcClient, path: str, request: Any, response: Any) -> Any:
    try:
        return await rpc.call(path, request, response)
    except grpc.aio.AioRpcError as error:
        raise RefusedError(error.details()) from None


async def predict(rpc: RpcClient, number: int, request: NamedRequest) -> Mapping[str, Any]:
    asked = serving.PredictRequest(output_filter=request.outputs)
    asked.model_spec.name, asked.model_spec.signature_name = f"m{number}", request.signature or ""
    for name, value in request.inputs:
        asked.inputs[name].CopyFrom(to_proto(value))
    answer = await answer_to(rpc, PREDICT, asked, serving.PredictResponse)
    return {name: from_proto(tensor) for name, tensor in answer.outputs.items()}


def raw_of(value: Any) -> bytes:
    if value.dtype != object:
        return bytes(value.tobytes())
    return b"".join(len(item).to_bytes(4, "little") + item for item in value.tolist())


def value_of(raw: bytes, datatype: str) -> Any:
    dtype = DATATYPES[datatype]
    if dtype is not dtypes.string:
        return np.frombuffer(raw, dtype.np)
    items = []
    while raw:
        end = 4 + int.from_bytes(raw[:4], "little")
        items.append(raw[4:end])
        raw = raw[end:]
    return np.array(items, object)


async def infer(rpc: RpcClient, number: int, request: NamedRequest) -> Mapping[str, Any]:
    asked = inference.ModelInferRequest(model_name=f"m{number}")
    if request.signature is not None:
        asked.parameters["signature_name"].string_param = request.signature
    for name, value in request.inputs:
        asked.inputs.add(name=name, shape=value.shape, datatype=datatype_of(dtypes.from_numpy(value.dtype)))
        asked.raw_input_contents.append(raw_of(value))
    for name in request.outputs or ():
        asked.outputs.add(name=name)
    answer = await answer_to(rpc, INFER, asked, inference.ModelInferResponse)
    named: dict[str, Any] = {}
    for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=True):
        value = value_of(raw, output.datatype)
        np.testing.assert_array_equal(named.setdefault(output.name, value), value)
    return named


async def check_prediction(world: World, number: int, request: NamedRequest, rpc: RpcClient) -> None:
    """As `check`, for a protocol that has its own words, and no names twice."""
    if request.fault is Fault.TWICE:
        return
    if request.outputs is not None:
        request = replace(request, outputs=tuple(dict.fromkeys(request.outputs)))

    async def way(world: World, number: int, request: NamedRequest) -> Mapping[str, Any]:
        return await predict(rpc, number, request)

    if request.fault is None:
        await check(world, number, request, way)
        return
    try:
        await predict(rpc, number, request)
    except RefusedError as refusal:
        assert request.culprit in str(refusal)  # noqa: PT017
    else:
        raise AssertionError(f"{request} was not refused")


async def test_requests_get_by_name_what_they_name(serve: Callable[..., Awaitable[RpcClient]]) -> None:
    models = models_of(2)
    sources = {
        f"m{i}": ModelSource(partial(getattr, model, "graph"), batching=None if i % 3 else Batching(8, 0.001))
        for i, model in enumerate(models)
    }
    rpc = await serve(models=sources, max_runs=1000)
    await until(lambda: rpc.server.ready)
    async with AsyncExitStack() as stack:
        here = [await stack.enter_async_context(aexec.Session(model.graph)) for model in models]
        world = World(models, "", cast(Any, None), here, (), (), random.Random(2))

        async def by_infer(world: World, number: int, request: NamedRequest) -> Mapping[str, Any]:
            return await infer(rpc, number, request)

        rng = random.Random(3)
        for _ in range(15):
            drawn = [(i, random_request(rng, models[i])) for i in rng.choices(range(len(models)), k=10)]
            inferred = (check(world, *one, by_infer) for one in drawn)
            predicted = (check_prediction(world, *one, rpc) for one in drawn)
            await asyncio.gather(*inferred, *predicted)
