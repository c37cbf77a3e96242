"""Large tensors are not copied on their way: answers are sent in parts, and bodies read to where they can stay."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from aexec_server.http.answer_parts import AnswerParts, in_one_piece
from aexec_server.requests import tensors
from aexec_server.settings.model_source import ModelSource

from aexec.framework import dtypes
from tests.server.conftest import Api
from tests.server.protocols.test_inference_protocol import identities
from tests.support.programs.graphs import GraphBuilder

VALUES = np.arange(300_000, dtype=np.float32)


def graph() -> GraphBuilder:
    g = GraphBuilder()
    g.placeholder("x", dtypes.float32, [None])
    g("y", "Neg", "x", T=dtypes.float32)
    return g


def test_parts_become_one_piece() -> None:
    parts = AnswerParts([b"ab", memoryview(b"cd")])
    assert len(parts) == 4 and parts.decode() == "abcd"
    assert in_one_piece(parts) == in_one_piece(b"abcd") == b"abcd" and in_one_piece(None) is None


@pytest.mark.parametrize("padding", range(4))  # where the tensor begins in the body
@pytest.mark.parametrize("headers", [{}, {"Idempotency_Key": '"k"'}], ids=str)
async def test_large_tensor(api: Api, headers: dict[str, str], padding: int) -> None:
    handle = await api.create(graph())
    feed = {"name": "x", "shape": [VALUES.size], "datatype": "FP32", "parameters": {"binary_data_size": VALUES.nbytes}}
    asked = {"feeds": [feed], "fetches": ["y"], "parameters": {"binary_data_output": True}}
    text = json.dumps(asked).encode() + b" " * padding
    for _ in range(2):  # with a key, the second is the stored one
        response, body = await api.raw(
            "POST",
            f"/v1/sessions/{handle}:run",
            text + VALUES.tobytes(),
            Inference_Header_Content_Length=str(len(text)),
            **headers,
        )
        assert response.status == 200 and int(response.headers["Content-Length"]) == len(body)
        length = int(response.headers["Inference-Header-Content-Length"])
        (output,) = json.loads(body[:length])["outputs"]
        assert output["parameters"] == {"binary_data_size": VALUES.nbytes}
        assert np.array_equal(np.frombuffer(body[length:], np.float32), -VALUES)


async def test_large_tensor_compressed(api: Api) -> None:
    await api.server.models.load("m", ModelSource(identities(a="float32")))
    feed = {"name": "x_a", "shape": [VALUES.size], "datatype": "FP32"}
    feed["parameters"] = {"binary_data_size": VALUES.nbytes}
    text = json.dumps({"inputs": [feed], "parameters": {"binary_data_output": True}}).encode()
    async with api.client.post(
        "/v2/models/m/infer",
        data=io.BytesIO(text + VALUES.tobytes()),
        headers={"Inference-Header-Content-Length": str(len(text)), "Accept-Encoding": "gzip"},
    ) as response:
        assert response.status == 200 and response.headers["Content-Encoding"] == "gzip"
        assert (await response.read()).endswith(VALUES.tobytes())


@pytest.mark.parametrize("padding", range(4))
async def test_large_tensor_is_not_moved(api: Api, monkeypatch: pytest.MonkeyPatch, padding: int) -> None:
    """Wherever it begins in the body, an array looks at it there."""
    handle = await api.create(graph())
    seen: list[np.ndarray] = []
    from_binary = tensors.from_binary

    def noted(*args: Any) -> Any:
        seen.append(from_binary(*args))
        return seen[-1]

    monkeypatch.setattr(tensors, "from_binary", noted)
    feed = {"name": "x", "shape": [VALUES.size], "datatype": "FP32", "parameters": {"binary_data_size": VALUES.nbytes}}
    text = json.dumps({"feeds": [feed], "fetches": ["y"]}).encode() + b" " * padding
    response, _ = await api.raw(
        "POST", f"/v1/sessions/{handle}:run", text + VALUES.tobytes(), Inference_Header_Content_Length=str(len(text))
    )
    assert response.status == 200
    assert np.array_equal(seen[0], VALUES) and not seen[0].flags.owndata and not seen[0].flags.writeable
    # What is no number, or more than there is, is refused as ever.
    for wrong in ("x", "-4", "99999999", "0"):
        response, body = await api.raw(
            "POST", f"/v1/sessions/{handle}:run", text + VALUES.tobytes(), Inference_Header_Content_Length=wrong
        )
        assert response.status == 400 and b"Inference-Header-Content-Length" in body
    response, body = await api.raw(
        "POST",
        f"/v1/sessions/{handle}:run",
        text + VALUES.tobytes(),
        Inference_Header_Content_Length=str(len(text)),
        Content_Type="application/x-protobuf",
    )
    assert response.status == 400 and b"RunStepRequest" in body
