"""TensorFlow Serving's services over gRPC: what its clients send, and the codes and words that they know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aexec_server.settings.model_source import ModelSource
from google.protobuf.message import Message

from aexec import proto
from aexec.framework import dtypes
from aexec.framework.wire import tensor_codec
from aexec.proto import serving
from tests.server.conftest import gate_graph, ops_of_tests
from tests.server.models.test_models import add_version
from tests.server.protocols.test_inference_protocol import identities
from tests.server.protocols.test_tensorflow_serving import CLASSIFY, REGRESS, half_plus_two
from tests.server.rpc.conftest import RpcClient
from tests.support import gates
from tests.support.waiting import until

Serve = Callable[..., Awaitable[RpcClient]]

PREDICTION = "/tensorflow.serving.PredictionService"
SESSION = "/tensorflow.serving.SessionService/SessionRun"
PREDICT = f"{PREDICTION}/Predict"
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
# Types whose values a client may send and get.
DTYPES = """
    float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool string complex64 complex128
    qint8 quint8 qint32 qint16 quint16 float8_e5m2 float8_e4m3fn
""".split()


def tensor(value: Any, dtype: str = "float32", **how: Any) -> proto.TensorProto:
    kind = dtypes.as_dtype(dtype)
    return tensor_codec.to_proto(np.asarray(value, kind.np), kind, **how)


def spec(name: str = "half_plus_two", signature: str = "", **version: Any) -> serving.ModelSpec:
    made = serving.ModelSpec(name=name, signature_name=signature, version_label=version.get("label"))
    if "number" in version:
        made.version.value = version["number"]
    return made


def predict_request(
    inputs: dict[str, Any], model: serving.ModelSpec | None = None, outputs: list[str] | None = None
) -> serving.PredictRequest:
    tensors = {n: v if isinstance(v, proto.TensorProto) else tensor(v) for n, v in inputs.items()}
    return serving.PredictRequest(model_spec=model or spec(), inputs=tensors, output_filter=outputs)


@pytest.fixture
async def model(serve: Serve) -> RpcClient:
    return await serve(graphs={"half_plus_two": half_plus_two})


async def predict(rpc: RpcClient, request: serving.PredictRequest) -> serving.PredictResponse:
    answer: serving.PredictResponse = await rpc.call(PREDICT, request, serving.PredictResponse)
    return answer


class TestPredict:
    async def test_answer_has_values_in_their_field_and_says_which_model(self, model: RpcClient) -> None:
        answer = await predict(model, predict_request({"x": [1, 2, 5]}))
        assert list(answer.outputs["y"].float_val) == [2.5, 3.0, 4.5]
        assert [d.size for d in answer.outputs["y"].tensor_shape.dim] == [3]
        assert answer.model_spec == spec(signature="serving_default", number=1)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("compact", [True, False])
    async def test_each_type_goes_in_and_comes_out(self, serve: Serve, dtype: str, compact: bool) -> None:
        rpc = await serve(graphs={"m": identities(a=dtype)})
        kind = dtypes.as_dtype(dtype)
        given = np.array([[b"a", b""], [b"\xff", b"a"]], object) if dtype == "string" else np.array([[1, 0], [0, 1]])
        for value in (given.astype(kind.np), given.astype(kind.np)[0, 0], given.astype(kind.np)[:0]):
            sent = tensor_codec.to_proto(np.asarray(value, kind.np), kind, compact=compact)
            answer = await predict(rpc, predict_request({"x_a": sent}, spec("m")))
            got = answer.outputs["y_a"]
            assert not got.tensor_content and got.dtype == kind.enum
            decoded = tensor_codec.from_proto(got)
            assert decoded.shape == np.shape(value) and decoded.tolist() == np.asarray(value).tolist()

    async def test_large_tensors(self, serve: Serve) -> None:
        rpc = await serve(graphs={"m": identities(a="float32", b="bool")})
        a, b = np.arange(100_001, dtype=np.float32), np.arange(100_001) % 3 == 0
        sent = {"x_a": tensor(a, compact=False), "x_b": tensor(b, "bool", compact=False)}
        answer = await predict(rpc, predict_request(sent, spec("m")))
        assert (tensor_codec.from_proto(answer.outputs["y_a"]) == a).all()
        assert (tensor_codec.from_proto(answer.outputs["y_b"]) == b).all()
        sent["x_a"].tensor_content += b"a"
        code, words = await rpc.refused(PREDICT, predict_request(sent, spec("m")), serving.PredictResponse)
        assert code == "INVALID_ARGUMENT" and "expected 400004 bytes of tensor_content, got 400005" in words

    async def test_many_values_in_their_fields(self, serve: Serve) -> None:
        rpc = await serve(graphs={"m": identities(a="int64")})
        sent = proto.TensorProto(dtype="DT_INT64", int64_val=range(100_000))
        sent.tensor_shape.dim.add(size=100_000)
        answer = await predict(rpc, predict_request({"x_a": sent}, spec("m")))
        assert answer.outputs["y_a"] == sent

    async def test_inputs_are_named(self, model: RpcClient) -> None:
        for names in (["tag", "signal"], ["signal", "tag"]):
            sent = {"tag": tensor([b"a"], "string"), "signal": [[1, 2]]}
            request = predict_request({name: sent[name] for name in names}, spec(signature="named"))
            answer = await predict(model, request)
            assert list(answer.outputs["tag"].string_val) == [b"a"]
            assert list(answer.outputs["signal"].float_val) == [1, 2]

    async def test_filter_chooses_outputs(self, model: RpcClient) -> None:
        request = predict_request({"raw": tensor([b"a"], "string")}, spec(signature="strings"), ["text"])
        assert (await predict(model, request)).outputs.keys() == {"text"}

    @pytest.mark.parametrize(
        ("request_", "code", "words"),
        [
            (predict_request({}, spec("")), "INVALID_ARGUMENT", "Missing ModelSpec"),
            (predict_request({}, spec("M")), "NOT_FOUND", "Servable not found for request: Latest(M)"),
            (predict_request({}, spec(number=7)), "NOT_FOUND", "for request: Specific(half_plus_two, 7): "),
            (predict_request({}, spec(number=-1)), "NOT_FOUND", "for request: Specific(half_plus_two, -1): "),
            (predict_request({}, spec(label="new")), "INVALID_ARGUMENT", "Unrecognized servable version label: new"),
            (predict_request({}, spec(signature="s")), "FAILED_PRECONDITION", 'Serving signature key "s" not found.'),
            (
                predict_request({"z": 1}),
                "INVALID_ARGUMENT",
                "input size does not match signature: 1!=1 len({z}) != len({x}). Sent extra: {z}. "
                "Missing but required: {x}.",
            ),
            (
                predict_request({"x": [1]}, outputs=["z"]),
                "INVALID_ARGUMENT",
                "output tensor alias not found in signature: z Outputs expected to be in the set {y}.",
            ),
            (predict_request({"x": [1]}, outputs=["y", "y"]), "INVALID_ARGUMENT", "duplicate output tensor alias: y"),
            (
                predict_request({"x": tensor([1], "int32")}),
                "INVALID_ARGUMENT",
                "Expects arg[0] to be float but int32 is provided",
            ),
            (
                predict_request({"x": proto.TensorProto(dtype="DT_FLOAT", tensor_content=b"abc")}),
                "INVALID_ARGUMENT",
                "tensor parsing error: x: ",
            ),
        ],
    )
    async def test_refusals(self, model: RpcClient, request_: Message, code: str, words: str) -> None:
        got, told = await model.refused(PREDICT, request_, serving.PredictResponse)
        assert got == code and words in told

    async def test_streamed_options_are_not_supported(self, model: RpcClient) -> None:
        request = predict_request({"x": [1]})
        request.predict_streamed_options.SetInParent()
        code, _ = await model.refused(PREDICT, request, serving.PredictResponse)
        assert code == "UNIMPLEMENTED"

    async def test_statistics_count_it_as_http_does(self, model: RpcClient) -> None:
        await predict(model, predict_request({"x": [1, 2, 5]}))
        await model.refused(PREDICT, predict_request({"x": tensor([1], "int32")}), serving.PredictResponse)
        (version,) = model.server.models.find("half_plus_two").versions.values()
        assert version.statistics.inference_count == 3 and version.statistics.fail.count == 1

    async def test_deadline_and_a_client_that_leaves_cancel_the_step(self, serve: Serve) -> None:
        gate = gates.Gate()
        rpc = await serve(graphs={"m": gate_graph(gate).graph()}, allow_ops=ops_of_tests())
        code, _ = await rpc.refused(PREDICT, predict_request({}, spec("m")), serving.PredictResponse, timeout=0.1)
        assert code == "DEADLINE_EXCEEDED"
        await until(lambda: gate.cancelled == 1)
        calling = rpc.call(PREDICT, predict_request({}, spec("m")), serving.PredictResponse)
        await until(lambda: gate.count == 2)
        calling.cancel()
        await until(lambda: gate.cancelled == 2)


def examples(*values: float, context: dict[str, float] | None = None) -> serving.Input:
    made = [example(x=value) for value in values]
    if context is None:
        return serving.Input(example_list=serving.ExampleList(examples=made))
    shared = serving.ExampleListWithContext(examples=made, context=example(**context))
    return serving.Input(example_list_with_context=shared)


def example(**features: float) -> proto.Example:
    made = proto.Example()
    for name, value in features.items():
        made.features.feature[name].float_list.value.append(value)
    return made


class TestExamples:
    async def test_classify(self, model: RpcClient) -> None:
        request = serving.ClassificationRequest(model_spec=spec(signature="classify"), input=examples(1, 2))
        answer = await model.call(f"{PREDICTION}/Classify", request, serving.ClassificationResponse)
        rows = [[(c.label, c.score) for c in row.classes] for row in answer.result.classifications]
        assert rows == [[("1", 1.0), ("-1", -1.0)], [("2", 2.0), ("-2", -2.0)]]
        assert answer.model_spec == spec(signature="classify", number=1)

    async def test_regress_with_a_context(self, model: RpcClient) -> None:
        given = examples(1, 2, context={"bias": 10})
        request = serving.RegressionRequest(model_spec=spec(signature="regress"), input=given)
        answer = await model.call(f"{PREDICTION}/Regress", request, serving.RegressionResponse)
        assert [one.value for one in answer.result.regressions] == [11, 12]

    async def test_multi_inference(self, model: RpcClient) -> None:
        tasks = [(spec(signature="regress"), REGRESS), (spec(signature="scores"), CLASSIFY)]
        request = serving.MultiInferenceRequest(
            tasks=[serving.InferenceTask(model_spec=one, method_name=method) for one, method in tasks],
            input=examples(3),
        )
        answer = await model.call(f"{PREDICTION}/MultiInference", request, serving.MultiInferenceResponse)
        first, second = answer.results
        assert [one.value for one in first.regression_result.regressions] == [3]
        assert [c.score for c in second.classification_result.classifications[0].classes] == [3, -3]
        assert first.model_spec == spec(signature="regress", number=1)

    @pytest.mark.parametrize(
        ("tasks", "code", "words"),
        [
            ([], "INVALID_ARGUMENT", "at least one task"),
            ([("regress", "other")], "UNIMPLEMENTED", "Unsupported signature method_name: other"),
            ([("regress", REGRESS)] * 2, "INVALID_ARGUMENT", "Duplicate evaluation of signature: regress"),
            ([("none", REGRESS)], "INVALID_ARGUMENT", "No signature was found with the name: none"),
            ([("scores", REGRESS)], "INVALID_ARGUMENT", f"Expected regression signature method_name to be {REGRESS}."),
        ],
    )
    async def test_multi_inference_refusals(
        self, model: RpcClient, tasks: list[tuple[str, str]], code: str, words: str
    ) -> None:
        request = serving.MultiInferenceRequest(
            tasks=[serving.InferenceTask(model_spec=spec(signature=s), method_name=m) for s, m in tasks],
            input=examples(3),
        )
        got = await model.refused(f"{PREDICTION}/MultiInference", request, serving.MultiInferenceResponse)
        assert got[0] == code and words in got[1]

    async def test_no_examples_are_refused(self, model: RpcClient) -> None:
        request = serving.ClassificationRequest(model_spec=spec(signature="classify"))
        code, words = await model.refused(f"{PREDICTION}/Classify", request, serving.ClassificationResponse)
        assert (code, words) == ("INVALID_ARGUMENT", "Input is empty")


class TestMetadata:
    async def ask(self, rpc: RpcClient, *fields: str) -> Any:
        request = serving.GetModelMetadataRequest(model_spec=spec(), metadata_field=fields)
        return await rpc.call(f"{PREDICTION}/GetModelMetadata", request, serving.GetModelMetadataResponse)

    async def test_signatures(self, model: RpcClient) -> None:
        answer = await self.ask(model, "signature_def")
        packed = answer.metadata["signature_def"]
        assert packed.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
        signatures = serving.SignatureDefMap.FromString(packed.value).signature_def
        assert signatures["serving_default"].inputs["x"].name == "x:0"
        assert signatures["classify"].method_name == CLASSIFY
        assert answer.model_spec == spec(number=1)

    async def test_unknown_field_is_refused(self, model: RpcClient) -> None:
        for fields, words in (((), "must specify at least one metadata_field"), (("x",), "field x is not supported")):
            request = serving.GetModelMetadataRequest(model_spec=spec(), metadata_field=fields)
            path = f"{PREDICTION}/GetModelMetadata"
            code, told = await model.refused(path, request, serving.GetModelMetadataResponse)
            assert code == "INVALID_ARGUMENT" and words in told


class TestSessionRun:
    async def test_names_of_tensors(self, model: RpcClient) -> None:
        feed = proto.NamedTensorProto(name="x:0", tensor=tensor([1, 2]))
        request = serving.SessionRunRequest(model_spec=spec(), feed=[feed], fetch=["y:0", "total:0"])
        request.options.trace_level = proto.RunOptions.TraceLevel.FULL_TRACE
        answer = await model.call(SESSION, request, serving.SessionRunResponse)
        got = {one.name: tensor_codec.from_proto(one.tensor).tolist() for one in answer.tensor}
        assert got == {"y:0": [2.5, 3.0], "total:0": 3.0}
        assert answer.metadata.step_stats.dev_stats and answer.model_spec == spec(number=1)

    async def test_names_of_a_signature(self, model: RpcClient) -> None:
        feed = proto.NamedTensorProto(name="x", tensor=tensor([1, 2]))
        request = serving.SessionRunRequest(
            model_spec=spec(signature="total"), feed=[feed], fetch=["total"], tensor_name_is_alias=True
        )
        answer = await model.call(SESSION, request, serving.SessionRunResponse)
        assert [(one.name, tensor_codec.from_proto(one.tensor).item()) for one in answer.tensor] == [("total", 3.0)]

    async def test_unknown_tensor_is_refused(self, model: RpcClient) -> None:
        request = serving.SessionRunRequest(model_spec=spec(), fetch=["nope:0"])
        code, words = await model.refused(SESSION, request, serving.SessionRunResponse)
        assert code == "NOT_FOUND" and "nope" in words


class TestModelService:
    @pytest.fixture
    async def versions(self, serve: Serve, tmp_path: Path) -> RpcClient:
        add_version(tmp_path / "m", 3)
        add_version(tmp_path / "m", 5)
        add_version(tmp_path / "n", 1)
        sources = {
            "m": ModelSource(tmp_path / "m", versions=None, labels={"stable": 3}),
            "n": ModelSource(tmp_path / "n"),
        }
        rpc = await serve(models=sources, allow_model_changes=True)
        await until(lambda: rpc.server.ready)
        return rpc

    async def status(self, rpc: RpcClient, model: serving.ModelSpec) -> list[tuple[int, int]]:
        request = serving.GetModelStatusRequest(model_spec=model)
        answer = await rpc.call(STATUS, request, serving.GetModelStatusResponse)
        assert all(one.status == serving.StatusProto() for one in answer.model_version_status)
        return [(one.version, one.state) for one in answer.model_version_status]

    async def test_status_of_versions(self, versions: RpcClient) -> None:
        available = serving.ModelVersionStatus.AVAILABLE
        assert await self.status(versions, spec("m")) == [(5, available), (3, available)]
        assert await self.status(versions, spec("m", number=5)) == [(5, available)]
        assert await self.status(versions, spec("m", label="stable")) == [(3, available)]
        request = serving.GetModelStatusRequest(model_spec=spec("none"))
        code, words = await versions.refused(STATUS, request, serving.GetModelStatusResponse)
        assert (code, words) == ("NOT_FOUND", "Could not find any versions of model none")

    async def test_label_chooses_the_version_that_runs(self, versions: RpcClient) -> None:
        for choice, factor in (({"label": "stable"}, 3), ({"number": 5}, 5), ({}, 5)):
            answer = await predict(versions, predict_request({"x": [1]}, spec("m", **choice)))
            assert list(answer.outputs["y"].float_val) == [factor] and answer.model_spec.version.value == factor

    async def test_reload_serves_what_is_listed_and_nothing_else(self, versions: RpcClient, tmp_path: Path) -> None:
        config = serving.ModelConfig(name="m", base_path=str(tmp_path / "m"), version_labels={"old": 3})
        config.model_version_policy.specific.versions.append(3)
        request = serving.ReloadConfigRequest()
        request.config.model_config_list.config.append(config)
        answer = await versions.call(RELOAD, request, serving.ReloadConfigResponse)
        assert answer.status == serving.StatusProto()
        await until(lambda: not versions.server.models.find("n").ready)
        assert [v.number for v in versions.server.models.find("m").available] == [3]
        answer = await predict(versions, predict_request({"x": [1]}, spec("m", label="old")))
        assert list(answer.outputs["y"].float_val) == [3]

    async def test_reload_serves_no_other_folder(self, versions: RpcClient, tmp_path: Path) -> None:
        for name, folder, code in (("m", str(tmp_path / "n"), "INVALID_ARGUMENT"), ("z", "", "NOT_FOUND")):
            request = serving.ReloadConfigRequest()
            request.config.model_config_list.config.add(name=name, base_path=folder)
            assert (await versions.refused(RELOAD, request, serving.ReloadConfigResponse))[0] == code
        assert versions.server.models.find("m").ready and versions.server.models.find("n").ready

    async def test_reload_is_refused_where_models_may_not_be_changed(self, model: RpcClient) -> None:
        request = serving.ReloadConfigRequest()
        request.config.model_config_list.SetInParent()
        code, _ = await model.refused(RELOAD, request, serving.ReloadConfigResponse)
        assert code == "PERMISSION_DENIED" and model.server.models.find("half_plus_two").ready


async def test_calls_run_beside_each_other(model: RpcClient) -> None:
    answers = await asyncio.gather(*[predict(model, predict_request({"x": [i]})) for i in range(50)])
    assert [a.outputs["y"].float_val[0] for a in answers] == [i / 2 + 2 for i in range(50)]
