"""The messages of aexec.proto are TensorFlow's: every name, number, type and label.

The truth is what TensorFlow's own descriptors say; see data/README.md.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from aexec import proto
from aexec.proto import inference, serving

DATA = Path(__file__).parent / "data"

# The worker service, except for a probe, and the files that only servers read; see protos/README.md.
LEFT_OUT = {
    "tensorflow/core/protobuf/device_filters.proto",
    "tensorflow/core/protobuf/tensorflow_server.proto",
    "tensorflow/core/protobuf/worker.proto",
}
PROBE = {"tensorflow.GetStatusRequest", "tensorflow.GetStatusResponse"}
# TensorFlow keeps it apart from its other messages, so the data does not have it.
NOT_IN_DATA = {"CheckpointState"}
# Views of TensorFlow's messages that leave parts undecoded.
VIEWS = {"FlatGraphDef", "FlatNodeDef"}
# Whatever these reach must be there.
ROOTS = """
    GraphDef OpList KernelList ConfigProto RunOptions RunMetadata MetaGraphDef SavedModel
    BundleHeaderProto BundleEntryProto SavedTensorSlices TrackableObjectGraph Event
    MemoryLogStep MemoryLogTensorAllocation MemoryLogTensorDeallocation MemoryLogTensorOutput
    MemoryLogRawAllocation MemoryLogRawDeallocation
    QueueRunnerDef SaverDef SnapshotMetadataRecord VariableDef CondContextDef WhileContextDef ReaderBaseState
    NamedDevice DeviceAttributes CostGraphDef StepStats FunctionDefLibrary Example SequenceExample
    CreateSessionRequest CreateSessionResponse ExtendSessionRequest ExtendSessionResponse
    PartialRunSetupRequest PartialRunSetupResponse RunStepRequest RunStepResponse
    CloseSessionRequest CloseSessionResponse ListDevicesRequest ListDevicesResponse
    ResetRequest ResetResponse MakeCallableRequest MakeCallableResponse
    RunCallableRequest RunCallableResponse ReleaseCallableRequest ReleaseCallableResponse
""".split()

FieldProto = descriptor_pb2.FieldDescriptorProto
TYPES = {number: name.removeprefix("TYPE_").lower() for name, number in FieldProto.Type.items()}
PACKABLE = set(TYPES.values()) - {"string", "bytes", "message", "group"}
PACKAGE = re.compile("^(tensorflow|inference)(?=[.])")
REFERENCES = ("message", "enum", "value_message", "value_enum")


def read_json(name: str) -> Any:
    return json.loads(gzip.decompress((DATA / name).read_bytes()))


def expected(kind: str) -> dict[str, Any]:
    """The data's messages or enums but those of LEFT_OUT that are not in PROBE, by name without package."""
    found: dict[str, Any] = {}
    for name in ("messages.json.gz", "messages_more.json.gz", "messages_profiler.json.gz", "messages_serving.json.gz"):
        found |= read_json(name)[kind]
    kept = {name: facts for name, facts in found.items() if name in PROBE or facts["file"] not in LEFT_OUT}
    return {name.removeprefix("tensorflow."): facts for name, facts in kept.items()}


EXPECTED_MESSAGES = expected("messages")
EXPECTED_ENUMS = expected("enums")


def actual() -> tuple[dict[str, Any], dict[str, Any]]:
    """What our descriptors say, in the words of the data: messages and enums."""
    messages: dict[str, Any] = {}
    enums: dict[str, Any] = {}
    files = {getattr(space, name).DESCRIPTOR.file for space in (proto, serving, inference) for name in space.__all__}
    for file in files:
        content = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(content)
        assert content.syntax == "proto3", file.name
        prefix = content.package.replace("aexec", "", 1).removeprefix(".")
        prefix += "." if prefix else ""
        for enum in content.enum_type:
            enums[prefix + enum.name] = enum_facts(enum, file.name)
        for message in content.message_type:
            add_message(prefix + message.name, message, file.name, messages, enums)
    return messages, enums


