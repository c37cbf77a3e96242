"""How fast models answer over gRPC, beside an echo of the same messages by grpc.aio: `grpc_model_times.py AEXEC`.

Both servers are processes of their own; short rounds take turns, and the best of each counts.
`grpc-check-clients times` runs this.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np
from grpc_servers import running_server

import aexec
from aexec.hosting import tensor_to_proto
from aexec.proto import inference, serving

ROUNDS = 15
CHANNELS = 4
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# What grpc.aio's server does for a message of the same kind and size.
ECHO = """
import asyncio
import grpc
from aexec.proto import inference, serving

async def predict(request, context):
    return serving.PredictResponse(outputs=request.inputs, model_spec=request.model_spec)

async def infer(request, context):
    return inference.ModelInferResponse(
        model_name=request.model_name, raw_output_contents=request.raw_input_contents)

def handler(service, name, answer, request, response):
    method = grpc.unary_unary_rpc_method_handler(answer, request.FromString, response.SerializeToString)
    return grpc.method_handlers_generic_handler(service, {name: method})

async def main():
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers([
        handler("tensorflow.serving.PredictionService", "Predict", predict,
                serving.PredictRequest, serving.PredictResponse),
        handler("inference.GRPCInferenceService", "ModelInfer", infer,
                inference.ModelInferRequest, inference.ModelInferResponse),
    ])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"grpc://127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()

asyncio.run(main())
"""


class Method(NamedTuple):
    """What is called, and with what."""

    path: str
    request: Any
    response: Callable[[bytes], Any]


class Load(NamedTuple):
    """What a round has measured: requests in a second, and milliseconds of the median and of the slowest hundredth."""

    rate: float
    median: float
    slow: float


def predict(size: int) -> Method:
    tensor = tensor_to_proto(np.arange(size, dtype=np.float32), compact=False)
    request = serving.PredictRequest(model_spec=serving.ModelSpec(name="negate"), inputs={"x": tensor})
    return Method("/tensorflow.serving.PredictionService/Predict", request, serving.PredictResponse.FromString)


def infer(size: int) -> Method:
    x = inference.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[size])
    raw = np.arange(size, dtype=np.float32).tobytes()
    request = inference.ModelInferRequest(model_name="negate", inputs=[x], raw_input_contents=[raw])
    return Method("/inference.GRPCInferenceService/ModelInfer", request, inference.ModelInferResponse.FromString)


async def load(address: str, method: Method, count: int, clients: int) -> Load:
    """Call so often, with so many calls in flight."""
    options = [*UNLIMITED, ("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(min(clients, CHANNELS))]
    serialize = type(method.request).SerializeToString
    calls = [channel.unary_unary(method.path, serialize, method.response) for channel in channels]
    seconds: list[float] = []

    async def client(number: int) -> None:
        call = calls[number % len(calls)]
        for _ in range(count // clients):
            began = time.perf_counter()
            await call(method.request)
            seconds.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*map(client, range(clients)))
    taken = time.perf_counter() - began
    for channel in channels:
        await channel.close()
    seconds.sort()
    return Load(len(seconds) / taken, 1e3 * seconds[len(seconds) // 2], 1e3 * seconds[len(seconds) * 99 // 100])


def best(rounds: list[Load]) -> Load:
    return Load(max(one.rate for one in rounds), *(min(one[i] for one in rounds) for i in (1, 2)))


async def measure(addresses: dict[str, str]) -> None:
    """Print the table."""
    print("| call | clients | requests/s | of the echo's | median ms | echo's | slowest 1 % ms |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, method, count, clients in (
        ("Predict, one op", predict(4), 500, 1),
        ("Predict, one op", predict(4), 960, 32),
        ("ModelInfer, one op", infer(4), 960, 32),
        ("Predict, 8 MB", predict(2_000_000), 10, 1),
        ("ModelInfer, 8 MB", infer(2_000_000), 10, 1),
    ):
        rounds: dict[str, list[Load]] = {server: [] for server in addresses}
        for number in range(ROUNDS + 1):
            for server, address in addresses.items():
                one = await load(address, method, count, clients)
                if number:  # the first one warms up
                    rounds[server].append(one)
        ours, echo = best(rounds["aexec"]), best(rounds["echo"])
        print(
            f"| {name} | {clients} | {ours.rate:.0f} | {ours.rate / echo.rate:.0%} | {ours.median:.2f} "
            f"| {echo.median:.2f} | {ours.slow:.2f} |",
            flush=True,
        )


def main(program: str) -> None:
    with tempfile.TemporaryDirectory() as name, aexec.Graph() as graph:
        aexec.ops.neg(aexec.placeholder("float32", [None], name="x"), name="y")
        path = Path(name) / "negate.pb"
        path.write_bytes(graph.to_graph_def().SerializeToString())
        command = [program, "serve", "--port", "0", "--grpc-port", "0", "--graph", f"negate={path}"]
        echo = [sys.executable, "-c", ECHO]
        pattern = r"grpc://(\S+:\d+)"
        with running_server(command, pattern) as ours, running_server(echo, pattern) as theirs:
            asyncio.run(measure({"aexec": ours, "echo": theirs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
