"""TensorFlow Serving's REST API, by requests and answers as its documentation has them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aexec_server.protocols.serving_request import read_predict
from aexec_server.settings.model_source import ModelSource

import aexec
from aexec.graph.meta_graph import MetaGraph
from aexec.graph.signature import Signature
from tests.server.conftest import Api, Start
from tests.server.models.test_models import add_version, loaded
from tests.server.sessions.test_signatures import two_signatures

CLASSIFY, REGRESS = "tensorflow/serving/classify", "tensorflow/serving/regress"


def half_plus_two() -> MetaGraph:
    """The model of TensorFlow Serving's own examples, and others like it."""
    with aexec.Graph() as graph:
        x = aexec.placeholder("float32", [None], name="x")
        y = aexec.ops.add_v2(aexec.ops.mul(x, 0.5), 2.0, name="y")
        tag = aexec.placeholder("string", [None], name="tag")
        signal = aexec.placeholder("float32", [None, 2], name="signal")
        same_tag, same_signal = aexec.ops.identity(tag), aexec.ops.identity(signal)
        raw = aexec.placeholder("string", [None], name="raw")
        same = aexec.ops.identity(raw)
        total = aexec.ops.sum(x, 0, name="total")
        serialized = aexec.placeholder("string", [None], name="examples")
        *_, dense = aexec.ops.parse_example(
            serialized,
            aexec.constant(np.zeros(0, object)),
            [],
            [aexec.constant("x"), aexec.constant("bias")],
            [aexec.constant(np.zeros(0, np.float32)), aexec.constant([0.0])],
            sparse_types=[],
            dense_shapes=[[1], [1]],
        )
        value = aexec.ops.add_v2(dense[0], dense[1], name="value")
        scores = aexec.ops.concat_v2([value, aexec.ops.neg(value)], 1, name="scores")
        classes = aexec.ops.as_string(scores, precision=0, name="classes")
    signatures = {
        "serving_default": Signature.of({"x": x}, {"y": y}),
        "named": Signature.of({"tag": tag, "signal": signal}, {"tag": same_tag, "signal": same_signal}),
        "strings": Signature.of({"raw": raw}, {"text": same, "raw_bytes": same}),
        "one_string": Signature.of({"raw": raw}, {"raw_bytes": same}),
        "total": Signature.of({"x": x}, {"total": total}),
        "classify": Signature.of({"inputs": serialized}, {"classes": classes, "scores": scores}, CLASSIFY),
        "scores": Signature.of({"inputs": serialized}, {"scores": scores}, CLASSIFY),
        "labels": Signature.of({"inputs": serialized}, {"classes": classes}, CLASSIFY),
        "regress": Signature.of({"inputs": serialized}, {"outputs": value}, REGRESS),
        "bad": Signature.of({"inputs": serialized}, {"outputs": scores}, REGRESS),
    }
    return MetaGraph(graph, signatures=signatures)


@pytest.fixture
async def model(start: Start) -> Api:
    return await start(graphs={"half_plus_two": half_plus_two})


async def post(api: Api, verb: str = "predict", **fields: Any) -> tuple[int, Any]:
    return await api.call("POST", f"/v1/models/half_plus_two:{verb}", fields)


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"instances": [1.0, 2.0, 5.0]}, {"predictions": [2.5, 3.0, 4.5]}),
        ({"instances": [{"x": 1.0}, {"x": 2.0}]}, {"predictions": [2.5, 3.0]}),
        ({"inputs": [1.0, 2.0, 5.0]}, {"outputs": [2.5, 3.0, 4.5]}),
        ({"inputs": {"x": [1.0]}, "signature_name": "serving_default"}, {"outputs": [2.5]}),
        ({"inputs": {"x": [1.0, 2.0]}, "signature_name": "total"}, {"outputs": 3.0}),
    ],
)
async def test_predict(model: Api, fields: dict[str, Any], answer: dict[str, Any]) -> None:
    assert await post(model, **fields) == (200, answer)


async def test_several_inputs_and_outputs_row_by_row(model: Api) -> None:
    rows = [{"tag": "foo", "signal": [1, 2]}, {"tag": "bar", "signal": [3, 4]}]
    status, answer = await post(model, signature_name="named", instances=rows)
    assert (status, answer) == (200, {"predictions": rows})


async def test_several_inputs_and_outputs_column_by_column(model: Api) -> None:
    columns = {"tag": ["foo", "bar"], "signal": [[1, 2], [3, 4]]}
    status, answer = await post(model, signature_name="named", inputs=columns)
    assert (status, answer) == (200, {"outputs": columns})


class TestStrings:
    BYTES = base64.b64encode(b"\xff\x00").decode()

    @pytest.mark.parametrize("given", [["a", {"b64": BYTES}], [{"b64": BYTES}, "a"]])
    async def test_bytes_are_base64(self, model: Api, given: list[Any]) -> None:
        status, answer = await post(model, signature_name="strings", instances=given)
        always = [item if type(item) is dict else {"b64": base64.b64encode(item.encode()).decode()} for item in given]
        expected = [{"text": text, "raw_bytes": raw} for text, raw in zip(given, always, strict=True)]
        assert (status, answer) == (200, {"predictions": expected})

    async def test_single_output_of_bytes(self, model: Api) -> None:
        status, answer = await post(model, signature_name="one_string", inputs=["a"])
        assert (status, answer) == (200, {"outputs": [{"b64": "YQ=="}]})


