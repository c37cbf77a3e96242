"""Examples in JSON.  Next to read: `example_ops.py`.

protobuf reads the JSON, but this module serialises the message: TensorFlow writes features in the order of the text and
numbers one by one, which protobuf's own serialiser does not.
"""

from __future__ import annotations

import json
import re
import struct
from typing import Any

from google.protobuf import json_format

from aexec import proto
from aexec.framework import errors
from aexec.framework.kernel_contract.kernel_registry import kernel
from aexec.framework.kernel_contract.op_kernel import Compute, OpKernelConstruction
from aexec.framework.wire.wire_format import put_varint
from aexec.kernels.common.strings import map_strings, string_cost

__all__: list[str] = []

_COST = string_cost(20_000, 100)
_INVALID = "invalid JSON in type.googleapis.com/tensorflow.Example"
_UNKNOWN_FIELD = re.compile(r'.*has no field named "(\w+)"', re.DOTALL)

# Negative numbers are written as unsigned 64-bit ones.
_UINT64 = 2**64 - 1
# Field numbers in a Feature.
_LISTS = {"bytes_list": 1, "float_list": 2, "int64_list": 3}


def _field(number: int, content: bytes) -> bytes:
    """A field of length-delimited content."""
    return put_varint(number << 3 | 2) + put_varint(len(content)) + content


def _feature(feature: Any) -> bytes:
    which = feature.WhichOneof("kind")
    if which is None:
        return b""
    values = getattr(feature, which).value
    if which == "bytes_list":
        content = b"".join(_field(1, value) for value in values)
    elif which == "float_list":
        content = b"".join(b"\x0d" + struct.pack("<f", value) for value in values)
    else:
        content = b"".join(b"\x08" + put_varint(value & _UINT64) for value in values)
    return _field(_LISTS[which], content)


def _serialized(text: bytes) -> bytes:
    """A serialised Example from one in JSON."""
    try:
        message = json_format.Parse(text, proto.Example())
        content = json.loads(text)
    except json_format.ParseError as e:
        unknown = _UNKNOWN_FIELD.match(str(e))
        # protobuf's other texts quote Python exceptions.
        problem = f"no such field: '{unknown[1]}'" if unknown else _INVALID
        raise errors.InvalidArgumentError(f"Error while parsing JSON: {problem}") from e
    except (ValueError, RecursionError) as e:
        raise errors.InvalidArgumentError(f"Error while parsing JSON: {_INVALID}") from e
    if not isinstance(content, dict):
        raise errors.InvalidArgumentError("Error while parsing JSON: an Example is an object")
    if not message.HasField("features"):
        return b""
    features = message.features.feature
    order = (content.get("features") or {}).get("feature") or {}
    entries = (_field(1, key.encode()) + _field(2, _feature(features[key])) for key in order)
    return _field(1, b"".join(_field(1, entry) for entry in entries))


@kernel("DecodeJSONExample", cost=_COST)
def decode_json_example(c: OpKernelConstruction) -> Compute:
    """Converts Examples in JSON, as protobuf defines it, to serialised ones."""
    return lambda texts: map_strings(_serialized, texts)