def add_message(name: str, message: Any, file: str, messages: Any, enums: Any) -> None:
    entries = {f"{name}.{m.name}": m for m in message.nested_type if m.options.map_entry}
    for enum in message.enum_type:
        enums[f"{name}.{enum.name}"] = enum_facts(enum, file)
    for nested in message.nested_type:
        if not nested.options.map_entry:
            add_message(f"{name}.{nested.name}", nested, file, messages, enums)
    fields = [field_facts(field, entries) for field in message.field]
    for facts, field in zip(fields, message.field, strict=True):
        if field.HasField("oneof_index"):
            facts["oneof"] = message.oneof_decl[field.oneof_index].name
    messages[name] = {"file": file, "fields": {facts["name"]: facts for facts in fields}}
    numbers = [[span.start, span.end - 1] for span in message.reserved_range]
    if numbers or message.reserved_name:
        messages[name]["reserved"] = {"numbers": numbers, "names": [*message.reserved_name]}


def field_facts(field: Any, entries: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": field.name, "number": field.number}
    if field.options.deprecated:
        facts["deprecated"] = True
    if entry := entries.get(field.type_name.removeprefix(".aexec.")):
        key, value = entry.field
        facts |= {"label": "map", "key": TYPES[key.type], "value": TYPES[value.type]}
        if value.type_name:
            facts["value_" + TYPES[value.type]] = value.type_name[1:]
        return facts
    repeated = field.label == FieldProto.LABEL_REPEATED
    facts |= {"label": "repeated" if repeated else "optional", "type": TYPES[field.type]}
    if field.type_name:
        facts[TYPES[field.type]] = field.type_name[1:]
    if repeated and TYPES[field.type] in PACKABLE:
        facts["packed"] = field.options.packed or not field.options.HasField("packed")
    return facts


def enum_facts(enum: Any, file: str) -> dict[str, Any]:
    return {"file": file, "values": {value.name: value.number for value in enum.value}}


def our_file(name: str) -> str:
    folder, _, file = name.rpartition("/")
    if not folder:
        return f"aexec/proto/inference/{file}"
    if folder.startswith("tensorflow_serving/"):
        return f"aexec/proto/serving/{file}"
    for prefix in ("tensorflow/core/", "xla/tsl/"):
        name = name.replace(prefix, "aexec/proto/")
    return name


def our_package(match: re.Match[str]) -> str:
    return "aexec" if match[1] == "tensorflow" else f"aexec.{match[1]}"


def our_field(field: dict[str, Any]) -> dict[str, Any]:
    renamed = {key: PACKAGE.sub(our_package, value) if key in REFERENCES else value for key, value in field.items()}
    if renamed["label"] == "repeated" and renamed["type"] in PACKABLE:
        renamed.setdefault("packed", False)
    return renamed


@pytest.fixture(scope="module")
def ours() -> tuple[dict[str, Any], dict[str, Any]]:
    return actual()


def test_messages_are_those_of_tensorflow(ours: Any) -> None:
    messages, _ = ours
    assert messages.keys() == EXPECTED_MESSAGES.keys() | NOT_IN_DATA | VIEWS


def test_enums_are_those_of_tensorflow(ours: Any) -> None:
    _, enums = ours
    assert enums.keys() == EXPECTED_ENUMS.keys()


@pytest.mark.parametrize("name", EXPECTED_MESSAGES)
def test_message(name: str, ours: Any) -> None:
    messages, _ = ours
    theirs = EXPECTED_MESSAGES[name]
    fields = {field["name"]: our_field(field) for field in theirs["fields"]}
    assert messages[name]["fields"] == fields
    assert messages[name].get("reserved") == theirs.get("reserved")
    assert messages[name]["file"] == our_file(theirs["file"])


@pytest.mark.parametrize("name", EXPECTED_ENUMS)
def test_enum(name: str, ours: Any) -> None:
    _, enums = ours
    theirs = EXPECTED_ENUMS[name]
    assert enums[name] == {"file": our_file(theirs["file"]), "values": theirs["values"]}


def test_messages_reached_from_the_roots_exist(ours: Any) -> None:
    messages, enums = ours
    everything = read_json("messages.json.gz")["messages"]
    everything |= read_json("messages_more.json.gz")["messages"]
    reached: set[str] = set()
    waiting = [f"tensorflow.{root}" for root in ROOTS]
    while waiting:
        name = waiting.pop()
        if name in reached or not name.startswith("tensorflow."):
            continue
        reached.add(name)
        fields = everything.get(name, {"fields": []})["fields"]
        waiting += [field[key] for field in fields for key in REFERENCES if key in field]
    missing = {name.removeprefix("tensorflow.") for name in reached} - messages.keys() - enums.keys()
    assert not missing