async def test_numbers_that_json_lacks(model: Api) -> None:
    body = b'{"instances": [NaN, Infinity, -Infinity]}'
    response, data = await model.raw("POST", "/v1/models/half_plus_two:predict", body)
    assert response.status == 200 and data == b'{"predictions":[NaN,Infinity,-Infinity]}'


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({}, 400, 'A request has either "instances", row by row'),
        ({"instances": [1], "inputs": [1]}, 400, 'A request has either "instances", row by row'),
        ({"instances": 1}, 400, '"instances" must be a list, got a number'),
        ({"instances": []}, 400, '"instances" is empty'),
        ({"instances": [{"x": 1}, {"z": 1}]}, 400, 'Row 1 of "instances" has not the same names'),
        (
            {"instances": [1], "signature_name": "named"},
            400,
            '"instances" must name the inputs, for there are tag, sig',
        ),
        ({"inputs": [1], "signature_name": "named"}, 400, '"inputs" must name the inputs'),
        ({"inputs": [1], "signature_name": "none"}, 404, "no signature 'none'"),
        ({"inputs": [1], "signature_name": 3}, 400, '"signature_name" must be a string'),
        ({"instances": [1, 2], "signature_name": "total"}, 400, "Output 'total' has shape [], but one row for each"),
        ({"inputs": {"z": [1]}}, 400, "no input 'z'; there are x"),
        ({"inputs": ["a"]}, 400, "Expects arg[0] to be float but string is provided"),
        ({"instance": [1]}, 400, "Unknown field 'instance'"),
    ],
)
async def test_refusals(model: Api, fields: dict[str, Any], status: int, message: str) -> None:
    got, answer = await post(model, **fields)
    assert (got, answer["error"].startswith(message)) == (status, True), answer


class TestExamples:
    EXAMPLES = ({"x": 1.5}, {"x": [-2.0]})

    async def test_classify(self, model: Api) -> None:
        status, answer = await post(model, "classify", signature_name="classify", examples=self.EXAMPLES)
        assert status == 200
        assert answer == {"results": [[["2", 1.5], ["-2", -1.5]], [["-2", -2.0], ["2", 2.0]]]}

    async def test_missing_classes_or_scores_are_filled(self, model: Api) -> None:
        _, answer = await post(model, "classify", signature_name="scores", examples=[{"x": 1.5}])
        assert answer == {"results": [[["", 1.5], ["", -1.5]]]}
        _, answer = await post(model, "classify", signature_name="labels", examples=[{"x": 1.0}])
        assert answer == {"results": [[["1", 0.0], ["-1", 0.0]]]}

    async def test_regress_with_a_context(self, model: Api) -> None:
        status, answer = await post(
            model,
            "regress",
            signature_name="regress",
            context={"bias": 10.0},
            examples=[{"x": 1.5}, {"x": 2.0, "bias": 0.0}],
        )
        assert (status, answer) == (200, {"results": [11.5, 2.0]})

    @pytest.mark.parametrize(
        ("features", "result"),
        [
            ({"x": 2.0, "bias": []}, 2.0),
            ({"x": 2.0, "other": []}, 2.0),
            ({"x": 10**20}, 1e20),
            ({"x": 2.0, "flag": [True]}, 2.0),
        ],
    )
    async def test_features_are_given_as_json_has_them(
        self, model: Api, features: dict[str, Any], result: float
    ) -> None:
        status, answer = await post(model, "regress", signature_name="regress", examples=[features])
        assert (status, answer) == (200, {"results": [pytest.approx(result)]})

    @pytest.mark.parametrize(
        ("verb", "fields", "message"),
        [
            (
                "classify",
                {"signature_name": "regress", "examples": [{}]},
                f"Expected a signature whose method is {CLASSIFY}",
            ),
            (
                "regress",
                {"examples": [{}]},
                f"Expected a signature whose method is {REGRESS}, got tensorflow/serving/pre",
            ),
            ("regress", {"signature_name": "regress"}, '"examples" must be a list of objects'),
            ("regress", {"signature_name": "regress", "examples": []}, '"examples" must be a list of objects'),
            ("regress", {"signature_name": "regress", "examples": [1]}, "Example 0 must be an object"),
            ("regress", {"signature_name": "regress", "examples": [{"x": [1, 2.5]}]}, "'x' of example 0 must be whole"),
            ("regress", {"signature_name": "regress", "examples": [{"x": None}]}, "'x' of example 0 must be whole"),
            ("regress", {"signature_name": "regress", "examples": [{"x": 1e39}]}, "Cannot feed 'x' of example 0: a "),
            ("regress", {"signature_name": "regress", "context": 1, "examples": [{}]}, '"context" must be an object'),
            ("regress", {"signature_name": "bad", "examples": [{"x": 1.0}]}, "A model for regression must have"),
        ],
    )
    async def test_refusals(self, model: Api, verb: str, fields: dict[str, Any], message: str) -> None:
        status, answer = await post(model, verb, **fields)
        assert (status, answer["error"].startswith(message)) == (400, True), answer


