"""Wrong requests: each gets its code and a reason, and leaves the session as good as it was."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.server.conftest import Api, small_graph

INVALID = (400, "INVALID_ARGUMENT")
NOT_FOUND = (404, "NOT_FOUND")


def v2(**fields: Any) -> dict[str, Any]:
    feed = {"name": "m", "datatype": "FP32", "shape": [2], "data": [1, 2]} | fields
    return {"feeds": [{k: v for k, v in feed.items() if v is not None}], "fetches": ["m_out"]}


RUNS: list[tuple[Any, tuple[int, str], str]] = [
    # No JSON, or no object
    (b"", INVALID, "no JSON"),
    (b"{", INVALID, "no JSON"),
    (b'{"fetches": ["y"]} x', INVALID, "no JSON"),
    (b"{'fetches': []}", INVALID, "no JSON"),
    (b"\xff\xfe{}", INVALID, "no JSON"),
    (b'{"feeds": {"s": "\xff"}}', INVALID, "no JSON"),
    (b"\x00" * 100, INVALID, "no JSON"),
    (b"1" * 5000, INVALID, "no JSON"),
    (b"[" * 100_000, INVALID, "nested too deeply"),
    (b'{"a":' * 100_000, INVALID, "nested too deeply"),
    (b"[" * 200_000 + b"]" * 200_000, INVALID, "nested too deeply"),
    (b"[]", INVALID, "must be a JSON object, got a list"),
    (b"null", INVALID, "got null"),
    (b'"run"', INVALID, "got a string"),
    (b"3", INVALID, "got a number"),
    # Fields
    ({}, INVALID, "Must specify at least one target"),
    ({"feeds": {}, "fetches": []}, INVALID, "Must specify at least one target"),
    ({"fetch": ["y"]}, INVALID, "Unknown field 'fetch'"),
    ({"fetches": 1}, INVALID, '"fetches" must be'),
    ({"fetches": {"y": 1}}, INVALID, '"fetches" must be'),
    ({"fetches": [1]}, INVALID, "A fetch must be"),
    ({"fetches": [None]}, INVALID, "A fetch must be"),
    ({"fetches": [{}]}, INVALID, "A fetch must be"),
    ({"fetches": [{"name": "y", "binary": True}]}, INVALID, "Unknown field 'binary'"),
    ({"fetches": [{"name": "y", "parameters": {"binary_data": 1}}]}, INVALID, '"binary_data" must be true or false'),
    ({"fetches": [{"name": "y", "parameters": []}]}, INVALID, "must be an object"),
    ({"fetches": [["y"]]}, INVALID, "A fetch must be"),
    ({"targets": "nothing"}, INVALID, '"targets" must be a list'),
    ({"targets": [1]}, INVALID, '"targets" must be a list'),
    ({"run_id": 1, "targets": ["nothing"]}, INVALID, '"run_id" must be'),
    ({"run_id": "", "targets": ["nothing"]}, INVALID, '"run_id" must be'),
    ({"run_id": "a/b", "targets": ["nothing"]}, INVALID, '"run_id" must be'),
    ({"run_id": "a:cancel", "targets": ["nothing"]}, INVALID, '"run_id" must be'),
    ({"run_id": "x" * 129, "targets": ["nothing"]}, INVALID, '"run_id" must be'),
    ({"run_id": "\ud800", "targets": ["nothing"]}, INVALID, "a surrogate without its other half"),
    ({"fetches": ["y"] * 20_000}, INVALID, "at most 4096 names"),
    ({"targets": ["nothing"] * 20_000}, INVALID, "at most 4096 names"),
    # Names
    ({"fetches": ["nope"]}, NOT_FOUND, "FetchOutputs node nope"),
    ({"fetches": ["nope:0"]}, NOT_FOUND, "FetchOutputs node nope:0: not found"),
    ({"fetches": [""]}, NOT_FOUND, "not found"),
    ({"fetches": ["^y"]}, NOT_FOUND, "not found"),
    ({"fetches": ["\ud800"]}, INVALID, "a surrogate without its other half"),
    (b'{"fetches": ["\\udc00\\ud800"]}', INVALID, "a surrogate without its other half"),
    (b'{"fetches": ["\\\\ud800"]}', NOT_FOUND, "not found"),
    (b'{"fetches": ["\\ud83d\\uDE00"]}', NOT_FOUND, "not found"),
    (b'{"fetches": ["y"], "fetches": ["y"]}', INVALID, "'fetches' is named twice"),
    (b'{"feeds": {"x": [1], "x": [2]}, "fetches": ["y"]}', INVALID, "'x' is named twice"),
    (b'{"fetches": ["y"], "options": {"trace_level": Infinity}}', INVALID, '"options" is no RunOptions'),
    (b'{"fetches": ["y"], "options": {"trace_level": NaN}}', INVALID, '"options" is no RunOptions'),
    ({"fetches": ["nothing"]}, INVALID, "output index too large"),
    ({"fetches": ["y:1"], "feeds": {"x": [1]}}, INVALID, "output index too large"),
    ({"fetches": ["y:99999999999999999999999"], "feeds": {"x": [1]}}, INVALID, "output index too large"),
    ({"targets": ["nope"]}, NOT_FOUND, "Some target nodes not found: nope"),
    ({"feeds": {"nope": 1}, "fetches": ["y"]}, NOT_FOUND, "FeedInputs node nope"),
    ({"feeds": {"nope": {"a": []}}, "fetches": ["y"]}, NOT_FOUND, "FeedInputs node nope"),
    ({"feeds": {"x": [1], "x:0": [1]}, "fetches": ["y"]}, INVALID, "fed more than once"),
    ({"feeds": {"y": [1]}, "fetches": ["y"]}, INVALID, "both fed and fetched"),
    ({"fetches": ["y"]}, INVALID, "You must feed a value for placeholder tensor 'x'"),
    # Feeds for people
    ({"feeds": 1, "fetches": ["y"]}, INVALID, '"feeds" must be'),
    ({"feeds": "x", "fetches": ["y"]}, INVALID, '"feeds" must be'),
    ({"feeds": {"x": None}, "fetches": ["y"]}, INVALID, "must be a number (float32)"),
    ({"feeds": {"x": "1"}, "fetches": ["y"]}, INVALID, "must be a number (float32)"),
    ({"feeds": {"x": {"b64": ""}}, "fetches": ["y"]}, INVALID, "must be a number (float32)"),
    ({"feeds": {"x": ["1"]}, "fetches": ["y"]}, INVALID, "Expects arg[0] to be float but"),
    ({"feeds": {"x": [None]}, "fetches": ["y"]}, INVALID, "Expects arg[0] to be float but"),
    ({"feeds": {"x": [True]}, "fetches": ["y"]}, INVALID, "Expects arg[0] to be float but bool is provided"),
    ({"feeds": {"x": [[1], [1, 2]]}, "fetches": ["y"]}, INVALID, "Cannot feed x:0"),
    ({"feeds": {"i": 1.5}, "fetches": ["i_out"]}, INVALID, "Expects arg[0] to be int32 but"),
    ({"feeds": {"i": 2**31}, "fetches": ["i_out"]}, INVALID, "does not fit int32"),
    ({"feeds": {"i": 2**70}, "fetches": ["i_out"]}, INVALID, "does not fit int32"),
    ({"feeds": {"x": [1e39]}, "fetches": ["y"]}, INVALID, "does not fit float"),
    (b'{"feeds": {"x": [1e400]}, "fetches": ["y"]}', INVALID, "the number 1e400 does not fit a float64"),
    (b'{"feeds": {"x": [-1E+999]}, "fetches": ["y"]}', INVALID, "the number -1E+999 does not fit a float64"),
    ({"feeds": {"b": 1}, "fetches": ["b_out"]}, INVALID, "Expects arg[0] to be bool but"),
    ({"feeds": {"s": 1}, "fetches": ["s_out"]}, INVALID, "expected a string"),
    ({"feeds": {"s": [None]}, "fetches": ["s_out"]}, INVALID, "expected a string"),
    ({"feeds": {"s": ["a", ["b"]]}, "fetches": ["s_out"]}, INVALID, "expected a string"),
    ({"feeds": {"s": [["a"], "b"]}, "fetches": ["s_out"]}, INVALID, "lists of different lengths"),
    ({"feeds": {"s": [["a"], ["b", "c"]]}, "fetches": ["s_out"]}, INVALID, "lists of different lengths"),
    ({"feeds": {"s": "\ud800"}, "fetches": ["s_out"]}, INVALID, "a surrogate without its other half"),
    ({"feeds": {"s": {"b64": "?"}}, "fetches": ["s_out"]}, INVALID, "is no base64"),
    ({"feeds": {"s": {"b64": "ä"}}, "fetches": ["s_out"]}, INVALID, "is no base64"),
    ({"feeds": {"s": {"b64": 1}}, "fetches": ["s_out"]}, INVALID, "expected a string"),
    ({"feeds": {"s": {"b64": "", "x": 1}}, "fetches": ["s_out"]}, INVALID, "expected a string"),
    (b'{"feeds": {"m": ' + b"[" * 70 + b"]" * 70 + b'}, "fetches": ["m_out"]}', INVALID, "Cannot feed m:0"),
    (b'{"feeds": {"s": ' + b"[" * 70 + b'"a"' + b"]" * 70 + b'}, "fetches": ["s_out"]}', INVALID, "too deeply"),
    # V2 tensors
    ({"feeds": [1], "fetches": ["y"]}, INVALID, "A feed must be an object"),
    ({"feeds": [{}], "fetches": ["y"]}, INVALID, '"name" of a feed'),
    (v2(name=7), INVALID, '"name" of a feed'),
    (v2(datatype=None), INVALID, '"datatype" of m must be one of BOOL'),
    (v2(datatype="FLOAT"), INVALID, '"datatype" of m must be one of BOOL'),
    (v2(datatype="DT_FLOAT_REF"), INVALID, '"datatype" of m must be one of BOOL'),
    (v2(datatype="DT_"), INVALID, '"datatype" of m must be one of BOOL'),
    (v2(datatype=["FP32"]), INVALID, '"datatype" of m must be one of BOOL'),
    (v2(datatype="INT32"), INVALID, "Expects arg[0] to be float but int32 is provided"),
    (v2(datatype="FP16"), INVALID, "no JSON form"),
    (v2(datatype="DT_COMPLEX64"), INVALID, "no JSON form"),
    (v2(datatype="DT_RESOURCE"), (501, "UNIMPLEMENTED"), "application/x-protobuf"),
    (v2(shape=None), INVALID, '"shape" of m must be a list of sizes'),
    (v2(shape=2), INVALID, '"shape" of m must be a list of sizes'),
    (v2(shape=["2"]), INVALID, '"shape" of m must be a list of sizes'),
    (v2(shape=[-1]), INVALID, '"shape" of m must be a list of sizes'),
    (v2(shape=[True, True]), INVALID, '"shape" of m must be a list of sizes'),
    (v2(shape=[2.0]), INVALID, '"shape" of m must be a list of sizes'),
    (v2(shape=[3]), INVALID, "has 2 elements, but shape [3] has 3"),
    (v2(shape=[2**62, 4]), INVALID, '"shape" of m is too large'),
    (v2(shape=[1] * 65), INVALID, '"shape" of m is too large'),
    (v2(shape=[0, 2**63], data=[]), INVALID, '"shape" of m'),
    (v2(data=None), INVALID, '"data" of m must be a list'),
    (v2(data=1), INVALID, '"data" of m must be a list'),
    (v2(data=["1", "2"]), INVALID, "Expects arg[0] to be float"),
    (v2(data=[1, [2]]), INVALID, "Cannot feed m"),
    (v2(more=1), INVALID, "Unknown field 'more' in a feed"),
    (v2(parameters=1), INVALID, "must be an object"),
    (v2(parameters={"binary_data_size": 8}), INVALID, 'both "data" and "binary_data_size"'),
    (v2(parameters={"binary_data_size": 8}, data=None), INVALID, "at most the 0 that follow"),
    ({"feeds": v2()["feeds"] * 2, "fetches": ["m_out"]}, INVALID, "fed more than once"),
    ({"fetches": ["y"], "parameters": 1}, INVALID, "must be an object"),
    ({"fetches": ["y"], "parameters": {"binary_data_output": 1}}, INVALID, '"binary_data_output" must be'),
    ({"fetches": ["y"], "parameters": {"timeout": -1}}, INVALID, '"timeout"'),
    ({"fetches": ["y"], "parameters": {"priority": "high"}}, INVALID, '"priority" must be'),
    ({"fetches": ["y"], "parameters": {"sequence": 1}}, INVALID, "Unknown field 'sequence'"),
    # Options
    ({"fetches": ["y"], "options": []}, INVALID, '"options" must be an object'),
    ({"fetches": ["y"], "options": {"timeout_in_ms": "5"}}, INVALID, '"timeout_in_ms"'),
    ({"fetches": ["y"], "options": {"timeout_in_ms": -5}}, INVALID, '"timeout_in_ms"'),
    ({"fetches": ["y"], "options": {"timeout_in_ms": 1.5}}, INVALID, '"timeout_in_ms"'),
    ({"fetches": ["y"], "options": {"timeout_in_ms": 10**400}}, INVALID, '"timeout_in_ms"'),
    ({"fetches": ["y"], "options": {"trace_level": "LOUD"}}, INVALID, '"options" is no RunOptions'),
    ({"fetches": ["y"], "options": {"trace_level": [1]}}, INVALID, '"options" is no RunOptions'),
    ({"fetches": ["y"], "options": {"tracing": True}}, INVALID, '"options" is no RunOptions'),
    ({"fetches": ["y"], "options": {"priority": -1}}, INVALID, '"priority" must be'),
]


@pytest.mark.parametrize(("body", "expected", "words"), RUNS, ids=range(len(RUNS)))
async def test_runs(api: Api, small: str, body: Any, expected: tuple[int, str], words: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    response, answer = await api.raw("POST", f"/v1/sessions/{small}:run", data)
    error = json.loads(answer)
    assert (response.status, error["code"]) == expected, error
    assert words in error["error"], error
    assert "Traceback" not in error["error"] and "/" + "work" not in error["error"]
    status, good = await api.run(small, feeds={"x": [2]}, fetches=["y"])
    assert status == 200 and good["outputs"] == {"y": [4.0]}
    assert not api.hosted(small).runs.live


def sized(size: Any, shape: Any = (2,), datatype: str = "FP32", name: str = "m") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape), "parameters": {"binary_data_size": size}}


@pytest.mark.parametrize(
    ("feeds", "raw", "length", "words"),
    [
        ([sized(8)], b"1234567", None, "at most the 7"),
        ([sized(8)], b"123456789", None, "1 bytes of binary data follow the last tensor"),
        ([sized(7)], b"1234567", None, "needs 8"),
        ([sized(8, [3])], b"12345678", None, "needs 12"),
        ([sized(8, [2**40, 2**40])], b"12345678", None, "too large"),
        ([sized(8, [2**40])], b"12345678", None, "needs"),
        ([sized(-1)], b"", None, "at most the 0"),
        ([sized("8")], b"12345678", None, "binary_data_size"),
        ([sized(8), sized(8, name="x")], b"12345678", None, "at most the 0"),
        ([sized(2, datatype="BOOL", name="b")], b"\x00\x02", None, "must be 0 or 1"),
        ([sized(5, [1], "BYTES", "s")], b"\x05\x00\x00\x00a", None, "do not add up"),
        ([sized(6, [1], "BYTES", "s")], b"\x01\x00\x00\x00ab", None, "do not add up"),
        ([sized(5, [2], "BYTES", "s")], b"\x01\x00\x00\x00a", None, "too few"),
        ([sized(8, [2], "BYTES", "s")], b"\x04\x00\x00\x00abcd", None, "do not add up"),
        ([sized(8)], b"12345678", "0", "without JSON"),
        ([sized(8)], b"12345678", "-1", "must be a number of bytes"),
        ([sized(8)], b"12345678", "x", "must be a number of bytes"),
        ([sized(8)], b"12345678", "99999", "must be a number of bytes"),
        ([sized(8)], b"12345678", "²", "must be a number of bytes"),
        ([sized(8)], b"12345678", "10", "no JSON"),
        ({"m": 1}, b"", None, "must be a list of tensors"),
        ([sized(8, datatype="DT_VARIANT")], b"12345678", None, "neither a JSON nor a binary form"),
    ],
    ids=range(22),
)
async def test_binary_runs(api: Api, small: str, feeds: Any, raw: bytes, length: str | None, words: str) -> None:
    text = json.dumps({"feeds": feeds, "fetches": ["m_out"]}).encode()
    headers = {"Inference_Header_Content_Length": str(len(text)) if length is None else length}
    response, answer = await api.raw("POST", f"/v1/sessions/{small}:run", text + raw, **headers)
    error = json.loads(answer)
    assert response.status == (501 if "VARIANT" in str(feeds) else 400)
    assert words in error["error"], error
    assert (await api.run(small, feeds={"x": [2]}, fetches=["y"]))[0] == 200


GRAPH = base64.b64encode(small_graph().graph_def.SerializeToString()).decode()


@pytest.mark.parametrize(
    ("body", "expected", "words"),
    [
        (b"", INVALID, "no JSON"),
        (b"[1]", INVALID, "must be a JSON object"),
        ({}, INVALID, '"graph_def" must be'),
        ({"graph_def": 1}, INVALID, '"graph_def" must be'),
        ({"graph_def": None}, INVALID, '"graph_def" must be'),
        ({"graph_def": "!"}, INVALID, "is no base64"),
        ({"graph_def": "AAAAA"}, INVALID, "is no base64"),
        ({"graph_def": "AAAA"}, INVALID, "expected a GraphDef"),
        ({"graph_def": {"nodes": []}}, INVALID, "no GraphDef"),
        ({"graph_def": {"node": 1}}, INVALID, "no GraphDef"),
        ({"graph_def": {"node": [[]]}}, INVALID, "invalid characters"),
        ({"graph_def": {"node": [{"name": "a", "op": "NoSuchOp"}]}}, NOT_FOUND, "Op type not registered 'NoSuchOp'"),
        ({"graph_def": {"node": [{"name": "a", "op": "Neg"}]}}, INVALID, "a"),
        ({"graph_def": {"node": [{"name": "*", "op": "NoOp"}]}}, INVALID, "*"),
        ({"graph_def": GRAPH, "graph": 1}, INVALID, "Unknown field 'graph'"),
        ({"graph_def": GRAPH, "config": 1}, INVALID, '"config" must be a JSON object'),
        ({"graph_def": GRAPH, "config": {"soft": True}}, INVALID, '"config" is no ConfigProto'),
        ({"graph_def": GRAPH, "config": {"device_count": {"CPU": 10**9}}}, INVALID, "at most 64"),
        ({"graph_def": GRAPH, "config": {"device_count": {"CPU": -1}}}, INVALID, "negative"),
        ({"graph_def": GRAPH, "config": {"inter_op_parallelism_threads": 10**6}}, INVALID, "at most 64"),
        ({"graph_def": GRAPH, "config": {"intra_op_parallelism_threads": 65}}, INVALID, "at most 64"),
        ({"graph_def": GRAPH, "config": {"experimental": {"executor_type": "NOPE"}}}, NOT_FOUND, "NOPE"),
        ({"graph_def": GRAPH, "ttl_s": 0}, INVALID, '"ttl_s" must be positive'),
        ({"graph_def": GRAPH, "ttl_s": -1}, INVALID, '"ttl_s" must be positive'),
        ({"graph_def": GRAPH, "ttl_s": "soon"}, INVALID, '"ttl_s" must be a number'),
        ({"graph_def": GRAPH, "ttl_s": True}, INVALID, '"ttl_s" must be a number'),
        ({"graph_def": GRAPH, "ttl_s": 1e300}, INVALID, '"ttl_s" must be positive and at most'),
        ({"graph_def": GRAPH, "ttl_s": float("nan")}, INVALID, '"ttl_s" must be a number'),
        ({"graph_def": GRAPH, "ttl_s": 10**400}, INVALID, '"ttl_s"'),
    ],
    ids=range(29),
)
async def test_creations(api: Api, body: Any, expected: tuple[int, str], words: str) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    response, answer = await api.raw("POST", "/v1/sessions", data)
    error = json.loads(answer)
    assert (response.status, error["code"]) == expected, error
    assert words in error["error"], error
    assert len(api.server.sessions) == 0


@pytest.mark.parametrize("media", ["application/x-protobuf", "application/octet-stream"])
async def test_creations_that_are_no_message(api: Api, media: str) -> None:
    response, answer = await api.raw("POST", "/v1/sessions", b"\xff\xff\xff", Content_Type=media)
    assert response.status == 400 and "3 bytes are no" in json.loads(answer)["error"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"graph_def": ""}, '"current_graph_version" must be'),
        ({"graph_def": "", "current_graph_version": "0"}, '"current_graph_version" must be'),
        ({"graph_def": "", "current_graph_version": True}, '"current_graph_version" must be'),
        ({"graph_def": "", "current_graph_version": 7}, "Current version is 0 but caller expected 7."),
        ({"graph_def": "", "current_graph_version": -1}, "Current version is 0 but caller expected -1."),
        ({"current_graph_version": 0}, '"graph_def" must be'),
        ({"graph_def": GRAPH, "current_graph_version": 0}, "includes node 'x'"),
        ({"graph_def": {"node": [{"name": "q", "op": "NoOp"}]}, "current_graph_version": 0}, "Can't extend GraphDef"),
    ],
    ids=range(8),
)
async def test_extensions(api: Api, small: str, body: Any, words: str) -> None:
    status, error = await api.call("POST", f"/v1/sessions/{small}:extend", body)
    assert status == 400 and words in error["error"]
    assert api.hosted(small).graph_version == 0 and len(api.hosted(small).session.graph) == 12
    assert (await api.run(small, feeds={"x": [2]}, fetches=["y"]))[0] == 200
