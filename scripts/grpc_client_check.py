"""Unmodified clients of TensorFlow Serving and Triton against `aexec serve`: `scripts/grpc-check-clients` runs this.

The models are SavedModels that TensorFlow writes: one with a signature for each type, and one that classifies.  A check
is a function that fails by raising; the table says how many of each group pass, and which do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np
import tensorflow as tf
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from grpc_servers import running_server
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    input_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
    session_service_pb2,
)
from tritonclient.utils import InferenceServerException

v1 = tf.compat.v1
_SECONDS = 30.0
# Types of TensorFlow, and what Triton calls them if it has them.
DTYPES = {
    "float32": "FP32",
    "float64": "FP64",
    "half": "FP16",
    "bfloat16": "BF16",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "bool": "BOOL",
    "string": "BYTES",
    "complex64": None,
    "complex128": None,
}
VALUES = [[1, 0, 1], [0, 1, 1]]


class Check(NamedTuple):
    """One check: the group that it is counted in, its name, and what it does."""

    group: str
    name: str
    run: Callable[[], object]


def values_of(dtype: str) -> Any:
    if dtype == "string":
        return np.array([[b"a", b"", b"\xff\x00"], [b"b", b"c", b"d"]], object)
    return np.array(VALUES).astype(tf.as_dtype(dtype).as_numpy_dtype)


# Models


def write_models(folder: Path) -> None:
    """Write the models to `folder`: `types`, and two versions of `examples`."""
    module = tf.Module()
    functions = {}
    for dtype in DTYPES:
        spec = tf.TensorSpec([None, None], tf.as_dtype(dtype), name="x")
        functions[dtype] = tf.function(lambda x: {"y": tf.identity(x)}, input_signature=[spec])
    pair = [tf.TensorSpec([None], tf.float32, name="a"), tf.TensorSpec([None], tf.float32, name="b")]
    functions["serving_default"] = tf.function(lambda a, b: {"sum": a + b, "difference": a - b}, input_signature=pair)
    for name, function in functions.items():
        setattr(module, f"f_{name}", function)
    tf.saved_model.save(module, str(folder / "types" / "1"), signatures=functions)
    for version in (1, 2):
        write_examples_model(folder / "examples" / str(version), float(version))


def write_examples_model(folder: Path, factor: float) -> None:
    """Write a model that multiplies the feature `x` of examples: by classify, regress and predict."""
    with tf.Graph().as_default(), v1.Session() as session:
        serialized = v1.placeholder(tf.string, [None], name="examples")
        features = v1.parse_example(serialized, {"x": v1.FixedLenFeature([], tf.float32)})
        value = tf.multiply(features["x"], factor, name="value")
        scores = tf.stack([value, -value], 1, name="scores")
        classes = tf.strings.as_string(scores, precision=1, name="classes")
        x = v1.placeholder(tf.float32, [None], name="x")
        y = tf.multiply(x, factor, name="y")
        build = v1.saved_model.signature_def_utils
        signatures = {
            "serving_default": build.predict_signature_def({"x": x}, {"y": y}),
            "classify": build.classification_signature_def(serialized, classes, scores),
            "regress": build.regression_signature_def(serialized, value),
        }
        builder = v1.saved_model.builder.SavedModelBuilder(str(folder))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        with contextlib.redirect_stdout(None):
            builder.save()


@contextlib.contextmanager
def serving(program: str, folder: Path, hosts: int) -> Iterator[str]:
    """Context manager: a server with the models, in a process of their own if there are hosts."""
    command = [program, "serve", "--port", "0", "--grpc-port", "0", "--allow-model-changes", "--hosts", str(hosts)]
    for name in ("types", "examples"):
        command += ["--model", f"{name}={folder / name}"]
    command += ["--model-versions", "all"]
    with running_server(command, r"serves gRPC on grpc://(\S+)") as address:
        with triton.InferenceServerClient(address) as client:
            while not client.is_server_ready():
                time.sleep(0.1)
        yield address


# What is expected


def equal(got: Any, wanted: Any) -> None:
    got = np.asarray(got)
    if got.shape != np.shape(wanted) or got.tolist() != np.asarray(wanted).tolist():
        raise AssertionError(f"expected {wanted!r}, got {got!r}")


def refused(call: Callable[[], object], code: str, words: str) -> None:
    """Check that a call fails with this code and these words."""
    try:
        call()
    except grpc.RpcError as error:
        got, told = error.code().name, error.details()
    except InferenceServerException as error:
        got, told = str(error.status()), error.message()
    else:
        raise AssertionError(f"expected {code}, got an answer")
    if not got.endswith(code) or words not in told:
        raise AssertionError(f"expected {code} with {words!r}, got {got}: {told}")


# TensorFlow Serving's stubs


class Serving:
    """Checks with tensorflow-serving-api."""

    def __init__(self, address: str) -> None:
        channel = grpc.insecure_channel(address)
        self.predictions = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        self.models = model_service_pb2_grpc.ModelServiceStub(channel)
        # The package has the messages of this service, and no stub.
        self.session_run = channel.unary_unary(
            "/tensorflow.serving.SessionService/SessionRun",
            session_service_pb2.SessionRunRequest.SerializeToString,
            session_service_pb2.SessionRunResponse.FromString,
        )

    def checks(self) -> Iterator[Check]:
        for dtype in DTYPES:
            for dense in (True, False):
                name = f"{dtype} as {'tensor_content' if dense else 'values'}"
                yield Check("Predict, each type", name, partial(self.one_type, dtype, dense=dense))
        others = [name for name in dir(self) if name.startswith("check_")]
        for name in others:
            yield Check("Predict and the others", name.removeprefix("check_"), getattr(self, name))

    def predict(self, model: str, inputs: dict[str, Any], signature: str = "", **more: Any) -> Any:
        request = predict_pb2.PredictRequest(output_filter=more.get("outputs"))
        self.name(request.model_spec, model, signature, **more)
        for name, value in inputs.items():
            proto = value if hasattr(value, "tensor_shape") else tf.make_tensor_proto(value)
            request.inputs[name].CopyFrom(proto)
        return self.predictions.Predict(request, _SECONDS)

    def name(self, spec: Any, model: str, signature: str = "", version: Any = None, label: Any = None, **_: Any) -> Any:
        spec.name, spec.signature_name = model, signature
        if version is not None:
            spec.version.value = version
        if label is not None:
            spec.version_label = label
        return spec

    def one_type(self, dtype: str, *, dense: bool) -> None:
        value = values_of(dtype)
        proto = tf.make_tensor_proto(value if dense else value.tolist(), tf.as_dtype(dtype), value.shape)
        answer = self.predict("types", {"x": proto}, dtype)
        equal(tf.make_ndarray(answer.outputs["y"]), value)

    def check_values_are_where_clients_read_them(self) -> None:
        answer = self.predict("types", {"a": np.float32([1, 2]), "b": np.float32([3, 5])})
        equal(answer.outputs["sum"].float_val, [4, 7])
        equal(answer.outputs["difference"].float_val, [-2, -3])

    def check_output_filter(self) -> None:
        inputs = {"a": np.float32([1]), "b": np.float32([3])}
        assert list(self.predict("types", inputs, outputs=["sum"]).outputs) == ["sum"]

    def check_version_of_a_model(self) -> None:
        for version, factor in ((1, 1), (2, 2), (None, 2)):
            answer = self.predict("examples", {"x": np.float32([3])}, version=version)
            equal(answer.outputs["y"].float_val, [3 * factor])
            assert answer.model_spec.version.value == factor
            assert answer.model_spec.signature_name == "serving_default"

    def check_codes_and_words(self) -> None:
        x = {"x": np.float32([1])}
        call = partial(self.predict, "none", x)
        refused(call, "NOT_FOUND", "Servable not found for request: Latest(none)")
        call = partial(self.predict, "examples", x, version=9)
        refused(call, "NOT_FOUND", "Servable not found for request: Specific(examples, 9)")
        call = partial(self.predict, "examples", x, label="canary")
        refused(call, "INVALID_ARGUMENT", "Unrecognized servable version label: canary")
        call = partial(self.predict, "examples", x, "nope")
        refused(call, "FAILED_PRECONDITION", 'Serving signature key "nope" not found.')
        call = partial(self.predict, "examples", {"z": np.float32([1])})
        refused(call, "INVALID_ARGUMENT", "input size does not match signature")
        call = partial(self.predict, "examples", {"x": np.int32([1])})
        refused(call, "INVALID_ARGUMENT", "to be float but int32 is provided")
        call = partial(self.predict, "examples", x, outputs=["z"])
        refused(call, "INVALID_ARGUMENT", "output tensor alias not found in signature: z")

    def given(self, *values: float) -> Any:
        examples = []
        for value in values:
            feature = tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
            examples.append(tf.train.Example(features=tf.train.Features(feature={"x": feature})))
        return input_pb2.Input(example_list=input_pb2.ExampleList(examples=examples))

    def check_classify(self) -> None:
        request = classification_pb2.ClassificationRequest(input=self.given(1, 2))
        self.name(request.model_spec, "examples", "classify", 1)
        rows = self.predictions.Classify(request, _SECONDS).result.classifications
        assert [[c.label for c in row.classes] for row in rows] == [["1.0", "-1.0"], ["2.0", "-2.0"]]
        equal([[c.score for c in row.classes] for row in rows], [[1, -1], [2, -2]])

    def check_regress(self) -> None:
        request = regression_pb2.RegressionRequest(input=self.given(1, 2))
        self.name(request.model_spec, "examples", "regress")
        answer = self.predictions.Regress(request, _SECONDS)
        equal([one.value for one in answer.result.regressions], [2, 4])

    def check_multi_inference(self) -> None:
        request = inference_pb2.MultiInferenceRequest(input=self.given(3))
        for kind in ("classify", "regress"):
            task = request.tasks.add(method_name=f"tensorflow/serving/{kind}")
            self.name(task.model_spec, "examples", kind)
        first, second = self.predictions.MultiInference(request, _SECONDS).results
        equal([c.score for c in first.classification_result.classifications[0].classes], [6, -6])
        equal([one.value for one in second.regression_result.regressions], [6])

    def check_metadata(self) -> None:
        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
        self.name(request.model_spec, "examples")
        answer = self.predictions.GetModelMetadata(request, _SECONDS)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        assert answer.metadata["signature_def"].Unpack(signatures)
        assert set(signatures.signature_def) == {"serving_default", "classify", "regress"}

    def check_status(self) -> None:
        request = get_model_status_pb2.GetModelStatusRequest()
        self.name(request.model_spec, "examples")
        answer = self.models.GetModelStatus(request, _SECONDS)
        available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
        found = [(one.version, one.state, one.status.error_code) for one in answer.model_version_status]
        assert found == [(2, available, 0), (1, available, 0)], found

    def check_reload_config(self) -> None:
        request = model_management_pb2.ReloadConfigRequest()
        for name in ("types", "examples"):
            config = request.config.model_config_list.config.add(name=name)
            config.model_version_policy.all.SetInParent()
        request.config.model_config_list.config[1].version_labels["old"] = 1
        self.models.HandleReloadConfigRequest(request, _SECONDS)
        equal(self.predict("examples", {"x": np.float32([3])}, label="old").outputs["y"].float_val, [3])

    def check_session_run(self) -> None:
        request = session_service_pb2.SessionRunRequest(fetch=["y:0"])
        self.name(request.model_spec, "examples")
        request.feed.add(name="x:0", tensor=tf.make_tensor_proto(np.float32([3, 4])))
        answer = self.session_run(request, timeout=_SECONDS)
        equal(tf.make_ndarray(answer.tensor[0].tensor), [6, 8])


# Triton's clients


class Triton:
    """Checks with tritonclient.grpc, without and with asyncio."""

    def __init__(self, module: Any, address: str, call: Callable[[Callable[[Any], Any]], Any]) -> None:
        self.module = module
        self.address = address
        self.call = call

    def checks(self, group: str) -> Iterator[Check]:
        for dtype, datatype in DTYPES.items():
            if datatype is not None:
                yield Check(f"{group}, infer", dtype, partial(self.one_type, dtype, datatype))
        for name in [name for name in dir(self) if name.startswith("check_")]:
            yield Check(f"{group}, other calls", name.removeprefix("check_"), getattr(self, name))

    def tensor(self, name: str, value: Any, datatype: str) -> Any:
        given = self.module.InferInput(name, list(value.shape), datatype)
        given.set_data_from_numpy(value)
        return given

    def one_type(self, dtype: str, datatype: str) -> None:
        value = values_of(dtype)
        inputs = [self.tensor("x", value, datatype)]
        result = self.call(
            lambda client: client.infer("types", inputs, parameters={"signature_name": dtype}, request_id="7")
        )
        equal(result.as_numpy("y"), value)

    def pair(self) -> list[Any]:
        return [self.tensor(name, np.float32([3, 1, 2]), "FP32") for name in ("a", "b")]

    def check_signature_and_classes(self) -> None:
        outputs = [self.module.InferRequestedOutput("sum", class_count=2)]
        result = self.call(lambda client: client.infer("types", self.pair(), outputs=outputs))
        equal(result.as_numpy("sum"), [b"6.000000:0", b"4.000000:2"])

    def check_health_and_metadata(self) -> None:
        assert self.call(lambda client: client.is_server_live())
        assert self.call(lambda client: client.is_server_ready())
        assert self.call(lambda client: client.is_model_ready("types"))
        assert self.call(lambda client: client.is_model_ready("examples", "1"))
        self.call(lambda client: client.get_server_metadata())
        self.call(lambda client: client.get_model_metadata("types"))
        self.call(lambda client: client.get_model_config("types"))
        self.call(lambda client: client.get_inference_statistics("types"))

    def check_codes_and_words(self) -> None:
        calls = [
            (lambda client: client.infer("none", self.pair()), "Request for unknown model: 'none' is not found"),
            (lambda client: client.get_model_config("none"), "Request for unknown model: 'none' is not found"),
            (lambda client: client.infer("types", self.pair()[:1]), "b"),
        ]
        for call, words in calls:
            refused(partial(self.call, call), "", words)

    def check_repository(self) -> None:
        self.call(lambda client: client.get_model_repository_index())
        self.call(lambda client: client.unload_model("examples"))
        assert not self.call(lambda client: client.is_model_ready("examples"))
        self.call(lambda client: client.load_model("examples"))
        assert self.call(lambda client: client.is_model_ready("examples"))

    def check_settings(self) -> None:
        self.call(lambda client: client.get_trace_settings())
        self.call(lambda client: client.update_trace_settings(settings={"trace_level": ["OFF"]}))
        self.call(lambda client: client.get_log_settings())
        refused(
            partial(self.call, lambda client: client.update_trace_settings(settings={"trace_rate": "1"})),
            "",
            "trace setting 'trace_rate' cannot be changed",
        )

    def check_shared_memory(self) -> None:
        for kind in ("system", "cuda"):
            self.call(lambda client, kind=kind: getattr(client, f"get_{kind}_shared_memory_status")())
            self.call(lambda client, kind=kind: getattr(client, f"unregister_{kind}_shared_memory")())
        refused(
            partial(self.call, lambda client: client.register_system_shared_memory("r", "/r", 8)),
            "",
            "system shared memory region 'r'",
        )


class TritonGrpc(Triton):
    """With streams and callbacks."""

    def check_stream(self) -> None:
        done: list[tuple[Any, Any]] = []

        def ask(client: Any) -> None:
            client.start_stream(lambda result, error: done.append((result, error)))
            for number in range(20):
                client.async_stream_infer("types" if number != 7 else "none", self.pair(), request_id=str(number))
            client.stop_stream()

        self.call(ask)
        assert len(done) == 20, len(done)
        for number, (result, error) in enumerate(done):
            if number == 7:
                assert "Request for unknown model: 'none' is not found" in str(error)
            else:
                assert result.get_response().id == str(number)
                equal(result.as_numpy("sum"), [6, 2, 4])

    def check_async_infer(self) -> None:
        done: queue.Queue[Any] = queue.Queue()

        def ask(client: Any) -> Any:
            client.async_infer("types", self.pair(), lambda result, error: done.put(error or result))
            return done.get(timeout=_SECONDS)

        equal(self.call(ask).as_numpy("sum"), [6, 2, 4])


class TritonAio(Triton):
    """With an asynchronous stream."""

    def check_stream(self) -> None:
        async def ask(client: Any) -> list[tuple[Any, Any]]:
            async def requests() -> Any:
                for number in range(20):
                    yield {"model_name": "types", "inputs": self.pair(), "request_id": str(number)}

            return [answer async for answer in client.stream_infer(requests())]

        answers = self.call(ask)
        assert [result.get_response().id for result, error in answers if error is None] == [str(i) for i in range(20)]


def with_client(module: Any, address: str) -> Callable[[Callable[[Any], Any]], Any]:
    def call(ask: Callable[[Any], Any]) -> Any:
        with module.InferenceServerClient(address) as client:
            return ask(client)

    return call


def with_async_client(address: str) -> Callable[[Callable[[Any], Awaitable[Any]]], Any]:
    def call(ask: Callable[[Any], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            async with triton_aio.InferenceServerClient(address) as client:
                return await ask(client)

        return asyncio.run(run())

    return call


# The table


def all_checks(address: str, part: str | None) -> Iterator[Check]:
    if part in (None, "serving"):
        yield from Serving(address).checks()
    if part in (None, "triton"):
        yield from TritonGrpc(triton, address, with_client(triton, address)).checks("tritonclient.grpc")
    if part in (None, "triton-aio"):
        aio = TritonAio(triton_aio, address, with_async_client(address))
        yield from aio.checks("tritonclient.grpc.aio")


def run_checks(address: str, part: str | None) -> bool:
    """Run the checks and print their table; says whether all have passed."""
    passed: dict[str, int] = {}
    total: dict[str, int] = {}
    for check in all_checks(address, part):
        total[check.group] = total.get(check.group, 0) + 1
        try:
            check.run()
        except Exception:
            print(f"{check.group}: {check.name} fails:\n{traceback.format_exc()}", file=sys.stderr)
        else:
            passed[check.group] = passed.get(check.group, 0) + 1
    print("| client and calls | checks | pass |\n|---|---|---|")
    for group, count in total.items():
        print(f"| {group} | {count} | {passed.get(group, 0)} |")
    return passed == total


def main(program: str, python: str, part: str | None = None) -> int:
    fine = True
    if part != "times":
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_models(folder)
            for hosts in (0, 1):
                print(f"With `--hosts {hosts}`:\n", flush=True)
                with serving(program, folder, hosts) as address:
                    fine = run_checks(address, part) and fine
                print(flush=True)
    if part in (None, "times"):
        print(flush=True)
        subprocess.run([python, str(Path(__file__).with_name("grpc_model_times.py")), program], check=True)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