class TestVersions:
    @pytest.fixture
    async def versions(self, start: Start, tmp_path: Path) -> Api:
        add_version(tmp_path, 3)
        add_version(tmp_path, 5)
        source = ModelSource(tmp_path, versions=None, labels={"stable": 3})
        api = await start(models={"m": source})
        await loaded(api)
        return api

    @pytest.mark.parametrize(
        ("path", "result"),
        [
            ("/v1/models/m", 5),
            ("/v1/models/m/versions/3", 3),
            ("/v1/models/m/labels/stable", 3),
            ("/V1/Models/m/VERSIONS/5", 5),
        ],
    )
    async def test_which_one_is_run(self, versions: Api, path: str, result: int) -> None:
        for verb in ("predict", "PREDICT"):
            assert await versions.call("POST", f"{path}:{verb}", {"instances": [1]}) == (200, {"predictions": [result]})

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("/v1/models/m/versions/4", "Specific(m, 4): Model 'm' has no version 4; there are 3, 5"),
            (
                "/v1/models/m/versions/" + "1" * 4301,
                f"Specific(m, {'1' * 20}): Model 'm' has no version of 4301 digits",
            ),
            (
                "/v1/models/m/versions/" + "0" * 4300 + "5",
                f"Specific(m, {'0' * 20}): Model 'm' has no version of 4301 digits",
            ),
            ("/v1/models/M", "Latest(M)"),
        ],
    )
    async def test_missing_model_and_version_are_not_found(self, versions: Api, path: str, message: str) -> None:
        status, answer = await versions.call("POST", f"{path}:predict", {"instances": [1]})
        assert (status, answer["error"]) == (404, f"Servable not found for request: {message}")

    async def test_unknown_label_is_no_argument(self, versions: Api) -> None:
        status, answer = await versions.call("POST", "/v1/models/m/labels/canary:predict", {"instances": [1]})
        assert (status, answer["error"]) == (400, "Unrecognized servable version label: canary")

    async def test_status(self, versions: Api) -> None:
        fine = {"state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        both = [{"version": "5"} | fine, {"version": "3"} | fine]
        assert await versions.call("GET", "/v1/models/m") == (200, {"model_version_status": both})
        for path in ("versions/3", "labels/stable"):
            assert await versions.call("GET", f"/v1/models/m/{path}") == (200, {"model_version_status": both[1:]})
        await versions.server.models.unload("m")
        _, answer = await versions.call("GET", "/v1/models/m")
        assert {v["state"] for v in answer["model_version_status"]} <= {"UNLOADING", "END"}


async def test_why_a_version_is_not_there(start: Start, tmp_path: Path) -> None:
    add_version(tmp_path / "m", 1, b"no graph")
    api = await start(model_repository=tmp_path)
    await loaded(api)
    _, answer = await api.call("GET", "/v1/models/m")
    (status,) = answer["model_version_status"]
    assert status["state"] == "END" and status["status"]["error_code"] == "INVALID_ARGUMENT"
    assert str(tmp_path) not in json.dumps(answer)


async def test_metadata(start: Start) -> None:
    api = await start(graphs={"m": two_signatures})
    status, answer = await api.call("GET", "/v1/models/m/metadata")
    assert status == 200 and answer["model_spec"] == {"name": "m", "signature_name": "", "version": "1"}
    signature = answer["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"]["x"] == {
        "dtype": "DT_FLOAT",
        "tensor_shape": {"dim": [{"size": "-1", "name": ""}, {"size": "2", "name": ""}], "unknown_rank": False},
        "name": "features:0",
    }


@pytest.mark.parametrize(
    ("inputs", "fields", "rows"),
    [
        (["x"], {"instances": [1, 2, 5]}, 3),
        (["x"], {"instances": [[[1, 2]]]}, 1),
        (["x", "y"], {"instances": [{"x": 1, "y": [1, 2, 3]}, {"x": 2, "y": []}]}, 2),
        ([], {"instances": [{}, {}]}, 2),
        (["x"], {"inputs": [1, 2, 5]}, 3),
        (["x"], {"inputs": 1}, 1),
        (["x", "y"], {"inputs": {"x": [[1, 2]], "y": 3}}, 1),
    ],
)
def test_rows_are_those_that_statistics_count(inputs: list[str], fields: dict[str, Any], rows: int) -> None:
    with aexec.Graph():
        signature = Signature.of({name: aexec.placeholder("float32", name=name) for name in inputs}, {})
    asked = read_predict(json.dumps(fields).encode(), lambda _: signature)
    assert asked.rows == rows
    assert asked.instances == (rows if "instances" in fields else None)
