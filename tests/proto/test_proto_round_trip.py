"""Bytes that TensorFlow wrote come back from aexec.proto unchanged. See data/README.md."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest
from google.protobuf import text_format
from google.protobuf.message import Message

from aexec import proto

DATA = Path(__file__).parent / "data"


def check_round_trip(kind: type[Message], data: bytes) -> None:
    message = kind.FromString(data)
    again = message.SerializeToString()
    # Maps may come in another order, so the bytes need not be the same; their number must be.
    assert len(again) == len(data)
    assert kind.FromString(again) == message
    message.DiscardUnknownFields()
    assert message.ByteSize() == len(data), "fields that we do not know"


@pytest.mark.parametrize("path", sorted(DATA.glob("graphs/*.pb")), ids=lambda path: path.stem)
def test_graphs_survive_a_round_trip(path: Path) -> None:
    check_round_trip(proto.GraphDef, path.read_bytes())


@pytest.mark.parametrize("path", sorted(DATA.glob("saved_models/*.pb")), ids=lambda path: path.stem)
def test_saved_models_survive_a_round_trip(path: Path) -> None:
    check_round_trip(proto.SavedModel, path.read_bytes())


def test_session_requests_and_responses_survive_a_round_trip() -> None:
    calls = json.loads(gzip.decompress((DATA / "traces.json.gz").read_bytes()))
    assert calls
    for call in calls:
        for side in ("request", "response"):
            if side in call:
                kind = getattr(proto, call[f"{side}_type"].removeprefix("tensorflow."))
                check_round_trip(kind, base64.b64decode(call[side]))


def test_text_file_of_checkpoints_is_read() -> None:
    text = 'model_checkpoint_path: "m-2"\nall_model_checkpoint_paths: ["m-1", "m-2"]\n'
    text += "all_model_checkpoint_timestamps: [1.5, 2.5]\nlast_preserved_timestamp: 0.5\n"
    state = text_format.Parse(text, proto.CheckpointState())
    assert state.model_checkpoint_path == "m-2"
    assert [*state.all_model_checkpoint_paths] == ["m-1", "m-2"]
