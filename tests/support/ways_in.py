"""All ways of sending a request with names: each sends it to a server or to a session, and reads the answer.

A way takes the `World` and the number of one of its models, and returns the outputs, name → array. It raises
`RefusedError` if the request is refused.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np

import aexec
from aexec import errors, proto
from aexec.framework import dtypes
from aexec.framework.datatypes import DATATYPES, datatype_of
from aexec.framework.dtypes import DType
from aexec.framework.wire.tensor_codec import from_proto, to_proto
from aexec.graph.signature import Signature
from aexec.remote.remote_session import RemoteSession
from tests.support.programs.signatures import Fault, NamedRequest, RandomModel

__all__ = ["BY_SIGNATURE", "BY_TENSOR", "IN_PARTS", "RefusedError", "Way", "World"]

Named = Mapping[str, Any]
_JSON_LENGTH = "Inference-Header-Content-Length"
_PROTOBUF = "application/x-protobuf"


class RefusedError(Exception):
    """A request was refused; the message says why."""


@dataclass
class World:
    """Models, and the sessions and servers that run them.

    Attributes:
        models: served as `m0`, `m1`, ….
        url, http: address of a server, and a client of it.
        here: a session of each model in this process.
        joined: a remote session of each model of the server's own.
        own: a remote session of each model that the client has made.
        rng: chooses between forms of a request.
    """

    models: Sequence[RandomModel]
    url: str
    http: aiohttp.ClientSession
    here: Sequence[aexec.Session]
    joined: Sequence[RemoteSession]
    own: Sequence[RemoteSession]
    rng: random.Random

    def signature(self, number: int, request: NamedRequest) -> Signature:
        return self.models[number].signatures[request.signature]

    async def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> tuple[Any, bytes]:
        """Send a POST; return the answer's head and body.  Raises RefusedError."""
        async with self.http.post(self.url + path, data=body, headers=headers or {}) as response:
            answer = await response.read()
            if response.status not in (200, 400, 404):
                raise AssertionError(f"{path}: {response.status} {answer[:500]!r} to {body[:500]!r}")
            if response.status != 200:
                raise RefusedError(json.loads(answer)["error"])
            return response.headers, answer


Way = Callable[[World, int, NamedRequest], Awaitable[Named]]


