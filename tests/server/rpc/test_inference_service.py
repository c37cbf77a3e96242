"""Triton's service over gRPC: every call, every datatype in either form, and streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
from google.protobuf.message import Message

import aexec
from aexec.proto import inference
from tests.server.conftest import gate_graph, ops_of_tests
from tests.server.models.test_models import times
from tests.server.protocols.test_inference_protocol import identities
from tests.server.rpc.conftest import RpcClient
from tests.server.sessions.test_signatures import two_signatures
from tests.support import gates
from tests.support.waiting import until

Serve = Callable[..., Awaitable[RpcClient]]

SERVICE = "/inference.GRPCInferenceService"
# Datatype → the type of graphs, NumPy's, and the field of typed contents.
DATATYPES = {
    "BOOL": ("bool", np.bool_, "bool_contents"),
    "INT8": ("int8", np.int8, "int_contents"),
    "INT16": ("int16", np.int16, "int_contents"),
    "INT32": ("int32", np.int32, "int_contents"),
    "INT64": ("int64", np.int64, "int64_contents"),
    "UINT8": ("uint8", np.uint8, "uint_contents"),
    "UINT16": ("uint16", np.uint16, "uint_contents"),
    "UINT32": ("uint32", np.uint32, "uint_contents"),
    "UINT64": ("uint64", np.uint64, "uint64_contents"),
    "FP16": ("float16", np.float16, None),
    "BF16": ("bfloat16", ml_dtypes.bfloat16, None),
    "FP32": ("float32", np.float32, "fp32_contents"),
    "FP64": ("float64", np.float64, "fp64_contents"),
}


async def ask(rpc: RpcClient, name: str, /, **fields: Any) -> Any:
    request = getattr(inference, f"{name}Request")(**fields)
    return await rpc.call(f"{SERVICE}/{name}", request, getattr(inference, f"{name}Response"))


async def refused(rpc: RpcClient, name: str, /, **fields: Any) -> tuple[str, str]:
    request = getattr(inference, f"{name}Request")(**fields)
    return await rpc.refused(f"{SERVICE}/{name}", request, getattr(inference, f"{name}Response"))


def parameters(**values: Any) -> dict[str, inference.InferParameter]:
    fields = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}
    return {name: inference.InferParameter(**{fields[type(value)]: value}) for name, value in values.items()}


def x_input(name: str = "x", datatype: str = "FP32", shape: Any = (1, 2), **more: Any) -> Any:
    return inference.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape, **more)


def wanted(name: str, **values: Any) -> Any:
    return inference.ModelInferRequest.InferRequestedOutputTensor(name=name, parameters=parameters(**values))


RAW = np.array([[1, 2]], np.float32).tobytes()


def request(model: str = "m", *, raw: list[bytes] | None = None, inputs: Any = None, **fields: Any) -> Any:
    """Of the model of `two_signatures`, unless it says otherwise."""
    return inference.ModelInferRequest(
        model_name=model,
        inputs=[x_input()] if inputs is None else inputs,
        raw_input_contents=[RAW] if raw is None else raw,
        **fields,
    )


async def infer(rpc: RpcClient, asked: inference.ModelInferRequest) -> inference.ModelInferResponse:
    answer: inference.ModelInferResponse = await rpc.call(f"{SERVICE}/ModelInfer", asked, inference.ModelInferResponse)
    return answer


@pytest.fixture
async def model(serve: Serve) -> RpcClient:
    return await serve(graphs={"m": two_signatures}, allow_model_changes=True)


class TestInfer:
    async def test_answer(self, model: RpcClient) -> None:
        answer = await infer(model, request(id="7"))
        assert (answer.model_name, answer.model_version, answer.id) == ("m", "1", "7")
        (output,) = answer.outputs
        assert (output.name, output.datatype, list(output.shape)) == ("y", "FP32", [1, 2])
        assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [2, 4]

    @pytest.mark.parametrize("datatype", DATATYPES)
    async def test_each_datatype_in_each_form(self, serve: Serve, datatype: str) -> None:
        dtype, kind, field = DATATYPES[datatype]
        rpc = await serve(graphs={"m": identities(a=dtype)})
        for value in (np.array([[1, 0], [0, 1]]).astype(kind), np.zeros((0, 2), kind), np.ones((), kind)):
            tensor = x_input("x_a", datatype, value.shape)
            answers = [await infer(rpc, request(inputs=[tensor], raw=[value.tobytes()]))]
            if field is not None:
                tensor.contents.SetInParent()
                getattr(tensor.contents, field).extend(value.reshape(-1).tolist())
                answers.append(await infer(rpc, request(inputs=[tensor], raw=[])))
            for answer in answers:
                assert answer.outputs[0].datatype == datatype and tuple(answer.outputs[0].shape) == value.shape
                assert list(answer.raw_output_contents) == [value.tobytes()]

    async def test_large_tensors(self, serve: Serve) -> None:
        rpc = await serve(graphs={"m": identities(a="float32", b="string")})
        value, text = np.arange(100_001, dtype=np.float32).tobytes(), b"\x01\0\0\0a"
        tensors = [x_input("x_b", "BYTES", [1]), x_input("x_a", "FP32", [100_001])]
        answer = await infer(rpc, request(inputs=tensors, raw=[text, value]))
        assert {o.name: raw for o, raw in zip(answer.outputs, answer.raw_output_contents, strict=True)} == {
            "y_a": value,
            "y_b": text,
        }

    async def test_strings_in_each_form(self, serve: Serve) -> None:
        rpc = await serve(graphs={"m": identities(a="string")})
        raw = b"\x01\0\0\0a\0\0\0\0"
        tensor = x_input("x_a", "BYTES", [2])
        assert (await infer(rpc, request(inputs=[tensor], raw=[raw]))).raw_output_contents[0] == raw
        tensor.contents.bytes_contents.extend([b"a", b""])
        assert (await infer(rpc, request(inputs=[tensor], raw=[]))).raw_output_contents[0] == raw

    async def test_signature_outputs_and_classes(self, model: RpcClient) -> None:
        asked = request(
            outputs=[wanted("half", classification=1)], parameters=parameters(signature_name="both", mine=1)
        )
        answer = await infer(model, asked)
        assert [(o.name, o.datatype, list(o.shape)) for o in answer.outputs] == [("half", "BYTES", [1, 1])]
        assert answer.raw_output_contents[0] == b"\x0a\0\0\x001.000000:1"

    @pytest.mark.parametrize(
        ("asked", "code", "words"),
        [
            (request("none"), "NOT_FOUND", "Request for unknown model: 'none' is not found"),
            (request(model_version="9"), "NOT_FOUND", "Request for unknown model: 'm' has no version 9"),
            (request(model_version="x"), "INVALID_ARGUMENT", "version should be an integral value > 0"),
            (request(raw=[RAW, RAW]), "INVALID_ARGUMENT", "raw_input_contents for each of 1 inputs, got 2"),
            (request(raw=[b"abc"]), "INVALID_ARGUMENT", "x has 3 bytes of binary data, but shape [1, 2]"),
            (request(raw=[]), "INVALID_ARGUMENT", "fp32_contents of x has 0 elements, but shape [1, 2] has 2"),
            (request(inputs=[x_input(), x_input()], raw=[RAW, RAW]), "INVALID_ARGUMENT", "fed more than once"),
            (request(inputs=[x_input(datatype="FP16")], raw=[]), "INVALID_ARGUMENT", "use raw_input_contents"),
            (request(inputs=[x_input(datatype="FLOAT")]), "INVALID_ARGUMENT", '"datatype" of x must be one of BOOL'),
            (request(inputs=[x_input(datatype="INT32")]), "INVALID_ARGUMENT", "another datatype than the model's"),
            (request(inputs=[x_input(shape=[-1, 2])]), "INVALID_ARGUMENT", '"shape" of x must be a list of sizes'),
            (request(inputs=[x_input("z")]), "INVALID_ARGUMENT", "z"),
            (
                request(inputs=[x_input(contents=inference.InferTensorContents(fp32_contents=[1, 2]))]),
                "INVALID_ARGUMENT",
                "contents field must not be specified when using raw_input_contents for 'x' for model 'm'",
            ),
            (
                request(inputs=[x_input(parameters=parameters(shared_memory_region="r"))]),
                "NOT_FOUND",
                "Unable to find shared memory region: 'r'",
            ),
            (request(outputs=[wanted("z")]), "INVALID_ARGUMENT", "z"),
            (request(outputs=[wanted("y", classification=-1)]), "INVALID_ARGUMENT", '"classification" must be'),
            (request(parameters=parameters(signature_name="s")), "NOT_FOUND", "no signature 's'"),
            (request(parameters=parameters(triton_x=True)), "INVALID_ARGUMENT", "are reserved for Triton usage"),
            (request(parameters=parameters(sequence_id=3)), "UNIMPLEMENTED", '"sequence_id": models keep nothing'),
            (request(parameters=parameters(timeout=-1)), "INVALID_ARGUMENT", '"timeout" (microseconds)'),
        ],
    )
    async def test_refusals(self, model: RpcClient, asked: Message, code: str, words: str) -> None:
        got, told = await model.refused(f"{SERVICE}/ModelInfer", asked, inference.ModelInferResponse)
        assert got == code and words in told

    async def test_numbers_beyond_the_datatype_are_refused(self, serve: Serve) -> None:
        rpc = await serve(graphs={"m": identities(a="int8")})
        tensor = x_input("x_a", "INT8", [1], contents=inference.InferTensorContents(int_contents=[128]))
        asked = request(inputs=[tensor], raw=[])
        code, words = await rpc.refused(f"{SERVICE}/ModelInfer", asked, inference.ModelInferResponse)
        assert (code, words) == ("INVALID_ARGUMENT", "int_contents of x_a has numbers beyond INT8")


async def answers_of(
    rpc: RpcClient, asked: list[inference.ModelInferRequest]
) -> AsyncIterator[inference.ModelStreamInferResponse]:
    """The answers of a stream, whose client is done after these requests."""
    serialize, parse = inference.ModelInferRequest.SerializeToString, inference.ModelStreamInferResponse.FromString
    method = rpc.channel.stream_stream(f"{SERVICE}/ModelStreamInfer", serialize, parse)
    async for answer in method(iter(asked)):
        yield answer


class TestStream:
    async def test_answers_come_in_the_order_of_their_requests_and_errors_among_them(self, model: RpcClient) -> None:
        asked = [request("none" if i == 20 else "m", id=str(i)) for i in range(40)]
        got = [answer async for answer in answers_of(model, asked)]
        assert [answer.infer_response.id for answer in got] == [str(i) for i in range(40)]
        errors = [answer.error_message for answer in got if answer.error_message]
        assert errors == ["Request for unknown model: 'none' is not found"]
        assert all(a.infer_response.parameters["triton_final_response"].bool_param for a in got if not a.error_message)
        assert np.frombuffer(got[0].infer_response.raw_output_contents[0], np.float32).tolist() == [2, 4]

    async def test_answer_does_not_wait_for_the_next_request(self, model: RpcClient) -> None:
        serialize, parse = inference.ModelInferRequest.SerializeToString, inference.ModelStreamInferResponse.FromString
        stream = model.channel.stream_stream(f"{SERVICE}/ModelStreamInfer", serialize, parse)()
        for i in range(3):
            await stream.write(request(id=str(i), parameters=parameters(triton_enable_empty_final_response=True)))
            assert (await stream.read()).infer_response.id == str(i)
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF

    async def test_client_that_leaves_cancels_what_runs(self, serve: Serve) -> None:
        gate = gates.Gate()
        rpc = await serve(graphs={"m": gate_graph(gate).graph()}, allow_ops=ops_of_tests())
        serialize, parse = inference.ModelInferRequest.SerializeToString, inference.ModelStreamInferResponse.FromString
        stream = rpc.channel.stream_stream(f"{SERVICE}/ModelStreamInfer", serialize, parse)()
        for _ in range(3):
            await stream.write(request(inputs=[], raw=[]))
        await until(lambda: gate.count == 3)
        stream.cancel()
        await until(lambda: gate.cancelled == 3)

    async def test_few_requests_of_a_stream_are_read_ahead(self, serve: Serve) -> None:
        gate = gates.Gate()
        rpc = await serve(graphs={"m": gate_graph(gate).graph()}, allow_ops=ops_of_tests())
        asked = [request(inputs=[], raw=[], id=str(i)) for i in range(40)]

        async def read() -> list[str]:
            return [answer.infer_response.id async for answer in answers_of(rpc, asked)]

        reading = asyncio.create_task(read())
        await until(lambda: gate.count == 16)
        assert rpc.server.admission.statistics().in_flight == 16
        gate.open.set()
        assert await reading == [str(i) for i in range(40)]


class TestWhatThereIs:
    async def test_server(self, model: RpcClient) -> None:
        assert (await ask(model, "ServerLive")).live and (await ask(model, "ServerReady")).ready
        metadata = await ask(model, "ServerMetadata")
        assert (metadata.name, metadata.version) == ("aexec", aexec.__version__)
        assert "classification" in metadata.extensions

    async def test_model(self, model: RpcClient) -> None:
        assert (await ask(model, "ModelReady", name="m")).ready
        metadata = await ask(model, "ModelMetadata", name="m", version="1")
        tensors = [[(t.name, t.datatype, list(t.shape)) for t in each] for each in (metadata.inputs, metadata.outputs)]
        assert tensors == [[("x", "FP32", [-1, 2])], [("y", "FP32", [-1, 2])]]
        assert (metadata.name, list(metadata.versions), metadata.platform) == ("m", ["1"], "tensorflow_graphdef")
        config = (await ask(model, "ModelConfig", name="m")).config
        assert config.input[0] == inference.ModelInput(name="x", data_type="TYPE_FP32", dims=[-1, 2])
        assert config.output[0] == inference.ModelOutput(name="y", data_type="TYPE_FP32", dims=[-1, 2])

    async def test_types_that_triton_lacks_are_invalid(self, serve: Serve) -> None:
        rpc = await serve(graphs={"m": identities(a="complex64")})
        config = (await ask(rpc, "ModelConfig", name="m")).config
        assert config.input[0].data_type == inference.DataType.TYPE_INVALID

    async def test_statistics(self, model: RpcClient) -> None:
        await infer(model, request())
        for fields in ({}, {"name": "m"}, {"name": "m", "version": "1"}):
            (stats,) = (await ask(model, "ModelStatistics", **fields)).model_stats
            assert (stats.name, stats.version, stats.inference_count) == ("m", "1", 1)
            assert stats.inference_stats.success.count == 1 and stats.inference_stats.success.ns > 0

    @pytest.mark.parametrize("name", ["ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"])
    async def test_unknown_model(self, model: RpcClient, name: str) -> None:
        assert await refused(model, name, name="z") == ("NOT_FOUND", "Request for unknown model: 'z' is not found")

    async def test_repository(self, model: RpcClient) -> None:
        async def states() -> dict[str, tuple[str, str]]:
            return {one.name: (one.version, one.state) for one in (await ask(model, "RepositoryIndex")).models}

        assert await states() == {"m": ("1", "READY")}
        await ask(model, "RepositoryModelUnload", model_name="m")
        assert not (await ask(model, "ModelReady", name="m")).ready
        assert [one.name for one in (await ask(model, "RepositoryIndex", ready=True)).models] == []
        await ask(model, "RepositoryModelLoad", model_name="m")
        files = {"file:3/model.graphdef": inference.ModelRepositoryParameter(bytes_param=times(3))}
        await ask(model, "RepositoryModelLoad", model_name="sent", parameters=files)
        assert await states() == {"m": ("1", "READY"), "sent": ("3", "READY")}

    async def test_repository_of_a_server_whose_models_stay(self, serve: Serve) -> None:
        rpc = await serve(graphs={"m": two_signatures})
        for name in ("RepositoryModelLoad", "RepositoryModelUnload"):
            assert (await refused(rpc, name, model_name="m"))[0] == "PERMISSION_DENIED"


class TestSettings:
    async def test_traces(self, model: RpcClient) -> None:
        off = inference.TraceSettingRequest.SettingValue(value=["OFF"])
        for fields in ({}, {"model_name": "m"}, {"settings": {"trace_level": off}}):
            answer = await ask(model, "TraceSetting", **fields)
            assert {name: list(one.value) for name, one in answer.settings.items()} == {"trace_level": ["OFF"]}
        rate = inference.TraceSettingRequest.SettingValue(value=["1"])
        code, words = await refused(model, "TraceSetting", settings={"trace_rate": rate})
        assert code == "UNIMPLEMENTED" and "trace setting 'trace_rate'" in words
        assert (await refused(model, "TraceSetting", model_name="z"))[0] == "NOT_FOUND"

    async def test_log(self, model: RpcClient) -> None:
        settings = (await ask(model, "LogSettings")).settings
        assert settings["log_error"].bool_param and settings["log_format"].string_param == "default"
        changed = {"log_error": inference.LogSettingsRequest.SettingValue(bool_param=False)}
        code, words = await refused(model, "LogSettings", settings=changed)
        assert code == "UNIMPLEMENTED" and "log setting 'log_error'" in words

    @pytest.mark.parametrize("kind", ["System", "Cuda"])
    async def test_shared_memory(self, model: RpcClient, kind: str) -> None:
        assert not (await ask(model, f"{kind}SharedMemoryStatus")).regions
        assert (await refused(model, f"{kind}SharedMemoryStatus", name="r"))[0] == "NOT_FOUND"
        code, words = await refused(model, f"{kind}SharedMemoryRegister", name="r", byte_size=8)
        assert code == "UNIMPLEMENTED" and f"{kind.lower()} shared memory region 'r'" in words
        await ask(model, f"{kind}SharedMemoryUnregister", name="r")
