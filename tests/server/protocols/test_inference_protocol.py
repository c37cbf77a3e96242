"""The Open Inference Protocol v2, with Triton's own client where that can say it, and byte by byte where not."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from tritonclient.utils import InferenceServerException

import aexec
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature
from tests.server.conftest import Api, Start, gate_graph, small_graph
from tests.server.models.test_models import times
from tests.server.sessions.test_signatures import two_signatures
from tests.support import gates

T = TypeVar("T")
INFER = "/v2/models/m/infer"
X = {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}


def identities(**dtypes: str) -> Callable[[], MetaGraph]:
    """A model whose outputs `y_…` are its inputs `x_…`."""

    def make() -> MetaGraph:
        with aexec.Graph() as graph:
            inputs = {f"x_{name}": aexec.placeholder(dtype, None, name=name) for name, dtype in dtypes.items()}
            outputs = {f"y_{name[2:]}": aexec.ops.identity(x) for name, x in inputs.items()}
        return MetaGraph(graph, signatures={"serving_default": Signature.of(inputs, outputs)})

    return make


@pytest.fixture
async def model(start: Start) -> Api:
    return await start(graphs={"m": two_signatures})


@pytest.fixture
async def aio(model: Api) -> AsyncIterator[triton_aio.InferenceServerClient]:
    async with triton_aio.InferenceServerClient(f"{model.client.host}:{model.client.port}") as client:
        yield client


async def with_client(api: Api, ask: Callable[[triton.InferenceServerClient], T]) -> T:
    """What `ask` gets with the synchronous client, in a thread."""

    def call() -> T:
        with triton.InferenceServerClient(f"{api.client.host}:{api.client.port}") as client:
            return ask(client)

    return await asyncio.to_thread(call)


def triton_input(name: str, array: Any, datatype: str, *, binary: bool = True) -> Any:
    given = triton.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return given


class TestTritonClient:
    async def test_server_and_model_metadata(self, model: Api) -> None:
        def ask(client: triton.InferenceServerClient) -> None:
            assert client.is_server_live() and client.is_server_ready()
            assert client.is_model_ready("m") and client.is_model_ready("m", "1")
            metadata = client.get_server_metadata()
            assert metadata["name"] == "aexec" and metadata["version"] == aexec.__version__
            assert "binary_tensor_data" in metadata["extensions"]
            assert client.get_model_metadata("m") == {
                "name": "m",
                "versions": ["1"],
                "platform": "tensorflow_graphdef",
                "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
                "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
            }
            assert client.get_model_config("m")["input"][0]["data_type"] == "TYPE_FP32"

        await with_client(model, ask)

    @pytest.mark.parametrize("binary", [True, False])
    @pytest.mark.parametrize("named", [True, False])
    @pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
    async def test_infer(self, model: Api, binary: bool, named: bool, coding: str | None) -> None:
        rows = np.arange(2000, dtype=np.float32).reshape(1000, 2)

        def ask(client: triton.InferenceServerClient) -> Any:
            return client.infer(
                "m",
                [triton_input("x", rows, "FP32", binary=binary)],
                outputs=[triton.InferRequestedOutput("y", binary_data=binary)] if named else None,
                request_id="7",
                timeout=30_000_000,
                request_compression_algorithm=coding,
                response_compression_algorithm=coding,
            )

        result = await with_client(model, ask)
        np.testing.assert_array_equal(result.as_numpy("y"), rows * 2)
        answer = result.get_response()
        assert (answer["model_name"], answer["model_version"], answer["id"]) == ("m", "1", "7")

    async def test_infer_in_an_event_loop(self, aio: triton_aio.InferenceServerClient) -> None:
        x = np.array([[1, 2]], np.float32)
        results = await asyncio.gather(*[aio.infer("m", [triton_input("x", x * i, "FP32")]) for i in range(8)])
        for i, result in enumerate(results):
            np.testing.assert_array_equal(result.as_numpy("y"), x * 2 * i)

    async def test_client_names_another_signature(self, aio: triton_aio.InferenceServerClient) -> None:
        x = triton_input("x", np.array([[1, 2]], np.float32), "FP32")
        result = await aio.infer("m", [x], parameters={"signature_name": "both"})
        assert result.as_numpy("half").tolist() == [[0.5, 1]] and result.as_numpy("twice").tolist() == [[2, 4]]

    async def test_client_sends_all_types(self, start: Start) -> None:
        datatypes = {
            "BOOL": "bool", "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64", "UINT8": "uint8",
            "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "FP16": "half", "FP32": "float32",
            "FP64": "float64", "BYTES": "string", "BF16": "bfloat16",
        }  # fmt: skip
        api = await start(graphs={"m": identities(**datatypes)})
        values = {
            name: np.array([[b"a", b"\xff\x00"]], object)
            if dtype == "string"
            else np.array([[0, 1]], ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype.replace("half", "float16"))
            for name, dtype in datatypes.items()
        }

        def ask(client: triton.InferenceServerClient) -> Any:
            return client.infer("m", [triton_input(f"x_{name}", value, name) for name, value in values.items()])

        result = await with_client(api, ask)
        for name, value in values.items():
            np.testing.assert_array_equal(result.as_numpy(f"y_{name}"), value)

    async def test_statistics(self, model: Api) -> None:
        def ask(client: triton.InferenceServerClient) -> Any:
            for rows in (1, 3):
                client.infer("m", [triton_input("x", np.zeros((rows, 2), np.float32), "FP32")])
            with pytest.raises(InferenceServerException, match="no output 'z'"):
                client.infer("m", [], outputs=[triton.InferRequestedOutput("z")])
            one = client.get_inference_statistics("m", "1")
            assert client.get_inference_statistics() == one == client.get_inference_statistics("m")
            return one

        (statistics,) = (await with_client(model, ask))["model_stats"]
        assert (statistics["name"], statistics["version"]) == ("m", "1")
        assert (statistics["inference_count"], statistics["execution_count"]) == (4, 2)
        parts = statistics["inference_stats"]
        assert parts["success"]["count"] == 2 and parts["fail"]["count"] == 1
        inner = sum(parts[name]["ns"] for name in ("compute_input", "compute_infer", "compute_output"))
        assert 0 < inner <= parts["success"]["ns"]

    async def test_repository(self, start: Start) -> None:
        api = await start(graphs={"m": two_signatures}, allow_model_changes=True)

        def ask(client: triton.InferenceServerClient) -> None:
            ready = [{"name": "m", "version": "1", "state": "READY", "reason": ""}]
            assert client.get_model_repository_index() == ready
            client.unload_model("m")
            assert not client.is_model_ready("m")
            (entry,) = client.get_model_repository_index()
            assert (entry["state"], entry["reason"]) == ("UNAVAILABLE", "unloaded")
            client.load_model("m")
            assert client.get_model_repository_index() == ready
            client.load_model("sent", files={"file:3/model.graphdef": times(3)}, config='{"backend": "tensorflow"}')
            x = triton_input("x", np.array([2], np.float32), "FP32")
            assert client.infer("sent", [x]).as_numpy("y").tolist() == [6]
            assert client.get_model_metadata("sent")["versions"] == ["3"]

        await with_client(api, ask)

    async def test_errors_are_said(self, model: Api) -> None:
        def ask(client: triton.InferenceServerClient) -> None:
            with pytest.raises(
                InferenceServerException, match=r"\[404\] Request for unknown model: 'none' is not found"
            ):
                client.infer("none", [])
            with pytest.raises(
                InferenceServerException, match=r"\[404\] Request for unknown model: 'm' has no version"
            ):
                client.get_model_metadata("m", "9")
            with pytest.raises(InferenceServerException, match=r"\[403\] Model 'm' is the server's own"):
                client.unload_model("m")

        await with_client(model, ask)


async def infer(api: Api, **fields: Any) -> tuple[int, Any]:
    return await api.call("POST", INFER, {"inputs": [X], **fields})


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]]])
async def test_data_may_be_nested_or_flat(model: Api, data: Any) -> None:
    status, answer = await infer(model, inputs=[X | {"shape": [2, 2], "data": data}])
    assert status == 200
    assert answer == {
        "model_name": "m",
        "model_version": "1",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2, 2], "data": [2, 4, 6, 8]}],
    }


async def test_request_without_a_content_type_names_a_version(model: Api) -> None:
    async with model.client.post(
        "/v2/models/m/versions/1/infer", data=json.dumps({"inputs": [X]}).encode(), skip_auto_headers=["Content-Type"]
    ) as response:
        assert response.status == 200


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_compressed_both_ways(model: Api, coding: str) -> None:
    rows = X | {"shape": [1000, 2], "data": [1.0] * 2000}
    body = json.dumps({"inputs": [rows]}).encode()
    packed = gzip.compress(body) if coding == "gzip" else zlib.compress(body)
    async with model.client.post(
        INFER, data=packed, headers={"Content-Encoding": coding, "Accept-Encoding": coding}
    ) as response:
        assert response.status == 200 and response.headers["Content-Encoding"] == coding
        assert json.loads(await response.read())["outputs"][0]["data"] == [2.0] * 2000


async def test_binary_answers_are_compressed_only_on_request(model: Api) -> None:
    rows = X | {"shape": [1000, 2], "data": [1.0] * 2000}
    body = {"inputs": [rows], "parameters": {"binary_data_output": True}}
    for accepted, coding in (("gzip, deflate", None), ("gzip", "gzip")):
        response, _ = await model.raw("POST", INFER, json.dumps(body).encode(), Accept_Encoding=accepted)
        assert response.status == 200 and response.headers.get("Content-Encoding") == coding


class TestRawRequests:
    async def raw(self, api: Api, body: bytes) -> tuple[int, bytes]:
        response, data = await api.raw("POST", INFER, body, Inference_Header_Content_Length="0")
        if response.status == 200:
            length = int(response.headers["Inference-Header-Content-Length"])
            assert json.loads(data[:length])["outputs"][0]["parameters"] == {"binary_data_size": len(data) - length}
            return 200, data[length:]
        return response.status, data

    async def test_body_is_the_input(self, model: Api) -> None:
        status, data = await self.raw(model, np.array([[3, 4]], np.float32).tobytes())
        assert status == 200 and np.frombuffer(data, np.float32).tolist() == [6, 8]

    async def test_too_many_bytes(self, model: Api) -> None:
        status, data = await self.raw(model, bytes(12))
        assert status == 400 and b"has 12 bytes of binary data, but shape [1, 2]" in data

    async def test_unknown_size_follows_from_the_bytes(self, start: Start) -> None:
        def make() -> aexec.Graph:
            with aexec.Graph() as graph:
                aexec.ops.neg(aexec.placeholder("int32", [None, None, 2], name="x"), name="y")
            return graph

        status, data = await self.raw(await start(graphs={"m": make}), np.arange(6, dtype=np.int32).tobytes())
        assert status == 200 and np.frombuffer(data, np.int32).tolist() == [0, -1, -2, -3, -4, -5]

    async def test_string(self, start: Start) -> None:
        def make() -> aexec.Graph:
            with aexec.Graph() as graph:
                aexec.ops.identity(aexec.placeholder("string", [None], name="x"), name="y")
            return graph

        status, data = await self.raw(await start(graphs={"m": make}), b"a\xff")
        assert status == 200 and data == b"\x02\x00\x00\x00a\xff"

    @pytest.mark.parametrize(
        ("kinds", "why"), [({"a": "int32", "b": "int32"}, b"models with one input"), ({"a": "int32"}, b"is not known")]
    )
    async def test_shapes_that_are_not_known(self, start: Start, kinds: dict[str, str], why: bytes) -> None:
        status, data = await self.raw(await start(graphs={"m": identities(**kinds)}), bytes(4))
        assert status == 400 and why in data


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"inputs": 3}, 400, '"inputs" must be a list of tensors, got a number'),
        ({"inputs": [3]}, 400, "A feed must be an object"),
        ({"inputs": [X, X]}, 400, 'Endpoint "x" fed more than once'),
        ({"inputs": [X | {"datatype": "FP64"}]}, 400, "Input 'x' has another datatype than the model's, which is FP32"),
        ({"inputs": [X | {"datatype": "FP16"}]}, 400, "x has type half, which has no JSON form"),
        ({"inputs": [X | {"datatype": "DT_COMPLEX64"}]}, 501, "An input has type DT_COMPLEX64, which the inference"),
        ({"inputs": [X | {"shape": [3]}]}, 400, '"data" of x has 2 elements, but shape [3] has 3'),
        ({"outputs": [{"name": "y", "parameters": {"classification": "3"}}]}, 400, '"classification" must be a number'),
        ({"parameters": {"sequence_id": 7}}, 501, '"sequence_id": models keep nothing'),
        ({"parameters": {"timeout": -1}}, 400, '"timeout" (microseconds)'),
        ({"parameters": {"signature_name": 3}}, 400, '"signature_name" must be a name'),
        ({"parameters": {"signature_name": "none"}}, 404, "no signature 'none'"),
        ({"parameters": {"triton_final": True}}, 400, "parameter keys starting with 'triton_' are reserved"),
        (
            {"inputs": [X | {"parameters": {"shared_memory_region": "r"}}]},
            404,
            "Unable to find shared memory region: 'r'",
        ),
        (
            {"outputs": [{"name": "y", "parameters": {"shared_memory_region": "r"}}]},
            404,
            "Unable to find shared memory region: 'r'",
        ),
        ({"id": 7}, 400, '"id" must be a string'),
        ({"model": "m"}, 400, "Unknown field 'model' in the request"),
    ],
)
async def test_refusals(model: Api, fields: dict[str, Any], status: int, message: str) -> None:
    got, answer = await infer(model, **fields)
    assert (got, answer["error"].startswith(message)) == (status, True), answer


async def test_types_without_a_datatype_are_for_sessions(start: Start) -> None:
    api = await start(graphs={"m": identities(c="complex64")})
    status, answer = await api.call("POST", INFER, {"inputs": []})
    assert status == 400  # the input is missing
    data = np.array([1j], np.complex64).tobytes()
    head = {"inputs": [{"name": "x_c", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 8}}]}
    text = json.dumps(head).encode()
    response, answer = await api.raw("POST", INFER, text + data, Inference_Header_Content_Length=str(len(text)))
    assert response.status == 400 and b"8 bytes of binary data" in answer


async def test_timeout_ends_the_run(start: Start) -> None:
    gate = gates.Gate()
    api = await start(graphs={"m": gate_graph(gate).graph()})
    status, answer = await api.call("POST", INFER, {"inputs": [], "parameters": {"timeout": 1000}})
    assert status == 504 and answer["code"] == "DEADLINE_EXCEEDED"


async def test_request_can_be_cancelled(start: Start) -> None:
    gate = gates.Gate()
    api = await start(graphs={"m": gate_graph(gate).graph()})
    headers = {"Aexec-Run-Id": "r1"}
    waiting = asyncio.create_task(api.call("POST", INFER, {"inputs": []}, headers=headers))
    await gate.entered.wait()
    assert await api.call("POST", "/v1/sessions/m/runs/r1:cancel", {}) == (200, {"cancelled": True})
    assert (await waiting)[0] == 499


async def test_request_without_a_body_has_none(model: Api) -> None:
    async with model.connection() as (reader, writer):
        writer.write(b"POST /v2/repository/index HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b'"state":"READY","reason":""}]')


class TestUploads:
    async def load(self, api: Api, **parameters: str) -> tuple[int, Any]:
        return await api.call("POST", "/v2/repository/models/sent/load", {"parameters": parameters})

    @pytest.fixture
    async def api(self, start: Start) -> Api:
        return await start(allow_model_changes=True)

    @pytest.mark.parametrize(
        "path", ["../x", "1/../../x", "1//x", "/1/x", "1/.x", "one/x", "1", "1/a\\b", "1/" + "a/" * 9 + "b", "1/a\n"]
    )
    async def test_paths_stay_within_the_folder(self, api: Api, path: str) -> None:
        status, answer = await self.load(api, **{f"file:{path}": ""})
        assert status == 400 and "must be file:VERSION/NAME" in answer["error"]

    async def test_uploaded_model_with_file_ops_is_refused(self, api: Api) -> None:
        with aexec.Graph() as graph:
            aexec.ops.identity(aexec.ops.read_file("/etc/hostname"), name="y")
        data = base64.b64encode(graph.to_bytes()).decode()
        status, answer = await self.load(api, **{"file:1/model.pb": data})
        assert status == 403 and "(ReadFile)" in answer["error"]

    @pytest.mark.parametrize(
        ("parameters", "status", "message"),
        [
            ({}, 404, "Model 'sent' is not in the model repository"),
            ({"file:1/model.pb": "?"}, 400, "is no base64"),
            ({"file:1/model.pb": "AAAA"}, 400, ""),
            ({"file:1/notes.txt": "AAAA"}, 404, "has no model"),
            ({"config": '{"max_batch_size": 8}'}, 501, '"max_batch_size" of a model configuration'),
            ({"config": '{"version_policy": {"latest": {"num_versions": 0}}}'}, 400, '"version_policy" must be'),
            ({"other": "x"}, 400, "Unknown parameter 'other'"),
        ],
    )
    async def test_refusals(self, api: Api, parameters: dict[str, str], status: int, message: str) -> None:
        got, answer = await self.load(api, **parameters)
        assert got == status and message in answer["error"], answer

    async def test_version_policies(self, api: Api) -> None:
        files = {f"file:{n}/model.pb": base64.b64encode(times(n)).decode() for n in (1, 2, 3)}
        for policy, served in (
            ('{"latest": {"num_versions": 2}}', ["2", "3"]),
            ('{"specific": {"versions": [1]}}', ["1"]),
            ('{"all": {}}', ["1", "2", "3"]),
        ):
            status, _ = await self.load(api, config=f'{{"version_policy": {policy}}}', **files)
            assert status == 200
            _, metadata = await api.call("GET", "/v2/models/sent")
            assert metadata["versions"] == served


async def test_names_of_all_models(start: Start) -> None:
    """In both protocols, as KServe has them; in any case, where paths ignore it."""
    api = await start(graphs={"b": small_graph().graph, "a": small_graph().graph})
    for path in ("/v2/models", "/v1/models", "/V1/Models"):
        assert await api.call("GET", path) == (200, {"models": ["a", "b"]})
    assert await (await start()).call("GET", "/v2/models") == (200, {"models": []})


async def test_unknown_parameters_are_for_models_that_read_them(model: Api) -> None:
    tensors = {"inputs": [X | {"parameters": {"mine": 1}}], "outputs": [{"name": "y", "parameters": {"mine": 1}}]}
    status, answer = await infer(model, parameters={"mine": 1, "priority": 7}, **tensors)
    assert status == 200 and answer["outputs"][0]["data"] == [2, 4]


async def test_classes_are_the_highest_values_of_each_row(model: Api) -> None:
    y = {"name": "y", "parameters": {"classification": 2}}
    rows = X | {"shape": [2, 2], "data": [0.5, 4, 3, 3]}
    _, answer = await infer(model, inputs=[rows], outputs=[y])
    assert answer["outputs"] == [
        {
            "name": "y",
            "datatype": "BYTES",
            "shape": [2, 2],
            "data": ["8.000000:1", "1.000000:0", "6.000000:0", "6.000000:1"],
        }
    ]


class TestTritonSettings:
    async def test_client_reads_them_and_sets_what_is_so(self, model: Api) -> None:
        def ask(client: triton.InferenceServerClient) -> None:
            assert client.get_trace_settings() == {"trace_level": ["OFF"]}
            assert client.get_trace_settings("m") == {"trace_level": ["OFF"]}
            assert client.update_trace_settings("m", {"trace_level": ["OFF"], "trace_rate": None})
            with pytest.raises(InferenceServerException, match=r"\[501\] trace setting 'trace_rate' cannot be changed"):
                client.update_trace_settings(settings={"trace_rate": "1"})
            settings = client.get_log_settings()
            assert settings["log_error"] is True and client.update_log_settings(settings) == settings
            with pytest.raises(InferenceServerException, match=r"\[501\] log setting 'log_verbose_level' cannot"):
                client.update_log_settings({"log_verbose_level": 7})
            with pytest.raises(InferenceServerException, match=r"\[400\] unknown log setting 'log_all'"):
                client.update_log_settings({"log_all": True})

        await with_client(model, ask)

    async def test_client_has_no_shared_memory(self, model: Api) -> None:
        def ask(client: triton.InferenceServerClient) -> None:
            assert client.get_system_shared_memory_status() == client.get_cuda_shared_memory_status() == []
            with pytest.raises(InferenceServerException, match=r"\[404\] Unable to find system .* region: 'r'"):
                client.get_system_shared_memory_status("r")
            with pytest.raises(InferenceServerException, match=r"\[501\] failed to register system .* region 'r'"):
                client.register_system_shared_memory("r", "/r", 8)
            with pytest.raises(InferenceServerException, match=r"\[501\] failed to register cuda .* region 'r'"):
                client.register_cuda_shared_memory("r", b"handle", 0, 8)
            client.unregister_system_shared_memory("r")
            client.unregister_cuda_shared_memory()

        await with_client(model, ask)


async def test_size_of_binary_data_that_is_a_string_is_called_one(start: Start) -> None:
    api = await start(graphs={"m": small_graph().graph})
    x = {"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": "4"}}
    _, answer = await api.call("POST", "/v2/models/m/infer", {"inputs": [x]})
    assert answer["error"] == '"binary_data_size" of x must be a number of bytes, got a string'