# Values as JSON and as bytes


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _object(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a JSON object of texts, in which a name may be repeated."""
    return f"{{{', '.join([f'{_json(name)}: {text}' for name, text in pairs])}}}"


def _plain(array: Any) -> list[Any]:
    """Return nested lists."""
    return [item.decode() if isinstance(item, bytes) else item for item in array.tolist()]


def _array(values: Any, dtype: DType) -> Any:
    if dtype is not dtypes.string:
        return np.array(values, dtype.np)
    return np.array([base64.b64decode(v["b64"]) if isinstance(v, dict) else v.encode() for v in values], object)


def _v2(name: str, array: Any, raws: list[bytes] | None) -> str:
    """Return a V2 tensor; with `raws`, its bytes are appended there."""
    dtype = dtypes.from_numpy(array.dtype)
    fields: dict[str, Any] = {"name": name, "datatype": datatype_of(dtype), "shape": list(array.shape)}
    if raws is None:
        return _json(fields | {"data": _plain(array)})
    raw = array.tobytes()
    if dtype is dtypes.string:
        raw = b"".join([len(item).to_bytes(4, "little") + item for item in array.tolist()])
    raws.append(raw)
    return _json(fields | {"parameters": {"binary_data_size": len(raw)}})


def _from_v2(outputs: Sequence[Mapping[str, Any]], rest: bytes) -> Named:
    named: dict[str, Any] = {}
    for output in outputs:
        dtype = DATATYPES[output["datatype"]]
        if "data" in output:
            value = _array(output["data"], dtype)
        else:
            size = output["parameters"]["binary_data_size"]
            raw, rest = rest[:size], rest[size:]
            value = _strings(raw) if dtype is dtypes.string else np.frombuffer(raw, dtype.np)
        again = named.setdefault(output["name"], value)
        np.testing.assert_array_equal(again, value)
    assert not rest
    return named


def _strings(raw: bytes) -> Any:
    items = []
    while raw:
        size = int.from_bytes(raw[:4], "little")
        items.append(raw[4 : 4 + size])
        raw = raw[4 + size :]
    return np.array([*items, None], object)[:-1]


def _by_people(world: World, number: int, request: NamedRequest, outputs: Mapping[str, Any]) -> Named:
    infos = world.signature(number, request).outputs
    named = {}
    for name, value in outputs.items():
        dtype = infos[name].dtype
        assert dtype is not None
        named[name] = _array(value, dtype)
    return named


# By the names of a signature, over HTTP


def _run_fields(request: NamedRequest, inputs: str, outputs: str | None) -> list[tuple[str, str]]:
    fields = [("inputs", inputs)]
    if request.signature is not None:
        fields.append(("signature", _json(request.signature)))
    if outputs is not None:
        fields.append(("outputs", outputs))
    return fields


def _path(number: int) -> str:
    return f"/v1/sessions/m{number}:run"


def _lists(request: NamedRequest) -> str:
    return _object([(name, _json(_plain(value))) for name, value in request.inputs])


async def run_for_people(world: World, number: int, request: NamedRequest) -> Named:
    outputs = None if request.outputs is None else _json(request.outputs)
    _, answer = await world.post(_path(number), _object(_run_fields(request, _lists(request), outputs)).encode())
    return _by_people(world, number, request, json.loads(answer)["outputs"])


async def run_with_events(world: World, number: int, request: NamedRequest) -> Named:
    outputs = None if request.outputs is None else _json(request.outputs)
    body = _object(_run_fields(request, _lists(request), outputs)).encode()
    _, answer = await world.post(_path(number), body, {"Accept": "application/x-ndjson"})
    events = [json.loads(line) for line in answer.decode().splitlines()]
    assert events[-1]["event"] == "done", events
    told = {event["name"]: event["value"] for event in events if event["event"] == "output"}
    return _by_people(world, number, request, told)


async def _listed(
    world: World, path: str, request: NamedRequest, head: Sequence[tuple[str, str]], *, binary: bool
) -> Named:
    """Send V2 tensors; if they may be binary, some outputs are."""
    raws: list[bytes] | None = [] if binary else None
    fields = [*head, ("inputs", f"[{', '.join([_v2(name, value, raws) for name, value in request.inputs])}]")]
    if request.outputs is not None:
        wanted = [
            {"name": n, "parameters": {"binary_data": binary and world.rng.random() < 0.7}} for n in request.outputs
        ]
        fields.append(("outputs", _json(wanted)))
    text = _object(fields).encode()
    headers = {_JSON_LENGTH: str(len(text))} if binary else {}
    head_of, answer = await world.post(path, text + b"".join(raws or []), headers)
    size = int(head_of.get(_JSON_LENGTH, len(answer)))
    return _from_v2(json.loads(answer[:size])["outputs"], answer[size:])


def _signature_member(request: NamedRequest) -> list[tuple[str, str]]:
    return [] if request.signature is None else [("signature", _json(request.signature))]


async def run_list(world: World, number: int, request: NamedRequest) -> Named:
    return await _listed(world, _path(number), request, _signature_member(request), binary=False)


async def run_binary(world: World, number: int, request: NamedRequest) -> Named:
    return await _listed(world, _path(number), request, _signature_member(request), binary=True)


def _parameters(request: NamedRequest, more: Mapping[str, Any]) -> list[tuple[str, str]]:
    named = {} if request.signature is None else {"signature_name": request.signature}
    return [("parameters", _json(named | dict(more)))]


async def infer(world: World, number: int, request: NamedRequest) -> Named:
    return await _listed(world, f"/v2/models/m{number}/infer", request, _parameters(request, {}), binary=False)


async def infer_binary(world: World, number: int, request: NamedRequest) -> Named:
    head = _parameters(request, {"binary_data_output": True})
    return await _listed(world, f"/v2/models/m{number}/infer", request, head, binary=True)


async def _predict(world: World, number: int, request: NamedRequest, member: str, text: str) -> Any:
    fields = [(member, text)]
    if request.signature is not None:
        fields.insert(world.rng.randint(0, 1), ("signature_name", _json(request.signature)))
    _, answer = await world.post(f"/v1/models/m{number}:predict", _object(fields).encode())
    return json.loads(answer)


async def predict_columns(world: World, number: int, request: NamedRequest) -> Named:
    request = request.with_all_outputs()
    outputs = (await _predict(world, number, request, "inputs", _lists(request)))["outputs"]
    names = list(world.signature(number, request).outputs)
    return _by_people(world, number, request, outputs if len(names) > 1 else {names[0]: outputs})


async def predict_rows(world: World, number: int, request: NamedRequest) -> Named:
    """Each row names the inputs in an order of its own."""
    request = request.with_all_outputs()
    rows = []
    for at in range(len(request.inputs[0][1]) if request.inputs else 1):
        row = [(name, _json(_plain(value)[at])) for name, value in request.inputs]
        world.rng.shuffle(row)
        rows.append(_object(row))
    predictions = (await _predict(world, number, request, "instances", f"[{', '.join(rows)}]"))["predictions"]
    names = list(world.signature(number, request).outputs)
    if len(names) == 1:
        return _by_people(world, number, request, {names[0]: predictions})
    return _by_people(world, number, request, {name: [row[name] for row in predictions] for name in names})


# By the names of a signature, from Python


async def _called(session: Any, world: World, number: int, request: NamedRequest) -> Named:
    """A repeated input is both in the mapping and a keyword."""
    first: dict[str, Any] = {}
    named: dict[str, Any] = {}
    for name, value in request.inputs:
        (named if name in first or world.rng.random() < 0.3 else first)[name] = value
    if request.fault is Fault.TWICE:
        first[request.culprit] = named[request.culprit] = dict(request.inputs)[request.culprit]
    with _refusing():
        return dict(await session.call(request.signature, first, **named))


async def call(world: World, number: int, request: NamedRequest) -> Named:
    return await _called(world.here[number], world, number, request.with_all_outputs())


async def call_there(world: World, number: int, request: NamedRequest) -> Named:
    return await _called(world.joined[number], world, number, request.with_all_outputs())


class _refusing:  # noqa: N801  # used like a function
    """Context manager: turn errors of sessions into RefusedError."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, errors.InvalidArgumentError | errors.NotFoundError):
            raise RefusedError(error.message) from error


# By the names of tensors


@dataclass(frozen=True)
class _Tensors:
    """A request by tensors.

    Attributes:
        feeds: names and values, in order; a tensor that is fed twice occurs under both its names.
        fetches: output → name of its tensor.
    """

    feeds: Sequence[tuple[str, Any]]
    fetches: Mapping[str, str]


def _tensors(world: World, number: int, request: NamedRequest) -> _Tensors:
    signature = world.signature(number, request)
    feeds: list[tuple[str, Any]] = []
    for name, value in request.inputs:
        tensor = signature.inputs[name].name if name in signature.inputs else f"{name}:0"
        short = tensor.removesuffix(":0")
        used = {other for other, _ in feeds}
        chosen = world.rng.choice((tensor, short))
        feeds.append((chosen if chosen not in used else tensor if chosen == short else short, value))
    wanted = signature.outputs if request.outputs is None else request.outputs
    fetches = {n: signature.outputs[n].name if n in signature.outputs else f"{n}:0" for n in wanted}
    return _Tensors(feeds, fetches)


async def run_tensors(world: World, number: int, request: NamedRequest) -> Named:
    asked = _tensors(world, number, request)
    feeds = _object([(name, _json(_plain(value))) for name, value in asked.feeds])
    body = _object([("feeds", feeds), ("fetches", _json(list(asked.fetches.values())))])
    _, answer = await world.post(_path(number), body.encode())
    outputs = json.loads(answer)["outputs"]
    return _by_people(world, number, request, {name: outputs[tensor] for name, tensor in asked.fetches.items()})


def _message(asked: _Tensors, partial_run: str = "") -> bytes:
    message = proto.RunStepRequest(fetch=asked.fetches.values(), partial_run_handle=partial_run)
    for name, value in asked.feeds:
        tensor = to_proto(value, dtypes.from_numpy(value.dtype), compact=False)
        message.feed.add(name=name).tensor.CopyFrom(tensor)
    return message.SerializeToString()


async def _answered(world: World, number: int, asked: _Tensors, partial_run: str = "") -> Named:
    _, answer = await world.post(_path(number), _message(asked, partial_run), {"Content-Type": _PROTOBUF})
    tensors = {named.name: from_proto(named.tensor) for named in proto.RunStepResponse.FromString(answer).tensor}
    return {name: tensors[tensor] for name, tensor in asked.fetches.items()}


async def run_message(world: World, number: int, request: NamedRequest) -> Named:
    return await _answered(world, number, _tensors(world, number, request))


async def _run(session: Any, asked: _Tensors) -> Named:
    with _refusing():
        return dict(await session.run(dict(asked.fetches), dict(asked.feeds)))


async def run(world: World, number: int, request: NamedRequest) -> Named:
    return await _run(world.here[number], _tensors(world, number, request))


async def run_there(world: World, number: int, request: NamedRequest) -> Named:
    return await _run(world.joined[number], _tensors(world, number, request))


async def _with_callable(session: Any, asked: _Tensors) -> Named:
    with _refusing():
        made = session.make_callable(dict(asked.fetches), [name for name, _ in asked.feeds])
        return dict(await made(*[value for _, value in asked.feeds]))


async def run_callable(world: World, number: int, request: NamedRequest) -> Named:
    return await _with_callable(world.here[number], _tensors(world, number, request))


async def run_callable_there(world: World, number: int, request: NamedRequest) -> Named:
    return await _with_callable(world.joined[number], _tensors(world, number, request))


async def _with_handles(session: Any, world: World, asked: _Tensors) -> Named:
    """Keep some of the values in the session, and feed their handles."""
    feeds: list[tuple[str, Any]] = []
    kept = []
    for name, value in asked.feeds:
        if world.rng.random() < 0.6:
            value = await session.tensors.put(value)
            kept.append(value)
        feeds.append((name, value))
    try:
        return await _run(session, _Tensors(feeds, asked.fetches))
    finally:
        for handle in kept:
            deleted = session.tensors.delete(handle)
            if deleted is not None:
                await deleted


async def run_with_handles(world: World, number: int, request: NamedRequest) -> Named:
    return await _with_handles(world.here[number], world, _tensors(world, number, request))


async def run_with_handles_there(world: World, number: int, request: NamedRequest) -> Named:
    return await _with_handles(world.own[number], world, _tensors(world, number, request))


# In parts


def _parts(world: World, number: int, asked: _Tensors) -> list[_Tensors]:
    """Return two parts: some feeds with the fetches that need only these, and the rest."""
    feeds = list(asked.feeds)
    world.rng.shuffle(feeds)
    first = feeds[: world.rng.randint(0, len(feeds))]
    fed = {name if ":" in name else f"{name}:0" for name, _ in first}
    needs = world.models[number].needs
    early = {name: tensor for name, tensor in asked.fetches.items() if needs.get(tensor, {""}) <= fed}
    late = {name: tensor for name, tensor in asked.fetches.items() if name not in early}
    parts = [_Tensors(first, early), _Tensors(feeds[len(first) :], late)]
    return [part for part in parts if part.feeds or part.fetches]


async def _partial_run(session: Any, world: World, number: int, request: NamedRequest) -> Named:
    asked = _tensors(world, number, request)
    with _refusing():
        names = [name for name, _ in asked.feeds]
        setup = await session.partial_run_setup(list(asked.fetches.values()), names)
        got: dict[str, Any] = {}
        for part in _parts(world, number, asked):
            got |= await session.partial_run(setup, dict(part.fetches), dict(part.feeds))
        return got


async def partial_run(world: World, number: int, request: NamedRequest) -> Named:
    return await _partial_run(world.here[number], world, number, request)


async def partial_run_there(world: World, number: int, request: NamedRequest) -> Named:
    return await _partial_run(world.joined[number], world, number, request)


async def partial_run_in_json(world: World, number: int, request: NamedRequest) -> Named:
    asked = _tensors(world, number, request)
    setup = {"feeds": [name for name, _ in asked.feeds], "fetches": list(asked.fetches.values())}
    _, answer = await world.post(f"/v1/sessions/m{number}:partialRunSetup", _json(setup).encode())
    handle = json.loads(answer)["partial_run_handle"]
    got: dict[str, Any] = {}
    for part in _parts(world, number, asked):
        feeds = _object([(name, _json(_plain(value))) for name, value in part.feeds])
        body = _object([("feeds", feeds), ("fetches", _json(list(part.fetches.values())))])
        _, answer = await world.post(f"/v1/sessions/m{number}/partialRuns/{handle}:run", body.encode())
        outputs = json.loads(answer)["outputs"]
        got |= {name: outputs[tensor] for name, tensor in part.fetches.items()}
    return _by_people(world, number, request, got)


# Ways that refuse unknown and missing names of a signature.
BY_SIGNATURE: tuple[Way, ...] = (
    run_for_people,
    run_with_events,
    run_list,
    run_binary,
    infer,
    infer_binary,
    predict_columns,
    predict_rows,
    call,
    call_there,
)
# Ways that name tensors.
BY_TENSOR: tuple[Way, ...] = (
    run_tensors,
    run_message,
    run,
    run_there,
    run_callable,
    run_callable_there,
    run_with_handles,
    run_with_handles_there,
)
IN_PARTS: tuple[Way, ...] = (partial_run, partial_run_there, partial_run_in_json)
